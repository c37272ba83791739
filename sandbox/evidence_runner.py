"""Where evidence jobs run: one small interface, so that the collector does not care."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Any, Protocol

from tilecast.sandbox.errors import EnvironmentFailure

_START_LIMIT_S = 120.0
_GRACE_S = 15.0
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "VIRTUAL_ENV")


class EvidenceRunner(Protocol):
    """Runs one evidence job at a time (see ``harness.evidence.job.run`` for arguments and answer)."""

    def run(self, args: dict[str, Any]) -> dict[str, Any]:
        """The job's answer, or ``{"failed": why}`` where it gave none.

        Raises:
            EnvironmentFailure: if jobs cannot be run on this machine.
        """
        ...

    def close(self) -> None: ...


class ServerRunner:
    """A process that holds a warm fork server and runs each job in a confined worker."""

    def __init__(self, *, require_sandbox: bool = False) -> None:
        self._require_sandbox = require_sandbox
        self.level = ""
        """The sandbox level in force, once started."""
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""

    def run(self, args: dict[str, Any]) -> dict[str, Any]:
        """See :class:`EvidenceRunner`."""
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(args).encode() + b"\n")
            process.stdin.flush()
            answer = self._receive(float(args.get("timeout_s") or 60.0) + _GRACE_S)
        except (OSError, EOFError) as error:
            self.close()
            raise EnvironmentFailure(
                f"the evidence process ended: {error}; try again, or see `tilecast doctor`"
            ) from error
        if "environment" in answer:
            raise EnvironmentFailure(f"no evidence: {answer['environment']}")
        return answer

    def close(self) -> None:
        """End the process and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        # Keys and tokens in this process's environment are none of a candidate's business.
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        command = [sys.executable, "-m", "tilecast.sandbox.harness.evidence.server"]
        self._pending = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            self._greet(self._receive(_START_LIMIT_S))
        except (OSError, EOFError) as error:
            self.close()
            reason = "is torch with Triton installed for this Python?"
            raise EnvironmentFailure(f"the evidence process did not start ({error}): {reason}") from error
        return self._process

    def _greet(self, answer: dict[str, Any]) -> None:
        self.level = str(answer.get("level", ""))
        refused = self._require_sandbox and not answer.get("is_sandbox")
        if refused or "environment" in answer:
            self.close()
            why = (
                f"a sandbox is required, and this machine offers {self.level!r} only"
                if refused
                else answer["environment"]
            )
            raise EnvironmentFailure(f"no evidence: {why}; see `tilecast doctor`")

    def _receive(self, limit_s: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise EOFError(f"no answer within {limit_s:.0f} s")
            part = os.read(descriptor, 1 << 16)
            if not part:
                raise EOFError(f"exit status {self._process.poll()}")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise EOFError(f"an answer that is no object: {line[:80]!r}")
        return answer
