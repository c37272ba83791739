"""The prompt: history, several lines, completion of commands and file names; plain input where the terminal can do no more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from tilecast.agent.chat.commands import COMMANDS

if TYPE_CHECKING:
    from tilecast.agent.chat.chat import Chat

HISTORY = "chat_history"
SIGN, MORE = "tilecast> ", "........> "


class ChatCompleter(Completer):
    """Commands after a slash at the start of the line, file names after a command that takes them, or after ``@``."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What the word before the cursor may become."""
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text:
            for command in COMMANDS.values():
                if command.name.startswith(text[1:]):
                    yield Completion("/" + command.name, -len(text), display_meta=command.help)
            return
        word = text.split()[-1] if text and not text[-1].isspace() else ""
        name = text[1:].split()[0] if text.startswith("/") and len(text) > 1 and text[1:].split() else ""
        takes_files = name in COMMANDS and COMMANDS[name].files
        if name == "help":
            yield from (Completion(other, -len(word)) for other in COMMANDS if other.startswith(word))
        elif takes_files or word.startswith("@"):
            yield from self._files(word)

    def _files(self, word: str) -> Iterable[Completion]:
        at = "@" if word.startswith("@") else ""
        typed = word.removeprefix("@")
        folder, _, start = typed.rpartition("/")
        place = self.chat.root / folder
        if not place.is_dir():
            return
        for entry in sorted(place.iterdir()):
            if entry.name.startswith(start) and not entry.name.startswith((".", "__")):
                full = f"{at}{folder + '/' if folder else ''}{entry.name}{'/' if entry.is_dir() else ''}"
                yield Completion(full, -len(word))


def keys() -> KeyBindings:
    """Alt+Enter begins a new line; Enter after a backslash, too."""
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor(1)
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    return bindings


class Prompt:
    """Reads lines of a user at a terminal.

    Args:
        chat: whose files are completed.
        home: where the history is kept.
    """

    def __init__(self, chat: Chat, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(home / HISTORY)),
            completer=ChatCompleter(chat),
            complete_while_typing=False,
            key_bindings=keys(),
            multiline=False,
            prompt_continuation=MORE,
        )

    def read(self) -> str:
        """The next message.

        Raises:
            EOFError: at the end of input.
            KeyboardInterrupt: after Ctrl-C.
        """
        return self._session.prompt(SIGN).strip()


def ask_once(question: str) -> str:
    """One answer, not kept in the history; Ctrl-C and the end of input are no answer."""
    session: PromptSession[str] = PromptSession()
    try:
        return session.prompt(question)
    except (EOFError, KeyboardInterrupt):
        return ""
