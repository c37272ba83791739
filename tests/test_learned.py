"""The learned forecaster with the shipped weights: what it sees, when it is silent, how it learns within a run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from forecast_parts import EAGER, KERNEL, REFERENCE, STRIDED, candidate, context, problem

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import EvaluationStatus, Forecast
from tilecast.tools.forecast import make_forecaster
from tilecast.tools.forecast.dataset import family_key, problem_key
from tilecast.tools.forecast.excess import excess, log_ratio
from tilecast.tools.forecast.model import WHOLE, load, save
from tilecast.tools.forecast.posterior import condition, covariance, inflation
from tilecast.tools.forecast.trees import Trees, from_arrays
from tilecast.tools.propose.base import Tried


def forecast(source: str, **known: object) -> Forecast:
    return make_forecaster("learned").forecast([candidate(source)], context(**known))[0]  # type: ignore[arg-type]


def median(source: str, **known: object) -> float:
    found = forecast(source, **known).latency_ms
    assert found is not None
    return found.median


def test_a_good_kernel_is_forecast_near_its_floor() -> None:
    found = forecast(KERNEL)
    assert found.latency_ms is not None and found.speedup is not None and not found.abstain
    floor = 2 * 8192 * 8192 * 4 / 4.3e12 * 1e3
    assert 0.9 * floor < found.latency_ms.median < 2 * floor
    assert found.latency_ms.low < found.latency_ms.median < found.latency_ms.high
    assert sum(b.p for b in found.bins) == pytest.approx(1) and found.p_faster > 0.75
    assert found.source == "learned" and found.cost.tokens == 0


def test_worse_kernels_are_forecast_slower() -> None:
    assert median(STRIDED) > 2 * median(KERNEL)
    assert median(EAGER) > 1.5 * median(KERNEL)


def test_names_and_comments_do_not_matter() -> None:
    renamed = (
        KERNEL.replace("scale", "terribly_slow").replace("offs", "q").replace("# the fastest of all kernels", "# bad")
    )
    assert median(renamed) == median(KERNEL)


def test_an_unknown_gpu_and_one_not_trained_on_are_silent() -> None:
    unknown = forecast(KERNEL, gpu="Voodoo 2")
    assert unknown.abstain and unknown.latency_ms is None and "catalogue" in unknown.why
    other = forecast(KERNEL, gpu="A100")
    assert other.abstain and "not trained on a100" in other.why


def test_what_cannot_be_walked_is_silent() -> None:
    found = forecast("import torch\nclass ModelNew(torch.nn.Module):\n    forward = compile_cuda('...')\n")
    assert found.abstain and found.why


def tried(source: str, ms: float) -> Tried:
    return Tried(candidate=candidate(source), status=EvaluationStatus.PASSED, latency_ms=ms)


def test_a_measurement_moves_the_rest_and_narrows() -> None:
    variant = KERNEL.replace('"BLOCK": 2048', '"BLOCK": 1024')
    slower = forecast(variant, tried=[tried(KERNEL, 0.2)])
    before, after = forecast(variant), forecast(variant, tried=[tried(KERNEL, median(KERNEL))])
    assert before.latency_ms is not None and after.latency_ms is not None and slower.latency_ms is not None
    assert slower.latency_ms.median > before.latency_ms.median
    width = [math.log(f.latency_ms.high / f.latency_ms.low) for f in (before, after) if f.latency_ms]
    assert width[1] < width[0]
    assert after.evidence["learned_from"] == 1


def test_evidence_informs_and_refusal_is_believed() -> None:
    def provider(status: str):  # type: ignore[no-untyped-def]
        launch = {
            "kernel": "scale",
            "status": status,
            "resources": {"registers": 32, "spills": 0, "shared_bytes": 0, "warps": 8},
        }
        return lambda c: {"source_sha256": c.sha256, "launches": [launch]}

    informed = forecast(KERNEL, evidence=provider("OK"))
    assert informed.evidence["tier"] == "evidence" and informed.p_valid > 0.9
    assert forecast(KERNEL, evidence=provider("COMPILE_ERROR")).p_valid < 0.1


def test_a_problem_in_training_gets_the_model_that_never_saw_it() -> None:
    weights = load()
    assert len(weights.trained_on) >= 3
    for key in weights.trained_on:
        assert weights.for_problem(key) is weights.models[key] is not weights.models[WHOLE]
    assert weights.for_problem(problem_key(REFERENCE)) is weights.models[WHOLE]


def test_identity_of_problems_and_families() -> None:
    assert problem_key(REFERENCE) == problem_key(REFERENCE.replace("Scale and shift", "Other words") + "\n# end\n")
    assert problem_key(REFERENCE) != problem_key(REFERENCE.replace("* 2", "* 3"))
    assert family_key(KERNEL) == family_key(KERNEL.replace("2048", "64"))
    assert family_key(KERNEL) != family_key(STRIDED)


def test_weights_go_round_and_bad_ones_are_refused(tmp_path: Path) -> None:
    weights = load()
    save(weights, tmp_path / "w.npz")
    again = load(tmp_path / "w.npz")
    rows = np.zeros((2, len(weights.names)))
    assert again.models[WHOLE].centres(rows) == pytest.approx(weights.models[WHOLE].centres(rows))
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(UsageError, match="cannot be read as forecaster weights"):
        load(tmp_path / "bad.npz")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "missing.npz")


def test_a_table_that_could_loop_is_no_forest() -> None:
    good = Trees(
        roots=np.array([0], dtype=np.int32),
        feature=np.array([0, -1, -1], dtype=np.int16),
        value=np.array([0.5, 1.0, 2.0], dtype=np.float32),
        right=np.array([2, 0, 0], dtype=np.int32),
        missing_left=np.array([True, False, False]),
    )
    assert list(good.predict(np.array([[0.0], [1.0], [math.nan]]))) == [1.0, 2.0, 1.0]
    bad = good.arrays("")
    bad["right"] = np.array([0, 0, 0], dtype=np.int32)
    with pytest.raises(ValueError, match="parent"):
        from_arrays(bad, "")


def test_the_learned_scale_goes_both_ways() -> None:
    values = np.array([-0.05, 0.0, 0.01, 0.5, 5.0])
    assert log_ratio(excess(values)) == pytest.approx(values, abs=1e-9)
    assert excess(0.02) - excess(0.0) > 5 * (excess(5.02) - excess(5.0))


def test_the_posterior_by_hand() -> None:
    shares = load().models[WHOLE].correlation
    same = np.array([[True, True, False], [True, True, False], [False, False, True]])
    prior = covariance(np.eye(3), same, shares)
    found = condition(prior, shares, np.array([0]), np.array([1.0]))
    # One observation: the gain is covariance over variance.
    total = shares.problem + shares.family + shares.similar + shares.noise
    assert found.shift[1] == pytest.approx((shares.problem + shares.family) / total, rel=1e-4)
    assert found.shift[2] == pytest.approx(shares.problem / total, rel=1e-4)
    assert found.deviation[1] < found.deviation[2] < 1.001
    assert inflation(prior, shares, np.array([], dtype=np.int64), np.array([])) == 1.0
    assert inflation(prior, shares, np.array([0, 1, 2]), np.array([3.0, -3.0, 3.0])) > 1.2
    assert inflation(prior, shares, np.array([0, 1, 2]), np.array([0.0, 0.0, 0.0])) < 1.0


def test_the_workload_that_is_tuned_is_the_one_forecast() -> None:
    text = REFERENCE + '\nWORKLOADS = {"quarter": {"m": 2048}}\n'
    own = problem(text)
    base = context().model_copy(update={"problem": own})
    full, quarter, unknown = (
        make_forecaster("learned").forecast([candidate()], base.model_copy(update={"workload": name}))[0]
        for name in ("full", "quarter", "missing")
    )
    assert full.latency_ms is not None and quarter.latency_ms is not None
    assert 3 < full.latency_ms.median / quarter.latency_ms.median < 5
    assert unknown.abstain and unknown.latency_ms is None
