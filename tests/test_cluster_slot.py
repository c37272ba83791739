"""What becomes of an item whose evaluators are lost, of several GPU models, and who is handed out: without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from loop_parts import KNOWN, TINY, make_request, variant

from tilecast.sandbox.base import BaselineTimes, DeviceFacts, EvaluationOptions
from tilecast.sandbox.cluster.connection import Node
from tilecast.sandbox.cluster.evaluator import Evaluator, harness_identity
from tilecast.sandbox.cluster.fleet import Fleet
from tilecast.sandbox.cluster.options import ClusterOptions
from tilecast.sandbox.cluster.sandbox import RaySandbox, merged
from tilecast.sandbox.cluster.slot import NODES, RaySlot
from tilecast.sandbox.cluster.worker import Worker, WorkerLost
from tilecast.sandbox.errors import EnvironmentFailure, InvalidReference, UsageError
from tilecast.sandbox.process import Interrupted
from tilecast.sandbox.schema import EvaluationStatus

pytest.importorskip("ray")

PROBLEM = make_request().problem
CANDIDATE = variant(256, 2)
H200 = DeviceFacts(kind="cuda", name="NVIDIA H200", uuid="GPU-11112222-3333", driver="580.1", compute_capability="9.0")
A100 = DeviceFacts(kind="cuda", name="NVIDIA A100-SXM4-80GB", uuid="GPU-4444", compute_capability="8.0")
WINDOW = {"window": {"sm_mhz": {"low": 1, "high": 2}}}
PASSED = {"status": "PASSED", "source_sha256": CANDIDATE.sha256, "seconds": 2.0, "details": WINDOW}


class ScriptedWorker(Worker):
    """Answers, or is lost, as the script says."""

    script: list[Any]

    def ask(self, connection: Any, item: dict[str, Any], *rest: Any) -> dict[str, Any]:
        said = self.script.pop(0)
        if isinstance(said, BaseException):
            raise said
        return dict(said)


class Handing(Fleet):
    """A fleet without a cluster: hands out scripted workers in turn."""

    def __init__(self, script: list[Any], options: ClusterOptions | None = None) -> None:
        self.options = options or ClusterOptions()
        self.connection: Any = None
        self.script, self.handed, self.losses, self.released = script, [], [], 0  # type: ignore[var-annotated]

    def acquire(self, role: Any, cancelled: Any, not_on: str = "") -> Worker:
        if cancelled():
            raise Interrupted("interrupted")
        number = len(self.handed)
        worker = ScriptedWorker(
            number, Node(f"node{number}", f"host{number}", 1, 1), None, None, facts=H200, host=f"host{number}"
        )
        worker.script = self.script
        self.handed.append((role, not_on))
        return worker

    def release(self, worker: Worker) -> None:
        self.released += 1

    def lose(self, worker: Worker, lost: WorkerLost, candidate: str = "") -> None:
        self.losses.append((lost.fault, candidate))

    def joined(self, role: Any = None) -> list[Worker]:
        return []


def slot_of(script: list[Any]) -> tuple[RaySlot, Handing]:
    sandbox = RaySandbox("ray", ClusterOptions())
    sandbox._device = H200
    fleet = Handing(script)
    sandbox._fleet = fleet
    return RaySlot(sandbox, fleet), fleet


def benchmark(script: list[Any]) -> tuple[Any, Handing]:
    slot, fleet = slot_of(script)
    with slot.turn():
        answer = slot.benchmark(PROBLEM, CANDIDATE, EvaluationOptions(), lambda text: None)
    assert not script
    return answer, fleet


def test_a_measurement_carries_where_it_was_made() -> None:
    answer, fleet = benchmark([{"result": PASSED}])
    told = answer.details["worker"]
    assert (told["host"], told["gpu_uuid"], told["driver"]) == ("host0", H200.uuid, "580.1")
    assert told["sm_mhz"] == {"low": 1, "high": 2} and "lost" not in told
    assert fleet.released == 1 and not fleet.losses


def test_an_item_is_tried_elsewhere_once_and_says_so() -> None:
    answer, fleet = benchmark([WorkerLost("ended", "its process ended"), {"result": PASSED}])
    assert answer.status is EvaluationStatus.PASSED
    assert answer.details["worker"]["lost"] == ["its process ended"] and answer.details["worker"]["host"] == "host1"
    assert fleet.handed[1] == ("times", "node0"), "another node than that of the first"
    assert fleet.losses == [("ended", CANDIDATE.name)]


@pytest.mark.parametrize(
    ("faults", "status"),
    [
        (("ended", "ended"), EvaluationStatus.RUNTIME_ERROR),
        (("ended", "hung"), EvaluationStatus.RUNTIME_ERROR),
        (("hung", "hung"), EvaluationStatus.TIMEOUT),
        (("broken", "broken"), EvaluationStatus.ENVIRONMENT_ERROR),
        (("node",) * NODES, EvaluationStatus.ENVIRONMENT_ERROR),
    ],
)
def test_after_that_it_is_blamed_with_the_story(faults: tuple[Any, ...], status: EvaluationStatus) -> None:
    answer, fleet = benchmark([WorkerLost(fault, f"story {n}") for n, fault in enumerate(faults)])
    assert answer.status is status and answer.source_sha256 == CANDIDATE.sha256
    assert "story 0; then story 1" in answer.reason and len(fleet.losses) == len(faults)


def test_nodes_that_go_away_say_nothing_about_a_candidate() -> None:
    gone = WorkerLost("node", "its node went away")
    answer, _ = benchmark([gone, WorkerLost("ended", "killed"), gone, {"result": PASSED}])
    assert answer.status is EvaluationStatus.PASSED


def test_a_broken_judge_is_a_lost_evaluator_and_a_users_mistake_is_none() -> None:
    broken = {"error": "environment", "message": "the judge died", "exit_code": 3}
    answer, fleet = benchmark([broken, {"result": PASSED}])
    assert answer.status is EvaluationStatus.PASSED and fleet.losses[0][0] == "broken"
    with pytest.raises(UsageError, match="workload"):
        benchmark([{"error": "environment", "message": "workload 'x' is not there", "exit_code": 2}])
    with pytest.raises(InvalidReference, match="random"):
        benchmark([{"error": "problem", "message": "random"}])


def test_rays_own_exit_does_not_end_the_program_in_silence() -> None:
    with pytest.raises(EnvironmentFailure, match="the connection to the Ray cluster is gone"):
        benchmark([SystemExit(0)])


def test_what_is_interrupted_is_not_tried_again() -> None:
    slot, fleet = slot_of([WorkerLost("hung", "it did not stop")])
    with slot.turn():
        slot.interrupt()
        with pytest.raises(Interrupted):
            slot.benchmark(PROBLEM, CANDIDATE, EvaluationOptions(), lambda text: None)
    assert len(fleet.handed) == 1


def test_setting_up_that_fails_everywhere_is_the_clusters_fault() -> None:
    slot, _ = slot_of([WorkerLost("broken", "no CUDA"), WorkerLost("broken", "no CUDA")])
    with (
        slot.turn(),
        pytest.raises(EnvironmentFailure, match="preflight of scale on the cluster: no CUDA; then no CUDA"),
    ):
        slot.preflight(PROBLEM, lambda text: None)


def bound(found: list[DeviceFacts], target: str | None = None) -> DeviceFacts:
    return RaySandbox("ray", ClusterOptions(target=target))._bound(found)


def test_several_models_need_a_target_and_the_others_only_verify() -> None:
    assert bound([H200, H200]).uuid == "", "of the model, not of one card"
    with pytest.raises(UsageError, match=r"several models \(NVIDIA A100-SXM4-80GB, NVIDIA H200\).*--target"):
        bound([H200, A100])
    assert bound([A100, H200], "h200").name == "NVIDIA H200"
    with pytest.raises(EnvironmentFailure, match="--target h200: the cluster has no such GPU; it has NVIDIA A100"):
        bound([A100], "h200")


def fleet_of(*members: tuple[DeviceFacts, str], model: str | None = None) -> Fleet:
    fleet = Fleet.__new__(Fleet)
    Fleet.__init__(fleet, None, ClusterOptions(), False)  # type: ignore[arg-type]
    for number, (facts, node) in enumerate(members):
        fleet._workers[number] = Worker(number, Node(node, node, 1, 1), None, None, state="idle", facts=facts)
    if model is not None:
        fleet.bind(model)
    return fleet


def test_times_are_taken_on_the_bound_model_only_and_others_verify_first() -> None:
    fleet = fleet_of((H200, "a"), (A100, "b"), model=H200.name)
    assert fleet.acquire("verifies", lambda: False).facts == A100
    assert fleet.acquire("verifies", lambda: False).facts == H200, "an idle one that takes times helps out"
    fleet = fleet_of((H200, "a"), (A100, "b"), model=H200.name)
    assert fleet.acquire("times", lambda: False).facts == H200
    assert [w.role for w in fleet.workers] == ["times", "verifies"]


def test_a_second_try_goes_to_another_node_where_there_is_one() -> None:
    fleet = fleet_of((H200, "a"), (H200, "a"), (H200, "b"))
    assert fleet.acquire("times", lambda: False, not_on="a").node.id == "b"
    fleet = fleet_of((H200, "a"), (H200, "a"))
    assert fleet.acquire("times", lambda: False, not_on="a").node.id == "a"


def test_where_no_evaluator_comes_the_reason_is_told() -> None:
    fleet = fleet_of()
    fleet._failures["a"], fleet._why = 3, "a has tilecast 0.0.1+x, this machine 0.1.0+y: install the same there"
    fleet._nodes = [Node("a", "a", 1, 1)]
    with pytest.raises(EnvironmentFailure, match=r"no evaluator of the Ray cluster is left: a has tilecast 0\.0\.1"):
        fleet.acquire("times", lambda: False)


def test_baselines_of_several_gpus_are_one_and_each_keeps_its_own_in_the_notes() -> None:
    a = BaselineTimes(times_ms={"eager": 1.0, "compile": 0.50, "max-autotune": 0.4}, fastest="max-autotune", seconds=5)
    b = BaselineTimes(times_ms={"eager": 1.1, "compile": 0.52}, fastest="compile", seconds=7)
    both = merged([("worker 1", a), ("worker 2", b)])
    assert both.fastest == "compile" and both.times_ms == {"eager": 1.05, "compile": 0.51} and both.seconds == 12
    assert (
        "worker 2: compile 0.52 ms" in both.notes and "compile differs by 4.00% between 2 evaluators" in both.notes[2]
    )


def test_an_evaluator_answers_an_item_it_has_done_from_memory() -> None:
    evaluator = Evaluator(json.dumps({"evaluators": f"replay:{TINY}", "require_sandbox": False, "replay_pace": 0.0}))
    item = {
        "id": "benchmark:1",
        "op": "benchmark",
        "problem": PROBLEM.model_dump(mode="json"),
        "candidate": CANDIDATE.model_dump(mode="json"),
        "options": EvaluationOptions().model_dump(mode="json"),
        "known": KNOWN.model_dump(mode="json"),
    }
    first = evaluator.evaluate(json.dumps(item))
    assert json.loads(first)["result"]["latency_ms"]["candidate"] == 0.5
    evaluator._sandbox = None  # type: ignore[assignment]
    assert evaluator.evaluate(json.dumps(item)) == first


def test_the_harness_is_named_by_its_text() -> None:
    assert harness_identity() == harness_identity()
    assert len(harness_identity().partition("+")[2]) == 16
    assert (Path(__file__).parent.parent / "sandbox" / "harness").is_dir()
