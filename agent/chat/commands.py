"""Slash commands: each works without a model, has a help line and an example, and uses the tools that a model would."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from tilecast.agent.chat import slash
from tilecast.agent.chat.chat import Chat
from tilecast.agent.chat.slash import QUIT, RESUME
from tilecast.agent.toolbox.base import Refusal
from tilecast.sandbox.errors import TilecastError


@dataclass(frozen=True)
class Command:
    """One slash command; ``run`` gives what the session does next: nothing, ``quit``, or ``resume:ID``."""

    name: str
    usage: str
    help: str
    example: str
    run: Callable[[Chat, list[str]], str | None]
    files: bool = False
    """Whether its arguments are file names, for completion."""


def run_command(chat: Chat, line: str) -> str | None:
    """Do what a line that starts with a slash says; whatever is wrong with it is shown, and the session goes on."""
    chat.begin_step()
    try:
        name, *words = shlex.split(line[1:]) or ["help"]
    except ValueError as error:
        chat.face.warn(f"{line}: {error}")
        return None
    command = COMMANDS.get(name)
    if command is None:
        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean /{close[0]}?" if close else ""
        chat.face.warn(f"there is no /{name}{hint} /help lists the commands")
        return None
    try:
        with chat.clock.working():
            return command.run(chat, words)
    except (Refusal, TilecastError) as error:
        chat.face.warn(str(error))
    return None


def _help(chat: Chat, words: list[str]) -> None:
    if words and words[0].removeprefix("/") in COMMANDS:
        command = COMMANDS[words[0].removeprefix("/")]
        slash.show_text(chat, f"{command.usage}\n  {command.help}\n  example: {command.example}")
        return
    wide = max(len(command.usage) for command in COMMANDS.values())
    wide = min(wide, 30)
    lines = [f"{command.usage:{wide}}  {command.help.split('. ')[0].rstrip('.')}" for command in COMMANDS.values()]
    if chat.model is None:
        lines += ["", f"There is no model: {chat.no_model}"]
        lines.append("With one you can ask in your own words, and it reads, writes, forecasts and measures for you.")
    else:
        lines += ["", f"Anything else is said to {chat.model.name}. Alt+Enter begins a new line, Ctrl-C stops a step."]
    slash.show_text(chat, "\n".join([*lines, "/help COMMAND shows an example."]))


_ALL: tuple[Command, ...] = (
    Command("help", "/help [COMMAND]", "List the commands, or explain one.", "/help bench", _help),
    Command(
        "problem",
        "/problem [PATH]",
        "Load a problem, or show the one loaded.",
        "/problem examples/softmax",
        slash.problem,
        True,
    ),
    Command(
        "open", "/open [FILE]", "Show a file; a candidate is then in hand.", "/open kernel.py", slash.open_file, True
    ),
    Command(
        "optimize",
        "/optimize [KERNEL] [evals=N] [builtin] [save=FILE]",
        "Search for a faster kernel within a budget.",
        "/optimize evals=20 save=fast.py",
        slash.optimize,
        True,
    ),
    Command(
        "forecast",
        "/forecast [FILE] [NAME=VALUE]",
        "Predict a candidate's speed; costs nothing.",
        "/forecast kernel.py BLOCK=256",
        slash.about_candidate("forecast"),
        True,
    ),
    Command(
        "verify",
        "/verify [FILE] [NAME=VALUE]",
        "Check a candidate for correctness and integrity.",
        "/verify kernel.py",
        slash.about_candidate("verify"),
        True,
    ),
    Command(
        "bench",
        "/bench [FILE] [NAME=VALUE]",
        "Verify and measure a candidate against the baseline.",
        "/bench kernel.py",
        slash.about_candidate("bench"),
        True,
    ),
    Command(
        "tune",
        "/tune [FILE] [evals=N] [save=FILE]",
        "Find the best CONFIG of a candidate.",
        "/tune kernel.py evals=15 save=tuned.py",
        slash.tune,
        True,
    ),
    Command(
        "profile",
        "/profile [FILE]",
        "Measure a candidate and say what limits it.",
        "/profile kernel.py",
        slash.about_candidate("profile"),
        True,
    ),
    Command(
        "why",
        "/why [FILE | RUN CANDIDATE]",
        "What was found out about a candidate, and why it was kept or dropped.",
        "/why last best",
        slash.why,
        True,
    ),
    Command("show", "/show [RUN] [CANDIDATE]", "Show a run of the record.", "/show last", slash.show),
    Command("more", "/more", "The whole text of the last result.", "/more", slash.more),
    Command(
        "diff",
        "/diff [FILE] [FILE]",
        "The last change of a file, or the difference of two.",
        "/diff kernel.py fast.py",
        slash.diff,
        True,
    ),
    Command("undo", "/undo", "Take back the last file change.", "/undo", slash.undo),
    Command(
        "budget",
        "/budget [METER=NUMBER]",
        "Show or set the limits: evals, gpu_seconds, tokens, usd, minutes.",
        "/budget usd=2 evals=40",
        slash.budget,
    ),
    Command("model", "/model [NAME]", "Show or change the language model.", "/model gpt-5", slash.model),
    Command(
        "device",
        "/device [SPEC]",
        "Show or change the device: auto, cuda[:N], cpu, replay:DIR.",
        "/device cpu",
        slash.device,
    ),
    Command("history", "/history", "What was said and done in this session.", "/history", slash.history),
    Command("save", "/save FILE", "Write the best measured candidate to a file.", "/save fast.py", slash.save, True),
    Command(
        "export",
        "/export [FILE.md]",
        "Write the session as Markdown, unfounded figures marked.",
        "/export session.md",
        slash.export,
    ),
    Command("resume", "/resume [ID]", "List the sessions, or continue one.", "/resume last", slash.resume),
    Command("clear", "/clear", "Begin the conversation anew; findings and budget stay.", "/clear", slash.clear),
    Command("quit", "/quit", "Leave; the session is kept.", "/quit", slash.quit),
)
COMMANDS: dict[str, Command] = {command.name: command for command in _ALL}


__all__ = ["COMMANDS", "QUIT", "RESUME", "Command", "run_command"]
