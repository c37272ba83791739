"""Names of ``cuda.tile`` that are not operations: dtypes and their promotion, enums, annotations, exceptions.

Written from the behaviour of cuda-tile 1.7.0, so that kernels can be defined and run where that package is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeVar

T = TypeVar("T")


class DType:
    """An element type; ``form`` is the name of its number format in :mod:`..numerics`."""

    def __init__(self, name: str, bitwidth: int, form: str, rank: int) -> None:
        self.name, self.bitwidth, self.form, self.rank = name, bitwidth, form, rank

    @property
    def kind(self) -> str:
        """``b``, ``u``, ``i``, ``f``, or ``r`` for restricted floats, which never promote."""
        if self.rank < 0:
            return "r"
        return {"b": "b", "u": "u", "i": "i"}.get(self.name[0], "f") if self.name != "bfloat16" else "f"

    def __repr__(self) -> str:
        return f"<DType {self.name!r}>"

    def __str__(self) -> str:
        return self.name

    def __call__(self, value: Any) -> Any:
        from .tile import as_tile

        return as_tile(value).astype(self)


bool_ = DType("bool_", 1, "int1", 0)
uint8, uint16, uint32, uint64 = (DType(f"uint{b}", b, f"uint{b}", b) for b in (8, 16, 32, 64))
int8, int16, int32, int64 = (DType(f"int{b}", b, f"int{b}", b) for b in (8, 16, 32, 64))
float16, bfloat16 = DType("float16", 16, "fp16", 16), DType("bfloat16", 16, "bf16", 16)
float32, float64 = DType("float32", 32, "fp32", 32), DType("float64", 64, "fp64", 64)
tfloat32 = DType("tfloat32", 32, "fp32", -1)
float8_e4m3fn, float8_e5m2 = DType("float8_e4m3fn", 8, "fp8e4nv", -1), DType("float8_e5m2", 8, "fp8e5", -1)
float8_e8m0fnu, float8_e5m3fnu = DType("float8_e8m0fnu", 8, "", -1), DType("float8_e5m3fnu", 8, "", -1)
float4_e2m1fn = DType("float4_e2m1fn", 4, "", -1)

DTYPES = {
    d.name: d for d in (
        bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64, tfloat32,
        float8_e4m3fn, float8_e5m2, float8_e8m0fnu, float8_e5m3fnu, float4_e2m1fn,
    )
}  # fmt: skip


class TileError(Exception):
    """Base of what the compiler reports."""


class TileTypeError(TileError): ...


class TileValueError(TileError): ...


class TileSyntaxError(TileError): ...


class TileStaticAssertionError(TileError): ...


class TileStaticEvalError(TileError): ...


class StaticException(TileStaticEvalError): ...


class TileUnsupportedFeatureError(TileError): ...


class TileRecursionError(TileError): ...


class TileInternalError(TileError): ...


class TileCompilerExecutionError(TileInternalError): ...


class TileCompilerTimeoutError(TileInternalError): ...


class RoundingMode(Enum):
    RN = "nearest_even"
    RZ = "zero"
    RM = "negative_inf"
    RP = "positive_inf"
    RA = "nearest_away"
    FULL = "full"
    APPROX = "approx"
    RZI = "nearest_int_to_zero"


class PaddingMode(Enum):
    UNDETERMINED = "undetermined"
    ZERO = "zero"
    NEG_ZERO = "neg_zero"
    NAN = "nan"
    POS_INF = "pos_inf"
    NEG_INF = "neg_inf"


PADDING = {
    PaddingMode.UNDETERMINED: 0.0, PaddingMode.ZERO: 0.0, PaddingMode.NEG_ZERO: -0.0, PaddingMode.NAN: float("nan"),
    PaddingMode.POS_INF: float("inf"), PaddingMode.NEG_INF: float("-inf"),
}  # fmt: skip
"""An undetermined padding is zero, as the hardware's loads give it."""


class MemoryScope(Enum):
    NONE = "none"
    BLOCK = "block"
    CLUSTER = "cluster"
    DEVICE = "device"
    SYS = "sys"


class MemoryOrder(Enum):
    WEAK = "weak"
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"


class ByTarget:
    """A hint that depends on the architecture."""

    def __init__(self, *, default: Any = None, **value_by_target: Any) -> None:
        for name in value_by_target:
            if not (name.startswith("sm_") and name[3:].isdigit()):
                raise ValueError(f"Invalid GPU architecture name: {name}, expected sm_<major><minor>")
        self.default, self.by_target = default, value_by_target

    def values(self) -> list[Any]:
        """Every value that some target would get."""
        return [*self.by_target.values(), self.default]


class ConstantAnnotation:
    """Marks a parameter whose value is known when the kernel is compiled."""

    def __repr__(self) -> str:
        return "ConstantAnnotation()"


@dataclass(frozen=True, kw_only=True)
class ArrayAnnotation:
    index_dtype: Any = int32
    static_shape_dims: tuple[int, ...] = ()
    static_stride_dims: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScalarAnnotation:
    dtype: Any


@dataclass(frozen=True, kw_only=True)
class ListAnnotation:
    element: Any


Constant = Annotated[T, ConstantAnnotation()]
IndexedWithInt64 = Annotated[T, ArrayAnnotation(index_dtype=int64)]
ScalarInt64 = Annotated[T, ScalarAnnotation(dtype=int64)]


class Slice:
    """Start and length along a dense dimension of an advanced index."""

    def __init__(self, start: Any, length: int, /) -> None:
        self.start, self.length = int(start), int(length)


def promote(left: DType, right: DType) -> DType:
    """The common dtype of two typed operands.

    Raises:
        TileTypeError: where cuTile has no implicit promotion: restricted floats, float16 with bfloat16, mixed signs.
    """
    if left is right:
        return left
    kinds = {left.kind, right.kind}
    if "r" in kinds or kinds == {"u", "i"} or (left.kind == right.kind == "f" and left.rank == right.rank):
        raise TileTypeError(
            f"Implicit promotion of {left} and {right} is not supported. Please perform an explicit cast instead."
        )
    if left.kind == right.kind:
        return left if left.rank > right.rank else right
    order = "buif"
    return left if order.index(left.kind) > order.index(right.kind) else right


def promote_constant(dtype: DType, value: bool | int | float) -> DType:
    """The common dtype of a typed operand and a Python constant, whose own type is loose."""
    if dtype.kind == "r":
        raise TileTypeError(
            f"Implicit promotion of {dtype} and {value} is not supported. Please perform an explicit cast instead."
        )
    if isinstance(value, bool) or dtype.kind == "f":
        return dtype
    if isinstance(value, int):
        return int32 if dtype.kind == "b" else dtype
    return float32
