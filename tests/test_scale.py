"""A long run: what the loop adds to a candidate does not grow with their number, nor does what it keeps of each."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from pathlib import Path

import pytest
from scale_parts import FormulaSandbox, Mark, run_of, write_problem
from test_builtin import JOURNAL, context, kernel, tried_of

from tilecast.agent.archive import Archive, Entry
from tilecast.agent.record.texts import Texts
from tilecast.sandbox.source import canonical_key
from tilecast.tools.propose.base import ProposalRequest, Tried
from tilecast.tools.propose.builtin import BuiltinProposer
from tilecast.tools.propose.history import Follower, History

COUNT, HUNDRED = 700, 100
MOST_GROWTH = 2.0
"""A proposer that reads all of its history anew at each step makes the last hundred of 700 2.7 times as slow as the
second hundred (tried, by forgetting where :class:`Follower` was), and is done soon enough for that to be said."""


def test_the_last_hundred_of_many_take_no_longer_than_the_first() -> None:
    space = {"block": list(range(400)), "warps": [1, 2, 4, 8], "stages": [1, 2, 3, 4, 5]}
    start = kernel({"block": 200, "warps": 4, "stages": 1}, space)
    entries: list[Tried] = []
    entry, proposer = entries.__getitem__, BuiltinProposer(start)
    archive, took_s = Archive(), []
    for index in range(COUNT):
        began_s = time.thread_time()
        history = History(entry, index)
        parent = entries[index // 2].candidate if entries else None
        proposal = proposer.propose(
            ProposalRequest(index=index, seed=1, parent=parent),
            context().model_copy(update={"tried": history}),
            JOURNAL,
        )
        assert proposal.candidate is not None
        archive.measured(index, proposal.candidate.sha256, 1.0 + index % 7)
        archive.draw(random.Random(index))
        took_s.append(time.thread_time() - began_s)
        entries.append(tried_of(proposal.candidate, None if index % 9 == 0 else 1.0 + index % 7))
    first, last = statistics.median(took_s[HUNDRED : 2 * HUNDRED]), statistics.median(took_s[-HUNDRED:])
    assert last < MOST_GROWTH * first, f"{first * 1e3:.2f} ms a proposal at first, {last * 1e3:.2f} ms at the end"
    assert len({canonical_key(item.candidate.source) for item in entries}) == COUNT


def test_a_run_keeps_the_details_of_the_last_and_the_best_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_problem(tmp_path)
    monkeypatch.setenv("TILECAST_HOME", str(tmp_path / "home"))
    marks: list[Mark] = []
    engine = run_of(tmp_path, 120, FormulaSandbox(), marks.append)
    result = engine.run()
    assert len(marks) == 120 and result.best is not None and engine._log is not None
    state = engine._log.state
    timed = [c for c in state.candidates.values() if c.timed and c.result is not None]
    whole = {c.index for c in timed if c.result is not None and c.result.details}
    assert whole <= {*state.judged[-64:], state.best} and state.best in whole and len(whole) > 50
    assert all(c.result is not None and c.result.speedup is not None for c in timed)
    kept = engine._log.record.open(result.run, time.monotonic).state
    assert all(c.result is not None and c.result.details for c in kept.candidates.values() if c.timed)


def test_the_archive_draws_by_weight_however_it_came_about() -> None:
    archive = Archive([Entry("a", 1.0, 0), Entry("b", 2.0, 3)])
    archive.measured(9, "c", 2.0)
    archive.built_on("c")
    drawn = Counter(archive.draw(random.Random(n)) for n in range(4000))
    # Weights 1, 64 / 4 and 64 / 2.
    assert drawn["c"] / drawn["b"] == pytest.approx(2.0, rel=0.15) and drawn["a"] / 4000 == pytest.approx(
        1 / 49, rel=0.4
    )
    assert archive.entries == [Entry("a", 1.0, 0), Entry("b", 2.0, 3), Entry("c", 2.0, 1)]


def test_a_reader_of_the_history_is_told_what_is_new_or_to_begin_anew() -> None:
    log = [tried_of(kernel({"B": n}, None), 1.0 + n) for n in range(5)]
    entry, follower = log.__getitem__, Follower()

    def news(tried: list[Tried] | History) -> tuple[bool, list[Tried]]:
        anew, items = follower.news(tried)
        return anew, list(items)

    assert news(History(entry, 2)) == (True, log[:2])
    assert news(History(entry, 4)) == (False, log[2:4])
    assert news(History(entry, 3)) == (True, log[:3])
    assert news(log) == (True, log)
    assert news(log) == (True, log)
    assert History(entry, 3)[-1] == log[2] and History(entry, 3)[1:] == log[1:3]


def test_texts_at_hand_are_bounded_and_the_last_ones() -> None:
    read: list[str] = []
    texts = Texts(lambda sha256: read.append(sha256) or sha256 * 10, most=25)
    assert [texts(name) for name in "aabca"] == [name * 10 for name in "aabca"]
    assert read == ["a", "b", "c", "a"]
