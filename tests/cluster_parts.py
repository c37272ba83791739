"""Parts of a Ray cluster for tests: several nodes on this machine, each a raylet of its own, and ways to hurt them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from loop_parts import KNOWN, TINY

from tilecast.agent.interrupts import descendants
from tilecast.sandbox.cluster.options import ClusterOptions
from tilecast.sandbox.cluster.sandbox import RaySandbox
from tilecast.sandbox.replay import ReplaySandbox

QUICK_DEATH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 4,
}
"""A node that does not answer is given up after some seconds instead of half a minute."""


@contextmanager
def local_cluster(nodes: int, cpus: int = 1) -> Iterator[Any]:
    """``nodes`` raylets beside a head node without CPUs, which evaluators are never placed on."""
    from tilecast.sandbox.cluster.connection import import_ray

    ray = import_ray("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": QUICK_DEATH})
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=cpus, wait=False)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        with suppress(Exception):
            ray.shutdown()
        for node in list(cluster.worker_nodes):
            thaw(node)
        cluster.shutdown()


def replaying(address: str, folder: Path = TINY, known: Any = KNOWN, **options: Any) -> RaySandbox:
    """A Ray sandbox whose evaluators replay a record."""
    recorded = ReplaySandbox(folder, lambda problem, progress: known)
    return RaySandbox(
        f"ray:{address}",
        ClusterOptions(evaluators=f"replay:{folder}", **{"lost_after_s": 5.0, "join_s": 60.0, **options}),
        recorded=recorded,
    )


def raylet(node: Any) -> int:
    """Process id of a node's raylet."""
    return int(node.all_processes["raylet"][0].process.pid)


def evaluators(node: Any) -> list[int]:
    """Process ids of the actors below a raylet: Ray names them in their title."""
    found = []
    for pid in descendants(raylet(node)):
        with suppress(OSError):
            if b"Evaluator" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def freeze(node: Any) -> None:
    """Stop a raylet and all below it: for the others the node is cut off, as behind a broken network."""
    for pid in [raylet(node), *descendants(raylet(node))]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


def thaw(node: Any) -> None:
    """Let a frozen node go on."""
    with suppress(Exception):
        for pid in [raylet(node), *descendants(raylet(node))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
