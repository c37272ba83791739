"""Reading a profile and naming what limits a kernel."""

from __future__ import annotations

import pytest

from tilecast.sandbox.harness.judge.timing.profile import (
    METRICS,
    ProfileUnreadable,
    counters_profile,
    limiter,
    parse_table,
    static_profile,
)

COLUMNS = [
    "duration_ns",
    "dram_percent",
    "sm_percent",
    "occupancy_percent",
    "registers",
    "blocks",
    "limit_registers",
    "limit_shared",
]


def table(*kernels: tuple[str, dict[str, str]]) -> str:
    head = ["ID", "Kernel Name", *(METRICS[c] for c in COLUMNS)]
    units = ["", "", "us", "%", "%", "%", "register/thread", "", "block", "block"]
    rows = [["0", name, *(values.get(c, "0") for c in COLUMNS)] for name, values in kernels]
    lines = [",".join(f'"{cell}"' for cell in row) for row in (head, units, *rows)]
    return "==PROF== Connected to process 12\n==PROF== Profiling\n" + "\n".join(lines) + "\n"


def test_table_units_and_longest_kernel() -> None:
    text = table(
        ("fill", {"duration_ns": "2.1", "dram_percent": "10"}),
        (
            "softmax_kernel",
            {"duration_ns": "1,250.5", "dram_percent": "88.2", "blocks": "4096", "occupancy_percent": "70"},
        ),
    )
    profile = counters_profile(parse_table(text), sms=132)
    assert profile["longest"] == "softmax_kernel"
    assert profile["total_ms"] == pytest.approx(1.2526)
    assert profile["figures"]["duration_ns"] == pytest.approx(1_250_500)
    assert "memory bandwidth" in profile["limited_by"]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"local_loads": 10.0, "dram_percent": 90.0}, "spill"),
        ({"sm_percent": 80.0, "dram_percent": 30.0}, "arithmetic"),
        ({"l2_percent": 75.0, "dram_percent": 30.0}, "L2"),
        ({"blocks": 16.0, "dram_percent": 5.0}, "16 for 132"),
        ({"blocks": 4000.0, "occupancy_percent": 12.0, "limit_registers": 8.0, "limit_shared": 1.0}, "shared memory"),
        ({"blocks": 4000.0, "occupancy_percent": 60.0, "dram_percent": 20.0}, "latency"),
    ],
)
def test_what_limits_a_kernel(figures: dict[str, float], words: str) -> None:
    assert words in limiter(figures, sms=132)


@pytest.mark.parametrize("text", ["", "==ERROR== ERR_NVGPUCTRPERM - no permission", '"ID","Kernel Name"\n"",""\n'])
def test_no_table_is_an_error_that_says_what_came(text: str) -> None:
    with pytest.raises(ProfileUnreadable):
        parse_table(text)


def test_static_profile_names_spills() -> None:
    found = static_profile([{"name": "k", "regs": 255, "spills": 40, "shared": 0}], "no permission to read counters")
    assert "spill in k" in found["limited_by"] and found["why"]
    assert "unknown" in static_profile([{"name": "k", "regs": 40, "spills": 0}], "x")["limited_by"]
