"""The session's loop: a line is a command or a message, each is a step that can be stopped; a cut-off step is restated."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

from tilecast.agent.chat import events as ev
from tilecast.agent.chat.chat import Chat
from tilecast.agent.chat.commands import QUIT, RESUME, run_command
from tilecast.agent.chat.face import Face
from tilecast.agent.chat.faces import call_line
from tilecast.agent.chat.opening import Asked, open_chat
from tilecast.agent.chat.prompt import Prompt
from tilecast.agent.chat.signals import stoppable
from tilecast.tools.model.base import ChatAnswer
from tilecast.tools.model.conversation import tool_calls

LEAVE_HINT = "Ctrl-C once more, Ctrl-D or /quit leaves; the session is kept"


def step(chat: Chat, line: str) -> str | None:
    """One line of the user's, to its end; gives what the session does next (see :func:`run_command`)."""
    before = chat.ledger.spent
    with stoppable(chat.stop, _raw_line):
        if line.startswith("/"):
            outcome = run_command(chat, line)
        else:
            outcome = None
            if chat.model is None:
                chat.face.warn(f"there is nobody to answer: {chat.no_model}. /help lists the commands")
                return None
            from tilecast.agent.chat.graph import run_turn

            run_turn(chat, line)
    if not line.startswith("/") or chat.ledger.spent != before:
        chat.face.say(chat.money_line())
    return outcome


def take_up(chat: Chat) -> None:
    """Restate what was cut off, and do it again only if the user says so."""
    state = chat.log.state
    cut_off = state.open_step
    pending = tool_calls(ChatAnswer(text="", tool_calls=state.talk.pending), list(chat.box.tools))
    if cut_off is not None and cut_off.call_id is None:
        again = _agreed(chat, f"cut off when the last process ended: {call_line(cut_off.tool, cut_off.arguments)}")
        if again:
            with stoppable(chat.stop, _raw_line):
                chat.begin_step()
                chat.call(cut_off.tool, cut_off.arguments)
            chat.face.say(chat.money_line())
        elif not state.turn_open:
            chat.log.append(ev.TurnEnded(why="not done again"))
        return
    if not state.turn_open:
        return
    asked = next((text for who, text in reversed(state.said) if who == "you"), "")
    what = f"the step {call_line(pending[0].name, pending[0].arguments)}" if pending else "the answer"
    if chat.model is not None and _agreed(chat, f'cut off when the last process ended: {what} to "{asked[:100]}"'):
        from tilecast.agent.chat.graph import run_turn

        with stoppable(chat.stop, _raw_line):
            chat.begin_step()
            run_turn(chat, None)
        chat.face.say(chat.money_line())
        return
    chat.log.append(ev.TurnEnded(why="not taken up again"))


def converse(chat: Chat, asked: Asked) -> None:
    """At a terminal, until the user leaves."""
    prompt, hinted = Prompt(chat, chat.home), False
    try:
        while True:
            try:
                line = prompt.read()
            except KeyboardInterrupt:
                if hinted:
                    return
                hinted = True
                chat.face.say(LEAVE_HINT)
                continue
            except EOFError:
                return
            hinted = False
            outcome = step(chat, line) if line else None
            if outcome == QUIT:
                return
            if outcome is not None and outcome.startswith(RESUME):
                face, session = chat.face, outcome.removeprefix(RESUME)
                if session == chat.log.id:
                    face.say("this is that session")
                    continue
                chat = _other(chat, asked, face, session)
                prompt = Prompt(chat, chat.home)
    finally:
        chat.close()


def follow(chat: Chat, lines: Iterable[str]) -> int:
    """Commands and messages from a pipe; 0 if every message was answered, 1 if not, 130 if a step was interrupted."""
    code = 0
    for line in _messages(lines):
        before = chat.log.state.answered
        outcome = step(chat, line)
        if chat.interrupted.is_set():
            return 130
        if not line.startswith("/") and chat.log.state.answered == before:
            code = 1
        if outcome is not None:
            break
    return code


def greet(chat: Chat) -> None:
    """The first lines of a session."""
    state = chat.log.state
    who = chat.model.name if chat.model is not None else f"no model: {chat.no_model}"
    chat.face.say(f"tilecast chat, session {chat.log.id}; {who}")
    if state.turns or state.said:
        chat.face.say(f"taken up again after {state.turns} turns")
        for name, text in state.said[-4:]:
            chat.face.say(f"  {name}: {text.splitlines()[0][:100] if text else ''}")
    chat.face.say("/help lists the commands")


def _other(chat: Chat, asked: Asked, face: Face, session: str) -> Chat:
    flags = {**asked.flags, "model": None, "device": None}
    other = open_chat(replace(asked, problem=None, resume=session, flags=flags), face)
    chat.close()
    greet(other)
    take_up(other)
    return other


def _agreed(chat: Chat, what: str) -> bool:
    return chat.face.ask(f"{what}. Do it again?", "y/N").strip().lower() in ("y", "yes")


def _messages(lines: Iterable[str]) -> Iterable[str]:
    """Each line with a slash is a command; the lines between them are one message."""
    held: list[str] = []
    for line in lines:
        if line.startswith("/"):
            if text := "\n".join(held).strip():
                yield text
            held = []
            yield line.strip()
        else:
            held.append(line.rstrip("\n"))
    if text := "\n".join(held).strip():
        yield text


def _raw_line(text: str) -> None:
    """From a signal's thread: past the console, which may be in the middle of a line."""
    sys.stderr.write(f"\n! {text}\n")
    sys.stderr.flush()
