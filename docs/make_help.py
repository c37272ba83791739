"""Writes ``docs/help.md`` from the commands' own ``--help``; with ``--check``, fails if the file is out of date."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("help.md")
HEAD = "# Commands\n\nGenerated from `--help` by `python docs/make_help.py`; do not edit.\n"


def help_of(*command: str) -> str:
    """The help text of one command, 100 columns wide, without colour."""
    # A terminal type of its own and a fixed width: the text must not depend on who runs this.
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "_TYPER_FORCE_DISABLE_TERMINAL": "1",
    }
    run = subprocess.run(
        [sys.executable, "-m", "tilecast.agent.cli.app", *command, "--help"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return "\n".join(line.rstrip() for line in run.stdout.strip().splitlines())


def document() -> str:
    """The whole page."""
    from tilecast.agent.cli.app import COMMANDS

    pages = [f"## tilecast {name}\n\n```\n{help_of(name)}\n```\n" for name in COMMANDS]
    return "\n".join([HEAD, f"```\n{help_of()}\n```\n", *pages])


def main() -> int:
    """Write, or check."""
    text = document()
    if "--check" in sys.argv:
        if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET.name} is out of date: run `python docs/make_help.py` and commit it", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
