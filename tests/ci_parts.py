"""Parts for the tests of ``tilecast ci``: a server that plays GitHub's REST API, a git repository, and the command itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tilecast.sandbox.corpus import load_recorded

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


def kernel_files(folder: str, text: str = "class ModelNew: pass\n") -> dict[str, str]:
    """A kernel that is found by its place; nothing in it can be run."""
    reference = "class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
    return {f"{folder}/reference.py": reference, f"{folder}/kernel.py": text}


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


@dataclass
class Said:
    """What the command answered."""

    code: int
    out: str
    err: str
    report: dict[str, Any]

    @property
    def verdicts(self) -> dict[str, str]:
        """Kernel -> verdict."""
        return {kernel["name"]: kernel["verdict"] for kernel in self.report["kernels"]}


Ci = Callable[..., Said]


@pytest.fixture(name="ci")
def ci_fixture(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ci:
    """Run the command; ``event`` makes it a workflow's run, on ``github`` if one is given."""
    from tilecast.agent.cli.app import main

    for name in ("GITHUB_EVENT_PATH", "GITHUB_EVENT_NAME", "GITHUB_TOKEN", "GITHUB_ACTIONS", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    from tilecast.agent.ci import posting

    monkeypatch.setattr(posting, "LONGEST_WAIT_S", 2.0)
    summaries = tmp_path / "summary.md"

    def run(
        *arguments: str, event: dict[str, Any] | None = None, name: str = "pull_request", github: GitHub | None = None
    ) -> Said:
        if event is not None:
            (tmp_path / "event.json").write_text(json.dumps(event))
            monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
            monkeypatch.setenv("GITHUB_EVENT_NAME", name)
            monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summaries))
        if github is not None:
            monkeypatch.setenv("GITHUB_TOKEN", "secret-token")
            monkeypatch.setenv("GITHUB_API_URL", github.url)
        monkeypatch.setattr(sys, "argv", ["tilecast", "ci", *arguments])
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        document = json.loads(captured.out) if captured.out.startswith("{") else {}
        return Said(code, captured.out, captured.err, document)

    return run


class History:
    """A repository with recorded kernels: each method returns the commit that makes one kind of change."""

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.repository = Repository(folder / "repository")
        self.records = folder / "records"
        self.variants = {name: load_recorded(corpus / name) for name in ("softmax", "row_sum")}
        for name in self.variants:
            (self.records / name).mkdir(parents=True)
            for part in ("reference.py", "measurements.jsonl"):
                shutil.copy(corpus / name / part, self.records / name / part)
            shutil.copytree(corpus / name / "candidates", self.records / name / "candidates")
        shutil.copy(corpus / "corpus.toml", self.records / "corpus.toml")
        references = {name: (corpus / name / "reference.py").read_text() for name in self.variants}
        self.base = self.repository.commit(
            "kernels",
            {
                "README.md": "# Kernels\n",
                "tests/test_kernels.py": "def test(): pass\n",
                **{f"kernels/{name}/reference.py": text for name, text in references.items()},
                "kernels/softmax/kernel.py": self.text("softmax", "tr_01"),
                "kernels/row_sum/kernel.py": self.text("row_sum", "tr_02"),
            },
        )

    def text(self, problem: str, candidate: str, **config: Any) -> str:
        """The source of a recorded variant."""
        return self.variants[problem].sources[candidate].with_config(config).source

    def change(self, message: str, files: dict[str, str | None]) -> str:
        """A commit on top of the base."""
        self.repository.git("checkout", "-q", "--detach", self.base)
        return self.repository.commit(message, files)

    def arguments(self, head: str) -> list[str]:
        """The command's."""
        place = ["--folder", str(self.repository.folder), "--base", self.base, "--head", head]
        return [*place, "--device", f"replay:{self.records}", "--forecaster", "none", "--format", "json"]


@pytest.fixture(scope="module", name="history")
def history_fixture(tmp_path_factory: pytest.TempPathFactory, shared_dir: Path) -> History:
    return History(tmp_path_factory.mktemp("history"), shared_dir / "corpus")


SOFTMAX = "kernels/softmax/kernel.py"


def slower(history: History) -> str:
    return history.change("smaller", {SOFTMAX: history.text("softmax", "tr_05")})
