"""What a run says while it waits for evaluators of a cluster, and where none come: counts, limit, remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tilecast.sandbox.cluster.options import ClusterOptions
from tilecast.sandbox.cluster.worker import Worker


def telling(
    count: Callable[[], tuple[int | None, Sequence[Worker]]], wait_s: float, limit: str, tell: Callable[[str], None]
) -> Callable[[], None]:
    """A function to call again and again during a wait; it tells of each change once.

    Args:
        count: evaluators asked for (None: as many as are placed), and those placed.
        wait_s: seconds from now to the end of the wait.
        limit: what sets that end, in words.
        tell: gets the line.
    """
    until, told = f"{datetime.now().astimezone() + timedelta(seconds=wait_s):%H:%M:%S}", [""]

    def look() -> None:
        asked, placed = count()
        starting = sum(worker.state == "starting" for worker in placed)
        there = len(placed) - starting
        text = f"evaluators: {asked or len(placed)} asked for, {there} there, {starting} starting"
        if text != told[0]:
            told[0] = text
            tell(f"{text}; waits until {until} ({limit})")

    return look


def no_place(options: ClusterOptions, nodes: int) -> str:
    """Why a run does not begin: no node has what an evaluator takes, and none was asked for."""
    text = f"the Ray cluster of {nodes} node(s) has no {options.resource} for an evaluator; where nodes come when they are "
    text += "asked for, write [ray] workers = N into tilecast.toml"
    return f'{text}; for CPUs, [ray] evaluators = "cpu"' if options.resource == "GPU" else f"{text}; else add a node"


def none_came(options: ClusterOptions, nodes: int, placed: int, before: bool) -> str:
    """Why a run ends: nothing came in time. ``before``: evaluators had been there."""
    limit = f"within join_s = {options.join_s:g} s"
    if before:
        return f"no evaluator of the Ray cluster is left, and no other one came {limit} ({nodes} node(s))"
    what = f"none of {placed} evaluator(s) started" if placed else f"no {options.resource} came"
    asked = "" if options.workers is None else f"[ray] workers = {options.workers} asked for; "
    return (
        f"{what} {limit} ({asked}{nodes} node(s) there); `ray status` on the head node says what it waits for, "
        "and a larger join_s under [ray] waits longer"
    )
