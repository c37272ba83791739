"""The eight bins: edges, labels and midpoints come from one definition and agree with each other."""

from __future__ import annotations

import pytest

from tilecast.sandbox.bins import COUNT, EDGES, bin_of, bounds, label, midpoint


def test_edges_are_the_contracts() -> None:
    assert EDGES == (0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 4.0)
    assert COUNT == 8


@pytest.mark.parametrize("index", range(COUNT))
def test_bounds_midpoint_and_label_name_the_same_bin(index: int) -> None:
    low, high = bounds(index)
    assert bin_of(midpoint(index)) == index
    assert bin_of(low) == index
    if high is not None:
        assert bin_of(high) == index + 1
    for value in (low, high):
        if value:
            assert f"{value:.3g}x" in label(index)


@pytest.mark.parametrize("index", [-1, 8])
def test_there_is_no_ninth_bin(index: int) -> None:
    with pytest.raises(IndexError, match="there are 8"):
        bounds(index)
