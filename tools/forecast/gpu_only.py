"""Forecasts are of GPUs: silence for what is timed on a CPU, and for a candidate whose kernels run on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tilecast.sandbox.languages import languages_in
from tilecast.sandbox.schema import Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext, Forecaster
from tilecast.tools.forecast.predictive import Source, abstention

CPU_LANGUAGE, GPU_LANGUAGES = "cpp", frozenset({"triton", "cutile", "cuda"})


def runs_on_cpu(candidate: Candidate) -> bool:
    """Whether its kernels are C++ for the CPU and nothing else; plain PyTorch runs wherever its tensors are."""
    found = languages_in(candidate.source)
    return CPU_LANGUAGE in found and not GPU_LANGUAGES & set(found)


class GpuOnly:
    """A forecaster that is asked only about what runs on a GPU.

    Args:
        inner: what forecasts.
    """

    def __init__(self, inner: Forecaster) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """As the forecaster within."""
        return self._inner.name

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]:
        """One forecast a candidate, in order; an abstention with the reason where there is no GPU in it."""
        reasons = [_reason(candidate, context) for candidate in candidates]
        asked = [candidate for candidate, why in zip(candidates, reasons, strict=True) if not why]
        found = iter(self._inner.forecast(asked, context) if asked else [])
        source, baseline = cast(Source, self.name), (context.baseline_name, context.baseline_ms)
        return [
            abstention(candidate, why, source, baseline) if why else next(found)
            for candidate, why in zip(candidates, reasons, strict=True)
        ]


def _reason(candidate: Candidate, context: ForecastContext) -> str:
    if context.on_cpu:
        return "times are taken on a CPU here, and forecasts are of GPUs"
    return "its C++ runs on the CPU, and forecasts are of GPU kernels" if runs_on_cpu(candidate) else ""
