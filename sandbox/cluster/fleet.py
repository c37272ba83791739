"""The evaluators of a cluster: placed on its nodes, watched, replaced when lost, handed out one item at a time.

Nodes may come and go. A thread looks after it once a second; what happened to evaluators is kept as incidents.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from tilecast.sandbox.base import DeviceFacts, Incident
from tilecast.sandbox.cluster.connection import Connection, Node
from tilecast.sandbox.cluster.evaluator import Evaluator, harness_identity
from tilecast.sandbox.cluster.logs import printed
from tilecast.sandbox.cluster.options import GPU, ClusterOptions
from tilecast.sandbox.cluster.waiting import no_place, none_came, telling
from tilecast.sandbox.cluster.worker import Cancelled, Worker, WorkerLost, get
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.process import Interrupted

TEND_S = 1.0
START_TRIES = 3
"""Evaluators that may fail to start on a node, one after the other, before the node is left alone."""
THREADS = 4
Role = Literal["times", "verifies"]


class Fleet:
    """All evaluators of one run.

    Args:
        connection: to the cluster.
        options: how many, of which kind, how long to wait for them.
        require_sandbox: handed to the harness of each.
    """

    def __init__(self, connection: Connection, options: ClusterOptions, require_sandbox: bool) -> None:
        self.connection, self.options = connection, options
        order = {"evaluators": options.evaluators, "replay_pace": options.replay_pace}
        self._order = json.dumps({**order, "require_sandbox": require_sandbox})
        self._identity = harness_identity()
        self._workers: dict[int, Worker] = {}
        self._changed = threading.Condition(threading.RLock())
        self._incidents: list[Incident] = []
        self._failures: Counter[str] = Counter()
        self._why, self._broken = "", ""
        self._joined_once = False
        self.on_waiting: Callable[[str], None] = lambda text: None
        """Told how many evaluators the start still waits for, after each change; from the thread that waits."""
        self._number = 0
        self._nodes: list[Node] = []
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.model: str | None = None
        """The device model that times are taken on, once settled."""

    def start(self) -> None:
        """Place the first evaluators, and look after them from now on.

        Raises:
            EnvironmentFailure: if the cluster has no place for any.
        """
        self.connection.open()
        wanted, resource = self.options.workers, self.options.resource
        if wanted is not None:
            self.connection.ask_for(wanted, resource)
        self._tend()
        if not self._workers and wanted is None:
            raise EnvironmentFailure(no_place(self.options, len(self._nodes)))
        self._thread = threading.Thread(target=self._look_after, name="fleet", daemon=True)
        self._thread.start()

    @property
    def workers(self) -> list[Worker]:
        """Those that are starting, idle or busy, by number."""
        with self._changed:
            return list(self._workers.values())

    def joined(self, role: Role | None = None) -> list[Worker]:
        """Those that have said who they are."""
        return [w for w in self.workers if w.facts is not None and role in (None, w.role)]

    def incidents(self) -> list[Incident]:
        """What happened since the last call."""
        with self._changed:
            found, self._incidents = self._incidents, []
        return found

    def report(self, incident: Incident) -> None:
        """Keep an incident for the run."""
        with self._changed:
            self._incidents.append(incident)

    def settle(self, grace_s: float) -> list[DeviceFacts]:
        """Wait for the first evaluator, and then a while for the others that were placed with it; their devices.

        Raises:
            EnvironmentFailure: if none starts.
        """
        join_s = self.options.join_s
        self.release(self.acquire(None, lambda: False, tell=self._telling(join_s, f"join_s = {join_s:g} s")))
        end, tell = time.monotonic() + grace_s, self._telling(grace_s, f"at most {grace_s:g} s for the others")
        with self._changed:
            while any(w.state == "starting" for w in self._workers.values()) and time.monotonic() < end:
                tell()
                self._changed.wait(0.2)
        return [worker.facts for worker in self.joined() if worker.facts is not None]

    def bind(self, model: str) -> None:
        """From now on times are taken on devices of this model; others verify."""
        with self._changed:
            self.model = model
            for worker in self._workers.values():
                worker.role = self._role(worker)

    def acquire(
        self, role: Role | None, cancelled: Cancelled, not_on: str = "", tell: Callable[[], None] = lambda: None
    ) -> Worker:
        """Wait for an idle evaluator and hold it.

        Args:
            role: one that may take times; one that only verifies is preferred for ``verifies``; any for None.
            cancelled: gives up the wait.
            not_on: id of a node to avoid as long as another one has evaluators.
            tell: called again and again while it waits.

        Raises:
            Interrupted: if cancelled.
            EnvironmentFailure: if there is none and none comes.
        """
        end = time.monotonic() + self.options.join_s
        with self._changed:
            while True:
                if cancelled() or self._ending.is_set():
                    raise Interrupted("interrupted while waiting for an evaluator")
                found = self._idle(role, not_on)
                if found is not None:
                    found.state = "busy"
                    return found
                now = time.monotonic()
                if self.joined():
                    end = now + self.options.join_s
                if self._broken or now > end or self._hopeless():
                    raise EnvironmentFailure(self._none_left())
                tell()
                self._changed.wait(0.5)

    def release(self, worker: Worker) -> None:
        """Give it back."""
        with self._changed:
            worker.item = ""
            if worker.state == "busy":
                worker.state = "idle"
            self._changed.notify_all()

    def lose(self, worker: Worker, lost: WorkerLost, candidate: str = "") -> None:
        """Take an evaluator out; another one is placed at the next look round, and its log is fetched meanwhile."""
        with self._changed:
            if worker.state == "lost":
                return
            before, worker.state, worker.lost = worker.state, "lost", lost
            self._workers.pop(worker.number, None)
            if before == "starting":
                self._failures[worker.node.id] += 1
                self._why = lost.why
            self._changed.notify_all()
        with suppress(Exception, SystemExit):
            self.connection.ray.kill(worker.actor, no_restart=True)
        threading.Thread(target=self._tell, args=(worker, lost, candidate or worker.item), daemon=True).start()

    def close(self) -> None:
        """End all evaluators, and leave the cluster."""
        self._ending.set()
        with self._changed:
            gone, self._workers = list(self._workers.values()), {}
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(2 * TEND_S)
        if self.options.workers is not None and self.connection.ray.is_initialized():
            self.connection.ask_for(0, "GPU")
        for worker in gone:
            with suppress(Exception):
                if self.connection.ray.is_initialized():
                    self.connection.ray.kill(worker.actor, no_restart=True)
        self.connection.close()

    def _tell(self, worker: Worker, lost: WorkerLost, candidate: str) -> None:
        doing = f" while evaluating {candidate}" if candidate else ""
        text, last = f"{worker.name} was lost{doing}: {lost.why}", worker.last_words
        self.report(Incident(text=text, worker=worker.name, candidate=candidate, log=last))
        if lost.fault != "node" and (log := printed(self.connection, worker.node, worker.logs)):
            text = f"what the process of {worker.name} printed last is in the record"
            self.report(Incident(text=text, worker=worker.name, candidate=candidate, log=log, warning=False))

    def _idle(self, role: Role | None, not_on: str) -> Worker | None:
        able = [w for w in self._workers.values() if w.facts is not None and (role != "times" or w.role == "times")]
        elsewhere = [w for w in able if w.node.id != not_on]
        free = [w for w in (elsewhere or able) if w.state == "idle"]
        return min(free, key=lambda w: (role == "verifies" and w.role != "verifies", w.number), default=None)

    def _hopeless(self) -> bool:
        """Nothing runs, nothing starts, and every node was tried in vain."""
        return not self._workers and bool(self._failures) and not self._free_places()

    def _none_left(self) -> str:
        if why := self._broken or self._why:
            return f"no evaluator of the Ray cluster is left: {why}"
        return none_came(self.options, len(self._nodes), len(self._workers), self._joined_once)

    def _telling(self, wait_s: float, limit: str) -> Callable[[], None]:
        return telling(lambda: (self.options.workers, self.workers), wait_s, limit, lambda text: self.on_waiting(text))

    def _look_after(self) -> None:
        while not self._ending.wait(TEND_S):
            try:
                self._tend()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whoever waits for an evaluator must learn of it
                if self._ending.is_set():
                    return
                with self._changed:
                    self._broken = f"the cluster does not answer: {(str(error).splitlines() or ['?'])[0][:200]}"
                    self._changed.notify_all()
            else:
                self._broken = ""

    def _tend(self) -> None:
        self._nodes = self.connection.nodes()
        alive = {node.id for node in self._nodes}
        for worker in self.workers:
            try:
                if worker.node.id not in alive:
                    raise WorkerLost("node", "its node went away")
                if worker.state == "starting":
                    self._welcome(worker)
                else:
                    worker.beat(self.connection, self.options.lost_after_s)
            except WorkerLost as lost:
                self.lose(worker, lost)
        for node in self._free_places():
            if not self._ending.is_set():
                self._place(node)

    def _welcome(self, worker: Worker) -> None:
        if not self.connection.ray.wait([worker.hello], timeout=0)[0]:
            return
        said = json.loads(get(self.connection, worker.hello))
        if "error" in said:
            worker.last_words = list(said.get("log", []))
            raise WorkerLost("broken", f"{said['host']}: {said['error']}")
        if said["harness"] != self._identity:
            raise WorkerLost(
                "broken",
                f"{said['host']} has tilecast {said['harness']}, this machine {self._identity}: install the same there",
            )
        with self._changed:
            worker.host, worker.niceness, worker.logs = said["host"], int(said["niceness"]), list(said["logs"])
            self._joined_once = True
            worker.facts = DeviceFacts.model_validate(said["device"])
            worker.state, worker.alive_s, worker.role = "idle", time.monotonic(), self._role(worker)
            self._failures.pop(worker.node.id, None)
            self._changed.notify_all()

    def _role(self, worker: Worker) -> Role:
        same = self.model is None or worker.facts is None or worker.facts.name == self.model
        return "times" if same else "verifies"

    def _free_places(self) -> list[Node]:
        """Nodes with room for an evaluator, once for each place."""
        there = Counter(worker.node.id for worker in self._workers.values())
        places: list[Node] = []
        for node in self._nodes:
            room = node.gpus if self.options.evaluators == GPU else min(self.options.per_node, node.cpus)
            if self._failures[node.id] < START_TRIES:
                places += [node] * max(0, room - there[node.id])
        most = self.options.workers
        return places if most is None else places[: max(0, most - len(self._workers))]

    def _place(self, node: Node) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 1} if self.options.evaluators == GPU else {"num_cpus": 1}
        actor = (
            self.connection.ray.remote(Evaluator)
            .options(
                **needs,
                max_concurrency=THREADS,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(self._order)
        )
        with self._changed:
            self._number += 1
            self._workers[self._number] = Worker(self._number, node, actor, actor.hello.remote())
