"""What a turn shows and asks; the terminal is one implementation, a pipe another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilecast.agent.progress import Progress
from tilecast.agent.toolbox.base import ToolResult


class Face(Protocol):
    """Shows a session to whoever is there."""

    def piece(self, text: str, mark: Callable[[str], str]) -> None:
        """A piece of a streamed answer; ``mark`` puts marks into whole paragraphs."""
        ...

    def end_answer(self, mark: Callable[[str], str]) -> None:
        """The answer is complete, or was cut off."""
        ...

    def calling(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """A tool is about to work."""
        ...

    def result(self, result: ToolResult) -> None:
        """A tool's answer: one line."""
        ...

    def say(self, text: str) -> None:
        """One line of information."""
        ...

    def warn(self, text: str) -> None:
        """One line that should be noticed."""
        ...

    def step(self, text: str) -> None:
        """What is going on now."""
        ...

    def progress(self, event: Progress) -> None:
        """Progress of a run."""
        ...

    def ask(self, question: str, choices: str = "y/N") -> str:
        """A question to the user; an empty answer where nobody is there."""
        ...
