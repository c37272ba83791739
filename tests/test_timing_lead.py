"""The device is kept busy for longer than the host needs to queue a call, within limits, and not at all on a CPU."""

from __future__ import annotations

import pytest

from tilecast.sandbox.harness.judge.timing.lead import FEWEST, MOST, flushes_for

ONE_MS = 8_000_000_000
"""Bytes that the fastest memory writes in a millisecond."""


@pytest.mark.parametrize(
    ("queueing_ms", "flush_bytes", "flushes"),
    [
        (5.0, 0, 1),
        (0.0, ONE_MS // 10, FEWEST),
        (1.0, ONE_MS // 10, 15),
        (1.01, ONE_MS // 10, 16),
        (99.0, ONE_MS // 10, MOST),
    ],
)
def test_lead(queueing_ms: float, flush_bytes: int, flushes: int) -> None:
    assert flushes_for(queueing_ms, flush_bytes) == flushes
