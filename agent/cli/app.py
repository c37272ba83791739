"""The command line: registers one module a command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tilecast.agent.cli.mistakes import HintingCommand

COMMANDS: dict[str, tuple[str, str]] = {
    "optimize": ("tilecast.agent.cli.optimize", "optimize"),
    "verify": ("tilecast.agent.cli.verify", "verify"),
    "bench": ("tilecast.agent.cli.bench", "bench"),
    "forecast": ("tilecast.agent.cli.forecast", "forecast"),
    "tune": ("tilecast.agent.cli.tune", "tune"),
    "chat": ("tilecast.agent.cli.chat", "chat"),
    "mcp": ("tilecast.agent.cli.mcp", "mcp"),
    "lint": ("tilecast.agent.cli.lint", "lint"),
    "runs": ("tilecast.agent.cli.runs", "runs"),
    "show": ("tilecast.agent.cli.show", "show"),
    "report": ("tilecast.agent.cli.report", "report"),
    "study": ("tilecast.agent.cli.study", "study"),
    "forecaster": ("tilecast.agent.cli.forecaster", "app"),
    "ci": ("tilecast.agent.cli.ci", "ci"),
    "cluster": ("tilecast.agent.cli.cluster", "cluster"),
    "worker": ("tilecast.agent.cli.worker", "worker"),
    "doctor": ("tilecast.agent.cli.doctor", "doctor"),
}
"""Command -> module and the function (or sub-application) in it. A module at its top imports typer and the standard library."""


PLAIN_BELOW = 96
"""Columns that the boxes of ``--help`` need; in a narrower terminal they would cut names of options off, and plain lines do not."""


class LazyGroup(TyperGroup):
    """Imports a command's module only when that command is asked for, or listed."""

    # Typed loosely on purpose: newer versions of typer carry a click of their own, older ones use the real one.
    def list_commands(self, ctx: Any) -> list[str]:
        """All commands in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As usual; an unknown command is answered with the nearest one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            import difflib

            close = difflib.get_close_matches(name, COMMANDS, 1)
            there = f"Did you mean '{close[0]}'?" if close else f"There are {', '.join(COMMANDS)}."
            ctx.fail(f"No such command '{name}'. {there}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The click command of one module."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        target = getattr(importlib.import_module(module), attribute)
        if isinstance(target, typer.Typer):
            command = typer.main.get_command(target)
            command.name = cmd_name
            return _fitting(command)
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(cmd_name, cls=HintingCommand)(target)
        return _fitting(typer.main.get_command(single))


def _fitting(command: Any) -> Any:
    """The command (or those of a group) with its help in plain lines where the terminal is too narrow for boxes."""
    if shutil.get_terminal_size().columns < PLAIN_BELOW:
        for one in getattr(command, "commands", {"": command}).values():
            one.rich_markup_mode = None
    return command


app = typer.Typer(
    cls=LazyGroup,
    name="tilecast",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        from tilecast.sandbox.installed import own_version

        typer.echo(f"tilecast {own_version('(not installed as a package)')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Make GPU kernels faster, with numbers one can believe.

    A proposer rewrites a kernel in a loop; a forecaster predicts which rewrites are worth the GPU's time; the rest is
    verified and measured against the fastest baseline, paired and with an interval, until a budget is spent.

    Start with: **tilecast optimize examples/softmax** (needs no key and no GPU), then **tilecast doctor**.
    """


def main() -> Any:
    """Entry point: one line for a user's mistake, its exit code, no traceback; SIGTERM and a lost terminal are as Ctrl-C."""
    from tilecast.agent.cli.streams import guard
    from tilecast.sandbox.errors import TilecastError

    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("TERM", "dumb")
    guard(goes_on="mcp" in sys.argv[1:2])
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, _interrupt)
    try:
        try:
            return app()
        finally:
            sys.stdout.flush()
    except TilecastError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
