"""Where the command ``tilecast`` begins: until its libraries are there to answer a Ctrl-C, one ends it without a word."""

from __future__ import annotations

import signal
from typing import Any


def main() -> Any:
    """Entry point; see :func:`tilecast.agent.cli.app.main`."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tilecast.agent.cli.app import main as run

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()
