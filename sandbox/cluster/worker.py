"""The driver's end of one evaluator: one item at a time, watched while it works, and an end that is told apart."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tilecast.sandbox.base import DeviceFacts, ProgressSink, WorkerState
from tilecast.sandbox.cluster.connection import Connection, Node
from tilecast.sandbox.process import Interrupted

TICK_S = 0.2
STOP_S = 10.0
"""How long an evaluator may take to end an item that is no longer wanted, before it is replaced."""
Fault = Literal["ended", "hung", "node", "broken"]


class WorkerLost(Exception):
    """An evaluator did not answer: its process ended, it hung, its node went away, or it says that it is broken."""

    def __init__(self, fault: Fault, why: str) -> None:
        super().__init__(why)
        self.fault: Fault = fault
        self.why = why


@dataclass
class Worker:
    """One evaluator of the fleet. Its state is changed by the fleet alone."""

    number: int
    node: Node
    actor: Any
    hello: Any
    state: Literal["starting", "idle", "busy", "lost"] = "starting"
    role: Literal["times", "verifies"] = "times"
    facts: DeviceFacts | None = None
    host: str = ""
    niceness: int = 0
    logs: list[str] = field(default_factory=list)
    """Files on its node that hold what its process printed."""
    item: str = ""
    says: str = ""
    done: int = 0
    last_words: list[str] = field(default_factory=list)
    pulse: Any = None
    alive_s: float = field(default_factory=time.monotonic)
    lost: WorkerLost | None = None

    @property
    def name(self) -> str:
        """Number, host, and the GPU's id where there is one."""
        gpu = f" {self.facts.uuid[:12]}" if self.facts is not None and self.facts.uuid else ""
        return f"worker {self.number} on {self.host or self.node.host}{gpu}"

    @property
    def shown(self) -> WorkerState:
        """As listeners see it."""
        facts = self.facts
        device = "" if facts is None else f"{facts.name} (recorded)" if facts.recorded else facts.name
        return WorkerState(
            name=self.name, device=device, state=self.state, role=self.role, done=self.done, item=self.item
        )

    def told(self) -> dict[str, Any]:
        """What a measurement carries of where it was made."""
        facts = self.facts
        return {
            "name": self.name,
            "host": self.host,
            "node": self.node.id[:12],
            "device": facts.name if facts else "",
            "gpu_uuid": facts.uuid if facts else "",
            "driver": facts.driver if facts else "",
            "niceness": self.niceness,
        }

    def beat(self, connection: Connection, lost_after_s: float) -> None:
        """Take in a sign of life, and ask for the next.

        Raises:
            WorkerLost: if it has given none for too long, or its process is gone.
        """
        now = time.monotonic()
        if self.pulse is not None and connection.ray.wait([self.pulse], timeout=0)[0]:
            heard = json.loads(get(connection, self.pulse))
            self.alive_s, self.pulse = now, None
            self.says, self.last_words = heard["says"], heard["log"] or self.last_words
        if self.pulse is None:
            self.pulse = self.actor.pulse.remote()
        if now - self.alive_s > lost_after_s:
            raise WorkerLost("hung", f"no sign of life for {lost_after_s:.0f} s")

    def ask(
        self,
        connection: Connection,
        item: dict[str, Any],
        limit_s: float,
        cancelled: threading.Event,
        progress: ProgressSink,
    ) -> dict[str, Any]:
        """The answer to one item.

        Raises:
            WorkerLost: if there will be none.
            Interrupted: if it was cancelled.
        """
        reference = self.actor.evaluate.remote(json.dumps(item))
        end_s, said, stop_s = time.monotonic() + limit_s, "", float("inf")
        while not connection.ray.wait([reference], timeout=TICK_S)[0]:
            now = time.monotonic()
            if self.lost is not None:
                raise self.lost
            if cancelled.is_set() and stop_s == float("inf"):
                self.actor.interrupt.remote(item["id"])
                stop_s = now + STOP_S
            if now > stop_s:
                raise WorkerLost("hung", f"it did not stop within {STOP_S:.0f} s")
            if now > end_s:
                raise WorkerLost("hung", f"no answer within {limit_s:.0f} s")
            if self.says and self.says != said:
                said = self.says
                progress(said)
        answer: dict[str, Any] = json.loads(get(connection, reference))
        if answer.get("error") == "interrupted":
            raise Interrupted(str(answer.get("message")))
        return answer


def get(connection: Connection, reference: Any) -> str:
    """What an actor's method returned.

    Raises:
        WorkerLost: if its process or its node is gone, or the method failed in a way of its own.
    """
    ray = connection.ray
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayActorError as error:
        text = str(error)
        if "node" in text.lower() and ("node has died" in text.lower() or "node failure" in text.lower()):
            raise WorkerLost("node", "its node went away") from error
        raise WorkerLost("ended", f"its process ended{_cause(text)}") from error
    except ray.exceptions.RayError as error:
        raise WorkerLost("broken", (str(error).strip().splitlines() or ["unknown"])[-1][:300]) from error


def _cause(text: str) -> str:
    """The line of Ray's message that says how."""
    for line in text.splitlines():
        if "exit type" in line.lower() or "exit detail" in line.lower() or "died unexpectedly" in line.lower():
            return f" ({line.strip()[:160]})"
    return ""


Cancelled = Callable[[], bool]
