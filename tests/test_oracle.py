"""Allowed errors: honest arithmetic of every kind passes with room to spare, lower precision fails with room to spare."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_parts import Plain, answer_of, forward, judged, short_tf32, truth_of
from torch import Tensor, nn

from tilecast.sandbox.harness.judge.compare import compare_values
from tilecast.sandbox.harness.judge.oracle import RawOutputs, default_tolerance, expect
from tilecast.sandbox.harness.worker.perturbation import Effects, Noise, levels, widen
from tilecast.sandbox.harness.worker.truth import TruthOptions, batch_inputs, float64_truth

F = nn.functional
Function = Callable[..., Any]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def sequential_product(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


def split_product(a: Tensor, b: Tensor) -> Tensor:
    ah, bh = short_tf32(a), short_tf32(b)
    return ah @ bh + (ah @ short_tf32(b - bh) + short_tf32(a - ah) @ bh)


def bf16_split_product(a: Tensor, b: Tensor) -> Tensor:
    ah, bh = a.bfloat16().float(), b.bfloat16().float()
    return ah @ bh + (ah @ (b - bh).bfloat16().float() + (a - ah).bfloat16().float() @ bh)


HONEST_PRODUCTS = [product, sequential_product, split_product, bf16_split_product]
SHORT_PRODUCTS: list[Function] = [
    lambda a, b: short_tf32(a) @ short_tf32(b),
    lambda a, b: a.half().float() @ b.half().float(),
    lambda a, b: a.bfloat16().float() @ b,
    lambda a, b: (a @ b).half().float(),
]


@pytest.mark.parametrize("k", [3, 64, 2048])
@pytest.mark.parametrize("honest", HONEST_PRODUCTS)
def test_float32_products_in_any_order_pass(k: int, honest: Function) -> None:
    result = judged(product, honest, normal(24, k), normal(k, 20, seed=1))
    assert result.passed, result.reason
    assert result.ratio < 0.8


@pytest.mark.parametrize("k", [3, 64, 2048])
@pytest.mark.parametrize("short", SHORT_PRODUCTS)
def test_float32_products_from_shorter_operands_fail_by_far(k: int, short: Function) -> None:
    result = judged(product, short, normal(24, k), normal(k, 20, seed=1))
    assert result.status == "INCORRECT_NUMERICAL"
    assert result.ratio > 5


def test_sequential_sums_of_positive_numbers_pass() -> None:
    honest = judged(product, sequential_product, uniform(8, 8192), uniform(8192, 6, seed=1))
    assert honest.passed and honest.ratio < 0.7


def row_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def one_by_one(x: Tensor) -> Tensor:
    total = torch.zeros(x.shape[0])
    for column in x.unbind(-1):
        total = total + column
    return total


@pytest.mark.parametrize("make", [normal, uniform, lambda *s: torch.full(s, 0.1), lambda *s: normal(*s) + 300])
@pytest.mark.parametrize("n", [1, 7, 5000])
def test_row_sums_one_by_one_or_by_matrix_product_pass(make: Function, n: int) -> None:
    x = make(5, n)
    for honest in (one_by_one, lambda v: (v @ torch.ones(n, 1)).squeeze(-1), lambda v: v.double().sum(-1).float()):
        result = judged(row_sum, honest, x)
        assert result.passed, result.reason


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x[:, ::2].sum(-1) * 2,
        lambda x: torch.full((x.shape[0],), x.shape[1] * 0.5),
        lambda x: x.half().sum(-1).float(),
        lambda x: torch.full((x.shape[0],), math.inf),
    ],
)
def test_wrong_row_sums_fail(wrong: Function) -> None:
    assert not judged(row_sum, wrong, uniform(4, 20000)).passed


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def online_softmax(x: Tensor) -> Tensor:
    top = torch.full((*x.shape[:-1], 1), -math.inf)
    total = torch.zeros_like(top)
    for part in x.split(64, -1):
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        total = total * torch.exp(top - new) + torch.exp(part - new).sum(-1, keepdim=True)
        top = new
    return torch.exp(x - top) / total


def exp2_softmax(x: Tensor) -> Tensor:
    e = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
    return e / e.sum(-1, keepdim=True)


def precise_softmax(x: Tensor) -> Tensor:
    return softmax(x.double()).float()


def strided_softmax(x: Tensor) -> Tensor:
    return torch.softmax(x.t().contiguous(), 0).t()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("honest", [online_softmax, exp2_softmax, precise_softmax, strided_softmax])
def test_softmax_variants_pass(scale: float, honest: Function) -> None:
    result = judged(softmax, honest, normal(6, 1000) * scale)
    assert result.passed, result.reason
    assert result.ratio < 0.8


def test_zeros_for_a_wide_softmax_fail() -> None:
    result = judged(softmax, torch.zeros_like, normal(4, 5000))
    assert result.status == "INCORRECT_NUMERICAL" and result.ratio > 1000


def test_uniform_probabilities_for_a_wide_softmax_fail() -> None:
    assert not judged(softmax, lambda x: torch.full_like(x, 1 / x.shape[-1]), uniform(4, 5000)).passed


@given(row=st.integers(0, 31), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_one_wrong_row_fails_wherever_it_is(row: int, seed: int) -> None:
    x = normal(32, 400, seed=seed)

    def wrong(v: Tensor) -> Tensor:
        out = softmax(v)
        out[row] = out[(row + 1) % 32]
        return out

    result = judged(softmax, wrong, x)
    assert not result.passed
    assert f"[{row}, " in result.reason


def layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def two_pass(x: Tensor) -> Tensor:
    n = x.shape[-1]
    mean = x.sum(-1, keepdim=True) * (1.0 / n)
    centred = x - mean
    return centred * torch.rsqrt((centred * centred).sum(-1, keepdim=True) * (1.0 / n) + 1e-5)


def one_pass(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0) + 1e-5)


@pytest.mark.parametrize("offset", [0.0, 3.0, 3000.0])
def test_conditioning_makes_room_for_two_pass_norms(offset: float) -> None:
    result = judged(layer_norm, two_pass, normal(8, 1500) + offset)
    assert result.passed, result.reason


def _mean_of(bits: int) -> Function:
    """A norm of rows whose mean, added up one by one, keeps so many bits of its mantissa."""

    def norm(x: Tensor) -> Tensor:
        total = torch.zeros_like(x[..., :1])
        for column in range(x.shape[-1]):
            total = total + x[..., column : column + 1]
        mean = total / x.shape[-1]
        mean = (mean.view(torch.int32) & -(1 << (23 - bits))).view(torch.float32)
        centred = x - mean
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)

    return norm


@pytest.mark.parametrize("columns", [7, 33, 200])
def test_one_row_far_from_zero_may_be_off_alike_everywhere(columns: int) -> None:
    """A part in thousands of its norm, by the order of the sum alone: one in three was refused where the reference had luck."""
    for seed in range(40):
        torch.manual_seed(seed)
        x = torch.randn(1, columns) + 3001  # ten bits hold even numbers there
        assert judged(layer_norm, _mean_of(23), x).ratio <= 0.75
        assert not judged(layer_norm, _mean_of(10), x).passed


def test_one_pass_variance_fails_where_it_cancels() -> None:
    result = judged(layer_norm, one_pass, normal(8, 1500) + 3000)
    assert not result.passed and result.ratio > 10


def test_constant_rows_ask_for_epsilon_but_not_for_luck() -> None:
    x = torch.full((4, 320), 1.0) * torch.tensor([[0.3], [1.0], [-7.0], [1000.0]])
    assert judged(layer_norm, two_pass, x).passed
    assert not judged(layer_norm, lambda v: (v - v.mean(-1, keepdim=True)) / v.std(-1, keepdim=True), x).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_products(dtype: torch.dtype) -> None:
    a, b = normal(32, 512, dtype=dtype), normal(512, 24, seed=1, dtype=dtype)

    def blocked(x: Tensor, y: Tensor) -> Tensor:
        total = torch.zeros(x.shape[0], y.shape[1])
        for k in reversed(range(0, x.shape[1], 32)):
            total += x[:, k : k + 32].float() @ y[k : k + 32].float()
        return total.to(dtype)

    def eighths(x: Tensor, y: Tensor) -> Tensor:
        return (x.to(torch.float8_e4m3fn).float() @ y.to(torch.float8_e4m3fn).float()).to(dtype)

    honest, wrong = judged(product, blocked, a, b), judged(product, eighths, a, b)
    assert honest.passed and honest.ratio < 0.5
    assert not wrong.passed and wrong.ratio > 2


def test_low_precision_attention_may_round_its_probabilities() -> None:
    q, k, v = (normal(2, 96, 32, seed=i, dtype=torch.bfloat16) for i in range(3))

    def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        p = torch.softmax(q.float() @ k.float().transpose(-1, -2) * 32**-0.5, -1)
        return (p @ v.float()).to(q.dtype)

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * 32**-0.5, -1, dtype=torch.float32).to(v.dtype) @ v

    result = judged(reference, eager, q, k, v)
    assert result.passed, result.reason


def test_float8_outputs_may_round_either_way() -> None:
    x = normal(16, 64)

    def cast(v: Tensor) -> Tensor:
        return (v * 1.5).to(torch.float8_e4m3fn)

    assert judged(cast, lambda v: (v.double() * 1.5).to(torch.float8_e4m3fn), x).passed
    assert not judged(cast, lambda v: (v * 1.7).to(torch.float8_e4m3fn), x).passed


def test_float64_problems_are_held_to_float64() -> None:
    a, b = normal(9, 40).double(), normal(40, 8, seed=1).double()
    assert judged(product, lambda x, y: (y.t() @ x.t()).t(), a, b).passed
    wrong = judged(product, lambda x, y: (x.float() @ y.float()).double(), a, b)
    assert not wrong.passed and wrong.ratio > 1000


def test_complex_products() -> None:
    a = torch.complex(normal(6, 30), normal(6, 30, seed=3))
    assert judged(product, lambda x, y: (x.to(torch.complex128) @ y.to(torch.complex128)).to(x.dtype), a, a.t()).passed
    assert not judged(product, lambda x, y: x @ y.conj(), a, a.t()).passed


def test_explicit_casts_inside_a_forward_become_float64_too() -> None:
    def reference(x: Tensor) -> Tensor:
        return (x.float().half().float() * torch.ones(4, dtype=torch.float16)).to(torch.float32)

    native, truth = truth_of(Plain(reference), [normal(3, 4)])
    assert truth.method == "promoted"
    assert torch.equal(truth.outputs[0], normal(3, 4).double())
    assert not torch.equal(native[0].double(), truth.outputs[0])


def test_bit_tricks_fall_back_and_say_so() -> None:
    def reference(x: Tensor) -> Tensor:
        return (x.view(torch.int32) & ~1).view(torch.float32)

    native, truth = truth_of(Plain(reference), [normal(3, 4)])
    assert truth.method == "native" and "bits" in truth.note
    answer = answer_of(reference, [normal(3, 4)])
    assert answer.method == "native"
    raw = RawOutputs(native, truth.outputs, truth.spread, method=truth.method, reduction=truth.reduction)
    assert expect(raw, None).outputs[0].allowed is not None
    assert judged(reference, reference, normal(3, 4)).passed
    assert not judged(reference, lambda x: x * 1.001, normal(3, 4)).passed


def test_the_module_and_its_inputs_are_left_alone() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    x = normal(5, 8)
    kept = x.clone()
    native = [module.eval()(x).detach()]
    module.train()
    truth = float64_truth(module, [x], native, lambda m, i: [m(*i).detach()], TruthOptions())
    assert truth.outputs[0].dtype is torch.float64
    assert torch.equal(x, kept)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_large_batches_are_taken_in_parts() -> None:
    module = Plain(lambda x: torch.softmax(x, -1) @ torch.ones(16, 3, dtype=x.dtype))
    x = normal(64, 16)
    native = forward(module, [x])
    whole = float64_truth(module, [x], native, forward, TruthOptions(seed=5))
    parts = float64_truth(module, [x], native, forward, TruthOptions(seed=5, budget_bytes=10000))
    assert whole.chunks == 1 and parts.chunks > 1
    assert torch.allclose(whole.outputs[0], parts.outputs[0], rtol=1e-14)


def test_a_batch_that_is_not_independent_is_not_split() -> None:
    module = Plain(lambda x: x - x.mean(0))
    assert batch_inputs(module, [normal(64, 16)], forward(module, [normal(64, 16)]), forward) is None
    mapped = Plain(lambda x: x * 2)
    assert batch_inputs(mapped, [normal(64, 16)], forward(mapped, [normal(64, 16)]), forward) == [0]


def test_reduction_lengths_are_read_off_the_operators() -> None:
    def lengths(function: Function, *inputs: Tensor) -> tuple[int, bool]:
        _, truth = truth_of(Plain(function), inputs)
        return truth.reduction, truth.products

    assert lengths(product, normal(4, 77), normal(77, 3)) == (77, True)
    assert lengths(row_sum, normal(3, 50)) == (50, False)
    assert lengths(lambda x: x + 1, normal(3, 50)) == (1, False)
    assert lengths(lambda x: F.conv2d(x, x[:, :, :3, :3]), normal(5, 5, 8, 8)) == (45, True)
    assert lengths(softmax, normal(3, 41)) == (41, False)
    assert lengths(lambda x: x.mean(), normal(6, 7)) == (42, False)


def test_tolerance_caps_the_relative_error_of_an_output() -> None:
    x = normal(32, 64, dtype=torch.bfloat16)
    double = lambda v: v * 2  # noqa: E731
    bent = lambda v: (v.float() * 2.012).bfloat16()  # noqa: E731
    assert judged(double, bent, x, tolerance=1e-3).status == "INCORRECT_NUMERICAL"
    assert "tolerance" in judged(double, bent, x, tolerance=5e-3).reason
    assert judged(double, double, x, tolerance=0.0).passed


def test_default_tolerances_are_those_of_the_contract() -> None:
    named = {
        torch.float64: 1e-10,
        torch.float32: 1e-4,
        torch.float16: 5e-3,
        torch.bfloat16: 1.5e-2,
        torch.float8_e4m3fn: 5e-2,
        torch.int64: 0.0,
    }
    assert {dtype: default_tolerance(dtype) for dtype in named} == named


@given(st.integers(1, 6), st.integers(1, 90), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_reference_itself_always_passes(rows: int, columns: int, seed: int) -> None:
    x = normal(rows, columns, seed=seed)
    for function in (softmax, row_sum, layer_norm, lambda v: F.gelu(v), lambda v: v.cumsum(-1), lambda v: v * v - v):
        assert judged(function, function, x).passed


def test_truth_is_wider_than_every_float() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float8_e5m2):
        assert widen(torch.ones(2).to(dtype)).dtype is torch.float64
    assert widen(torch.ones(2, dtype=torch.complex64)).dtype is torch.complex128
    assert widen(torch.ones(2, dtype=torch.int32)).dtype is torch.int32
    assert widen("text") == "text"


def test_a_near_tie_may_be_decided_either_way() -> None:
    """Scores that differ by less than their rounding: the softmax puts its weight on one key or on another."""
    q, k, v = (normal(64, 32, seed=i) + 3000 for i in range(3))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.t() * 32**-0.5, -1) @ v

    def scaled_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax((q * 32**-0.5) @ k.t(), -1) @ v

    assert judged(attend, scaled_first, q, k, v).passed
    assert not judged(attend, lambda q, k, v: attend(q, k, v.bfloat16().float()), q, k, v).passed


def test_steps_are_no_licence() -> None:
    def steps(x: Tensor) -> Tensor:
        return (x * 10).round() / 10

    x = normal(40, 200)
    assert judged(steps, lambda v: (v.double() * 10).round().float() / 10, x).passed
    assert not judged(steps, lambda v: v, x).passed
    assert not judged(steps, lambda v: (v.half() * 10).round().float() / 10, x).passed


def scores_rounded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention out of plain operators: scores and probabilities take the type of the inputs."""
    s = torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    at = torch.arange(q.shape[-2])
    p = torch.softmax(s.masked_fill(at > at[:, None], -torch.inf), -1, dtype=torch.float32)
    return torch.matmul(p.to(v.dtype), v)


def eight_bits(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    low = [x.to(torch.float8_e4m3fn).to(x.dtype) for x in (q, k)]
    return scores_rounded(*low, v)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_rounded_to_the_inputs_type_pass_and_inputs_of_eight_bits_do_not(dtype: torch.dtype) -> None:
    """Refused before on a GPU, by a hair, in the largest of thirty million elements."""
    generator = torch.Generator().manual_seed(8)
    x = [torch.randn(1, 12, 1024, 128, generator=generator).to(dtype) for _ in range(3)]
    answer = answer_of(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), x)
    assert compare_values(answer, [scores_rounded(*x)]).ratio < 0.9
    assert not compare_values(answer, [eight_bits(*x)]).passed


def test_the_worst_of_many_rows_may_be_off_by_more_and_shorter_operands_still_fail() -> None:
    """On a GPU the worst row of some ten million was refused: the tail of rounded scores is exponential, not bounded."""
    generator = torch.Generator().manual_seed(5)
    x = [torch.randn(1, 16, 2048, 128, generator=generator).bfloat16() for _ in range(3)]
    answer = answer_of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), x)
    right = scores_rounded(*x).contiguous()
    assert compare_values(answer, [right]).ratio < 0.7
    assert compare_values(answer, [eight_bits(*x)]).ratio > 2
    right[0, 3, 700] = right[0, 3, 701]
    assert compare_values(answer, [right]).ratio > 10


def test_bfloat16_operands_in_a_large_float16_product_fail() -> None:
    a, b = normal(4096, 256, dtype=torch.float16), normal(256, 2048, seed=1, dtype=torch.float16)
    result = judged(product, lambda x, y: (x.bfloat16().float() @ y.bfloat16().float()).half(), a, b)
    assert not result.passed and result.ratio > 1.1


@pytest.mark.parametrize("unit", [2.0**-24, 2.0**-53])
@pytest.mark.parametrize("complex_too", [False, True])
def test_the_spread_is_the_root_mean_square_of_the_larger_size(unit: float, complex_too: bool) -> None:
    dtype = torch.complex128 if complex_too else torch.float64
    generator = torch.Generator().manual_seed(2)
    base = torch.randn(200, 100, dtype=dtype, generator=generator)
    effects = Effects([base])
    squares: dict[float, list[Tensor]] = {}
    for draw, level in enumerate(levels([base])):
        noise = Noise(unit, draw, level)
        moved = base + noise.scale * unit * torch.randn(200, 100, dtype=torch.float64, generator=generator)
        moved[3, 4] = math.nan if draw else math.inf
        effects.add([moved], noise)
        squares.setdefault(level, []).append(((moved - base).abs() / noise.scale).square())
    assert sorted(map(len, squares.values())) == [1, 2], "one perturbation of one rounding, two of many"
    (spread,) = effects.spread()
    expected = torch.stack([torch.stack(some).mean(0) for some in squares.values()]).amax(0).sqrt()
    expected[3, 4] = 0.0  # neither was finite
    assert spread is not None and torch.allclose(spread, expected, rtol=1e-12, atol=0.0)


def test_noise_leaves_infinities_where_they_are() -> None:
    value = torch.tensor([math.inf, -math.inf, 1.0, 0.0])
    for seed in range(8):
        (moved,) = Noise(2.0**-24, seed, 32.0).inputs([value])
        assert moved[:2].tolist() == [math.inf, -math.inf] and moved[3] == 0.0
        assert 0 < abs(moved[2] - 1.0) < 1e-4
