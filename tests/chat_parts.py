"""Parts of a session for tests without a terminal: a face that remembers, and a session on the small recorded problem."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from loop_parts import KNOWN

from tilecast.agent import devices
from tilecast.agent.chat.chat import Chat
from tilecast.agent.chat.faces import PlainFace
from tilecast.agent.chat.opening import Asked, open_chat


class Remembering(PlainFace):
    """A plain face whose output is read by the test, and that answers questions from a list."""

    def __init__(self, answers: list[str] | None = None) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        super().__init__(self.out, self.err)
        self.answers, self.asked = list(answers or []), list[str]()

    def ask(self, question: str, choices: str = "y/N") -> str:
        """The next answer; none where the list is at its end."""
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else ""

    @property
    def shown(self) -> str:
        """Everything."""
        return self.out.getvalue() + self.err.getvalue()


@contextmanager
def session(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    url: str | None = None,
    resume: str | None = None,
    answers: list[str] | None = None,
    **flags: Any,
) -> Iterator[tuple[Chat, Remembering]]:
    """A session on the problem in ``folder``, its preflight known."""
    known: Callable[..., Any] = lambda before: lambda problem, progress: KNOWN  # noqa: E731
    monkeypatch.setattr(devices, "_preflight_on_cpu", known)
    if url is not None:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        flags["model"] = "fake"
    face = Remembering(answers)
    chat = open_chat(Asked(None if resume else str(folder), resume, flags, root=folder), face)
    try:
        yield chat, face
    finally:
        chat.close()
