"""The scale on which latencies are learned: the logarithm of the excess over the problem's floor.

Nothing runs below the floor, and near it a few percent are the whole difference between candidates, while far above it only
factors matter. ``ln(ms / floor - 1 + EPSILON)`` has both: it is steep near the floor and logarithmic far above it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

EPSILON = 0.1
"""Excess at which the scale turns from linear to logarithmic; also how far below the floor a time may be (it is an estimate)."""


def excess(log_ratio: npt.ArrayLike) -> Floats:
    """From ln(ms / floor) to the learned scale."""
    result: Floats = np.log(np.maximum(np.expm1(np.asarray(log_ratio, dtype=np.float64)) + EPSILON, EPSILON / 10))
    return result


def log_ratio(value: npt.ArrayLike) -> Floats:
    """The way back: from the learned scale to ln(ms / floor)."""
    result: Floats = np.log1p(np.exp(np.minimum(np.asarray(value, dtype=np.float64), 50.0)) - EPSILON)
    return result
