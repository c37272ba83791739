"""The watched window: what discards a leg, what is only reported, and what cannot be told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tilecast.sandbox.harness.judge.timing.nvml import Nvml, NvmlUnavailable, Reading
from tilecast.sandbox.harness.judge.timing.window import Window, own_processes

OWN = 100


class Card:
    """A card that answers from a list of readings."""

    def __init__(self, *readings: Reading, busy: dict[int, int] | None = None) -> None:
        self.readings, self.busy, self.index = readings, busy, -1

    def read(self) -> Reading:
        self.index = min(self.index + 1, len(self.readings) - 1)
        return self.readings[self.index]

    def busy_processes(self) -> dict[int, int] | None:
        return self.busy


def reading(mhz: int = 1980, reasons: int = 0, processes: tuple[int, ...] = (OWN,)) -> Reading:
    return Reading(mhz, 3201, reasons, frozenset(processes))


def window(card: Card) -> Window:
    ticks = iter(range(1000))
    clock: Callable[[], float] = lambda: float(next(ticks))  # noqa: E731
    return Window(card, lambda: [OWN, OWN + 1], clock_s=clock)


def test_a_quiet_card_discards_nothing() -> None:
    seen = window(Card(reading(), reading(mhz=1965)))
    assert [seen.discard_reason() for _ in range(3)] == ["", "", ""]
    assert seen.report()["sm_mhz"] == {"low": 1965, "high": 1980}


@pytest.mark.parametrize(
    ("bit", "name"), [(0x08, "hardware slowdown"), (0x20, "software thermal"), (0x80, "power brake")]
)
def test_slowdowns_discard(bit: int, name: str) -> None:
    assert name in window(Card(reading(reasons=bit))).discard_reason()


def test_a_power_cap_is_reported_only() -> None:
    seen = window(Card(reading(reasons=0x04)))
    assert seen.discard_reason() == ""
    assert seen.report()["limited_by"] == {"power cap": 1}


def test_a_clock_that_falls_far_discards_and_small_moves_are_counted() -> None:
    seen = window(Card(reading(mhz=1980), reading(mhz=1200), reading(mhz=1800), reading(mhz=1980)))
    found = [seen.discard_reason() for _ in range(4)]
    assert found[0] == found[2] == found[3] == "" and "below its highest" in found[1]
    assert seen.report()["clock_moves"] == 3


def test_a_clock_lowered_by_the_power_cap_is_how_this_kernel_runs() -> None:
    seen = window(Card(reading(mhz=1980), reading(mhz=1400, reasons=0x04)))
    assert [seen.discard_reason() for _ in range(2)] == ["", ""]


def test_an_idle_neighbour_is_reported_a_busy_one_discards() -> None:
    idle = window(Card(reading(processes=(OWN, 7)), busy={7: 0}))
    assert idle.discard_reason() == "" and idle.report()["other_processes"] == [7]
    busy = window(Card(reading(processes=(OWN, 7)), busy={7: 35, OWN: 60}))
    assert "pid 7" in busy.discard_reason()


def test_who_is_there_all_the_time_is_looked_up_once_and_asked_about_now_and_then() -> None:
    class Counting(Card):
        asked = 0

        def busy_processes(self) -> dict[int, int] | None:
            self.asked += 1
            return {7: 0 if self.asked == 1 else 40}

    looked: list[int] = []
    now = [0.0]
    card = Counting(reading(processes=(OWN, 7)))
    seen = Window(card, lambda: looked.append(1) or [OWN], clock_s=lambda: now[0])
    verdicts = []
    for _ in range(8):
        verdicts.append(seen.discard_reason())
        now[0] += 0.03
    assert len(looked) == 1 and card.asked == 2
    assert verdicts[:4] == [""] * 4 and all("pid 7" in verdict for verdict in verdicts[4:])
    card.readings = [reading(processes=(OWN, 7, 8))]
    seen.discard_reason()
    assert len(looked) == 2, "a new one may be of this evaluation"


def test_foreign_process_ids_tell_nothing() -> None:
    seen = window(Card(reading(processes=(990001, 990002)), busy={990001: 80}))
    assert seen.discard_reason() == ""


def test_readings_are_rate_limited() -> None:
    card = Card(reading())
    seen = Window(card, lambda: [OWN], clock_s=lambda: 5.0)
    for _ in range(10):
        seen.discard_reason()
    assert card.index == 0


def test_a_blind_window_says_why() -> None:
    seen = Window(None, list, why_blind="no management library")
    assert seen.discard_reason() == ""
    assert seen.report() == {"watched": False, "why": "no management library"}


def test_own_processes_include_children() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in own_processes()
    finally:
        child.communicate()


def test_without_the_library_it_is_unavailable() -> None:
    with pytest.raises(NvmlUnavailable):
        Nvml("GPU-00000000-0000-0000-0000-000000000000")
