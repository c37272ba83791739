"""Number formats, special functions and the PTX evaluator, against torch and by hand. No kernel runs here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilecast.sandbox.harness.worker.interpreters import numerics, special
from tilecast.sandbox.harness.worker.interpreters.errors import Unsupported
from tilecast.sandbox.harness.worker.interpreters.ptx import Machine
from tilecast.sandbox.harness.worker.interpreters.scheduling import Scheduler

EDGES = [0.0, -0.0, np.inf, -np.inf, 3.3895e38, 1e-40, -1e-45, 65519.0, 65520.0]


def spread(count: int, decades: float) -> np.ndarray:
    generator = np.random.default_rng(7)
    values = generator.standard_normal(count) * 10 ** generator.uniform(-decades, decades, count)
    return np.concatenate([values, EDGES]).astype(np.float32)


def test_bfloat16_rounds_as_torch_does() -> None:
    values = spread(20_000, 30)
    want = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(numerics.f32_to_bf16(values), want)
    assert np.array_equal(
        numerics.bf16_to_f32(want), torch.from_numpy(want.view(np.int16)).view(torch.bfloat16).float()
    )
    assert np.isnan(numerics.bf16_to_f32(numerics.f32_to_bf16(np.array([np.nan], np.float32))))[0]


@pytest.mark.parametrize(
    ("name", "dtype", "largest"), [("fp8e4nv", torch.float8_e4m3fn, 448.0), ("fp8e5", torch.float8_e5m2, 57344.0)]
)
def test_float8_rounds_and_saturates(name: str, dtype: torch.dtype, largest: float) -> None:
    values = spread(20_000, 6)
    want = torch.from_numpy(values).clamp(-largest, largest).to(dtype).view(torch.uint8).numpy()
    assert np.array_equal(numerics.to_float8(values, name), want)
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(
        numerics.float8_to_f32(codes, name), torch.from_numpy(codes).view(dtype).float(), equal_nan=True
    )
    assert np.isnan(numerics.float8_to_f32(numerics.to_float8(np.array([np.nan]), name), name))[0]


def test_every_float8_code_survives_a_round_trip() -> None:
    codes = np.arange(256, dtype=np.uint8)
    for name in numerics.FLOAT8:
        values = numerics.float8_to_f32(codes, name)
        finite = np.isfinite(values)
        assert np.array_equal(numerics.to_float8(values[finite], name), codes[finite]), name


def test_rounding_toward_zero_never_grows() -> None:
    values = spread(5_000, 4)[:5000]
    for name in ("bf16", "fp16", "fp8e4nv"):
        out = numerics.widen(numerics.narrow(values, name, toward_zero=True), name).astype(np.float64)
        assert (np.abs(out) <= np.abs(values.astype(np.float64))).all(), name


def test_floats_become_integers_as_on_a_gpu() -> None:
    values = np.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf], np.float32)
    assert numerics.convert(values, "fp32", "int32").tolist() == [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1]
    assert numerics.convert(np.array([-1.0, 2.5e19], np.float64), "fp64", "uint64").tolist() == [0, 2**64 - 1]
    assert numerics.convert(np.array([3, 0], np.int8), "int8", "int1").tolist() == [True, False]


def test_tf32_keeps_ten_bits() -> None:
    values = np.array([1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, np.inf], np.float32)
    assert numerics.to_tf32(values).tolist() == [1 + 2**-10, 1.0, 1 + 2**-9, np.inf]


@pytest.mark.parametrize(
    ("symbol", "function"),
    [
        ("__nv_tanhf", torch.tanh),
        ("__nv_erff", torch.erf),
        ("__nv_lgamma", torch.lgamma),
        ("__nv_fast_expf", torch.exp),
        ("__nv_j0f", torch.special.bessel_j0),
        ("__nv_erfinvf", torch.erfinv),
        ("__nv_normcdff", torch.special.ndtr),
        ("__nv_frcp_rn", torch.reciprocal),
        ("__nv_rsqrtf", torch.rsqrt),
    ],
)
def test_libdevice_symbols(symbol: str, function: object) -> None:
    values = np.linspace(0.05, 0.95, 41)
    known = special.libdevice(symbol)
    assert known is not None and callable(function)
    assert np.allclose(known(values), function(torch.from_numpy(values)), rtol=1e-9)


def test_bit_functions() -> None:
    values = np.array([0, 1, -1, 256], np.int32)
    assert special.libdevice("__nv_clz")(values).tolist() == [32, 31, 0, 23]  # type: ignore[misc]
    assert special.libdevice("__nv_popc")(values).tolist() == [0, 1, 32, 1]  # type: ignore[misc]
    assert special.libdevice("__nv_ffs")(values).tolist() == [0, 1, 1, 9]  # type: ignore[misc]
    assert special.libdevice("__nv_nonsense") is None
    picked = special.byte_perm(*(np.array([v], np.uint32) for v in (0x33221100, 0x77665544, 0x7150)))
    assert picked[0] == 0x77115500


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32).view(np.uint32)


def evaluate(text: str, **registers: np.ndarray) -> np.ndarray:
    machine = Machine({f"${name[1:]}": value for name, value in registers.items()})
    machine.run(text)
    return machine.registers["$0"]


@pytest.mark.parametrize(
    ("text", "inputs", "want"),
    [
        ("fma.rn.f32 $0, $1, $2, 0f3F800000;", (f32(2, 3), f32(4, 5)), f32(9, 16)),
        ("{ .reg .pred p; setp.gt.f32 p, $1, $2; selp.f32 $0, $1, $2, p; }", (f32(2, 9), f32(4, 5)), f32(4, 9)),
        ("{ .reg .pred p; setp.lt.s32 p, $1, 0; mov.b32 $0, 1; @p mov.b32 $0, 2; }", (f32(0, -1),), [1, 2]),
        ("mul.hi.u32 $0, $1, $2;", (np.array([2**31], np.uint32), np.array([6], np.uint32)), [3]),
        ("mad.lo.s32 $0, $1, $2, 7;", (np.array([5], np.uint32), np.array([6], np.uint32)), [37]),
        ("lop3.b32 $0, $1, $2, 0, 0x3c;", (np.array([0b1100], np.uint32), np.array([0b1010], np.uint32)), [0b0110]),
        ("shf.l.wrap.b32 $0, $1, $1, 8;", (np.array([0x11223344], np.uint32),), [0x22334411]),
        (
            "prmt.b32 $0, $1, $2, 0x5410;",
            (np.array([0x11112222], np.uint32), np.array([0x33334444], np.uint32)),
            [0x44442222],
        ),
        ("cvt.rzi.s32.f32 $0, $1;", (f32(-2.7),), [2**32 - 2]),
        ("cvt.rn.bf16x2.f32 $0, $1, $2;", (f32(1.0), f32(2.0)), [0x3F804000]),
        ("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", (f32(1.0), f32(1e9)), [0x387E]),
        (
            "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $0, {hi, lo}; }",
            (np.array([0xAAAABBBB], np.uint32),),
            [0xBBBBAAAA],
        ),
        ("add.rn.f16x2 $0, $1, $1;", (np.array([0x3C003800], np.uint32),), [0x40003C00]),
        ("max.NaN.f32 $0, $1, $2;", (f32(float("nan"), 1), f32(1, 2)), f32(float("nan"), 2)),
        ("griddepcontrol.wait; ex2.approx.ftz.f32 $0, $1;", (f32(3, -1),), f32(8, 0.5)),
    ],
)
def test_ptx(text: str, inputs: tuple[np.ndarray, ...], want: object) -> None:
    out = evaluate(text, **{f"r{i + 1}": value for i, value in enumerate(inputs)})
    assert np.array_equal(out.view(f"u{out.dtype.itemsize}"), np.asarray(want, dtype=f"u{out.dtype.itemsize}")), out


@pytest.mark.parametrize("text", ["wgmma.fence.sync.aligned;", "frobnicate.f32 $0, $1;", "add.f32 $0, $1, %nothing;"])
def test_unknown_ptx_is_named(text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        evaluate(text, r1=f32(1))
    assert any(word in caught.value.feature for word in ("wgmma", "frobnicate", "%nothing"))


def test_a_program_that_polls_lets_others_run() -> None:
    order: list[tuple[str, int]] = []
    flag = {"set": False}

    def body(program: tuple[int, int, int]) -> None:
        order.append(("start", program[0]))
        polls = 0
        while program[0] == 0 and not flag["set"]:
            scheduler.polled(1, b"0")
            polls += 1
            assert polls < 10_000
        flag["set"] = flag["set"] or program[0] == 2
        order.append(("end", program[0]))

    scheduler = Scheduler((4, 1, 1), body)
    scheduler.run_all()
    assert order[0] == ("start", 0) and order.index(("end", 2)) < order.index(("end", 0))
    assert sorted(order) == sorted((word, p) for word in ("start", "end") for p in range(4))


def test_programs_in_a_circle_are_named() -> None:
    def body(program: tuple[int, int, int]) -> None:
        for _ in range(10**7):
            scheduler.polled(1, b"never")

    scheduler = Scheduler((40, 1, 1), body)
    with pytest.raises(Unsupported, match="wait for each other"):
        scheduler.run_all()
