"""The files of a bundle folder, and what is refused: altered, half copied, unsigned, of another version, of another device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundle_parts import FormulaJudge, bundles_of, measured, results_of
from loop_parts import KERNEL, TINY, variant

from tilecast.sandbox.base import DeviceFacts, EvaluationOptions, Expected
from tilecast.sandbox.bundle import BundleSandbox
from tilecast.sandbox.errors import EnvironmentFailure, InvalidReference, WorkLeft
from tilecast.sandbox.hardware import catalogue, find_hardware
from tilecast.sandbox.harness import device_lock
from tilecast.sandbox.harness.bundles import files, layout, worker
from tilecast.sandbox.harness.bundles.files import Incomplete, Refused
from tilecast.sandbox.harness.bundles.worker import main as command_line
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus, Measurement
from tilecast.sandbox.turns import lock_file

PROBLEM, OPTIONS = load_problem(TINY), EvaluationOptions()
BODY: dict[str, Any] = {"kind": "result", "text": "é", "figures": [1, 2.5]}


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FormulaJudge]]:
    monkeypatch.setattr(worker, "JudgeProcess", FormulaJudge)
    monkeypatch.setattr(FormulaJudge, "asked", [])
    monkeypatch.delenv(files.KEY_VARIABLE, raising=False)
    return FormulaJudge


def do(folder: Path) -> list[str]:
    """Let a worker do what is there; what it said. It ends with 1 if it refused a bundle."""
    said: list[str] = []
    code = worker.work(worker.WorkerOptions(folder, once=True), said.append)
    assert code == ("bundle(s) refused" in said[-1])
    return said


def ask(sandbox: BundleSandbox) -> Measurement:
    """Write the benchmark of the tiny kernel and give up waiting, as one that leaves; then what is there counts."""
    sandbox.leave()
    try:
        return sandbox.benchmark(PROBLEM, KERNEL, OPTIONS.model_copy(update={"baseline": "eager"}), lambda text: None)
    finally:
        sandbox._leaving.clear()


def asked(folder: Path, stream: str = "run1") -> BundleSandbox:
    """A sandbox that has asked for one benchmark."""
    sandbox = BundleSandbox(folder, stream, PROBLEM)
    with pytest.raises(WorkLeft):
        ask(sandbox)
    return sandbox


def refusals(sandbox: BundleSandbox) -> str:
    with pytest.raises(WorkLeft):
        ask(sandbox)
    return " | ".join(i.text for i in sandbox.incidents() if i.warning)


def rewritten(path: Path, key: bytes | None = None, **changes: Any) -> Path:
    """A result changed and sealed again under the name that it then has, as one who knows the format would."""
    body = {**files.read(path, None).body, **changes}
    path.unlink()
    target = path.with_name(f"{body['item']}-{files.digest(body)[:16]}.json")
    files.write(target, body, key)
    return target


def test_a_sealed_file_is_read_back_and_every_altered_byte_is_noticed() -> None:
    blob = files.seal(BODY, b"key")
    assert files.unseal(blob, b"key").body == BODY
    for place in range(len(blob)):
        changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        with pytest.raises((Refused, Incomplete)):
            files.unseal(changed, b"key")


def test_every_beginning_of_a_file_is_incomplete_and_not_altered() -> None:
    blob = files.seal(BODY, b"key")
    for size in range(len(blob)):
        with pytest.raises(Incomplete):
            files.unseal(blob[:size], b"key")
    with pytest.raises(Refused, match="altered"):
        files.unseal(blob + b" ", b"key")


def test_with_a_shared_key_unsigned_files_and_those_of_another_key_are_refused() -> None:
    assert files.unseal(files.seal(BODY, b"key"), b"key").body == BODY
    assert files.unseal(files.seal(BODY, b"key"), None).body == BODY
    with pytest.raises(Refused, match="has no signature"):
        files.unseal(files.seal(BODY, None), b"key")
    with pytest.raises(Refused, match="another key"):
        files.unseal(files.seal(BODY, b"other"), b"key")


def test_links_and_folders_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(files.seal(BODY, None))
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(Refused):
            files.read(tmp_path / name, None)
    with pytest.raises(Incomplete):
        files.read(tmp_path / "missing", None)


def test_partial_names_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".a.json.Xy12").write_bytes(b"")
    (tmp_path / ".b.json").write_bytes(b"")
    (tmp_path / "c.json").write_bytes(b"")
    assert files.names_in(tmp_path) == ["c.json"] and files.names_in(tmp_path / "none") == []


def test_a_result_is_taken(tmp_path: Path) -> None:
    sandbox = asked(tmp_path)
    said = do(tmp_path)
    assert any("bench kernel: PASSED" in line for line in said)
    found = ask(sandbox)
    assert found.status is EvaluationStatus.PASSED and found.candidate == "kernel"
    assert sandbox.device == DeviceFacts.model_validate({**FormulaJudge.device, "kind": "bundle"})


def test_a_worker_does_nothing_twice(tmp_path: Path, judge: type[FormulaJudge]) -> None:
    asked(tmp_path)
    do(tmp_path)
    do(tmp_path)
    assert [op for op, _ in judge.asked] == ["bench"]


def test_work_asked_for_again_is_not_written_again(tmp_path: Path) -> None:
    asked(tmp_path)
    asked(tmp_path)
    assert len(bundles_of(tmp_path)) == 1
    asked(tmp_path, "run2")
    assert len(bundles_of(tmp_path)) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"harness": "0" * 64}, "harness version 0000000000000000, and this is"),
        ({"bundle": "1" * 64}, "stale: it answers bundle"),
        ({"item": "2" * 32}, "stale: the bundle has no item"),
        ({"kind": "bundle"}, "it is not a result"),
        ({"result": {"status": "PASSED"}}, "it is no answer to bench"),
        ({"ok": False}, "it is no answer to bench"),
        ({"device": None}, "measured on an unknown device"),
    ],
)
def test_a_result_that_is_not_to_be_used(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    sandbox = asked(tmp_path)
    do(tmp_path)
    (path,) = results_of(tmp_path)
    rewritten(path, **changes)
    assert reason in refusals(sandbox)


def test_a_result_about_another_candidate(tmp_path: Path) -> None:
    sandbox = asked(tmp_path)
    do(tmp_path)
    (path,) = results_of(tmp_path)
    other = variant(128, 2)
    figures = measured({"source": other.source, "sha256": other.sha256, "name": "x"}, {"baseline": "eager"})
    rewritten(path, result=figures)
    assert "it is about candidate" in refusals(sandbox)


def test_a_result_from_another_gpu_model(tmp_path: Path, judge: type[FormulaJudge], monkeypatch: Any) -> None:
    sandbox = asked(tmp_path)
    do(tmp_path)
    ask(sandbox)
    sandbox.leave()
    with pytest.raises(WorkLeft):
        sandbox.benchmark(PROBLEM, variant(128, 2), OPTIONS, lambda text: None)
    monkeypatch.setattr(judge, "device", {**judge.device, "name": "NVIDIA A100"})
    do(tmp_path)
    with pytest.raises(WorkLeft):
        sandbox.benchmark(PROBLEM, variant(128, 2), OPTIONS, lambda text: None)
    assert "measured on NVIDIA A100; this run's device is NVIDIA H200" in sandbox.incidents()[-1].text


def test_an_unsigned_result_is_refused_where_a_key_is_shared(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(files.KEY_VARIABLE, "a secret")
    sandbox = asked(tmp_path)
    do(tmp_path)
    (path,) = results_of(tmp_path)
    rewritten(path)
    assert "has no signature" in refusals(sandbox)
    do(tmp_path)
    assert ask(sandbox).status is EvaluationStatus.PASSED


def test_bundles_of_another_version_are_refused_by_the_worker_and_asked_again_by_the_run(
    tmp_path: Path, monkeypatch: Any
) -> None:
    for module in ("tilecast.sandbox.bundle_box", "tilecast.sandbox.harness.bundles.worker"):
        monkeypatch.setattr(f"{module}.harness_version", lambda: "f" * 64)
    asked(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(worker, "JudgeProcess", FormulaJudge)
    said = " ".join(do(tmp_path))
    assert "refused bundle" in said and "harness version ffffffffffffffff, and this is" in said
    assert not results_of(tmp_path)
    sandbox = BundleSandbox(tmp_path, "run1", PROBLEM)
    assert "for another harness version: asked for again" in refusals(sandbox)
    do(tmp_path)
    assert ask(sandbox).status is EvaluationStatus.PASSED


def test_a_machine_that_fails_is_tried_twice_then_named_and_tried_anew_in_the_next_session(
    tmp_path: Path, judge: type[FormulaJudge], monkeypatch: Any
) -> None:
    sandbox = asked(tmp_path)
    monkeypatch.setattr(judge, "failing", ("bench",))
    do(tmp_path)
    assert [op for op, _ in judge.asked] == ["bench", "bench"]
    found = ask(sandbox)
    assert found.status is EvaluationStatus.ENVIRONMENT_ERROR and "fell off the bus" in found.reason
    monkeypatch.setattr(judge, "failing", ())
    again = asked(tmp_path)
    do(tmp_path)
    assert ask(again).status is EvaluationStatus.PASSED


def test_a_reference_that_is_refused_there_is_refused_here(tmp_path: Path, judge: Any, monkeypatch: Any) -> None:
    def refuse(self: FormulaJudge, op: str, args: Any, progress: Any) -> Any:
        if op == "hello":
            return {"device": self.device, "sandbox": {"level": ""}}
        raise InvalidReference("the output is constant")

    monkeypatch.setattr(judge, "request", refuse)
    sandbox = BundleSandbox(tmp_path, "run1", PROBLEM)
    sandbox.leave()
    with pytest.raises(WorkLeft):
        sandbox.baselines(PROBLEM, OPTIONS, lambda text: None)
    do(tmp_path)
    with pytest.raises(InvalidReference, match="the output is constant"):
        sandbox.baselines(PROBLEM, OPTIONS, lambda text: None)


def test_a_candidate_sent_before_the_baselines_were_known_meets_the_fastest(
    tmp_path: Path, judge: type[FormulaJudge]
) -> None:
    sandbox = BundleSandbox(tmp_path, "run1", PROBLEM, Expected(OPTIONS, KERNEL))
    sandbox.leave()
    with pytest.raises(WorkLeft):
        sandbox.preflight(PROBLEM, lambda text: None)
    do(tmp_path)
    options = next(args["options"] for op, args in judge.asked if op == "bench")
    assert options["baseline"] == "eager" and options["hardware"]["key"] == "h200"
    assert ask(sandbox).baseline == "eager" and len(bundles_of(tmp_path)) == 1
    # It was fast, so it was examined a second time right away, and the loop finds that without asking for it.
    confirming = OPTIONS.model_copy(update={"baseline": "eager", "confirm": True})
    if ask(sandbox).verdict == "faster":
        assert "confirmed" in sandbox.benchmark(PROBLEM, KERNEL, confirming, lambda text: None).details


def test_what_was_withdrawn_is_not_done(tmp_path: Path, judge: type[FormulaJudge]) -> None:
    asked(tmp_path).finished()
    do(tmp_path)
    assert judge.asked == []


def test_a_folder_that_cannot_be_written_is_the_machines_lack(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match="cannot be used"):
        BundleSandbox(tmp_path / "file", "run1", PROBLEM)


def test_data_sheets_are_found_as_the_host_finds_them() -> None:
    sheets = [sheet.model_dump(mode="json") for sheet in catalogue().values()]
    for name in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla T4", "something else", *catalogue()):
        here, there = find_hardware(name), layout.data_sheet(sheets, name)
        assert (None if here is None else here.key) == (None if there is None else there["key"])


def test_worker_and_runs_take_turns_by_the_same_lock() -> None:
    for facts in (DeviceFacts(kind="cuda", name="x", index=1, uuid="GPU-1/2"), DeviceFacts(kind="cpu", name="x")):
        assert device_lock.lock_path(facts.kind, facts.index, facts.uuid) == lock_file(facts)


def test_a_worker_tells_its_result_as_one_document(tmp_path: Path, capsys: Any) -> None:
    assert command_line([str(tmp_path), "--device", "cpu", "--once", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["schema"] == 1 and (document["done"], document["refused"], document["interrupted"]) == (
        0,
        {},
        False,
    )
    assert "there are no bundles" in printed.err


@pytest.mark.parametrize("flag", ["--wait", "--for"])
@pytest.mark.parametrize("value", ["nan", "-1", "soon"])
def test_a_length_of_time_is_a_number(tmp_path: Path, flag: str, value: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as left:
        command_line([str(tmp_path), "--device", "cpu", "--once", f"{flag}={value}"])
    assert left.value.code == 2 and f"{value}: must be a number of seconds" in capsys.readouterr().err
