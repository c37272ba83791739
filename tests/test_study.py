"""`tilecast study` and its parts: on a made-up corpus, and on the shared one where it lies beside the checkout."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from forecast_parts import KERNEL, REFERENCE, STRIDED
from typer.testing import CliRunner

from tilecast.agent.cli.app import app
from tilecast.sandbox.corpus import load_corpus
from tilecast.tools.forecast.model import load
from tilecast.tools.study.calibration import Bout, Judged, false_skips_at, skipping, summary
from tilecast.tools.study.policies import POLICIES, llm_order, mean_log_speedup
from tilecast.tools.study.pool import forecast_pool, load_pools
from tilecast.tools.study.study import replay

SPEEDS = {(2048, 8): 0.13, (1024, 8): 0.135, (64, 1): 0.9}


def corpus(folder: Path, with_llm: bool = True) -> Path:
    """One problem of two sources: three good CONFIGs of one, one of the other and one that failed."""
    place = folder / "scale"
    (place / "candidates").mkdir(parents=True)
    (folder / "corpus.toml").write_text('gpu = "NVIDIA H200"\n')
    (place / "reference.py").write_text(REFERENCE)
    (place / "candidates" / "a.py").write_text(KERNEL)
    (place / "candidates" / "b.py").write_text(STRIDED)
    rows = [{"candidate": "__ref__", "status": "BASELINE", "ms": 0.25}]
    for (block, warps), ms in SPEEDS.items():
        config = {} if block == 2048 else {"BLOCK": block, "num_warps": warps}
        rows.append({"candidate": "a", "config": config, "status": "PASSED", "ms": ms, "first_call_s": 0.5})
    rows.append({"candidate": "b", "config": {}, "status": "PASSED", "ms": 1.5, "first_call_s": 0.5})
    rows.append({"candidate": "b", "config": {"BLOCK": 64}, "status": "RUNTIME_ERROR", "first_call_s": 0.5})
    (place / "measurements.jsonl").write_text("\n".join(map(json.dumps, rows)))
    if with_llm:
        said = [
            {"candidate": "a", "p": [0, 0, 0, 0, 0.2, 0.6, 0.2, 0]},
            {"candidate": "b", "p": [0.5, 0.3, 0.2, 0, 0, 0, 0, 0]},
        ]
        (place / "llm_forecasts.jsonl").write_text("\n".join(map(json.dumps, said)))
    return folder


def test_the_document_has_the_contract_fields(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", str(corpus(tmp_path)), "--json", "--seeds", "3"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == 1 and document["problems"] == ["scale"]
    assert set(document["policies"]) == {"random", "roofline", "learned", "learned+online", "llm", "ensemble", "oracle"}
    for block in document["policies"].values():
        assert set(block["recovery"]) == {"0.01", "0.05", "0.10", "0.25", "0.50", "mean"}
        assert block["evals_to_95"] >= 1 and block["best_speedup"] > 0 and "scale" in block["per_problem"]
    assert set(document["forecaster"]) >= {"exact", "within_one", "brier", "crps", "ece", "spearman", "risk_at_60"}
    assert document["policies"]["oracle"]["recovery"]["mean"] == 1
    assert document["policies"]["oracle"]["best_speedup"] == pytest.approx(0.25 / 0.13, rel=1e-3)


def test_without_recorded_forecasts_there_is_no_llm_policy(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", str(corpus(tmp_path, with_llm=False)), "--json", "--seeds", "1"])
    assert not {"llm", "ensemble"} & set(json.loads(result.stdout)["policies"])


def test_pools_and_policies(tmp_path: Path) -> None:
    (pool,), left_out = load_pools(load_corpus(corpus(tmp_path)), load())
    assert not left_out and len(pool) == 5 and pool.speeds[4] == 0
    part = forecast_pool(pool)
    assert part is not None and len(part) == 2 and llm_order(part, 0) == [0, 1]
    for name, policy in POLICIES.items():
        assert sorted(policy(pool, 1)) == list(range(5)), name
    assert POLICIES["learned"](pool, 0)[0] in (0, 1)
    assert POLICIES["random"](pool, 1) != POLICIES["random"](pool, 2)
    found = replay(pool, POLICIES["oracle"], 2)
    assert found.evals_to_95 == 1 and found.best[10] == pytest.approx(0.25 / 0.13)


def test_an_empty_folder_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", str(tmp_path)])
    assert result.exit_code != 0


def test_expected_speedup_of_a_distribution() -> None:
    # All mass between 1 and sqrt(2): the geometric middle.
    assert mean_log_speedup([0, 0, 0, 0, 1, 0, 0, 0]) == pytest.approx(math.log(2) / 4)


def test_the_forecaster_block_by_hand() -> None:
    sure = (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    judged = [
        Judged("p", sure, 4, 0.2, 0.2),
        Judged("p", sure, 5, 0.1, 0.5),
        Judged("p", sure, 4, 0.3, 0.3),
        Judged("p", sure, 0, 0.0, -2),
    ]
    found = summary(judged)
    assert (found["exact"], found["within_one"]) == (0.5, 0.75)
    assert found["brier"] == pytest.approx(0.5) and found["ece"] == pytest.approx(0.5)


def test_false_skips_by_hand() -> None:
    bouts = [
        Bout(0.01, False, 1.0),
        Bout(0.02, True, 1.0),
        Bout(0.99, True, 1.0),
        Bout(0.45, True, 2.0),
        Bout(0.6, False, 5.0),
    ]
    # The three surest answers are 0.01, 0.99 and 0.02: one of two skips is wrong.
    assert false_skips_at(bouts, 0.6) == 0.5
    found = skipping(bouts, 0.05)
    assert found["skipped_share"] == pytest.approx(0.4) and found["gpu_seconds_saved_share"] == pytest.approx(0.2)
    assert false_skips_at([Bout(0.9, True, 1.0)]) == 0


def test_the_shipped_weights_recover_on_problems_they_did_not_see(shared_dir: Path) -> None:
    """Two problems of the public corpus, each by the model fitted without it; floors well under what was measured."""
    for name, least in (("softmax", 0.9), ("causal_attention", 0.95)):
        (pool,), _ = load_pools(load_corpus(shared_dir / "corpus" / name), load())
        for policy in ("learned", "learned+online"):
            found = replay(pool, POLICIES[policy], 1)
            assert np.mean(list(found.recovery.values())) > least, (name, policy)
