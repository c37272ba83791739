"""What earlier results of a run decide: which baseline its candidates meet, and which of them are examined a second time."""

from __future__ import annotations

from tilecast.sandbox.harness.bundles import layout
from tilecast.sandbox.harness.bundles.queue import Todo, WorkQueue
from tilecast.sandbox.harness.wire import Message


def fastest_baseline(queue: WorkQueue, todo: Todo) -> str | None:
    """The fastest by the results that are there; None if baselines were not timed yet."""
    asked = {item["id"] for item in todo.bundle.body["items"] if item["op"] == "baselines"}
    for item, result in queue.of_stream(todo.bundle.stream).items():
        if result.get("ok") and (item in asked or "times_ms" in result["result"]):
            return str(result["result"]["fastest"])
    return None


def confirmation(queue: WorkQueue, todo: Todo, result: Message) -> Todo | None:
    """The item that examines a candidate again, if it is the fastest of its run so far and the run wants that."""
    if todo.item["op"] != "bench" or not result.get("ok") or confirms(todo.item):
        return None
    ratio, known = _lead(result["result"]), _best_of(queue, todo)
    if ratio is None or ratio <= known or not todo.bundle.body.get("confirm"):
        return None
    again = layout.confirming(todo.item, todo.bundle.body)
    return None if again["id"] in queue.results_of(todo.bundle) else Todo(todo.bundle, again)


def confirms(item: Message) -> bool:
    """Whether an item is a second examination."""
    return bool(item["args"].get("options", {}).get("confirm"))


def _best_of(queue: WorkQueue, todo: Todo) -> float:
    results = queue.of_stream(todo.bundle.stream)
    leads = (_lead(r["result"]) for key, r in results.items() if r.get("ok") and key != todo.item["id"])
    return max((lead for lead in leads if lead is not None), default=0.0)


def _lead(result: Message) -> float | None:
    """The speedup of a candidate that is faster than the baseline."""
    if result.get("status") != "PASSED" or result.get("verdict") != "faster":
        return None
    return float(result["speedup"]["ratio"])
