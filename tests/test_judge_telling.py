"""The judge's side of the conversation: progress carries the number of the request that is answered, whoever kept the sink."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from tilecast.sandbox.harness.judge.__main__ import Judge, serve
from tilecast.sandbox.harness.judge.failure import Failure, WorkerFailed
from tilecast.sandbox.harness.judge.telling import Telling
from tilecast.sandbox.harness.judge.timing.bench import Benchmark, BenchOptions
from tilecast.sandbox.harness.wire import Channel

Progress = Callable[[str], None]


class KeepsItsFirstSink:
    """A judge in which something was set up by the first request and speaks during the second, as a benchmark does."""

    def __init__(self) -> None:
        self.kept: Progress | None = None

    def answer(self, message: dict[str, Any], progress: Progress) -> dict[str, Any]:
        self.kept = self.kept or progress
        self.kept(f"at work on {message['op']}")
        return {"ok": True, "result": {}}

    def rest(self) -> None:
        """It holds nothing."""


def replies(messages: list[dict[str, Any]], judge: object) -> list[dict[str, Any]]:
    ours, theirs = Channel.pair()
    served = threading.Thread(target=serve, args=(Channel(theirs), cast(Judge, judge)))
    served.start()
    found = []
    for message in messages:
        ours.send(message)
        found.append(ours.receive(10))
        while "event" in found[-1]:
            found.append(ours.receive(10))
    ours.close()
    served.join(10)
    assert not served.is_alive()
    return found


def test_a_sink_kept_from_an_earlier_request_speaks_for_the_present_one() -> None:
    found = replies([{"id": 7, "op": "baselines"}, {"id": 8, "op": "bench"}], KeepsItsFirstSink())
    assert [(one["id"], one.get("text")) for one in found] == [
        (7, "at work on baselines"),
        (7, None),
        (8, "at work on bench"),
        (8, None),
    ]


def test_nothing_is_said_between_two_requests() -> None:
    ours, theirs = Channel.pair()
    telling = Telling(Channel(theirs))
    telling("before any")
    telling.begin(1)
    telling.end({"ok": True})
    telling("after it")
    telling.begin(2)
    telling("x" * 1000)
    assert ours.receive(5) == {"id": 1, "ok": True}
    assert ours.receive(5) == {"id": 2, "event": "progress", "text": "x" * 300}
    assert not ours.pending()


def test_clocks_that_disagree_in_a_later_request_are_told_there_and_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A benchmark is set up by ``baselines`` and serves every ``bench`` after it."""
    bench = Benchmark.__new__(Benchmark)
    disagreements = iter([True, False])

    def compare(*_: object) -> Any:
        class Compared:
            notes: list[str] = []

        return Compared()

    def agreement(_: object) -> str:
        if next(disagreements):
            raise WorkerFailed(Failure("REWARD_HACK", "the clocks differ", "clocks-disagree"))
        return "agreed"

    monkeypatch.setattr(bench, "_compare", compare)
    monkeypatch.setattr(bench, "_agreement", agreement)

    class OneBenchmark:
        def answer(self, message: dict[str, Any], progress: Progress) -> dict[str, Any]:
            if message["op"] == "baselines":
                bench.progress = progress
                return {"ok": True, "result": {}}
            timed, report = bench._agreed(cast(Any, None), cast(Any, None), "eager", BenchOptions())
            return {"ok": True, "result": {"report": report, "notes": timed.notes}}

        def rest(self) -> None:
            """It holds nothing."""

    found = replies([{"id": 1, "op": "baselines"}, {"id": 2, "op": "bench"}], OneBenchmark())
    assert [one["id"] for one in found] == [1, 2, 2]
    assert found[1]["text"] == "the clocks disagree: measuring once more"
    assert found[2]["result"] == {
        "report": "agreed",
        "notes": ["a first comparison was not used: the clocks differ"],
    }
