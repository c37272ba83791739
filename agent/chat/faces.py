"""The two faces of a session: a terminal with Markdown and live progress, and plain text for pipes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from tilecast.agent.chat.paragraphs import Paragraphs
from tilecast.agent.progress import Ended, Progress
from tilecast.agent.toolbox.base import ToolResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from tilecast.agent.cli.view import LiveView, PlainView

TAIL_LINES = 6
SHOWN_CHARACTERS = 60
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and newline, and those that turn the direction of writing."""


def clean(text: str) -> str:
    """Without control characters: what models and candidates write must not reach the terminal's controls."""
    return CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def call_line(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call on one line: texts are told by their length."""
    told = []
    for name, value in arguments.items():
        short = f"{len(value)} characters" if isinstance(value, str) and len(value) > SHOWN_CHARACTERS else value
        if value not in (None, {}):
            told.append(f"{name}={short}")
    return f"{tool} {' '.join(told)}".strip()


class PlainFace:
    """Answers on stdout, everything else on stderr, no colour, no questions."""

    def __init__(self, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        self._out, self._err = out or sys.stdout, err or sys.stderr
        self._paragraphs = Paragraphs()
        self._view: PlainView | None = None
        self._steps: set[str] = set()

    def piece(self, text: str, mark: Callable[[str], str]) -> None:
        """Print what is finished."""
        for paragraph in self._paragraphs.add(text):
            print(clean(mark(paragraph)), end="\n\n", file=self._out, flush=True)

    def end_answer(self, mark: Callable[[str], str]) -> None:
        """Print the rest."""
        rest = self._paragraphs.rest()
        if rest:
            print(clean(mark(rest)), file=self._out, flush=True)

    def calling(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """One line."""
        self._steps.clear()
        self.say(f"> {call_line(tool, arguments)}")

    def result(self, result: ToolResult) -> None:
        """One line; the whole text of a command's answer is printed by whoever asked."""
        self.say(f"{'+' if result.ok else '-'} {result.summary}")

    def say(self, text: str) -> None:
        """A line on stderr."""
        print(clean(text), file=self._err, flush=True)

    def warn(self, text: str) -> None:
        """A line on stderr."""
        print(f"warning: {clean(text)}", file=self._err, flush=True)

    def step(self, text: str) -> None:
        """A line on stderr, each once a call."""
        if text not in self._steps:
            self._steps.add(text)
            self.say(f"  ... {text}")

    def text(self, text: str, language: str = "") -> None:
        """A command's answer, on stdout."""
        print(clean(text), file=self._out, flush=True)

    def progress(self, event: Progress) -> None:
        """A run's progress, on stderr."""
        from tilecast.agent.cli.view import PlainView

        self._view = self._view or PlainView(self._err)
        self._view(event)

    def ask(self, question: str, choices: str = "y/N") -> str:
        """Nobody is there: the answer is no."""
        self.say(f"{question} [{choices}]: nobody to ask; --yes allows it")
        return ""


class TerminalFace:
    """Markdown as it streams, one line a tool, live progress of runs."""

    def __init__(self, console: Console, ask: Callable[[str], str]) -> None:
        self.console, self._ask = console, ask
        self._paragraphs = Paragraphs()
        self._live: Live | None = None
        self._view: LiveView | PlainView | None = None
        self._steps: set[str] = set()

    def piece(self, text: str, mark: Callable[[str], str]) -> None:
        """Finished paragraphs for good, the one that grows below them."""
        finished = self._paragraphs.add(text)
        if finished:
            self._end_live()
        for paragraph in finished:
            self._markdown(mark(paragraph))
        self._show_tail()

    def end_answer(self, mark: Callable[[str], str]) -> None:
        """The last paragraph for good."""
        self._end_live()
        rest = self._paragraphs.rest()
        if rest:
            self._markdown(mark(rest))

    def calling(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """One line."""
        self._steps.clear()
        self._line(f"> {call_line(tool, arguments)}", "cyan")

    def result(self, result: ToolResult) -> None:
        """One line; /more shows the rest."""
        self._end_view()
        self._line(f"{'+' if result.ok else '-'} {result.summary}", "green" if result.ok else "red")

    def say(self, text: str) -> None:
        """A line."""
        self._line(text, "")

    def warn(self, text: str) -> None:
        """A line that is noticed."""
        self._line(f"! {text}", "yellow")

    def step(self, text: str) -> None:
        """What is going on, in one line that is drawn over; a line each where nothing can be drawn over."""
        if self._draws:
            from rich.text import Text

            self._draw(Text(f"  ... {clean(text)}", style="dim", no_wrap=True, overflow="ellipsis"))
        elif text not in self._steps:
            self._steps.add(text)
            self._line(f"  ... {text}", "dim")

    def text(self, text: str, language: str = "") -> None:
        """A command's answer: Markdown, or code in its language."""
        from rich.syntax import Syntax

        if language == "markdown":
            self._markdown(text)
        elif language:
            self.console.print(Syntax(clean(text), language, word_wrap=True, background_color="default"))
        else:
            self._line(text, "")

    def progress(self, event: Progress) -> None:
        """A run, live."""
        from tilecast.agent.cli.view import LiveView, PlainView

        if self._view is None:
            # One picture at a time.
            self._end_live()
            self._view = LiveView(self.console) if self._draws else PlainView(sys.stdout)
        self._view(event)
        if isinstance(event, Ended):
            self._end_view()

    def ask(self, question: str, choices: str = "y/N") -> str:
        """A question at the prompt; Ctrl-C is no."""
        self._end_live()
        self._end_view()
        self._line(f"? {question}", "bold")
        return self._ask(f"[{choices}] ")

    def _line(self, text: str, style: str) -> None:
        self._end_live()
        self.console.print(clean(text), style=style or None, markup=False, highlight=False, soft_wrap=False)

    def _markdown(self, text: str) -> None:
        from rich.markdown import Markdown

        self.console.print(Markdown(clean(text)))

    @property
    def _draws(self) -> bool:
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def _show_tail(self) -> None:
        from rich.text import Text

        tail = self._paragraphs.tail
        if tail.strip() and self._draws:
            self._draw(Text(clean("\n".join(tail.splitlines()[-TAIL_LINES:]))))

    def _draw(self, shown: Text) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(shown, console=self.console, refresh_per_second=12, transient=True)
            self._live.start()
        self._live.update(shown)

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _end_view(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()
