"""Where sessions are kept: one file each in ``TILECAST_HOME/chats``, a line an event, on the disk before it counts."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from tilecast.agent.chat.events import EVENTS, Event
from tilecast.agent.chat.fold import SessionState
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.tools.model.conversation import Conversation

FOLDER, SUFFIX = "chats", ".jsonl"


@dataclass(frozen=True)
class SessionSummary:
    """One session in a list."""

    id: str
    title: str
    problem: str
    turns: int
    unfinished: bool


class SessionLog:
    """The log of one session, held by one process at a time.

    Args:
        path: the session's file; made if it is not there.
        system: the system message of its conversation.

    Raises:
        UsageError: if another process works on it.
        EnvironmentFailure: if it cannot be written, or was written by another version.
    """

    def __init__(self, path: Path, system: str) -> None:
        self.path, self.id = path, path.name.removesuffix(SUFFIX)
        self.state = SessionState(Conversation(system))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise UsageError(f"session {self.id} is open in another process") from None
        except OSError as error:
            raise EnvironmentFailure(f"the session cannot be kept in {path}: {error}") from error
        whole = _whole_lines(path)
        # A line cut off in the middle by a kill was never acted upon.
        os.ftruncate(self._descriptor, len(whole))
        for event in _parse(whole, path):
            self.state.apply(event)

    def set_system(self, text: str) -> None:
        """The system message, which is made anew in every process and not kept."""
        self.state.talk = Conversation(text, self.state.talk.dump())

    def append(self, event: Event) -> None:
        """Write an event, wait for the disk, and take it into the state.

        Raises:
            EnvironmentFailure: if it cannot be written.
        """
        line = event.model_dump(mode="json") | {"at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        try:
            os.write(self._descriptor, json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            os.fsync(self._descriptor)
        except OSError as error:
            raise EnvironmentFailure(f"session {self.id} cannot be recorded: {error}") from error
        self.state.apply(event)

    def close(self) -> None:
        """Let another process take it."""
        os.close(self._descriptor)


def new_path(home: Path) -> Path:
    """The file of a new session."""
    return home / FOLDER / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}{SUFFIX}"


def find(home: Path, name: str) -> Path:
    """A session by its id, the start of it, or ``last``.

    Raises:
        UsageError: if there is none, or more than one.
    """
    files = sorted((home / FOLDER).glob(f"*{SUFFIX}"), reverse=True)
    if name == "last" and files:
        return files[0]
    found = [file for file in files if name and file.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    several = f"means several: {', '.join(f.name.removesuffix(SUFFIX) for f in found[:5])}" if found else "is not there"
    raise UsageError(f"session {name!r} {several}; `tilecast chat --resume` lists them")


def listing(home: Path, most: int = 15) -> list[SessionSummary]:
    """The newest sessions in which anything was said or done, newest first."""
    found: list[SessionSummary] = []
    for file in sorted((home / FOLDER).glob(f"*{SUFFIX}"), reverse=True):
        state = SessionState(Conversation(""))
        for event in _parse(_whole_lines(file), file):
            state.apply(event)
        if state.turns or state.said:
            unfinished = state.turn_open or state.open_step is not None
            file_name = Path(state.chosen.get("problem", ""))
            problem = file_name.parent.name if file_name.name == "reference.py" else file_name.stem
            name = file.name.removesuffix(SUFFIX)
            found.append(SessionSummary(name, state.title, problem, state.turns, unfinished))
        if len(found) == most:
            break
    return found


def _whole_lines(path: Path) -> bytes:
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _parse(content: bytes, path: Path) -> list[Event]:
    events = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            plain = json.loads(line)
            plain.pop("at", None)
            events.append(EVENTS.validate_python(plain))
        except (ValueError, ValidationError) as error:
            raise EnvironmentFailure(
                f"{path}:{number}: written by another version of tilecast, or damaged: {str(error).splitlines()[0]}"
            ) from error
    return events
