"""Parts for the tests of ``tilecast ci``: a server that plays GitHub's REST API, a git repository, and the command itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOT = "github-actions[bot]"
REPOSITORY = "acme/kernels"


@dataclass
class Fault:
    """Answers some requests wrongly: ``times`` of them, after carrying them out if ``after`` is set."""

    method: str
    path: str
    status: int
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    after: bool = False


class GitHub:
    """One pull request with its comments, over real HTTP. ``login`` is whom the token belongs to; None is an installation."""

    def __init__(self, head: str, login: str | None = None, head_repository: str = REPOSITORY) -> None:
        self.head, self.login, self.head_repository = head, login, head_repository
        self.comments: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.may_write = True
        self.url = ""
        self._number = 1000

    def add(self, body: str, login: str) -> dict[str, Any]:
        """A comment by somebody."""
        self._number += 1
        made = {
            "id": self._number,
            "url": f"{self.url}/repos/{REPOSITORY}/issues/comments/{self._number}",
            "html_url": f"https://example.invalid/c/{self._number}",
            "body": body,
            "user": {"login": login, "id": abs(hash(login)) % 1000, "type": "Bot" if "[bot]" in login else "User"},
            "edits": 0,
        }
        self.comments.append(made)
        return made

    def count(self, method: str, path: str = "") -> int:
        """Requests that were made."""
        return sum(m == method and path in p for m, p in self.requests)

    def answer(self, method: str, url: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        """Status, document and headers."""
        split = urlsplit(url)
        self.requests.append((method, split.path))
        for fault in self.faults:
            if fault.times and fault.method == method and re.search(fault.path, split.path):
                fault.times -= 1
                if fault.after:
                    self._carry_out(method, split.path, split.query, body)
                return fault.status, {"message": fault.message}, fault.headers
        return self._carry_out(method, split.path, split.query, body)

    def _carry_out(self, method: str, path: str, query: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        refused = {"message": "Resource not accessible by integration"}
        if path == "/user":
            return (200, {"login": self.login, "id": 7}, {}) if self.login else (403, refused, {})
        if method == "GET" and path == f"/repos/{REPOSITORY}/pulls/7":
            head = {"sha": self.head, "ref": "x", "repo": {"full_name": self.head_repository, "id": 5}}
            return 200, {"number": 7, "url": f"{self.url}{path}", "head": head}, {}
        if path == f"/repos/{REPOSITORY}/issues/7/comments":
            return self._page(query, path) if method == "GET" else self._created(body)
        found = re.fullmatch(rf"/repos/{REPOSITORY}/issues/comments/(\d+)", path)
        if method == "PATCH" and found:
            if not self.may_write:
                return 403, refused, {}
            comment = next(c for c in self.comments if c["id"] == int(found[1]))
            comment["body"], comment["edits"] = body["body"], comment["edits"] + 1
            return 200, comment, {}
        return 404, {"message": "Not Found"}, {}

    def _page(self, query: str, path: str) -> tuple[int, Any, dict[str, str]]:
        asked = parse_qs(query)
        size, page = int(asked.get("per_page", ["30"])[0]), int(asked.get("page", ["1"])[0])
        more = len(self.comments) > size * page
        link = {"Link": f'<{self.url}{path}?per_page={size}&page={page + 1}>; rel="next"'} if more else {}
        return 200, self.comments[size * (page - 1) : size * page], link

    def _created(self, body: Any) -> tuple[int, Any, dict[str, str]]:
        if not self.may_write:
            return 403, {"message": "Resource not accessible by integration"}, {}
        return 201, self.add(body["body"], self.login or BOT), {}


@contextmanager
def serving(github: GitHub) -> Iterator[GitHub]:
    """Serve it on a local port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            assert self.headers["Authorization"] == "token secret-token"
            status, document, headers = github.answer(self.command, self.path, body)
            raw = json.dumps(document).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    github.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield github
    finally:
        server.shutdown()
        server.server_close()


class Repository:
    """A git repository of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        """Run git there, whatever the user's own configuration says."""
        identity = {f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        environment = {**clean, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "-C", str(self.folder), "-c", "core.hooksPath=/dev/null", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, message: str, files: dict[str, str | None]) -> str:
        """A commit that writes files (None removes one); its full name."""
        for path, text in files.items():
            file = self.folder / path
            if text is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


def pull_event(base: str, head: str, **changes: Any) -> dict[str, Any]:
    """The event of a pull request; ``fork``, ``draft``, ``labels``, ``action``, ``label``, ``title`` and ``ref`` may be given."""
    source = "stranger/kernels" if changes.get("fork") else REPOSITORY
    event: dict[str, Any] = {
        "action": changes.get("action", "synchronize"),
        "repository": {"full_name": REPOSITORY},
        "pull_request": {
            "number": 7,
            "title": changes.get("title", "a change"),
            "draft": changes.get("draft", False),
            "labels": [{"name": name} for name in changes.get("labels", [])],
            "base": {"sha": base, "ref": "main"},
            "head": {"sha": head, "ref": changes.get("ref", "topic"), "repo": {"full_name": source}},
        },
    }
    if "label" in changes:
        event["label"] = {"name": changes["label"]}
    return event
