"""What a lost evaluator's process printed, read on its node by a small task; nothing where the node is gone too."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tilecast.sandbox.cluster.connection import Connection, Node

TAIL_BYTES, TAIL_LINES = 16_384, 40
FETCH_S = 20.0


def tail(paths: list[str]) -> list[str]:
    """The last lines of files, those that cannot be read left out. Runs on the node."""
    lines: list[str] = []
    for path in paths:
        with suppress(OSError):
            text = Path(path).read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace")
            # Ray marks its own bookkeeping in these files; it says nothing about what went wrong.
            lines += [line for line in text.splitlines() if line and not line.startswith(":")][-TAIL_LINES:]
    return lines


def printed(connection: Connection, node: Node, paths: list[str]) -> list[str]:
    """The last lines of a process's output on another node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if not paths:
        return []
    # SystemExit is Ray's answer where its part of this process has ended meanwhile.
    with suppress(Exception, SystemExit):
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        task = connection.ray.remote(tail).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(paths)
        return list(connection.ray.get(task, timeout=FETCH_S))
    return ["its output could not be fetched"]
