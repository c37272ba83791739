"""Starts the judge tied to its host: it ends when the host's process is gone, however busy it is just then.

Without this a judge in the middle of a measurement would go on until its end, on a device that a successor takes for free.
``python -m tilecast.sandbox.harness.judge.tethered FD CONFIG``.
"""

from __future__ import annotations

import os
import sys
import threading
import time

CHECK_S = 0.5


def end_with(parent: int) -> None:
    """Wait until another process than ``parent`` is the parent, and end; the fork servers see that and end their workers."""
    while os.getppid() == parent:
        time.sleep(CHECK_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    from tilecast.sandbox.harness.judge.__main__ import main

    sys.exit(main(sys.argv[1:]))
