"""Answers evidence requests, each in a confined worker: ``python -m tilecast.sandbox.harness.evidence.server``.

Requests and answers are JSON lines on standard input and output. This process holds a fork server whose compilers are warm;
it never runs user code itself and needs no torch.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tilecast.sandbox.harness.isolation import Limits
from tilecast.sandbox.harness.judge.failure import EnvironmentBroken
from tilecast.sandbox.harness.judge.zygotes import Zygotes

_GRACE_S = 5.0
_MEMORY_BYTES = 8 << 30
_PROCESSES = 256
"""Threads count: assemblers start several."""


def main() -> int:
    """Serve until standard input ends."""
    # Whatever libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    zygotes = Zygotes()
    try:
        zygotes.warm()
        _send(answers, {"level": zygotes.level, "is_sandbox": zygotes.is_sandbox})
        for line in sys.stdin:
            _send(answers, _answer(zygotes, json.loads(line)))
    except EnvironmentBroken as error:
        _send(answers, {"environment": str(error)})
    finally:
        zygotes.close()
    return 0


def _answer(zygotes: Zygotes, args: dict[str, Any]) -> dict[str, Any]:
    timeout_s = float(args.get("timeout_s") or 60.0) + _GRACE_S
    limits = Limits(memory_bytes=_MEMORY_BYTES, cpu_s=int(timeout_s) + 1, processes=_PROCESSES)
    answer = zygotes.run_job("evidence", {**args, "device": "cpu"}, limits, timeout_s)
    if "setup_failed" in answer:
        return {"environment": f"a worker could not be confined: {answer['setup_failed']}"}
    result = answer.get("result")
    return result if isinstance(result, dict) else {"failed": str(answer.get("failed", answer))}


def _send(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
