"""Elementwise functions by their libdevice names, on numpy arrays; one table for Triton's externs and cuTile's math."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Function = Callable[..., Any]


def _pointwise(function: Callable[..., float], inputs: int = 1) -> Function:
    """Apply a scalar function of ``math`` elementwise, in double precision."""
    ufunc = np.frompyfunc(function, inputs, 1)

    def apply(*arrays: Array) -> Array:
        wide = [np.asarray(array, dtype=np.float64) for array in arrays]
        return np.asarray(ufunc(*wide), dtype=np.float64)

    return apply


def _guarded(function: Callable[[float], float], pole: float) -> Callable[[float], float]:
    def call(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return pole
        except OverflowError:
            return math.inf

    return call


erf = _pointwise(math.erf)
erfc = _pointwise(math.erfc)
lgamma = _pointwise(_guarded(math.lgamma, math.inf))
tgamma = _pointwise(_guarded(math.gamma, math.nan))


def rsqrt(x: Array) -> Array:
    """1/sqrt(x)."""
    return np.asarray(1 / np.sqrt(x))


def _erfinv(y: Array) -> Array:
    """Inverse of erf: Giles' starting value, then Newton steps (M. Giles, Approximating the erfinv function, 2012)."""
    y = np.asarray(y, dtype=np.float64)
    inside = np.clip(y, -1 + 1e-16, 1 - 1e-16)
    w = np.log1p(-inside * inside)
    t = 2 / (math.pi * 0.147) + w / 2
    x = np.sign(inside) * np.sqrt(np.sqrt(t * t - w / 0.147) - t)
    for _ in range(3):
        x = x - (erf(x) - inside) * (math.sqrt(math.pi) / 2) * np.exp(x * x)
    return np.where(np.abs(y) < 1, x, np.where(np.abs(y) == 1, np.sign(y) * np.inf, np.nan))


def _round_half_away(x: Array) -> Array:
    return np.asarray(np.trunc(x + np.copysign(0.5, x)))


def _torch_special(name: str) -> Function:
    """Bessel functions and the like, which numpy lacks; outside every mode that watches torch operations."""

    def apply(*arrays: Array) -> Array:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), torch._C.DisableTorchFunction():
            tensors = [torch.from_numpy(np.array(array, dtype=np.float64)) for array in arrays]
            return np.asarray(getattr(torch.special, name)(*tensors).numpy())

    return apply


def _norm(*components: Array) -> Array:
    return np.asarray(np.sqrt(sum(np.square(c.astype(np.float64)) for c in components)))


def _popcount(x: Array) -> Array:
    unsigned = x.view(f"u{x.dtype.itemsize}")
    octets = np.unpackbits(np.ascontiguousarray(unsigned)[..., None].view(np.uint8), axis=-1)
    return np.asarray(octets.sum(-1).astype(np.int32))


def _highest_bit(x: Array) -> Array:
    """Index of the highest set bit, -1 for 0."""
    value = x.view(f"u{x.dtype.itemsize}").copy()
    found = np.full(x.shape, -1, dtype=np.int32)
    for shift in (32, 16, 8, 4, 2, 1):
        if shift >= x.dtype.itemsize * 8:
            continue
        high = value >> value.dtype.type(shift)
        step = high != 0
        found += np.where(step, shift, 0).astype(np.int32)
        value = np.where(step, high, value)
    return np.asarray(found + (value != 0).astype(np.int32))


def clz(x: Array) -> Array:
    """Leading zeros."""
    return (x.dtype.itemsize * 8 - 1 - _highest_bit(x)).astype(np.int32)


def _ffs(x: Array) -> Array:
    unsigned = x.view(f"u{x.dtype.itemsize}")
    lowest = unsigned & (~unsigned + unsigned.dtype.type(1))
    return np.asarray(_highest_bit(lowest) + 1).astype(np.int32)


def brev(x: Array) -> Array:
    """Bits in reverse order."""
    width = x.dtype.itemsize * 8
    value = x.view(f"u{x.dtype.itemsize}")
    out = np.zeros_like(value)
    for bit in range(width):
        out |= ((value >> value.dtype.type(bit)) & value.dtype.type(1)) << value.dtype.type(width - 1 - bit)
    return out.view(x.dtype)


def mulhi(x: Array, y: Array) -> Array:
    """High half of the product, signed or unsigned as the operands are."""
    bits = x.dtype.itemsize * 8
    if bits <= 32:
        wide = np.dtype(f"{x.dtype.kind}{x.dtype.itemsize * 2}")
        return np.asarray(((x.astype(wide) * y.astype(wide)) >> wide.type(bits)).astype(x.dtype))
    high = np.frompyfunc(lambda a, b: (int(a) * int(b)) >> bits, 2, 1)(x, y)
    return np.asarray(high).astype(x.dtype)


def byte_perm(x: Array, y: Array, selector: Array) -> Array:
    """``prmt.b32``: four bytes picked from eight by the nibbles of ``selector``; bit 3 of a nibble spreads the sign."""
    pool = x.view(np.uint32).astype(np.uint64) | (y.view(np.uint32).astype(np.uint64) << np.uint64(32))
    choice = selector.view(np.uint32)
    out = np.zeros(np.broadcast(pool, choice).shape, dtype=np.uint32)
    for position in range(4):
        nibble = (choice >> np.uint32(4 * position)) & np.uint32(15)
        byte = (pool >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)
        sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = np.where(nibble & np.uint32(8), sign, byte)
        out |= (byte << np.uint64(8 * position)).astype(np.uint32)
    return out.view(x.dtype)


PLAIN: dict[str, Function] = {
    **{name: getattr(np, name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt",
        "cbrt", "floor", "ceil", "trunc", "rint", "copysign", "nextafter", "hypot", "fmod", "ldexp", "abs", "signbit",
    )},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "fabs": np.abs, "llabs": np.abs, "iabs": np.abs, "fmin": np.fmin, "fmax": np.fmax, "min": np.minimum, "max": np.maximum,
    "nearbyint": np.rint, "llrint": np.rint, "round": _round_half_away, "llround": _round_half_away,
    "pow": lambda x, y: np.power(x, y.astype(x.dtype)), "powi": lambda x, y: np.power(x, y.astype(x.dtype)),
    "exp10": lambda x: np.power(x.dtype.type(10), x), "rsqrt": rsqrt, "rcbrt": lambda x: 1 / np.cbrt(x),
    "rcp": lambda x: 1 / x, "rhypot": lambda x, y: 1 / np.hypot(x, y), "fdim": lambda x, y: np.fmax(x - y, 0),
    "remainder": lambda x, y: x - np.rint(x / y) * y, "scalbn": np.ldexp, "saturate": lambda x: np.clip(np.nan_to_num(x), 0, 1),
    "sinpi": lambda x: np.sin(math.pi * np.fmod(x.astype(np.float64), 2)),
    "cospi": lambda x: np.cos(math.pi * np.fmod(x.astype(np.float64), 2)),
    "erf": erf, "erfc": erfc, "erfinv": _erfinv, "erfcinv": lambda x: _erfinv(1 - x.astype(np.float64)),
    "erfcx": lambda x: np.exp(np.square(x.astype(np.float64))) * erfc(x),
    "normcdf": lambda x: erfc(-x.astype(np.float64) / math.sqrt(2)) / 2,
    "normcdfinv": lambda x: _erfinv(2 * x.astype(np.float64) - 1) * math.sqrt(2),
    "lgamma": lgamma, "tgamma": tgamma, "j0": _torch_special("bessel_j0"), "j1": _torch_special("bessel_j1"),
    "y0": _torch_special("bessel_y0"), "y1": _torch_special("bessel_y1"),
    "cyl_bessel_i0": _torch_special("i0"), "cyl_bessel_i1": _torch_special("i1"),
    "norm3d": _norm, "norm4d": _norm, "rnorm3d": lambda *c: 1 / _norm(*c), "rnorm4d": lambda *c: 1 / _norm(*c),
    "logb": lambda x: np.frexp(x)[1] - 1.0, "ilogb": lambda x: np.frexp(x)[1] - 1,
    "isnan": np.isnan, "isinf": np.isinf, "finite": np.isfinite, "isfinite": np.isfinite,
    "fma": lambda x, y, z: x.astype(np.float64) * y + z, "fdivide": lambda x, y: x / y,
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "popc": _popcount, "popcll": _popcount, "clz": clz, "clzll": clz, "ffs": _ffs, "ffsll": _ffs, "brev": brev, "brevll": brev,
    "byte_perm": byte_perm, "mulhi": mulhi, "umulhi": mulhi, "mul64hi": mulhi, "umul64hi": mulhi,
    "mul24": lambda x, y: (x << 8 >> 8) * (y << 8 >> 8), "umul24": lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF),
    "sad": lambda x, y, z: np.abs(x - y) + z, "usad": lambda x, y, z: np.maximum(x, y) - np.minimum(x, y) + z,
    "hadd": lambda x, y: ((x.astype(np.int64) + y) >> 1), "uhadd": lambda x, y: ((x.astype(np.int64) + y) >> 1),
    "rhadd": lambda x, y: ((x.astype(np.int64) + y + 1) >> 1), "urhadd": lambda x, y: ((x.astype(np.int64) + y + 1) >> 1),
}  # fmt: skip
ROUNDING: dict[str, Function] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_REINTERPRET = (
    "float_as_int",
    "float_as_uint",
    "int_as_float",
    "uint_as_float",
    "double_as_longlong",
    "longlong_as_double",
)


def _conversion(symbol: str) -> Function | None:
    """``float2int_rn`` and its kin: round as named, the caller casts to the result type."""
    source, two, rest = symbol.partition("2")
    known = ("float", "double", "int", "uint", "ll", "ull")
    target, _, mode = rest.partition("_")
    if not two or source not in known or target not in known or mode not in ROUNDING:
        return None
    return ROUNDING[mode] if source in ("float", "double") and target not in known[:2] else lambda x: x


def libdevice(symbol: str) -> Function | None:
    """The function behind a libdevice symbol (``__nv_tanhf``), or None where it is not known."""
    name = symbol.removeprefix("__nv_")
    if name in _REINTERPRET:
        return lambda x: x.view(f"{'f' if name.endswith(('float', 'double')) else 'i'}{x.dtype.itemsize}")
    for candidate in (
        name,
        name.removesuffix("f"),
        name.removesuffix("d"),
        name.removeprefix("fast_").removesuffix("f"),
    ):
        if candidate in PLAIN:
            return PLAIN[candidate]
    base, _, mode = name.rpartition("_")
    if mode in ROUNDING:
        # Directed rounding differs in the last bit only; nearest is within any tolerance that this checker uses.
        for candidate in (base, base.removeprefix("f"), base.removeprefix("d"), base.removesuffix("f")):
            if candidate in PLAIN:
                return PLAIN[candidate]
        return _conversion(name)
    return None
