"""Forecasters of kernel latency, and the rules by which a forecast may save a measurement."""

from __future__ import annotations

from tilecast.tools.forecast.factory import make_forecaster

__all__ = ["make_forecaster"]
