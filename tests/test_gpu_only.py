"""A forecast is of a GPU: nothing is forecast for a CPU, neither where times are taken on one nor where a kernel runs on one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from chat_parts import session
from forecast_parts import EAGER, KERNEL, candidate, context
from loop_parts import TINY, Scripted, WatchedReplay, make_request, making, variant
from test_forecast_cli import call, forecasts

from tilecast.agent.engine import Engine, open_record
from tilecast.sandbox.base import BaselineTimes, DeviceFacts
from tilecast.sandbox.errors import UsageError
from tilecast.tools.forecast.factory import make_forecaster

CPP = Path(__file__).parents[1] / "examples" / "softmax_cpp"
ON_A_CPU = "times are taken on a CPU here, and forecasts are of GPUs"
OF_A_CPU = "its C++ runs on the CPU, and forecasts are of GPU kernels"


@pytest.mark.parametrize("name", ["learned", "roofline"])
def test_a_kernel_of_the_cpu_is_left_out_and_the_others_are_forecast(name: str) -> None:
    texts = [KERNEL, (CPP / "kernel.py").read_text(), EAGER]
    found = make_forecaster(name).forecast([candidate(text, f"k{i}") for i, text in enumerate(texts)], context())
    assert [item.candidate for item in found] == ["k0", "k1", "k2"]
    assert [item.latency_ms is None for item in found] == [False, True, False]
    assert (found[1].abstain, found[1].why, found[1].source) == (True, OF_A_CPU, name)


def test_where_times_are_taken_on_a_cpu_no_gpu_is_forecast_for() -> None:
    (found,) = make_forecaster("learned").forecast([candidate()], context(on_cpu=True))
    assert (found.latency_ms, found.abstain, found.why) == (None, True, ON_A_CPU)


class OnCpu(WatchedReplay):
    """The small record, as if a CPU had answered."""

    @property
    def device(self) -> DeviceFacts:
        """A CPU."""
        return DeviceFacts(kind="cpu", name="AMD EPYC")


def test_a_run_on_a_cpu_is_not_steered_by_forecasts_for_the_gpu_that_is_named() -> None:
    request = make_request(forecaster="learned", target="h200")
    script = [variant(256, 2), variant(64, 1), variant(1024, 16)]
    result = Engine(request, make=making(Scripted(script), OnCpu())).run()
    candidates = open_record(None, request.home).open(result.run, lambda: 0.0).state.candidates
    told = [c.forecast.why for c in candidates.values() if c.forecast is not None]
    assert told == [ON_A_CPU] * 3
    assert result.candidates.skipped_by_forecast == 0


def test_the_command_names_the_gpu_and_asks_for_none_where_none_is_used(tmp_path: Path) -> None:
    bare = call("forecast", CPP, CPP / "kernel.py")
    assert bare.exit_code == 0 and bare.stdout == f"kernel: no forecast: {OF_A_CPU}\n" and not bare.stderr
    named = call("forecast", CPP, CPP / "kernel.py", "--target", "H200")
    assert named.stdout == bare.stdout and not named.stderr
    wrong = call("forecast", CPP, CPP / "kernel.py", "--target", "voodoo2")
    assert isinstance(wrong.exception, UsageError)
    triton = tmp_path / "k.py"
    triton.write_text(KERNEL)
    mixed = call("forecast", CPP, triton, CPP / "kernel.py", "--target", "h100")
    assert " ms on H100 (" in mixed.stdout.splitlines()[0] and OF_A_CPU in mixed.stdout
    assert forecasts(CPP, triton, "--target", "h100")["target"] == "H100"
    assert json.loads(call("forecast", CPP, CPP / "kernel.py", "--json").stdout)["target"] is None


def test_in_a_session_a_time_of_the_cpu_is_no_baseline_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "scale"
    folder.mkdir()
    for name in ("reference.py", "kernel.py"):
        shutil.copy(TINY / name, folder)
    with session(monkeypatch, folder, device="cpu", target=None) as (chat, _):
        work = chat.box.work
        work.baselines = BaselineTimes(times_ms={"eager": 77.0}, fastest="eager")
        monkeypatch.setattr(type(work), "sandbox", OnCpu())
        assert ON_A_CPU in chat.box.call("forecast", {"path": "kernel.py"}).text
        work.settings = work.settings.model_copy(update={"target": "h200"})
        found: Any = chat.box.call("forecast", {"path": "kernel.py"})
        assert found.document["baseline_ms"] != 77.0
        assert "This is a forecast for H200, not a measurement." in found.text
