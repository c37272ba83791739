"""A Ray cluster on one machine: how candidates a second grow with the evaluators, and what faults cost a run of 500.

    python benchmarks/ray_cluster.py            # both parts, about eight minutes on two cores
    python benchmarks/ray_cluster.py --part faults

Evaluators replay a simulated record and *sleep* for the time that it gives each candidate: so many of them fit on two cores,
and what is measured is the loop, the record, Ray and the watching, not kernels. The cluster is several raylets, each a node.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _bootstrap import header, parser, write
from _ray_nodes import evaluators, nodes, raylet, signal_all, simulated_record

WORKERS = (1, 2, 4, 8)
ITEMS_EACH, MEAN_S = 24, 1.0
FAULT_ITEMS, FAULT_MEAN_S, FROZEN_S = 500, 0.6, 25.0


def run_of(record: Path, known: Any, address: str, options: dict[str, Any], listen: Callable[[Any], None]) -> Any:
    """One ``optimize`` over all recorded variants; without an address in this process alone, one at a time, asleep never."""
    from tilecast.agent.assembly import Parts
    from tilecast.agent.budget import Limits
    from tilecast.agent.config import Settings, home
    from tilecast.agent.devices import ChosenDevice
    from tilecast.agent.engine import Engine, open_record
    from tilecast.agent.request import OptimizeRequest
    from tilecast.sandbox.cluster.options import ClusterOptions
    from tilecast.sandbox.cluster.sandbox import RaySandbox
    from tilecast.sandbox.problem import load_problem
    from tilecast.sandbox.replay import ReplaySandbox
    from tilecast.tools.propose.factory import ProposerSources, make_proposer

    problem = load_problem(record)
    recorded = ReplaySandbox(record, lambda problem, progress: known)
    chosen = ClusterOptions(evaluators=f"replay:{record}", replay_pace=1.0, **options)
    sandbox: Any = RaySandbox(f"ray:{address}", chosen, recorded=recorded) if address else recorded
    proposer = make_proposer(f"replay:{record}", ProposerSources(problem=problem, recorded=record))
    parts = Parts(ChosenDevice(sandbox, "", f"ray:{address}"), proposer, f"replay:{record}", "triton", 1)
    request = OptimizeRequest(
        problem=problem,
        start=None,
        settings=Settings(forecaster="none"),
        home=home(),
        limits=Limits(evals=100_000),
    )
    engine = Engine(request, [listen], make=lambda request, known: parts)
    result = engine.run()
    return result, open_record(None, home()).open(result.run, lambda: 0.0)


def times_of(log: Any) -> tuple[float, float]:
    """Seconds from the first evaluation's start to the last one's end, and the sum of what the evaluations took."""
    started = [s.elapsed_s for s in log.events(kind="evaluation_started")]
    done = log.events(kind="evaluated")
    return done[-1].elapsed_s - started[0], sum(s.event.charged_gpu_s for s in done)


def preflight_of(record: Path) -> Any:
    """The reference looked at once, on this machine's CPU."""
    from tilecast.sandbox.local import LocalSandbox
    from tilecast.sandbox.problem import load_problem

    sandbox = LocalSandbox("cpu")
    try:
        return sandbox.preflight(load_problem(record), lambda text: None)
    finally:
        sandbox.close()


def scaling(folder: Path, known: Any) -> list[dict[str, Any]]:
    """1, 2, 4 and 8 evaluators on at most four nodes; as many items for each."""
    found: list[dict[str, Any]] = []
    for count in WORKERS:
        record = simulated_record(folder / f"record-{count}", ITEMS_EACH * count, MEAN_S, seed=count)
        machines = min(count, 4)
        with nodes(machines, count // machines) as cluster:
            options = {"per_node": count // machines, "join_s": 120.0}
            _, log = run_of(record, known, cluster.address, options, lambda event: None)
        wall_s, busy_s = times_of(log)
        rate = ITEMS_EACH * count / wall_s
        found.append(
            {
                "workers": count,
                "nodes": machines,
                "items": ITEMS_EACH * count,
                "seconds": round(wall_s, 2),
                "candidates_per_s": round(rate, 3),
                "speedup": round(rate / found[0]["candidates_per_s"], 3) if found else 1.0,
                "busy_share": round(busy_s / (wall_s * count), 3),
                "load_average": round(os.getloadavg()[0], 1),
            }
        )
        print(found[-1], flush=True)
    for row in found:
        row["efficiency"] = round(row["speedup"] / row["workers"], 3)
    return found


class Faults:
    """Hurts the cluster when the run has come so far: a worker, a raylet, a whole node."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.done, self.told = cluster, 0, []  # type: ignore[var-annotated]
        self.began_s, self.over = time.monotonic(), threading.Event()

    def __call__(self, event: Any) -> None:
        """Called for every progress event of the run."""
        from tilecast.agent.progress import Finished, Said

        if isinstance(event, Said) and "worker" in event.text:
            self.told.append(f"{self._now()} told: {event.text}")
        if not isinstance(event, Finished):
            return
        self.done += 1
        action = {100: self.kill_worker, 200: self.kill_raylet, 350: self.cut_off}.get(self.done)
        if action is not None:
            threading.Thread(target=action, daemon=True).start()

    def kill_worker(self) -> None:
        """kill -9 of one evaluator."""
        pid = evaluators(self._node())[0]
        os.kill(pid, signal.SIGKILL)
        self.told.append(f"{self._now()} kill -9 of an evaluator")

    def kill_raylet(self) -> None:
        """kill -9 of a raylet; a node comes to replace it ten seconds later."""
        node = self._node()
        os.kill(raylet(node), signal.SIGKILL)
        self.told.append(f"{self._now()} kill -9 of a raylet")
        time.sleep(10.0)
        self.cluster.add_node(num_cpus=2, wait=False)
        self.told.append(f"{self._now()} a node was added")
        # Ray's processes end with the thread that started them.
        self.over.wait(600)

    def cut_off(self) -> None:
        """SIGSTOP of a raylet and all below it, and SIGCONT after a while."""
        node = self._node()
        signal_all(node, signal.SIGSTOP)
        self.told.append(f"{self._now()} SIGSTOP of a raylet and all below it")
        time.sleep(FROZEN_S)
        signal_all(node, signal.SIGCONT)
        self.told.append(f"{self._now()} SIGCONT")

    def _node(self) -> Any:
        return next(node for node in self.cluster.worker_nodes if evaluators(node))

    def _now(self) -> str:
        return f"{time.monotonic() - self.began_s:.0f} s, {self.done} done:"


def faults(folder: Path, known: Any) -> dict[str, Any]:
    """500 items on three nodes of two evaluators, with faults and without."""
    record = simulated_record(folder / "record-faults", FAULT_ITEMS, FAULT_MEAN_S, seed=500)
    plain, _ = run_of(record, known, "", {}, lambda event: None)
    with nodes(3, 2) as cluster:
        hurt = Faults(cluster)
        options = {"per_node": 2, "lost_after_s": 10.0, "join_s": 120.0}
        result, log = run_of(record, known, cluster.address, options, hurt)
        hurt.over.set()
    wall_s, busy_s = times_of(log)
    done = Counter(stored.event.index for stored in log.events(kind="evaluated"))
    notes = [stored.event for stored in log.events(kind="noted")]
    again = [
        c.index for c in log.state.candidates.values() if c.result and "lost" in c.result.details.get("worker", {})
    ]
    found = {
        "items": FAULT_ITEMS,
        "evaluators": 6,
        "seconds": round(wall_s, 1),
        "seconds_of_the_evaluations": round(busy_s, 1),
        "evaluated": len(done),
        "not_evaluated": FAULT_ITEMS - len(done),
        "evaluated_twice": sum(count > 1 for count in done.values()),
        "evals_charged": result.ledger.evals.spent,
        "device_seconds_charged": round(result.ledger.gpu_seconds.spent or 0.0, 3),
        "device_seconds_without_faults": round(plain.ledger.gpu_seconds.spent or 0.0, 3),
        "statuses": dict(Counter(str(c.result.status) for c in log.state.candidates.values() if c.result)),
        "evaluators_lost": sum("was lost" in note.text for note in notes),
        "items_tried_elsewhere_and_timed": len(again),
        "best": result.best.source_sha256 if result.best else None,
        "best_without_faults": plain.best.source_sha256 if plain.best else None,
        "same_best": bool(result.best and plain.best and result.best.source_sha256 == plain.best.source_sha256),
        "what_happened": hurt.told,
        "in_the_record": [{"text": note.text, "log_lines": len(note.figures.get("log", []))} for note in notes],
    }
    print(found, flush=True)
    return found


def main() -> None:
    """Both parts, or one; the result keeps what an earlier call wrote of the other."""
    arguments = parser(__doc__)
    arguments.add_argument("--part", choices=("scaling", "faults", "both"), default="both")
    given = arguments.parse_args()
    import json

    file = given.out / "ray_cluster.json"
    document = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    document = {**document, **header("ray_cluster")}
    document["method"] = (
        "evaluators sleep for the seconds of a simulated record; several raylets on one machine are the nodes"
    )
    with tempfile.TemporaryDirectory() as home:
        os.environ["TILECAST_HOME"] = home
        folder = Path(home)
        known = preflight_of(simulated_record(folder / "first", 1, 0.0, 0))
        if given.part in ("scaling", "both"):
            document["scaling"] = scaling(folder, known)
        if given.part in ("faults", "both"):
            document["faults"] = faults(folder, known)
    write(given.out, "ray_cluster", document)


if __name__ == "__main__":
    main()
