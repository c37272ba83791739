"""What the slash commands do: each a few lines over the tools that a model would use, or over the session's log."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilecast.agent.budget import METERS, MeterName
from tilecast.agent.chat import events as ev
from tilecast.agent.chat.chat import Chat
from tilecast.agent.chat.faces import PlainFace, TerminalFace
from tilecast.agent.chat.sessions import find, listing
from tilecast.agent.chat.transcript import transcript
from tilecast.agent.report import wording
from tilecast.agent.result import write_text
from tilecast.agent.toolbox.base import Refusal, ToolResult

QUIT = "quit"
RESUME = "resume:"


def in_hand(chat: Chat, words: list[str]) -> str:
    """The candidate that a command is about: named, else the one in hand, else the last one written, else the kernel.

    Raises:
        Refusal: if there is none.
    """
    state = chat.log.state
    if words:
        return words[0]
    if "candidate" in state.chosen:
        return state.chosen["candidate"]
    if state.changes:
        return state.changes[-1].path
    if chat.work.problem.kernel is not None:
        return chat.work.files.name_of(chat.work.problem.kernel)
    raise Refusal("name a candidate file: there is no kernel.py beside the problem")


def split_values(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Words, and ``name=value`` pairs with numbers as numbers."""
    plain = [word for word in words if "=" not in word]
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    return plain, {name: _value(text) for name, text in pairs.items()}


def _value(text: str) -> int | float | str | bool:
    if text in ("true", "True", "false", "False"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def show_text(chat: Chat, text: str, language: str = "") -> None:
    """A command's answer."""
    assert isinstance(chat.face, PlainFace | TerminalFace)
    chat.face.text(text, language)


def _tool(chat: Chat, tool: str, arguments: dict[str, Any], whole: bool = False) -> ToolResult:
    result = chat.call(tool, arguments)
    first, _, rest = result.for_model.partition("\n")
    if (whole or not result.ok) and rest:
        show_text(chat, rest if result.summary.startswith(first) else result.for_model)
    if result.facts and result.facts[-1].candidate and "path" in arguments:
        chat.log.append(ev.Chosen(what="candidate", value=str(arguments["path"])))
    return result


def problem(chat: Chat, words: list[str]) -> None:
    """Load a problem, or show the one loaded."""
    if words:
        chat.load_problem(words[0])
        return
    problem = chat.work.problem
    show_text(chat, f"problem {problem.name}: {problem.path}")
    show_text(chat, problem.source, "python")


def open_file(chat: Chat, words: list[str]) -> None:
    """Show a file; a candidate is then in hand."""
    path = in_hand(chat, words)
    show_text(chat, chat.work.files.read(path), "python" if path.endswith(".py") else "")
    if path.endswith(".py") and not chat.work.files.is_reference((chat.root / path).resolve()):
        chat.log.append(ev.Chosen(what="candidate", value=path))
        chat.face.say(f"{path} is in hand: /forecast, /verify, /bench and /why are about it")


def about_candidate(tool: str) -> Callable[[Chat, list[str]], None]:
    """A command that hands its candidate and CONFIG values to the tool of this name."""

    def run(chat: Chat, words: list[str]) -> None:
        plain, config = split_values(words)
        _tool(chat, tool, {"path": in_hand(chat, plain), **({"config": config} if config else {})}, tool == "profile")

    return run


def optimize(chat: Chat, words: list[str]) -> None:
    """A bounded run."""
    plain, values = split_values(words)
    arguments: dict[str, Any] = {"max_evals": values.get("evals", 10)}
    if chat.model is None or "builtin" in plain:
        arguments["proposals"] = "builtin"
    if "save" in values:
        arguments["save_to"] = values["save"]
    kernels = [word for word in plain if word != "builtin"]
    if kernels:
        arguments["kernel"] = kernels[0]
    _tool(chat, "optimize", arguments, whole=True)


def tune(chat: Chat, words: list[str]) -> None:
    """The best CONFIG."""
    plain, values = split_values(words)
    arguments: dict[str, Any] = {"path": in_hand(chat, plain), "max_evals": values.get("evals", 10)}
    if "save" in values:
        arguments["save_to"] = values["save"]
    _tool(chat, "tune", arguments, whole=True)


def why(chat: Chat, words: list[str]) -> None:
    """What was found out, in this session or in a run."""
    if len(words) == 2:
        _tool(chat, "show", {"run": words[0], "candidate": words[1]}, whole=True)
        return
    _tool(chat, "why", {"path": words[0]} if words else {}, whole=True)


def show(chat: Chat, words: list[str]) -> None:
    """A run, or a candidate of it."""
    named = dict(zip(("run", "candidate"), words, strict=False))
    _tool(chat, "show", named, whole=True)


def more(chat: Chat, words: list[str]) -> None:
    """The whole text of the last result."""
    result = chat.log.state.last_result
    show_text(chat, "nothing was done yet" if result is None else result.for_model)


def diff(chat: Chat, words: list[str]) -> None:
    """The last change, or the difference of two files."""
    files = chat.work.files
    if len(words) == 2:
        pairs = [(words[0], files.read(words[0]), words[1], files.read(words[1]))]
    else:
        changes = [c for c in chat.log.state.changes if not words or c.path == files.name_of(words[0])]
        if not changes:
            raise Refusal("no file was changed in this session" + (f" called {words[0]}" if words else ""))
        last = changes[-1]
        pairs = [(f"{last.path} before", last.before or "", last.path, last.after)]
    for before_name, before, after_name, after in pairs:
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="")
        show_text(chat, "\n".join(lines) or "no difference", "diff")


def undo(chat: Chat, words: list[str]) -> None:
    """Take back the last file change."""
    if not chat.log.state.changes:
        raise Refusal("no file was changed in this session, so there is nothing to take back")
    change = chat.log.state.changes[-1]
    chat.work.files.take_back(change)
    chat.log.append(ev.Undone())
    how = "removed, as it was not there before" if change.before is None else "as it was before the last change"
    chat.face.say(f"undone: {change.path} is {how}")
    chat.log.append(ev.Noted(text=f"The user took back your last change of {change.path}"))


def budget(chat: Chat, words: list[str]) -> None:
    """Show or set limits."""
    plain, values = split_values(words)
    if plain:
        raise Refusal(f"/budget takes {', '.join(f'{meter}=NUMBER' for meter in METERS)}; {plain[0]!r} is none of them")
    for name, value in values.items():
        meter = _meter(name)
        if value == "none":
            chat.set_limit(meter, None)
            continue
        try:
            chat.set_limit(meter, float(value))
        except ValueError:
            raise Refusal(f"{name}={value}: a limit is a number above 0, or `none`") from None
    show_text(chat, f"session: {wording.ledger(chat.ledger.document())}")
    show_text(chat, f"asked before a step that takes more than {chat.settings.chat.ask_share:.0%} of what is left")


def _meter(name: str) -> MeterName:
    for meter in METERS:
        if meter == name.removeprefix("max_"):
            return meter
    raise Refusal(f"{name} is no meter: there are {', '.join(METERS)}")


def model(chat: Chat, words: list[str]) -> None:
    """Show or change the model."""
    if words:
        from tilecast.tools.model.choose import open_model

        settings = chat.settings
        chat.model = open_model(words[0], settings.models, settings.base_url, chat.home)
        chat.settings = chat.work.settings = chat.work.settings.model_copy(update={"model": words[0]})
        chat.log.append(ev.Chosen(what="model", value=words[0]))
    show_text(chat, f"model: {chat.model.name}" if chat.model is not None else f"no model: {chat.no_model}")


def device(chat: Chat, words: list[str]) -> None:
    """Show or change the device."""
    if words:
        chat.work.use_device(words[0])
        chat.settings = chat.work.settings
        chat.log.append(ev.Chosen(what="device", value=words[0]))
    if chat.work.loaded is None:
        show_text(chat, f"device: {chat.work.settings.device}; /problem PATH loads a problem, then more is known")
        return
    _tool(chat, "device", {}, whole=True)


def history(chat: Chat, words: list[str]) -> None:
    """What was said and done."""
    lines = [f"{who:>8}  {text.splitlines()[0][:100] if text else ''}" for who, text in chat.log.state.said]
    show_text(chat, "\n".join(lines) or "nothing was said yet")


def save(chat: Chat, words: list[str]) -> None:
    """Write the best candidate to a file."""
    if not words:
        raise Refusal("name the file to write the best candidate to: /save fast.py")
    best = chat.box.best
    if best is None:
        raise Refusal("no candidate has passed and been measured yet, so there is no best one to save")
    text = chat.text_of(best)
    change = chat.work.files.write(words[0], text)
    result = ToolResult(tool="save", ok=True, summary=f"{best.candidate} saved as {change.path}", change=change)
    chat.log.append(ev.StepDone(call_id=None, result=result))
    chat.face.result(result)


def export(chat: Chat, words: list[str]) -> None:
    """Write the session as Markdown."""
    name = words[0] if words else f"chat-{chat.log.id}.md"
    path = (chat.root / name).resolve()
    if path.suffix != ".md" or not path.is_relative_to(chat.root.resolve()):
        raise Refusal(f"{name}: a transcript is a .md file in the working folder")
    write_text(path, transcript(chat))
    chat.face.say(f"written to {path}")


def resume(chat: Chat, words: list[str]) -> str | None:
    """List the sessions, or go to one."""
    if words:
        return RESUME + find(chat.home, words[0]).name.removesuffix(".jsonl")
    show_text(chat, session_lines(chat.home))
    return None


def session_lines(home: Path) -> str:
    """The newest sessions, one a line."""
    lines = [
        f"{s.id}  {s.turns:3} turns  {s.problem:12.12}  {s.title[:24]}{'  (unfinished)' if s.unfinished else ''}"
        for s in listing(home)
    ]
    return "\n".join([*lines, "continue one with /resume ID"]) if lines else "there are no sessions yet"


def clear(chat: Chat, words: list[str]) -> None:
    """Begin the conversation anew."""
    chat.log.append(ev.Cleared())
    chat.forget()
    chat.face.say("the conversation begins anew; files, findings and budget stay")


def quit(chat: Chat, words: list[str]) -> str:
    """Leave."""
    return QUIT
