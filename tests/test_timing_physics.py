"""Speed of light: what is possible, what is not, and who may say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tilecast.sandbox.hardware import require_hardware
from tilecast.sandbox.harness.judge.timing import ceilings
from tilecast.sandbox.harness.judge.timing.physics import Peaks, Work, floor_of, judge_time, peaks_of

H200 = require_hardware("h200").model_dump()
MEASURED = {
    "bandwidth_gbs": 4300.0,
    "tflops": {"bfloat16": 740.0, "float32": 50.0},
    "launch_ms": 0.0022,
    "l2_bytes": 60 << 20,
}
COPY = Work(read_bytes=16 * 2048 * 3072 * 2, written_bytes=16 * 2048 * 3072 * 2, flops=0, dtype="bfloat16")


def peaks(dtype: str = "bfloat16") -> Peaks:
    found = peaks_of(MEASURED, H200, dtype)
    assert found is not None
    return found


def test_the_larger_of_measured_and_sheet() -> None:
    assert peaks().bandwidth_gbs == 4800.0
    faster = peaks_of(MEASURED | {"bandwidth_gbs": 4500.0}, H200, "bfloat16")
    assert faster is not None and faster.bandwidth_gbs == pytest.approx(4950.0)
    assert peaks().tflops == 989.0
    unknown_card = peaks_of(MEASURED, None, "bfloat16")
    assert unknown_card is not None and unknown_card.bandwidth_gbs == pytest.approx(4730.0)
    assert unknown_card.tflops == pytest.approx(814.0)
    assert peaks_of(None, None, "float32") is None


def test_a_view_that_passes_for_a_copy_is_faster_than_light() -> None:
    assert not judge_time(0.099, COPY, peaks(), speedup=1.0, confirmed=True).impossible
    found = judge_time(0.0013, COPY, peaks(), speedup=70.0, confirmed=False)
    assert "memory limit" in found.impossible and "4800" in found.impossible


def test_a_reference_that_returns_a_view_moves_nothing() -> None:
    view = Work(read_bytes=0, written_bytes=0, flops=0, dtype="bfloat16")
    assert not judge_time(0.001, view, peaks(), speedup=1.0, confirmed=False).impossible
    assert floor_of(view, peaks()).bound == "launch"


def test_writes_may_stay_in_l2() -> None:
    fill = Work(read_bytes=0, written_bytes=50 << 20, flops=0, dtype="float32")
    assert not judge_time(0.004, fill, peaks("float32"), speedup=1.0, confirmed=True).impossible


def test_less_arithmetic_than_the_reference_is_for_review_if_the_time_is_sure() -> None:
    product = Work(read_bytes=64 << 20, written_bytes=32 << 20, flops=2 * 4096**3, dtype="bfloat16")
    sure = judge_time(0.05, product, peaks(), speedup=3.0, confirmed=True)
    assert not sure.impossible and "less arithmetic" in sure.review
    limit_ms = floor_of(product, peaks()).compute_ms
    unsure = judge_time(0.26 * limit_ms, product, peaks(), speedup=3.0, confirmed=False)
    assert not unsure.impossible and "compute limit" in unsure.review
    impossible = judge_time(0.24 * limit_ms, product, peaks(), speedup=3.0, confirmed=False)
    assert "compute limit" in impossible.impossible and "0.25" in impossible.impossible
    assert "compute limit" in judge_time(0.24 * limit_ms, product, peaks(), speedup=3.0, confirmed=True).review


def test_large_speedups_are_flagged_not_rejected() -> None:
    found = judge_time(0.2, COPY, peaks(), speedup=12.5, confirmed=True)
    assert not found.impossible and "12.5" in found.review


@pytest.mark.parametrize("time_ms", [0.0, -1.0, float("nan"), float("inf")])
def test_no_time_at_all(time_ms: float) -> None:
    assert judge_time(time_ms, COPY, peaks(), speedup=1.0, confirmed=True).impossible


@pytest.mark.parametrize(
    ("work", "bound"),
    [
        (COPY, "memory"),
        (Work(64 << 20, 32 << 20, 2 * 8192**3, "bfloat16"), "compute"),
        (Work(1 << 20, 1 << 20, 0, "float32"), "launch"),
    ],
)
def test_what_binds(work: Work, bound: str) -> None:
    assert floor_of(work, peaks(work.dtype)).bound == bound


def test_ceilings_are_measured_once_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ceilings.COPY_BYTES, "cpu", 16 << 20)
    monkeypatch.setitem(ceilings.PRODUCT_SIDE, "cpu", 256)
    first = ceilings.load_or_measure(torch.device("cpu"), tmp_path, "a cpu/with: odd name")
    assert 0.1 < first["bandwidth_gbs"] < 5000 and first["tflops"]["float32"] > 0
    monkeypatch.setattr(ceilings, "measure", lambda device: pytest.fail("measured again"))
    assert ceilings.load_or_measure(torch.device("cpu"), tmp_path, "a cpu/with: odd name") == first


def test_a_damaged_cache_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "measure", lambda device: {"version": ceilings.VERSION, "torch": torch.__version__})
    (tmp_path / "ceilings-x.json").write_text("{not json")
    assert "measured_at" in ceilings.load_or_measure(torch.device("cpu"), tmp_path, "x")
    assert json.loads((tmp_path / "ceilings-x.json").read_text())["version"] == ceilings.VERSION
