"""Launch modules built once for all candidates: a C compiler need not run again for a text that it has seen.

Nothing that a candidate's process built is handed on. The text is built again, in a confined process in which no candidate's
code runs, and named by the text: who offers a false one gives it to nobody but those who ask for that false text.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.isolation import Limits
from tilecast.sandbox.harness.judge.failure import EnvironmentBroken
from tilecast.sandbox.harness.judge.worker_process import WorkerProcess
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.wire import Message, WireError
from tilecast.sandbox.harness.worker.launch_stubs import MOST, MOST_CHARS

_KEPT = 64
_TIMEOUT_S = 60.0
_LIMITS = Limits(memory_bytes=4 << 30, cpu_s=60)


class LaunchStubs:
    """Built modules in a folder of the judge's, copied into the compile cache of each new worker."""

    def __init__(self, zygotes: Zygotes, device_type: str) -> None:
        self._zygotes, self._device_type = zygotes, device_type
        self._home: Path | None = None
        self._known: set[str] = set()
        self._building: WorkerProcess | None = None
        self.why_not = "" if device_type == "cuda" else "only launches on a GPU need them"

    def seed(self, folder: str) -> None:
        """Copy what is built into a new compile cache (``folder`` is bound at ``/cache`` in the worker)."""
        if self.why_not:
            return
        if self._home is None:
            self.why_not = self._build([])
        self._collect()
        if self._home is not None and (self._home / "triton").is_dir():
            target = Path(folder) / "triton"
            shutil.copytree(self._home / "triton", target, dirs_exist_ok=True)
            for place, _, files in os.walk(target):
                os.chmod(place, 0o777)  # workers have user ids of their own
                for name in files:
                    os.chmod(Path(place) / name, 0o755)

    def offer(self, stubs: Any) -> None:
        """Have modules built that a worker asked its Triton for; what is malformed is ignored."""
        if self.why_not or not isinstance(stubs, list):
            return
        wanted = [stub for stub in stubs[:MOST] if _well_formed(stub) and stub["source"] not in self._known]
        self._collect()
        if wanted and self._home is not None and self._building is None and len(self._known) + len(wanted) <= _KEPT:
            self._known |= {stub["source"] for stub in wanted}
            # Nobody waits for it: the compiler runs while the next candidate is on its way.
            try:
                self._building = self._spawn([{"name": stub["name"], "source": stub["source"]} for stub in wanted])
            except EnvironmentBroken:
                self._building = None

    def close(self) -> None:
        """End what is being built, and remove the folder."""
        if self._building is not None:
            self._building.kill()
            self._building = None
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    def _build(self, stubs: list[Message]) -> str:
        """Why nothing was built, empty if all was."""
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="tilecast-stubs-"))
        try:
            worker = self._spawn(stubs)
        except EnvironmentBroken as error:
            return str(error)[:300]
        try:
            answer = worker.channel.receive(_TIMEOUT_S)
        except WireError as error:
            answer = {"failed": f"{error}; {worker.log_tail()}"}
        finally:
            worker.kill()
        result = answer.get("result", answer)
        return "" if "built" in result else str(result.get("failed", result))[:300]

    def _spawn(self, stubs: list[Message]) -> WorkerProcess:
        # Named after the device for what such workers see: the driver's library is linked against.
        args = {"device": self._device_type, "stubs": stubs}
        return self._zygotes.spawn_job("stubs", args, _LIMITS, cache=str(self._home))

    def _collect(self) -> None:
        """What is built is in its place as soon as its builder has answered or ended."""
        if self._building is not None and self._building.channel.pending():
            self._building.kill()
            self._building = None


def _well_formed(stub: Any) -> bool:
    return (
        isinstance(stub, dict)
        and stub.get("name") == "__triton_launcher"
        and isinstance(stub.get("source"), str)
        and len(stub["source"]) <= MOST_CHARS
    )
