"""The forecaster that never has an opinion: every candidate is measured."""

from __future__ import annotations

from collections.abc import Sequence

from tilecast.sandbox.schema import Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext
from tilecast.tools.forecast.predictive import abstention


class NoForecaster:
    """Abstains always (``--forecaster none``)."""

    name = "none"

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]:
        """One abstention a candidate."""
        baseline = (context.baseline_name, context.baseline_ms)
        return [abstention(c, "no forecaster was asked for", "none", baseline) for c in candidates]
