"""Figures about speed against facts: what is grounded, what is marked, and what is no claim at all."""

from __future__ import annotations

import pytest

from tilecast.agent.chat.claims import Ground, find_claims, marked
from tilecast.agent.toolbox.base import Fact
from tilecast.sandbox.source import source_sha256

TEXT = "CONFIG = {'block': 64}\n"
FAST = Fact(
    kind="measured",
    candidate="fast.py",
    source_sha256=source_sha256(TEXT),
    ratio=1.6,
    low=1.57,
    high=1.63,
    ms=0.5,
    baseline="compile",
    baseline_ms=0.8,
    verdict="faster",
    light=0.62,
)
SLOW = FAST.model_copy(
    update={"candidate": "slow.py", "ratio": 0.5, "low": 0.49, "high": 0.51, "ms": 1.6, "verdict": "slower"}
)
UNSURE = FAST.model_copy(
    update={"candidate": "unsure.py", "ratio": 1.02, "low": 0.98, "high": 1.06, "ms": 0.784, "verdict": "undecided"}
)
FORECAST = FAST.model_copy(
    update={"kind": "forecast", "candidate": "new.py", "ratio": 2.5, "low": 2.0, "high": 3.0, "ms": 0.32, "verdict": ""}
)
GROUND = Ground([FAST, SLOW, UNSURE, FORECAST], {"fast.py": TEXT}, [4800.0, 67000.0])


@pytest.mark.parametrize(
    "text",
    [
        "fast.py is 1.6x faster [1.57, 1.63] at 0.5 ms against 0.8 ms.",
        "fast.py takes 500 µs, 60% faster.",
        "1.60× speedup, 62% of the speed of light",
        "it reduces the time by 37.5%",
        "slow.py is 0.5x, slower than the baseline, as measured",
        "slow.py is 50% slower",
        "slow.py is 2x slower, slow.py takes 1.6 ms",
        "the forecast for new.py is 2.5x, at 320 us",
        "unsure.py: 1.02x, undecided",
        "the device moves 4.8 TB/s at most",
    ],
)
def test_grounded(text: str) -> None:
    found = find_claims(text, GROUND)
    assert found and [claim.trouble for claim in found] == [""] * len(found)
    assert marked(text, GROUND) == text


@pytest.mark.parametrize(
    ("text", "claim", "trouble"),
    [
        ("It is 3x faster now.", "3x", "unknown"),
        ("a speedup of 1.7x", "1.7x", "unknown"),
        ("It's 300% faster!", "300%", "unknown"),
        ("ten times faster", "ten", "unknown"),
        ("an order of magnitude faster", "magnitude", "unknown"),
        ("4-fold", "4-fold", "unknown"),
        ("runs in 12 microseconds", "12 microseconds", "unknown"),
        ("reaches 3.9 TB/s", "3.9 TB/s", "unknown"),
        ("91% of peak", "91%", "unknown"),
        ("fast.py is 2.5x", "2.5x", "unknown"),
        ("slow.py is 1.6x faster", "1.6x", "unknown"),
        ("fast.py is 1.6x slower", "1.6x", "unknown"),
        ("new.py is 2.5x faster", "2.5x", "forecast"),
        ("unsure.py is 1.02x faster", "1.02x", "undecided"),
        ("I saw `5x` in the log", "5x", "unknown"),
        ("1,000x faster", "1,000x", "unknown"),
    ],
)
def test_marked(text: str, claim: str, trouble: str) -> None:
    assert [(found.text, found.trouble) for found in find_claims(text, GROUND)] == [(claim, trouble)]
    assert marked(text, GROUND) != text


@pytest.mark.parametrize(
    "text",
    [
        "use a 2x2 tile of 128x64 and 4 warps",
        "```python\n# 3x faster, 2 ms\n```",
        "loop 3 times over 0x10",
        "50% of the rows",
    ],
)
def test_no_claim(text: str) -> None:
    assert find_claims(text, GROUND) == []


def test_a_figure_of_an_earlier_text_is_stale() -> None:
    changed = Ground([FAST], {"fast.py": TEXT + "# more\n"})
    assert [claim.trouble for claim in find_claims("fast.py is 1.6x", changed)] == ["stale"]
    wide = FAST.model_copy(
        update={"config": {"block": 128}, "source_sha256": source_sha256("CONFIG = {'block': 128}\n")}
    )
    assert [claim.trouble for claim in find_claims("fast.py is 1.6x", Ground([wide], {"fast.py": TEXT}))] == [""]


def test_without_facts_everything_is_marked() -> None:
    assert marked("2x and 3 ms", Ground([], {})) == "2x [not in the record] and 3 ms [not in the record]"
