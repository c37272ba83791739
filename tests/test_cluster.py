"""A run on a Ray cluster of this machine: the evaluators replay a record, one of them is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest
from cluster_parts import evaluators, local_cluster, replaying
from loop_parts import Scripted, make_request, making, variant

from tilecast.agent.devices import make_sandbox
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Fleet, Progress
from tilecast.sandbox.cluster import connection
from tilecast.sandbox.errors import EnvironmentFailure, UsageError

POINTS = [variant(b, w, s) for b in (64, 128, 256, 512) for w in (1, 2, 4) for s in (1, 2, 3)]

pytest.importorskip("ray")


@pytest.mark.timeout(360)
def test_a_killed_evaluator_costs_no_candidate_and_none_counts_twice(capfd: pytest.CaptureFixture[str]) -> None:
    """One actor is killed in the middle of an item: the item is done elsewhere, a new actor comes, the log is kept."""
    seen: list[Fleet] = []

    def listen(event: Progress) -> None:
        if isinstance(event, Fleet):
            seen.append(event)

    with local_cluster(nodes=2) as cluster:
        sandbox = replaying(cluster.address, replay_pace=0.8)
        engine = Engine(make_request(), [listen], make=making(Scripted(POINTS[:24]), sandbox))
        killed: list[int] = []

        def kill() -> None:
            while not any(w.state == "busy" and w.done >= 2 for w in sandbox.workers()):
                time.sleep(0.05)
            killed.extend(evaluators(next(iter(cluster.worker_nodes))))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        result = engine.run()
        log = open_record(None, engine.request.home).open(result.run, lambda: 0.0)
    assert len(killed) == 1
    assert capfd.readouterr().out == "", "nothing of Ray's own where a result may be"
    done = [stored.event.index for stored in log.events(kind="evaluated")]  # type: ignore[union-attr]
    assert sorted(done) == list(range(24)) and result.ledger.evals.spent == 24
    assert result.ledger.gpu_seconds.spent == pytest.approx(sum(c.charged_gpu_s for c in log.state.candidates.values()))
    plain = Engine(make_request(), make=making(Scripted(POINTS[:24]))).run()
    assert result.best is not None and plain.best is not None
    assert (result.best.source_sha256, result.best.speedup) == (plain.best.source_sha256, plain.best.speedup)
    notes = [stored.event for stored in log.events(kind="noted")]
    assert "was lost while evaluating" in notes[0].text and "its process ended" in notes[0].text  # type: ignore[union-attr]
    printed = [line for note in notes for line in note.figures["log"]]  # type: ignore[union-attr]
    assert any("benchmark" in line or "verify" in line for line in printed), "its log was fetched from its node"
    made_at = {c.result.details["worker"]["name"] for c in log.state.candidates.values() if c.result}
    assert len(made_at) >= 2
    assert max(len(fleet.workers) for fleet in seen) == 2


def test_an_address_where_nothing_answers_is_said_in_seconds() -> None:
    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"nothing answers at 127.0.0.1:9 .*is the head node up"):
        _ = replaying("127.0.0.1:9").device
    assert time.monotonic() - began < 10


def test_what_is_no_address_is_the_users_mistake() -> None:
    with pytest.raises(UsageError, match="'cpu' is no address of a Ray cluster"):
        _ = replaying("cpu").device


def test_without_ray_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError, match=r"--device ray needs Ray.*pip install 'tilecast\[ray\]'"):
        make_sandbox("ray", make_request().problem)


def test_keys_are_out_of_the_environment_while_ray_starts_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    seen: dict[str, Any] = {}
    with connection._without_secrets():
        seen.update(os.environ)
    assert "OPENAI_API_KEY" not in seen and os.environ["OPENAI_API_KEY"] == "secret"
