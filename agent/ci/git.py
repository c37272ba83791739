"""What git knows of two commits: files, changes, texts, messages. Plumbing only; nothing of a commit is ever checked out or run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tilecast.sandbox.errors import EnvironmentFailure, UsageError

MOST_BYTES = 1_000_000
"""A larger file is no kernel's source; it is not read."""
GIT_TIMEOUT_S = 120.0
_REGULAR = ("100644", "100755")
_FIXED = ("-c", "core.quotePath=false", "-c", "core.fsmonitor=false", "-c", "diff.renameLimit=20000")


@dataclass(frozen=True)
class FileChange:
    """One changed file: its path before (None if it is new) and after (None if it is gone)."""

    old: str | None
    new: str | None


class Git:
    """A repository on disk.

    Raises:
        UsageError: if ``folder`` is in no git repository.
        EnvironmentFailure: if git is missing, does not answer or fails.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = Path(self._text("rev-parse", "--show-toplevel", wrong="is this a git repository?").strip())

    def commit(self, ref: str) -> str:
        """The full name of a commit.

        Raises:
            UsageError: if there is no such commit here.
        """
        wrong = "no such commit here; a shallow checkout needs `fetch-depth: 0`"
        return self._text(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", wrong=wrong
        ).strip()

    def merge_base(self, base: str, head: str) -> str | None:
        """The commit that head branched off from; None if the two share no history here (or it is cut off)."""
        done = self._run("merge-base", base, head)
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def message(self, commit: str) -> str:
        """A commit's message."""
        return self._text("show", "--no-patch", "--format=%B", "--no-show-signature", commit)

    def parents(self, commit: str) -> list[str]:
        """A commit's parents."""
        return self._text("show", "--no-patch", "--format=%P", "--no-show-signature", commit).split()

    def changes(self, base: str, head: str) -> list[FileChange]:
        """Files that differ between two commits, with renames found."""
        listed = self._text("diff-tree", "-r", "-z", "-M", "--raw", "--no-ext-diff", "--no-textconv", base, head)
        fields = iter(listed.split("\0"))
        found = []
        for head_line in fields:
            if not head_line:
                continue
            status = head_line.rpartition(" ")[2]
            path = next(fields)
            second = next(fields) if status[0] in "RC" else path
            old = None if status[0] in "AC" else path
            new = None if status[0] == "D" else second
            found.append(FileChange(old, new))
        return found

    def tree(self, commit: str) -> Tree:
        """The files of a commit."""
        entries = {}
        for line in self._text("ls-tree", "-r", "-z", "--full-tree", commit).split("\0"):
            if line:
                about, path = line.split("\t", 1)
                mode, _, sha = about.split(" ")
                if mode in _REGULAR:
                    entries[path] = sha
        return Tree(commit, entries, self)

    def blobs(self) -> BlobReader:
        """A reader of texts, to be closed."""
        return BlobReader(self._command("cat-file", "--batch"), self._environment())

    def _text(self, *arguments: str, wrong: str = "") -> str:
        done = self._run(*arguments)
        if done.returncode != 0:
            said = " ".join(done.stderr.decode(errors="replace").split())[:300]
            asked = f"git {' '.join(arguments)}"
            if wrong:
                raise UsageError(f"{asked}: {said or 'failed'} ({wrong})")
            raise EnvironmentFailure(f"{asked}: exit status {done.returncode}: {said}")
        return done.stdout.decode("utf-8", "surrogateescape")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                self._command(*arguments),
                capture_output=True,
                env=self._environment(),
                timeout=GIT_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFailure(f"git {' '.join(arguments)}: {error}; is git installed?") from error

    def _command(self, *arguments: str) -> list[str]:
        return ["git", "-C", str(self._folder), *_FIXED, *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


class BlobReader:
    """Texts by their git name, through one process (``git cat-file --batch``)."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._known: dict[str, str | None] = {}

    def __enter__(self) -> BlobReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def read(self, sha: str) -> str | None:
        """The text of a blob; None if it is too large or not UTF-8."""
        if sha not in self._known:
            raw = self._raw(sha)
            try:
                self._known[sha] = None if raw is None else raw.decode("utf-8").replace("\r\n", "\n")
            except UnicodeDecodeError:
                self._known[sha] = None
        return self._known[sha]

    def _raw(self, sha: str) -> bytes | None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(sha.encode() + b"\n")
        self._process.stdin.flush()
        fields = self._process.stdout.readline().split()
        if len(fields) != 3:
            return None
        left, parts = int(fields[2]) + 1, []
        keep = left <= MOST_BYTES
        while left:
            part = self._process.stdout.read(min(left, 1 << 20))
            if not part:
                raise EnvironmentFailure("git cat-file ended in the middle of a file")
            left -= len(part)
            if keep:
                parts.append(part)
        return b"".join(parts)[:-1] if keep else None


class Tree:
    """The regular files of one commit; links and submodules are not followed."""

    def __init__(self, commit: str, entries: dict[str, str], git: Git) -> None:
        self.commit, self.entries, self._git = commit, entries, git
        self._blobs: BlobReader | None = None

    def __contains__(self, path: str) -> bool:
        return path in self.entries

    def using(self, blobs: BlobReader) -> Tree:
        """The same tree reading through ``blobs``."""
        made = Tree(self.commit, self.entries, self._git)
        made._blobs = blobs
        return made

    def read(self, path: str) -> str | None:
        """The text at a path; None where there is none (or it is no text)."""
        sha = self.entries.get(path)
        if sha is None:
            return None
        if self._blobs is not None:
            return self._blobs.read(sha)
        with self._git.blobs() as blobs:
            return blobs.read(sha)
