"""How long a device is kept busy before each timed call, so that it never waits for the host between the two markers.

With a single flush the device was done before the host had queued the call, and its idling was timed: medians of one kernel
then differed by 2 %, with four by 0.05 % (H200, kernels of 0.2 and 2 ms).
"""

from __future__ import annotations

import math

FEWEST, MOST = 6, 64
MARGIN = 1.5
"""How much longer than the host queues a call the device is kept busy."""
FASTEST_BYTES_PER_MS = 8e9
"""Above the bandwidth of today's GPUs (8 TB/s), so that a flush is never thought to last longer than it does."""


def flushes_for(queueing_ms: float, flush_bytes: int) -> int:
    """Flushes before a call whose queueing takes the host ``queueing_ms``; the judge chooses, and alike for both sides."""
    if not flush_bytes:
        return 1
    one_ms = flush_bytes / FASTEST_BYTES_PER_MS
    return min(MOST, max(FEWEST, math.ceil(MARGIN * queueing_ms / one_ms)))
