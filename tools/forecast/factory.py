"""A forecaster by name; heavy imports happen only for the one that is asked for."""

from __future__ import annotations

from pathlib import Path

from tilecast.sandbox.errors import UsageError
from tilecast.tools.forecast.base import Forecaster
from tilecast.tools.forecast.gpu_only import GpuOnly
from tilecast.tools.model.base import CallJournal, ChatModel

NAMES = ("auto", "learned", "llm", "ensemble", "roofline", "none")


def make_forecaster(
    name: str,
    *,
    model: ChatModel | None = None,
    journal: CallJournal | None = None,
    weights: str | Path | None = None,
) -> Forecaster:
    """The forecaster called ``name``; ``auto`` is ``learned``. It is silent about what does not run on a GPU.

    ``weights`` names a file written by ``tilecast forecaster fit``; without it the shipped weights serve.

    Raises:
        UsageError: for an unknown name, or ``llm`` and ``ensemble`` without a language model.
    """
    if name == "none":
        from tilecast.tools.forecast.nothing import NoForecaster

        return NoForecaster()
    return GpuOnly(_made(name, model, journal, weights))


def _made(name: str, model: ChatModel | None, journal: CallJournal | None, weights: str | Path | None) -> Forecaster:
    if name == "roofline":
        from tilecast.tools.forecast.roofline import RooflineForecaster

        return RooflineForecaster()
    if name in ("auto", "learned"):
        from tilecast.tools.forecast.learned import LearnedForecaster

        return LearnedForecaster.load(weights)
    if name not in NAMES:
        raise UsageError(f"unknown forecaster {name!r}: there are {', '.join(NAMES)}")
    if model is None or journal is None:
        raise UsageError(
            f"forecaster {name!r} asks a language model: name one with --model, or use --forecaster learned"
        )
    from tilecast.tools.forecast.llm import LlmForecaster

    llm = LlmForecaster(model, journal)
    if name == "llm":
        return llm
    from tilecast.tools.forecast.ensemble import EnsembleForecaster
    from tilecast.tools.forecast.learned import LearnedForecaster

    return EnsembleForecaster(LearnedForecaster.load(weights), llm)
