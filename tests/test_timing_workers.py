"""Timing of real, confined workers on this machine's CPU: known ratios, liars, cheats that start late, user files."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tilecast.sandbox.harness.judge.case import CaseBuilder, WorkloadCase
from tilecast.sandbox.harness.judge.failure import ProblemRefused, WorkerFailed
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.timing import ceilings
from tilecast.sandbox.harness.judge.timing.baselines import Baselines
from tilecast.sandbox.harness.judge.timing.bench import Benchmark, BenchOptions
from tilecast.sandbox.harness.judge.timing.finalist import soak
from tilecast.sandbox.harness.judge.timing.paired import EMPTY_LEGS, PairedLegs
from tilecast.sandbox.harness.judge.timing.place import Place
from tilecast.sandbox.harness.judge.zygotes import Zygotes

CPU = torch.device("cpu")
EAGER = BenchOptions(baseline="eager", max_seconds=12.0)


def model(name: str, body: str, top: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return (
        f"import random, time\nimport torch\nimport torch.nn as nn\n{top}\nclass {name}(nn.Module):\n"
        f"    calls = 0\n    def forward(self, x):\n        self.calls += 1\n{lines}\n"
    )


SLEEPING = "time.sleep(0.003)\nreturn torch.softmax(x, -1)"
REFERENCE = (
    model("Model", SLEEPING) + "def get_inputs(): return [torch.randn(64, 128)]\ndef get_init_inputs(): return []\n"
)
PROBLEM = {"name": "sleeping_softmax", "source": REFERENCE, "sha256": hashlib.sha256(REFERENCE.encode()).hexdigest()}


@pytest.fixture(scope="module")
def benchmark(zygotes: Zygotes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benchmark]:
    state = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ceilings.COPY_BYTES, "cpu", 8 << 20)
        patch.setitem(ceilings.PRODUCT_SIDE, "cpu", 128)
        reference = Reference.open(zygotes, PROBLEM, CPU)
        builder = CaseBuilder(reference)
        made = Benchmark(Place(zygotes, CPU, state), PROBLEM, builder, builder.build("full"), lambda text: None)
    yield made
    made.close()
    reference.close()


def session_of(zygotes: Zygotes, case: WorkloadCase, source: str) -> Session:
    session = Session.open(zygotes, SessionOptions(CPU, timeout_s=60.0))
    session.load(source)
    session.construct("ModelNew", case.arguments, seed=0)
    return session


def measured(zygotes: Zygotes, benchmark: Benchmark, source: str, options: BenchOptions = EAGER) -> dict[str, object]:
    with session_of(zygotes, benchmark.case, source) as session:
        return benchmark.measure(session, options)


def failure_of(zygotes: Zygotes, benchmark: Benchmark, source: str) -> tuple[str, str]:
    with pytest.raises(WorkerFailed) as caught:
        measured(zygotes, benchmark, source)
    return caught.value.failure.status, caught.value.failure.reason


def test_a_known_ratio_is_found(zygotes: Zygotes, benchmark: Benchmark) -> None:
    result = measured(zygotes, benchmark, model("ModelNew", SLEEPING.replace("0.003", "0.002")))
    speedup, latency = result["speedup"], result["latency_ms"]
    assert isinstance(speedup, dict) and isinstance(latency, dict)
    assert result["verdict"] == "faster"
    # A sleep overshoots by the timer's slack and the softmax takes a little: 1.5 becomes a bit less.
    assert 1.2 < speedup["ratio"] < 1.55 and speedup["low"] <= speedup["ratio"] <= speedup["high"]
    assert 2.0 < latency["candidate"] < latency["baseline"] < 8.0
    details = result["details"]
    assert isinstance(details, dict)
    assert details["outputs_checked"] >= 40 and details["clocks"]["disagreement"] == ""


def test_the_same_kernel_is_not_called_different(zygotes: Zygotes, benchmark: Benchmark) -> None:
    short = BenchOptions(baseline="eager", max_seconds=4.0)
    assert measured(zygotes, benchmark, model("ModelNew", SLEEPING), short)["verdict"] in ("same", "undecided")


def test_spikes_and_drift_do_not_decide(zygotes: Zygotes, benchmark: Benchmark) -> None:
    """A fifth of the calls takes 1.5 to 3 times as long, and all grow by 3 % a second: still the same kernel."""
    body = (
        "factor = random.uniform(1.5, 3.0) if random.random() < 0.2 else 1.0\n"
        "drift = 1 + 0.03 * (time.monotonic() - START)\n"
        "time.sleep(0.003 * factor * drift)\nreturn torch.softmax(x, -1)"
    )
    # One start for both processes: a drift of their own would make them truly different.
    shaky = model("ModelNew", body, f"START = {time.monotonic()}\n")
    options = BenchOptions(baseline_source=shaky, max_seconds=4.0)
    assert measured(zygotes, benchmark, shaky, options)["verdict"] in ("same", "undecided")
    faster = shaky.replace("0.003 *", "0.002 *")
    result = measured(zygotes, benchmark, faster, replace(options, max_seconds=12.0))
    assert result["verdict"] == "faster" and result["baseline"] == "file"


def test_a_forged_inner_clock_is_caught(zygotes: Zygotes, benchmark: Benchmark) -> None:
    """The calls' times are divided by a thousand in the candidate's own process; the judge's clock sees the rest."""
    top = (
        "import tilecast.sandbox.harness.worker.timing as harness\n"
        "real = time.perf_counter_ns\nharness._NOW_NS = lambda: 10**12 + real() // 1000\n"
    )
    status, reason = failure_of(zygotes, benchmark, model("ModelNew", SLEEPING, top))
    assert status == "REWARD_HACK" and "clocks disagree" in reason


def test_empty_legs_are_made_where_clocks_are_held_against_them(
    zygotes: Zygotes, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[bool, int, int]] = []
    measure = PairedLegs.measure_empty

    def noted(legs: PairedLegs, calls: int, times: int) -> None:
        made.append((legs._warming, calls, times))
        measure(legs, calls, times)

    monkeypatch.setattr(PairedLegs, "measure_empty", noted)
    found = measured(zygotes, benchmark, model("ModelNew", SLEEPING))
    clocks = found["details"]["clocks"]  # type: ignore[index]
    assert made and not any(warming for warming, _, _ in made) and clocks["tolerance_ms"] > 0
    assert len({calls for _, calls, times in made if times == EMPTY_LEGS}) == 2, "single and double legs"


def test_a_clock_that_stands_still_is_caught(zygotes: Zygotes, benchmark: Benchmark) -> None:
    top = "import tilecast.sandbox.harness.worker.timing as harness\nharness._NOW_NS = lambda: 10**12\n"
    status, reason = failure_of(zygotes, benchmark, model("ModelNew", SLEEPING, top))
    assert status == "REWARD_HACK" and "no time" in reason


@pytest.mark.parametrize(
    "body",
    [
        "if self.calls > 20: return self.kept.clone()\nself.kept = torch.softmax(x, -1)\nreturn self.kept.clone()",
        "if self.calls > 20: return torch.empty_like(x)\nreturn torch.softmax(x, -1)",
        "y = torch.softmax(x, -1)\nif self.calls > 20: y[-1] = y[0]\nreturn y",
    ],
    ids=["replays", "returns unwritten memory", "copies a row"],
)
def test_whoever_stops_working_later_is_caught(zygotes: Zygotes, benchmark: Benchmark, body: str) -> None:
    status, reason = failure_of(zygotes, benchmark, model("ModelNew", body))
    assert status.startswith("INCORRECT") and "timed call" in reason


def test_settings_changed_while_timed_are_caught(zygotes: Zygotes, benchmark: Benchmark) -> None:
    body = "if self.calls > 20: torch.set_default_dtype(torch.float64)\nreturn torch.softmax(x, -1)"
    status, reason = failure_of(zygotes, benchmark, model("ModelNew", body))
    assert status == "REWARD_HACK" and "dtype" in reason


def test_a_slowed_baseline_is_out_of_reach(zygotes: Zygotes, benchmark: Benchmark) -> None:
    """The candidate delays torch.softmax in its own process: the baseline lives in another, and only the candidate pays."""
    top = "real = torch.softmax\ndef slow(*a):\n    time.sleep(0.004)\n    return real(*a)\ntorch.softmax = slow\n"
    result = measured(zygotes, benchmark, model("ModelNew", SLEEPING, top))
    assert result["verdict"] == "slower"


def test_a_soak_passes_and_fails(zygotes: Zygotes, benchmark: Benchmark) -> None:
    with session_of(zygotes, benchmark.case, model("ModelNew", "return torch.softmax(x, -1)")) as session:
        assert soak(benchmark, session) == 100
    wrong = "y = torch.softmax(x, -1)\nif x.data_ptr() % 256: y += 1e-3\nreturn y"
    with session_of(zygotes, benchmark.case, model("ModelNew", wrong)) as session, pytest.raises(WorkerFailed):
        soak(benchmark, session)


def test_baselines_are_ranked_once_and_kept(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilecast.sandbox.harness.judge.timing import baselines

    monkeypatch.setattr(baselines, "available", lambda device: (["eager"], ["torch.compile was left out: a test"]))
    first = Baselines(benchmark.baselines.bench, benchmark.contents, lambda text: None)
    ranking = first.ranking()
    first.close()
    assert ranking.fastest == "eager" and 2.5 < ranking.times_ms["eager"] < 9.0 and not ranking.cached
    second = Baselines(benchmark.baselines.bench, benchmark.contents, lambda text: None).ranking()
    assert second.cached and second.times_ms == ranking.times_ms and second.seconds == 0.0


def test_a_baseline_file_that_does_not_run_is_the_users_error(zygotes: Zygotes, benchmark: Benchmark) -> None:
    options = BenchOptions(baseline_source=model("ModelNew", "raise ValueError('broken')"))
    with pytest.raises(ProblemRefused, match="broken"):
        measured(zygotes, benchmark, model("ModelNew", SLEEPING), options)


def test_least_traffic_and_floor(benchmark: Benchmark) -> None:
    assert (benchmark.work.read_bytes, benchmark.work.written_bytes) == (64 * 128 * 4, 64 * 128 * 4)
    assert benchmark.peaks is not None and benchmark.peaks.bandwidth_gbs > 0


def test_state_folder_holds_ceilings(benchmark: Benchmark) -> None:
    assert benchmark.place.state_dir is not None
    assert list(Path(benchmark.place.state_dir).glob("ceilings-*.json"))
