"""The quick check of timed outputs: rounding passes, what was not computed does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tilecast.sandbox.harness.judge.timing import closeness
from tilecast.sandbox.harness.judge.timing.closeness import all_plainly_close, difference

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1.5e-2, torch.float16: 5e-3, torch.float64: 1e-10}


def expected(dtype: torch.dtype, shape: tuple[int, ...] = (64, 128)) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", [(64, 128), (4096,), (1,), (3, 5, 7)])
def test_rounding_passes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    want = expected(dtype, shape)
    have = (want.double() * (1 + torch.finfo(dtype).eps)).to(dtype)
    assert difference([want], [have], [TOLERANCE[dtype]]) == ""


def last_row_stale(x: torch.Tensor) -> None:
    x[-1] = torch.randn(x.shape[-1])


def half_unwritten(x: torch.Tensor) -> None:
    x[32:] = float("nan")


def one_element(x: torch.Tensor) -> None:
    x[5, 7] = x[5, 7] + 60


def scaled(x: torch.Tensor) -> None:
    x *= 1.1


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("damage", [last_row_stale, half_unwritten, one_element, scaled])
def test_what_was_not_computed_is_seen(dtype: torch.dtype, damage: Callable[[torch.Tensor], None]) -> None:
    want = expected(dtype)
    have = want.clone()
    damage(have)
    assert difference([want], [have], [TOLERANCE[dtype]])


def test_a_single_stale_row_among_thousands() -> None:
    want = expected(torch.float32, (5000, 64))
    have = want.clone()
    have[4321] = torch.randn(64)
    assert difference([want], [have], [1e-4])


def test_a_stale_scalar_among_sums() -> None:
    want = expected(torch.float32, (5000,)) * 100
    have = want.clone()
    have[17] += 90
    assert difference([want], [have], [1e-4])


def test_non_finite_values_must_agree() -> None:
    want = expected(torch.float32)
    want[0, 0], want[1, 1] = float("inf"), float("nan")
    assert difference([want], [want.clone()], [1e-4]) == ""
    have = want.clone()
    have[0, 0] = float("-inf")
    assert "finite" in difference([want], [have], [1e-4])


def test_large_and_tiny_magnitudes_do_not_leave_the_type() -> None:
    for scale in (1e30, 1e-30):
        want = expected(torch.float32) * scale
        assert difference([want], [want * (1 + 1e-6)], [1e-4]) == ""
        assert difference([want], [want * 1.01], [1e-4])


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ([], "0 outputs"),
        ([None], "no bytes"),
        ([torch.zeros(64, 127)], "shape"),
        ([torch.zeros(64, 128, dtype=torch.float16)], "float16"),
    ],
)
def test_structure(got: list[torch.Tensor | None], words: str) -> None:
    assert words in difference([expected(torch.float32)], got, [1e-4])


def test_exact_types_and_zero_tolerance_are_exact() -> None:
    ids = torch.arange(10)
    assert difference([ids], [ids.clone()], [0.0]) == ""
    assert "1 of 10" in difference([ids], [torch.where(ids == 3, 4, ids)], [0.0])
    want = expected(torch.bfloat16)
    assert difference([want], [want.clone()], [0.0]) == ""
    assert difference([want], [want * 1.02], [0.0])


@pytest.mark.parametrize("factor", [1e-30, 1e-8, 1.0, 1e8, 1e25])
@pytest.mark.parametrize("shape", [(300, 70), (2000,), (1, 1)])
@pytest.mark.parametrize("apart", [0.0, 0.5, 1.5, 3.0, 30.0])
def test_the_short_way_says_close_only_where_the_long_one_does(
    factor: float, shape: tuple[int, ...], apart: float
) -> None:
    """Whatever the scale; and where squares leave the type, the short way says nothing and the answer is the same."""
    tolerance = 1e-3
    want = expected(torch.float32, shape) * factor
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(4)) * factor
    have = want + apart * tolerance * noise
    rows = closeness._rows(want), closeness._rows(have)
    long = closeness._Distances.of(*rows, tolerance)
    wanted = bool(long.whole_is_close & long.rows_are_close)
    assert bool(closeness._plainly_close(*rows, tolerance)) == (wanted and 1e-12 < float(want.double().norm()) < 1e15)
    assert (difference([want], [have], [tolerance]) == "") == wanted


@pytest.mark.parametrize("dtype", [*TOLERANCE, torch.int32])
def test_several_calls_are_asked_about_at_once(dtype: torch.dtype) -> None:
    values = [torch.arange(12, dtype=torch.float64).reshape(3, 4).add(1 + shift).to(dtype) for shift in range(5)]
    tolerance = [TOLERANCE.get(dtype, 0.0)]
    right = [([value], [value.clone()]) for value in values]
    assert all_plainly_close(right, tolerance) and all_plainly_close([], tolerance)
    for index in range(5):
        wrong = values[index].clone()
        wrong[1] += 40
        for came in (
            [wrong],
            [None],
            [values[index][:2]],
            [values[index].to(torch.float16 if dtype is torch.int32 else torch.int32)],
            [],
        ):
            calls = [*right[:index], ([values[index]], came), *right[index + 1 :]]
            assert not all_plainly_close(calls, tolerance), came
            assert difference(*calls[index], tolerance), "and then which of them it is"


def test_an_output_that_neither_side_brought_is_left_to_the_check_of_its_call() -> None:
    """An earlier call's wrong output is then found first."""
    value = torch.ones(3, 4)
    assert not all_plainly_close([([value], [value + 1]), ([], [])], [1e-4])
    assert not all_plainly_close([([], [])], [1e-4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float8_e4m3fn])
def test_a_tolerance_of_zero_means_exact(dtype: torch.dtype) -> None:
    want = torch.tensor([[0.0, 1.0], [2.0, -3.0]]).to(dtype)
    assert all_plainly_close([([want], [want.clone()])], [0.0]) and not difference([want], [want.clone()], [0.0])
    have = torch.tensor([[torch.finfo(dtype).smallest_normal, 1.0], [2.0, -3.0]]).to(dtype)
    assert not all_plainly_close([([want], [have])], [0.0])
    assert "1 of 4 values differ" in difference([want], [have], [0.0])
    if dtype.itemsize > 1:
        same = torch.tensor([[float("nan"), 1.0]]).to(dtype)
        assert difference([same], [same.clone()], [0.0]) == ""
