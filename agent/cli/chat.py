"""`tilecast chat [PROBLEM]`: the interactive session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.shared import (
    DeviceOption,
    JsonOption,
    MaybeProblemArgument,
    RequireSandboxOption,
    TimeoutOption,
)

if TYPE_CHECKING:
    from tilecast.agent.chat.faces import PlainFace, TerminalFace
    from tilecast.agent.chat.opening import Asked

BUDGET = "Budget"


def chat(
    problem: MaybeProblemArgument = None,
    question: Annotated[str | None, typer.Option("-p", "--prompt", help="One question; its answer is printed.")] = None,
    plain: Annotated[
        bool, typer.Option("--print", help="Plain text, no prompt: messages and commands come from stdin.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="List the sessions, and continue one.")] = False,
    session: Annotated[str | None, typer.Option(help="Continue this session: its id, or `last`.")] = None,
    model: Annotated[str | None, typer.Option(help="The language model; builtin for none.", metavar="NAME")] = None,
    device: DeviceOption = None,
    forecaster: Annotated[str | None, typer.Option(help="auto, learned, roofline or none.")] = None,
    target: Annotated[str | None, typer.Option(help="GPU to forecast for where there is none here.")] = None,
    max_evals: Annotated[int | None, typer.Option(min=1, help="Evaluations.", rich_help_panel=BUDGET)] = None,
    max_gpu_seconds: Annotated[float | None, typer.Option(help="Device seconds.", rich_help_panel=BUDGET)] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens.", rich_help_panel=BUDGET)] = None,
    max_usd: Annotated[float | None, typer.Option(help="US dollars.", rich_help_panel=BUDGET)] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Minutes of work.", rich_help_panel=BUDGET)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before expensive steps.")] = False,
    require_sandbox: RequireSandboxOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Talk about a problem: an expert that reads, writes, forecasts, verifies, measures and optimizes, within a budget.

    Without a key the slash commands work all the same. What is said about speed is held against the record.

    Examples: tilecast chat examples/softmax | tilecast chat examples/softmax -p "what limits the kernel?"
    | echo "/bench examples/softmax/kernel.py" | tilecast chat examples/softmax --print
    """
    from tilecast.agent.chat.opening import Asked

    flags: dict[str, Any] = {
        "model": model,
        "device": device,
        "forecaster": forecaster,
        "target": target,
        "require_sandbox": require_sandbox,
        "timeout_s": timeout,
        "max_evals": max_evals,
        "max_gpu_seconds": max_gpu_seconds,
        "max_tokens": max_tokens,
        "max_usd": max_usd,
        "max_minutes": max_minutes,
    }
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not plain and not as_json and question is None
    chosen = session or (_choose(at_terminal) if resume else None)
    asked = Asked(problem, chosen, flags, yes)
    raise typer.Exit(_converse(asked) if at_terminal else _follow(asked, question, as_json))


def _choose(at_terminal: bool) -> str:
    """The sessions, and which of them."""
    from tilecast.agent.chat.prompt import ask_once
    from tilecast.agent.chat.slash import session_lines
    from tilecast.agent.config import home

    lines = session_lines(home())
    typer.echo(lines, err=not at_terminal)
    if not at_terminal:
        return "last"
    return ask_once("session (Enter for the newest): ").strip() or "last"


def _converse(asked: Asked) -> int:
    from rich.console import Console

    from tilecast.agent.chat.faces import TerminalFace
    from tilecast.agent.chat.loop import converse, greet, take_up
    from tilecast.agent.chat.opening import open_chat
    from tilecast.agent.chat.prompt import ask_once
    from tilecast.agent.chat.signals import guarded

    face: TerminalFace = TerminalFace(Console(), ask_once)
    with guarded():
        session = open_chat(asked, face)
        greet(session)
        take_up(session)
        converse(session, asked)
    typer.echo(f"kept: tilecast chat --session {session.log.id}")
    return 0


def _follow(asked: Asked, question: str | None, as_json: bool) -> int:
    from tilecast.agent.chat.faces import PlainFace
    from tilecast.agent.chat.loop import follow, take_up
    from tilecast.agent.chat.opening import open_chat
    from tilecast.agent.chat.signals import guarded
    from tilecast.agent.chat.transcript import summary
    from tilecast.agent.cli.shared import print_json

    face: PlainFace = PlainFace(out=sys.stderr if as_json else None)
    with guarded():
        session = open_chat(asked, face)
        try:
            take_up(session)
            code = follow(session, [question] if question is not None else sys.stdin)
            if as_json:
                print_json(summary(session))
        finally:
            session.close()
    return code
