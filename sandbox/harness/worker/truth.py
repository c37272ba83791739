"""Float64 truth of a reference, taken where the reference runs.

:func:`float64_truth` runs a module once more with every floating tensor in float64 (explicit casts inside ``forward``
included), and again with
inputs and parameters perturbed by about one rounding of the arithmetic. The judge turns the three results (native,
truth, perturbed) into allowed
errors, see ``judge/oracle.py``. Nothing here knows what the result is compared with.

Fallbacks, in this order, named in :attr:`Truth.method`:

- ``promoted``: a dispatch mode turns every low-precision dtype and tensor into float64;
- ``double``: ``module.double()`` on float64 inputs, casts inside ``forward`` left as they are;
- ``native``: float64 is not possible (custom operators, bit tricks); the native result is the truth and only floors
  count.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tilecast.sandbox.harness.worker.perturbation import (
    Effects,
    Noise,
    is_low_float,
    is_real,
    levels,
    tensors_of,
    unit_of,
    wide_dtype,
    widen,
)
from tilecast.sandbox.harness.worker.reduction import is_product, reduction_length

Forward = Callable[[torch.nn.Module, list[Any]], list[Tensor]]
"""Calls ``module(*inputs)`` without gradients and returns its tensors in order, then any inputs that it writes to."""

_MOST_PARTS = 64
"""Not tried in more: what then does not fit is what all parts share."""
_PARTS_NEEDED: dict[int, int] = {}
"""Into how many parts runs were split that ran out of memory, by the elements of their inputs and outputs."""
_UNPROMOTABLE = ("aten.view.dtype", "aten.bitwise", "aten.frexp", "aten.nextafter")


class PromotionImpossible(RuntimeError):
    """An operator whose meaning changes when its operands become float64."""


@dataclass(frozen=True)
class TruthOptions:
    """``budget_bytes`` bounds what one float64 run may allocate, by estimate; larger ones are split along the first
    axis.
    """

    seed: int = 0
    budget_bytes: int = 8 << 30
    perturb: bool = True
    unit: float | None = None
    """Unit roundoff to perturb by; None derives it from the inputs and parameters."""


@dataclass(frozen=True)
class Truth:
    """Outputs in float64 (complex128 for complex; integers and bools as they come), and root-mean-square effects of
    one rounding.
    """

    outputs: list[Tensor]
    spread: list[Tensor | None]
    """Per output |perturbed - truth| (root mean square over draws), float64; None for exact types or where it was not
    taken.
    """
    alternates: list[list[Tensor]] = field(default_factory=list)
    """Per output of an exact type, its values in the truth and in perturbed runs (argmax ties, bounds of quantisation)."""
    method: str = "promoted"
    reduction: int = 1
    """Longest reduction among the dispatched operators; 0 where it is not known."""
    products: bool = False
    """Whether matrices were multiplied."""
    chunks: int = 1
    note: str = ""


class PromoteToFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every operator in float64 whatever dtype it names, and notes the longest reduction."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reduction = 1
        self.products = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(func)
        if name.startswith(_UNPROMOTABLE):
            raise PromotionImpossible(f"{name} reads the bits of a number")
        args, kwargs = tree_map(self._promote, args), tree_map(self._promote, kwargs or {})
        self.reduction = max(self.reduction, reduction_length(name, args))
        self.products |= is_product(name)
        if name.startswith("aten._scaled_mm"):
            return _scaled_mm(*args, **kwargs)
        return func(*args, **kwargs)

    @staticmethod
    def _promote(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return wide_dtype(value)
        if isinstance(value, Tensor) and wide_dtype(value.dtype) is not value.dtype:
            return value.to(wide_dtype(value.dtype))
        return value


def _scaled_mm(a: Tensor, b: Tensor, *rest: Any, **named: Any) -> Tensor:
    """Scaled product of float8 operands as torch documents it: (a * scale_a) @ (b * scale_b) + bias."""
    names = ("scale_a", "scale_b", "bias", "scale_result", "out_dtype", "use_fast_accum")
    options = {**dict(zip(names, rest, strict=False)), **named}
    scale_a, scale_b = options.get("scale_a"), options.get("scale_b")
    left = a if scale_a is None else a * scale_a
    right = b if scale_b is None else b * scale_b
    out = torch.mm(left, right)
    bias = options.get("bias")
    return out if bias is None else out + bias


def float64_truth(
    module: torch.nn.Module, inputs: Sequence[Any], native: Sequence[Tensor], forward: Forward, options: TruthOptions
) -> Truth:
    """Run ``module`` in float64 on ``inputs``; ``native`` is what it gave in its own precision on the same inputs.

    ``module`` and ``inputs`` are left as they are. A result is believed only if its structure is that of ``native``.
    """
    notes = []
    for method in ("promoted", "double"):
        try:
            return _run_method(method, module, inputs, native, forward, options)
        except torch.OutOfMemoryError as error:
            notes.append(f"{method}: out of memory ({str(error)[:80]})")
            break
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError, KeyError) as error:
            notes.append(f"{method}: {str(error)[:120]}")
    return native_truth(native, "no float64: " + "; ".join(notes))


def native_truth(native: Sequence[Tensor], note: str) -> Truth:
    """The reference's own answer taken for the truth."""
    outputs = [widen(item) for item in native]
    return Truth(outputs, [None] * len(outputs), [[] for _ in outputs], "native", 0, note=note)


def _run_method(
    method: str,
    module: torch.nn.Module,
    inputs: Sequence[Any],
    native: Sequence[Tensor],
    forward: Forward,
    options: TruthOptions,
) -> Truth:
    wide_module = copy.deepcopy(module)
    _widen_module(wide_module)
    size = sum(item.numel() for item in [*inputs, *native] if isinstance(item, Tensor))
    chunks = max(_chunk_count(size, options.budget_bytes), _PARTS_NEEDED.get(size, 1))
    axis = batch_inputs(module, inputs, native, forward) if chunks > 1 else None
    while True:
        run = _Runner(method, forward, chunks if axis else 1, axis)
        try:
            return _perturbed(run, wide_module, inputs, native, options, options.unit or unit_of(module, inputs))
        except torch.OutOfMemoryError:
            axis = axis or batch_inputs(module, inputs, native, forward)
            if not axis or run.chunks >= min(inputs[axis[0]].shape[0], _MOST_PARTS):
                raise
        chunks = _PARTS_NEEDED[size] = 2 * run.chunks


def _perturbed(
    run: _Runner,
    wide_module: torch.nn.Module,
    inputs: Sequence[Any],
    native: Sequence[Tensor],
    options: TruthOptions,
    unit: float,
) -> Truth:
    """The truth and what perturbations do to it."""
    outputs = run(wide_module, inputs)
    _check_structure(outputs, native)
    effects = Effects(outputs)
    if options.perturb:
        for draw, level in enumerate(levels(outputs)):
            noise = Noise(unit, options.seed + draw, level)
            effects.add(run(noise.module(wide_module), noise.inputs(inputs)), noise)
    return Truth(
        outputs, effects.spread(), effects.alternates, run.method, run.reduction_seen, run.products_seen, run.chunks
    )


@dataclass
class _Runner:
    method: str
    forward: Forward
    chunks: int = 1
    batched: list[int] | None = None
    reduction_seen: int = 0
    products_seen: bool = False

    def __call__(self, module: torch.nn.Module, inputs: Sequence[Any]) -> list[Tensor]:
        if self.chunks <= 1 or not self.batched:
            return self._once(module, [widen(item) for item in inputs])
        total = inputs[self.batched[0]].shape[0]
        step = -(-total // self.chunks)
        parts = [
            self._once(module, [_part(item, i in self.batched, start, step) for i, item in enumerate(inputs)])
            for start in range(0, total, step)
        ]
        return [torch.cat(pieces) for pieces in zip(*parts, strict=True)]

    def _once(self, module: torch.nn.Module, inputs: list[Any]) -> list[Tensor]:
        if self.method == "double":
            return self.forward(module, inputs)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with PromoteToFloat64() as mode:
                outputs = self.forward(module, inputs)
        finally:
            torch.set_default_dtype(before)
        self.reduction_seen = max(self.reduction_seen, mode.reduction)
        self.products_seen |= mode.products
        return outputs


def _part(item: Any, batched: bool, start: int, step: int) -> Any:
    return widen(item[start : start + step] if batched else item)


def _widen_module(module: torch.nn.Module) -> None:
    """``module.double()``, float8 included, and plain tensor attributes of submodules too (they are not parameters)."""
    with torch.no_grad():
        for _, tensor in tensors_of(module):
            tensor.data = widen(tensor.data)
        for part in module.modules():
            for name, value in list(vars(part).items()):
                if isinstance(value, Tensor) and is_low_float(value.dtype):
                    setattr(part, name, widen(value))


def _chunk_count(elements: int, budget_bytes: int) -> int:
    """How often to split so that about six float64 copies of inputs and outputs fit the budget."""
    return max(1, -(-elements * 8 * 6 // max(budget_bytes, 1)))


def batch_inputs(
    module: torch.nn.Module, inputs: Sequence[Any], native: Sequence[Tensor], forward: Forward
) -> list[int] | None:
    """Indices of the inputs that share the outputs' first axis, if the reference treats its entries one by one.

    Tried on a slice, in the reference's own precision: only then can the truth be taken in parts.
    """
    sizes = {item.shape[0] for item in native if item.ndim}
    if len(sizes) != 1 or any(item.ndim == 0 for item in native):
        return None
    size = sizes.pop()
    chosen = [i for i, item in enumerate(inputs) if isinstance(item, Tensor) and item.ndim and item.shape[0] == size]
    if not chosen or size < 2:
        return None
    low, high = size // 2, size // 2 + max(1, size // 8)
    part = [item[low:high].clone() if i in chosen else item for i, item in enumerate(inputs)]
    try:
        pieces = forward(copy.deepcopy(module), part)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None
    same = len(pieces) == len(native) and all(_near(p, n[low:high]) for p, n in zip(pieces, native, strict=True))
    return chosen if same else None


def _near(part: Tensor, whole: Tensor) -> bool:
    if part.shape != whole.shape or part.dtype != whole.dtype:
        return False
    if not is_real(part):
        return torch.equal(part, whole)
    unit = torch.finfo(part.dtype).eps if part.dtype.is_floating_point else 1e-6
    a, b = widen(part), widen(whole)
    return bool(torch.allclose(a, b, rtol=64 * unit, atol=64 * unit * float(b.abs().amax() or 1.0), equal_nan=True))


def _check_structure(outputs: Sequence[Tensor], native: Sequence[Tensor]) -> None:
    shapes = [tuple(item.shape) for item in outputs]
    wanted = [tuple(item.shape) for item in native]
    if shapes != wanted:
        raise ValueError(f"float64 run gives shapes {shapes}, native {wanted}")
    for wide, own in zip(outputs, native, strict=True):
        if wide_dtype(own.dtype) is not wide.dtype:
            raise ValueError(f"float64 run gives {wide.dtype} where the native one gives {own.dtype}")
