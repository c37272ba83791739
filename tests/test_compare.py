"""Structure before values, exact types, NaN and infinities in their places, ties, and reasons that can be acted on."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_parts import answer_of, judged
from torch import Tensor, nn

from tilecast.sandbox.harness.judge import compare as comparing
from tilecast.sandbox.harness.judge.bounds import readable
from tilecast.sandbox.harness.judge.compare import compare, compare_values
from tilecast.sandbox.harness.judge.input_profiles import InputProfile
from tilecast.sandbox.harness.judge.planting import dependent, plant
from tilecast.sandbox.harness.judge.structure import OutputClaim, compare_structure, overlapping


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def claims(*tensors: Tensor) -> list[OutputClaim]:
    return [OutputClaim.of(item) for item in tensors]


@pytest.mark.parametrize(
    ("got", "status", "word"),
    [
        ([], "INCORRECT_SHAPE", "0 output tensors"),
        ([torch.zeros(3, 4), torch.zeros(3, 4)], "INCORRECT_SHAPE", "2 output tensors"),
        ([torch.zeros(0)], "INCORRECT_SHAPE", "[0]"),
        ([torch.zeros(1)], "INCORRECT_SHAPE", "expected [3, 4]"),
        ([torch.zeros(3, 4, dtype=torch.float64)], "INCORRECT_DTYPE", "float64"),
        ([torch.zeros(3, 4).to(torch.int32)], "INCORRECT_DTYPE", "int32"),
        ([torch.zeros(1, 4).expand(3, 4)], "INCORRECT_SHAPE", "one address"),
        ([torch.zeros(6).as_strided((3, 4), (1, 1))], "INCORRECT_SHAPE", "one address"),
        ([torch.zeros(3, 4, device="meta")], "INCORRECT_DTYPE", "meta"),
    ],
)
def test_structure(got: list[Tensor], status: str, word: str) -> None:
    result = compare_structure(claims(torch.zeros(3, 4)), claims(*got))
    assert result.status == status
    assert word in result.reason


def test_strides_do_not_count_and_overlap_may_be_the_contract() -> None:
    want = claims(torch.zeros(3, 4))
    assert compare_structure(want, claims(torch.zeros(4, 3).t())).passed
    assert compare_structure(want, claims(torch.zeros(3, 9)[:, :4])).passed
    assert compare_structure(want, claims(torch.zeros(1, 4).expand(3, 4)), overlap_allowed=[True]).passed


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms())
@settings(max_examples=60, deadline=None)
def test_permuted_and_sliced_memory_never_overlaps(shape: list[int], rng: object) -> None:
    order = list(range(len(shape)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    view = torch.zeros([n + 1 for n in shape])[tuple(slice(n) for n in shape)].permute(order)
    assert not overlapping(view.shape, view.stride())


def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


def test_reasons_name_place_expected_and_got() -> None:
    x = normal(5, 7)

    def wrong(v: Tensor) -> Tensor:
        out = torch.relu(v)
        out[3, 4] = 2.5
        return out

    result = compare(answer_of(relu, [x]), [wrong(x)], "workload 'small'")
    assert result.status == "INCORRECT_NUMERICAL"
    assert result.reason.startswith("workload 'small': output 0: at [3, 4] expected")
    assert "got 2.5" in result.reason


def test_values_of_a_wrong_shape_are_refused_without_reading_them() -> None:
    answer = answer_of(relu, [normal(5, 7)])
    assert compare_values(answer, [torch.zeros(7, 5)]).status == "INCORRECT_SHAPE"


def test_nan_and_infinities_have_their_places() -> None:
    scores = normal(2, 6, 6)
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)

    def reference(s: Tensor) -> Tensor:
        return s.masked_fill(mask, -math.inf)

    assert judged(reference, lambda s: s + torch.zeros(6, 6).masked_fill(mask, -math.inf), scores).passed
    for filler in (math.nan, math.inf, 0.0, -3e38):
        result = judged(reference, lambda s, f=filler: s.masked_fill(mask, f), scores)
        assert result.status == "INCORRECT_NUMERICAL"
        assert "expected -inf" in result.reason
    assert not judged(reference, lambda s: s, scores).passed
    assert "got nan" in judged(relu, lambda x: x * math.nan, normal(3, 3)).reason


def test_overflow_at_the_very_edge_may_go_either_way() -> None:
    x = torch.tensor([[65504.0, 1.0]]).half()
    barely = lambda v: (v.double() * 1.0002).half()  # noqa: E731
    assert judged(lambda v: v * 1.0, barely, x).passed
    assert judged(lambda v: v * 2 / 2, lambda v: v, x).passed
    assert not judged(lambda v: v * 1.0, lambda v: v * math.inf, x).passed


def overflowing(x: Tensor) -> Tensor:
    """A mean that is out of float16's range half way, in every row that holds something large."""
    return ((x * 256).sum(-1, keepdim=True) * (1 / 256)).expand(-1, 3).clone()


def precise(x: Tensor) -> Tensor:
    return x.double().sum(-1, keepdim=True).expand(-1, 3).half()


def test_a_right_number_is_accepted_where_only_the_reference_overflows() -> None:
    x = normal(6, 40).half()
    x[::2] += 100
    assert bool(torch.isinf(overflowing(x)[::2]).all()) and bool(torch.isfinite(overflowing(x)[1::2]).all())
    assert judged(overflowing, overflowing, x).passed
    assert judged(overflowing, precise, x).passed
    for row in (0, 1):
        for factor in (0.0, 0.99, -1.0, math.nan):

            def wrong(v: Tensor, row: int = row, factor: float = factor) -> Tensor:
                out = precise(v)
                out[row] *= factor
                return out

            assert not judged(overflowing, wrong, x).passed, (row, factor)


def test_a_reference_that_is_nan_everywhere_accepts_nothing_but_nan_and_the_truth() -> None:
    x = normal(6, 40)

    def never_finite(v: Tensor) -> Tensor:
        return v * 2 + ((v * 0 + 3e38) * 3e38 * 0)

    assert bool(torch.isnan(never_finite(x)).all())
    assert judged(never_finite, never_finite, x).passed
    assert judged(never_finite, lambda v: v * 2, x).passed
    for wrong in (
        torch.zeros_like,
        torch.ones_like,
        lambda v: v * 2.001,
        lambda v: v * math.inf,
        lambda v: v * 2 + 1e-4,
    ):
        assert not judged(never_finite, wrong, x).passed


def test_one_wrong_number_among_right_ones_fails_where_the_reference_is_not_finite() -> None:
    x = normal(64, 64)

    def holed(v: Tensor) -> Tensor:
        low = v.to(torch.float16) * 60000
        return torch.where(torch.isinf(low), math.nan, v)

    assert bool(torch.isnan(holed(x)).any()) and bool(torch.isfinite(holed(x)).any())
    assert judged(holed, lambda v: v, x).passed
    place = torch.isnan(holed(x)).nonzero()[7]

    def wrong(v: Tensor) -> Tensor:
        out = v.clone()
        out[place[0], place[1]] *= 1.001
        return out

    result = judged(holed, wrong, x)
    assert not result.passed and f"at {place.tolist()} expected NaN" in result.reason


def test_planted_nan_and_true_infinities_are_no_gaps_of_the_reference() -> None:
    x = normal(4, 9)
    assert not judged(lambda v: v / 0, lambda v: v, x).passed
    keep = torch.ones(4, 9, dtype=torch.bool)
    blind = lambda v: torch.where(torch.isinf(v.to(torch.float16) * 60000), math.nan, v)  # noqa: E731
    big = torch.full((4, 9), 5.0)
    assert compare(answer_of(blind, [big], nonfinite="match"), [big]).passed
    assert not compare(answer_of(blind, [big], nonfinite="nan", depends=[keep]), [big]).passed


def test_infinities_are_wrong_in_eight_bits_too() -> None:
    x = normal(8, 16).abs() + 0.5
    cast = lambda v: v.to(torch.float8_e5m2)  # noqa: E731
    assert judged(cast, cast, x).passed
    assert not judged(cast, lambda v: cast(v * math.inf), x).passed


def planted(what: str, x: Tensor, reference: object, candidate: object) -> bool:
    made = plant(what, [InputProfile("float")], [x], torch.Generator().manual_seed(4))  # type: ignore[arg-type]
    assert made is not None
    low, high = reference(made.low[0]), reference(made.high[0])  # type: ignore[operator]
    answer = answer_of(
        reference,  # type: ignore[arg-type]
        made.inputs,
        nonfinite=made.nonfinite,
        depends=dependent([low], [high]),
    )
    return compare(answer, [candidate(made.inputs[0])]).passed  # type: ignore[operator]


def test_planted_nan_must_reach_what_depends_on_it() -> None:
    x = normal(8, 9)
    assert planted("nan", x, relu, lambda v: v.clamp(min=0))
    assert not planted("nan", x, relu, lambda v: torch.nan_to_num(torch.relu(v)))
    keep = torch.zeros(8, 9, dtype=torch.bool)
    hidden = lambda v: torch.where(keep, v, 0.0)  # noqa: E731
    assert planted("nan", x, hidden, lambda v: v * keep)
    assert planted("nan", x, lambda v: v * keep, hidden), "no output depends on what the mask hides"
    assert planted("inf", x, relu, lambda v: v.clamp(min=0))
    assert not planted("inf", x, relu, lambda v: v.clamp(0, 3e38))


def fused(v: Tensor) -> Tensor:
    """Half of each row is masked: selected away in the type at hand, multiplied away in float64, as a decomposition would."""
    mask = torch.arange(v.shape[-1]) < v.shape[-1] // 2
    return v * mask + 3.0 * ~mask if v.dtype is torch.float64 else torch.where(mask, v, 3.0)


def test_planted_nan_that_only_the_float64_run_lets_through_is_no_zero() -> None:
    """Seen with causal attention on a GPU: where a fused kernel hid a planted NaN, zero was expected of candidates."""
    nan = normal(8, 10).to(torch.float32)
    nan[2, 7] = nan[5, 1] = math.nan
    depends = torch.zeros(8, 10, dtype=torch.bool)
    depends[5, 1] = True
    answer = answer_of(fused, [nan], nonfinite="nan", depends=[depends])
    mask = torch.arange(10) < 5
    multiplied = nan * mask + 3.0 * ~mask
    assert compare(answer, [fused(nan)]).passed and compare(answer, [multiplied]).passed
    lost, off = torch.nan_to_num(fused(nan)), fused(nan)
    off[2, 3] += 0.1
    assert not compare(answer, [lost]).passed and not compare(answer, [off]).passed


def test_outside_of_planted_calls_the_reference_stands_where_only_its_float64_run_is_not_finite() -> None:
    x = normal(8, 10)
    limited = lambda v: v / (v.dtype is not torch.float64)  # noqa: E731
    assert judged(limited, lambda v: v * 1, x).passed
    assert not judged(limited, torch.zeros_like, x).passed
    assert not judged(limited, lambda v: v * 1.01, x).passed


def test_integers_and_bools_are_exact() -> None:
    x = normal(4, 50)
    assert judged(lambda v: v > 0, lambda v: v > 0, x).passed
    off = judged(lambda v: (v * 100).int(), lambda v: (v * 100).int() + 1, x)
    assert off.status == "INCORRECT_NUMERICAL" and "200 of 200 differ" in off.reason


def later_maximum(x: Tensor) -> tuple[Tensor, Tensor]:
    values, index = x.flip(-1).max(-1)
    return values, x.shape[-1] - 1 - index


def test_ties_may_be_broken_either_way() -> None:
    x = normal(6, 200).mul(3).round()
    both = lambda v: tuple(v.max(-1))  # noqa: E731
    assert judged(both, later_maximum, x).passed
    assert judged(lambda v: v.argmax(-1), lambda v: later_maximum(v)[1], x).passed
    wrong = judged(both, lambda v: (v.max(-1).values, v.argmin(-1)), x)
    assert not wrong.passed and wrong.output == 1


def test_top_k_names_no_element_twice() -> None:
    x = torch.tensor([[3.0, 3.0, 3.0, 1.0, 0.5]])

    def top(v: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(torch.topk(v, 3))  # type: ignore[return-value]

    assert judged(top, lambda v: (top(v)[0], torch.tensor([[2, 0, 1]])), x).passed
    assert not judged(top, lambda v: (top(v)[0], torch.tensor([[2, 2, 1]])), x).passed
    assert not judged(top, lambda v: (top(v)[0], torch.tensor([[2, 0, 7]])), x).passed


def test_integer_outputs_that_are_no_positions_stay_exact() -> None:
    index = torch.tensor([[1, 1, 2]])
    table = torch.tensor([[1.0, 1.0, 1.0]])
    assert not judged(lambda i, t: i, lambda i, t: i * 0, index, table).passed


def test_empty_outputs_are_right_if_their_shape_is() -> None:
    x = torch.zeros(4, 0)
    assert judged(lambda v: v.sum(-1), lambda v: torch.zeros(4), x).passed
    assert not judged(lambda v: v.sum(-1), lambda v: torch.ones(4), x).passed
    assert judged(lambda v: v * 2, lambda v: v, torch.zeros(0, 3)).passed


def test_zero_dimensional_outputs() -> None:
    x = normal(40, 40)
    assert judged(lambda v: (v * v).mean(), lambda v: (v.double() ** 2).mean().float(), x).passed
    assert not judged(lambda v: (v * v).mean(), lambda v: (v * v).mean() * 1.001, x).passed


def test_every_output_counts() -> None:
    norm = nn.LayerNorm(32)
    two = lambda v: (v.mean(-1), norm(v).detach())  # noqa: E731
    result = judged(two, lambda v: (v.mean(-1), torch.zeros_like(v)), normal(4, 32))
    assert result.output == 1 and result.error is not None and result.error > 0.9


def test_large_outputs_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilecast.sandbox.harness.judge.compare.CHUNK_ELEMENTS", 64)
    x = normal(50, 16)
    assert judged(relu, relu, x).passed
    wrong = x.clone()
    wrong[47, 11] = 9.0
    assert "[47, 11]" in judged(relu, lambda v: torch.relu(wrong), x).reason


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64])
@pytest.mark.parametrize(("chunk", "blas"), [(1, 1 << 20), (64, 1 << 20), (1 << 24, 1 << 20), (1 << 24, 1)])
def test_the_quick_verdict_is_that_of_the_tally(
    dtype: torch.dtype, chunk: int, blas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(comparing, "_MOST_IN_BLAS", blas)
    values = torch.randn(9, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    answer = answer_of(nn.Identity(), [values])
    verdicts = []
    for power in (-60, *range(-26, 0), 400):
        got = (values * (1 + 2.0**power)).to(dtype)
        got[3] = values[3]
        quick = compare_values(answer, [got])
        with monkeypatch.context() as patched:
            patched.setattr(comparing, "_plainly_right", lambda want, allowed, rows: None)
            tally = compare_values(answer, [got])
        assert (quick.passed, quick.reason) == (tally.passed, tally.reason)
        assert quick.error == pytest.approx(tally.error) and quick.ratio == pytest.approx(tally.ratio)
        verdicts.append(quick.passed)
    assert verdicts[0] and not verdicts[-1] and not verdicts[-2]


def test_float8_is_widened_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = normal(32, 16).to(torch.float8_e4m3fn)
    answer = answer_of(nn.Identity(), [values])
    widened: list[int] = []
    monkeypatch.setattr(comparing, "CHUNK_ELEMENTS", 64)
    monkeypatch.setattr(comparing, "readable", lambda part: widened.append(part.numel()) or readable(part))
    assert compare_values(answer, [values]).passed
    assert widened == [64] * 8, "a copy of all of it is four times as much memory"
