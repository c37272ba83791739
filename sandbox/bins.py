"""The one definition of the eight speedup bins: edges, labels, midpoints, and where a speedup falls.

Labels, prompt text, midpoints and reports are all generated from :data:`EDGES`.
"""

from __future__ import annotations

import math
from bisect import bisect_right

EDGES: tuple[float, ...] = (0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 4.0)
"""Inner edges, as speedup over the baseline; bin ``i`` holds ``EDGES[i-1] <= speedup < EDGES[i]``."""

COUNT = len(EDGES) + 1


def bounds(index: int) -> tuple[float, float | None]:
    """Lower and upper speedup of a bin; the last has no upper bound.

    Raises:
        IndexError: if ``index`` is not in ``0..7``.
    """
    if not 0 <= index < COUNT:
        raise IndexError(f"speedup bin {index} does not exist: there are {COUNT}, 0 to {COUNT - 1}")
    low = 0.0 if index == 0 else EDGES[index - 1]
    return low, (EDGES[index] if index < COUNT - 1 else None)


def bin_of(speedup: float) -> int:
    """Index of the bin that a speedup (baseline time over candidate time, dimensionless) falls in."""
    return bisect_right(EDGES, speedup)


def label(index: int) -> str:
    """Short text of a bin, as prompts and reports show it, for instance ``0.71x to 1x``."""
    low, high = bounds(index)
    if high is None:
        return f"{low:.3g}x or more"
    return f"below {high:.3g}x" if index == 0 else f"{low:.3g}x to {high:.3g}x"


def midpoint(index: int) -> float:
    """Geometric middle of a bin; the outer two are taken as half an octave wide beyond their edge."""
    low, high = bounds(index)
    if index == 0:
        return EDGES[0] * 2**-0.5
    return low * 2**0.5 if high is None else math.sqrt(low * high)
