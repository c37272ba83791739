"""A warm process that answers evidence requests, each in a forked child: ``python -m tilecast.sandbox.harness.evidence.server``.

Requests and answers are JSON lines on standard input and output. The children are apart from each other but not confined:
this is for machines where no confined worker can be had.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tilecast.sandbox.harness.evidence import isolate, job

_GRACE_S = 5.0


def main() -> int:
    """Serve until standard input ends."""
    import torch

    torch.set_num_threads(1)
    # Whatever libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job.prewarm()
    _send(answers, {"ready": os.getpid()})
    for line in sys.stdin:
        args = json.loads(line)
        limit_s = float(args.get("timeout_s") or 60.0) + _GRACE_S
        _send(answers, isolate.call(lambda args=args: job.run(args), limit_s))  # type: ignore[misc]
    return 0


def _send(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
