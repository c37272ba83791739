"""The job that becomes another program: a profiler or a checker, confined like any worker, around a standalone candidate."""

from __future__ import annotations

import os
import sys
from typing import Any

from tilecast.sandbox.harness.wire import Channel

NOT_STARTED = 96
FINISHED = "finished"
"""In the shared folder: written when all calls are made. A tool's report does not always tell of a program that died."""
LIBRARY = "library"
"""In the shared folder: where the program finds the harness."""


def run(args: dict[str, Any], channel: Channel) -> int:
    """Replace this process by ``program`` around the standalone runner. ``{cache}`` in arguments is the shared folder."""
    cache = os.path.dirname(os.environ["TRITON_CACHE_DIR"])
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (f"{cache}/{LIBRARY}", *sys.path) if path)
    command = [str(item).replace("{cache}", cache) for item in args["program"]]
    command += [sys.executable, "-m", "tilecast.sandbox.harness.worker.standalone", f"{cache}/case.json"]
    os.set_inheritable(channel.fileno(), False)  # its closing tells the judge that the program has started
    try:
        os.execv(command[0], command)
    except OSError as error:
        channel.send({"failed": f"{command[0]}: {error}"})
    return NOT_STARTED
