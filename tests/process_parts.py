"""Processes ended from outside."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress


def kill_all(pids: Iterable[int]) -> None:
    """End them; the first may be the init of a namespace, which takes the others along before their turn comes."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
