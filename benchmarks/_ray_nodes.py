"""A Ray cluster of several raylets on this machine, a simulated record to replay there, and ways to hurt a node."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

REFERENCE = '''"""Twice the input."""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(1024)]


def get_init_inputs():
    return []
'''
KERNEL = '''"""One of many variants; only the record says how fast it is."""
from torch import nn

CONFIG = {"n": 0}


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
'''
QUICK_DEATH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
}


def simulated_record(folder: Path, items: int, mean_s: float, seed: int) -> Path:
    """A recorded problem whose times and durations are drawn: ``items`` variants, one in ten not correct."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (folder / "candidates").mkdir(exist_ok=True)
    (folder / "candidates" / "variant.py").write_text(KERNEL, encoding="utf-8")
    rows: list[dict[str, Any]] = [
        {"candidate": "__ref__", "config": {}, "status": "BASELINE", "ms": 1.0, "p10": 0.99, "p90": 1.01}
    ]
    for number in range(items):
        row: dict[str, Any] = {"candidate": "variant", "config": {"n": number}}
        row["seconds"] = round(mean_s * chance.uniform(0.5, 1.5), 3)
        if number % 10 == 9:
            rows.append({**row, "status": "INCORRECT_NUMERICAL", "error": "simulated"})
            continue
        ms = round(chance.lognormvariate(0.0, 0.3), 6)
        rows.append({**row, "status": "PASSED", "ms": ms, "p10": 0.99 * ms, "p90": 1.01 * ms})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "measurements.jsonl").write_text(text, encoding="utf-8")
    return folder


@contextmanager
def nodes(count: int, cpus: int) -> Iterator[Any]:
    """``count`` raylets with ``cpus`` CPUs each, and a head node without any."""
    from tilecast.sandbox.cluster.connection import import_ray

    ray = import_ray("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": QUICK_DEATH})
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=cpus, wait=False)
        cluster.wait_for_nodes()
        # Nodes are added from other threads later, where Python sets no signal handlers.
        ray._private.utils.set_sigterm_handler = lambda handler: None
        yield cluster
    finally:
        with suppress(Exception):
            ray.shutdown()
        for node in list(cluster.worker_nodes):
            signal_all(node, signal.SIGCONT)
        cluster.shutdown()


def raylet(node: Any) -> int:
    """Process id of a node's raylet."""
    return int(node.all_processes["raylet"][0].process.pid)


def below(pid: int) -> list[int]:
    """A process and all below it."""
    from tilecast.agent.interrupts import descendants

    return [pid, *descendants(pid)]


def evaluators(node: Any) -> list[int]:
    """Process ids of the evaluators of a node: Ray puts the actor's class into their title."""
    found = []
    for pid in below(raylet(node)):
        with suppress(OSError):
            if b"Evaluator" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def signal_all(node: Any, number: signal.Signals) -> None:
    """Send a signal to a raylet and all below it. SIGSTOP cuts the node off: nothing answers, connections stay open."""
    with suppress(Exception):
        for pid in below(raylet(node)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
