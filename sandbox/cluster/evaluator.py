"""What runs on a node: one evaluator, the only user of its GPU, with the same harness inside as on a single machine.

It speaks JSON text, so that nothing but plain values crosses between machines. An item that it has answered is answered
again from memory: asked twice, it is done once.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilecast.sandbox.base import EvaluationOptions, Preflight, Sandbox
from tilecast.sandbox.errors import InvalidReference, TilecastError
from tilecast.sandbox.installed import own_version
from tilecast.sandbox.local import LocalSandbox, default_state_dir
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.process import Interrupted
from tilecast.sandbox.replay import ReplaySandbox
from tilecast.sandbox.source import Candidate
from tilecast.sandbox.turns import device_turn

KEPT_ANSWERS = 64
LOG_LINES = 40


def harness_identity() -> str:
    """Version of tilecast and a hash of the harness's text: evaluators of another one measure another way."""
    digest, root = hashlib.sha256(), Path(__file__).resolve().parent.parent / "harness"
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return f"{own_version()}+{digest.hexdigest()[:16]}"


def _threads_as_given() -> None:
    """Ray sets OMP_NUM_THREADS to an actor's CPUs; times are taken under what the node's owner set, or did not set."""
    try:
        above = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return
    if not any(entry.startswith(b"OMP_NUM_THREADS=") for entry in above):
        os.environ.pop("OMP_NUM_THREADS", None)


def _own_priority() -> int:
    """Ray runs workers at niceness 15, and a judge that waits for a CPU stretches short calls: back to 0 where that is allowed.

    Linux keeps the niceness by thread; what the calling thread starts inherits it. Returns what is in force.
    """
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    return os.getpriority(os.PRIO_PROCESS, 0)


class Evaluator:
    """An actor: :meth:`evaluate` works, the other methods answer meanwhile.

    Args:
        order: JSON object with ``evaluators`` (as in :class:`ClusterOptions`), ``require_sandbox`` and ``replay_pace``.
    """

    def __init__(self, order: str) -> None:
        given = json.loads(order)
        _threads_as_given()
        self._pace, self._says = float(given["replay_pace"]), ""
        self._answers: OrderedDict[str, str] = OrderedDict()
        self._item, self._done = "", 0
        self._known: Preflight | None = None
        self._work = threading.Lock()
        self._sandbox: Sandbox = self._make(given["evaluators"], bool(given["require_sandbox"]))

    def _make(self, kind: str, require_sandbox: bool) -> Sandbox:
        if kind.startswith("replay:"):
            return ReplaySandbox(kind.removeprefix("replay:"), self._provide)
        if kind == "cpu":
            return LocalSandbox("cpu", require_sandbox=require_sandbox)
        # GPUs of one host are all number 0 to their own evaluators: each has a folder of its own, and so a lock of its own.
        number = os.environ.get("CUDA_VISIBLE_DEVICES", "0").replace(",", "-")
        folder = default_state_dir() / "ray" / socket.gethostname() / f"gpu-{number}"
        return LocalSandbox("cuda", index=0, require_sandbox=require_sandbox, state_dir=folder)

    def _provide(self, problem: Problem, progress: Callable[[str], None]) -> Preflight:
        assert self._known is not None, "the run sends its preflight along"
        return self._known

    def hello(self) -> str:
        """Who this is: host, process, device, and which harness it has."""
        niceness = _own_priority()
        try:
            device = self._sandbox.device.model_dump(mode="json")
        except TilecastError as error:
            return json.dumps({"error": str(error), "host": socket.gethostname(), "log": self._log()})
        printed = {os.readlink(f"/proc/self/fd/{number}") for number in (1, 2)}
        return json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "niceness": niceness,
                "device": device,
                "harness": harness_identity(),
                "logs": sorted(path for path in printed if path.startswith("/") and not path.startswith("/dev/")),
            }
        )

    def evaluate(self, item: str) -> str:
        """Do one item: ``{"id", "op", "problem", "candidate", "options", "known"}``.

        Returns:
            ``{"result": ...}``, or ``{"error": "problem" | "interrupted" | "environment", "message": ...}``.
        """
        asked = json.loads(item)
        with self._work:
            found = self._answers.get(asked["id"])
            if found is None:
                found = self._answers[asked["id"]] = self._answer(asked)
                while len(self._answers) > KEPT_ANSWERS:
                    self._answers.popitem(last=False)
            return found

    def _answer(self, asked: dict[str, Any]) -> str:
        self._item, self._says = asked["id"], ""
        _own_priority()
        named = (asked.get("candidate") or {}).get("name", "")
        # Into the process's own log on this node, which is fetched if the process does not come to the end of it.
        print(f"{datetime.now(UTC):%H:%M:%S} {asked['op']} {named} ({asked['id']})", file=sys.stderr, flush=True)
        try:
            facts = self._sandbox.device
            with nullcontext() if facts.recorded else device_turn(facts, self._hear):
                return json.dumps({"result": self._do(asked)})
        except InvalidReference as error:
            return json.dumps({"error": "problem", "message": str(error)})
        except Interrupted as error:
            return json.dumps({"error": "interrupted", "message": str(error)})
        except TilecastError as error:
            return json.dumps({"error": "environment", "message": str(error), "exit_code": error.exit_code})
        finally:
            self._item, self._done = "", self._done + 1

    def _do(self, asked: dict[str, Any]) -> Any:
        problem = Problem.model_validate(asked["problem"])
        options = EvaluationOptions.model_validate(asked["options"])
        operation, sandbox = asked["op"], self._sandbox
        if asked.get("known"):
            self._known = Preflight.model_validate(asked["known"])
            if isinstance(sandbox, ReplaySandbox):
                sandbox.preflight(problem, self._hear)
        if operation == "preflight":
            return sandbox.preflight(problem, self._hear).model_dump(mode="json")
        if operation == "lint":
            return sandbox.lint(problem, self._hear)
        if operation == "baselines":
            return sandbox.baselines(problem, options, self._hear).model_dump(mode="json")
        candidate = Candidate.model_validate(asked["candidate"])
        step = sandbox.verify if operation == "verify" else sandbox.benchmark
        answer = step(problem, candidate, options, self._hear)
        if self._pace and (operation == "benchmark" or answer.status != "PASSED"):
            time.sleep(self._pace * answer.seconds)
        return answer.model_dump(mode="json", by_alias=False)

    def interrupt(self, item: str) -> None:
        """End the work on this item, if it is the one that is done now."""
        if item == self._item:
            self._sandbox.interrupt()

    def pulse(self) -> str:
        """A sign of life: what is done now, and the last lines of the judge's output."""
        return json.dumps({"item": self._item, "says": self._says, "done": self._done, "log": self._log()})

    def close(self) -> None:
        """End every process below this one."""
        self._sandbox.close()

    def _hear(self, text: str) -> None:
        self._says = text[:200]

    def _log(self) -> list[str]:
        return self._sandbox.log[-LOG_LINES:] if isinstance(self._sandbox, LocalSandbox) else []
