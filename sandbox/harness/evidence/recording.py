"""Counts the torch operations that host code makes: bytes, floating-point operations, library calls, allocations."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only
from torch.utils.flop_counter import flop_registry

from tilecast.sandbox.harness.evidence.virtual import below

_NOT_WORK = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "detach",
        "alias",
        "lift",
        "lift_fresh",
        "_unsafe_view",
        "_reshape_alias",
        "resize_",
        "set_",
        "_local_scalar_dense",
        "is_same_size",
        "sym_size",
        "sym_stride",
        "record_stream",
    ]
)
_WRITE_ONLY = frozenset(
    [
        "zero_",
        "fill_",
        "copy_",
        "normal_",
        "uniform_",
        "random_",
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
        "new_full",
    ]
)
_GATHERS = frozenset(
    [
        "index",
        "index_select",
        "embedding",
        "gather",
        "take",
        "embedding_bag",
        "_embedding_bag",
        "_embedding_bag_forward_only",
    ]
)
_LIBRARY = frozenset(
    [
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "mv",
        "addmv",
        "dot",
        "_scaled_mm",
        "_int_mm",
        "convolution",
        "_convolution",
        "cudnn_convolution",
        "linear",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "scaled_dot_product_attention",
        "_fft_c2c",
        "_fft_r2c",
    ]
)
_HEAVY_ELEMENTS = 1 << 24
_HEAVY_FLOPS = 1 << 30


def _strided(values: Any) -> list[torch.Tensor]:
    return [t for t in tree_iter(values) if isinstance(t, torch.Tensor) and t.layout is torch.strided]


def _region(tensor: torch.Tensor) -> tuple[int, int, tuple[int, ...]]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), tuple(tensor.shape)


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes that one pass over the tensor touches: an expanded one counts what it holds, not what it shows."""
    held = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        held *= size if stride != 0 else min(size, 1)
    return held * tensor.element_size()


class OpRecorder(TorchDispatchMode):
    """Counts while ``active``. With ``skip_heavy`` large operations are not run: their results are memory never touched."""

    def __init__(self, skip_heavy: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._skip_heavy = skip_heavy
        self.active = False
        self.reset()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled here; saying otherwise would import torch._dynamo, which takes most of a second.
        return False

    def watch(self, active: bool) -> None:
        """Count what follows, or do not."""
        self.active = active

    def reset(self) -> None:
        """Start counting from nothing."""
        self.names: Counter[str] = Counter()
        self.library: Counter[str] = Counter()
        self.bytes_moved = 0
        self.flops = 0
        self._made: dict[int, tuple[int, Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with below(), torch._C.DisableTorchFunctionSubclass():
            if self._skip_heavy and _is_heavy(func, args, kwargs):
                result = _run_without_values(func, args, kwargs, "cpu")
            elif not self._skip_heavy and _has_sparse(args) and not getattr(func, "is_view", False):
                # The meta device has no sparse products: dense shapes stand for them.
                result = _run_without_values(func, args, kwargs, "meta")
            else:
                result = func(*args, **kwargs)
        if self.active:
            self._count(func, args, kwargs, result)
        return result

    def attention(self, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Stands for ``scaled_dot_product_attention``: one library call, whose result has no values."""
        *lead, rows, depth = query.shape
        columns, width = key.shape[-2], value.shape[-1]
        out = torch.empty(
            *lead,
            rows,
            width,
            dtype=query.dtype,
            device="meta" if query.untyped_storage().device.type == "meta" else "cpu",
        )
        if self.active:
            flops = 2 * math.prod(lead) * rows * columns * (depth + width)
            causal = bool(kwargs.get("is_causal") or (len(args) > 2 and args[2]))
            self.flops += flops // 2 if causal else flops
            self.bytes_moved += sum(map(tensor_bytes, (query, key, value, out)))
            self.names["scaled_dot_product_attention"] += 1
            self.library["scaled_dot_product_attention"] += 1
            self._made[out.untyped_storage()._cdata] = (tensor_bytes(out), out.untyped_storage())
        return out

    def intermediates_bytes(self, outputs: list[torch.Tensor]) -> int:
        """Bytes of the storages made while counting, those of ``outputs`` left out."""
        kept = {tensor.untyped_storage()._cdata for tensor in _strided(outputs)}
        return sum(size for key, (size, _) in self._made.items() if key not in kept)

    def document(self) -> dict[str, Any]:
        """The fields of :class:`HostOps`."""
        return {
            "count": sum(self.names.values()),
            "bytes_moved": self.bytes_moved,
            "flops": self.flops,
            "by_name": dict(self.names),
            "library_calls": dict(self.library),
        }

    def _count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        inputs = {_region(t): t for t in _strided((args, kwargs))}
        outputs = {_region(t): t for t in _strided(result)}
        known = {region[0] for region in inputs}
        for region, tensor in outputs.items():
            if region[0] not in known:
                self._made.setdefault(region[0], (tensor.untyped_storage().nbytes(), tensor.untyped_storage()))
        if name in _NOT_WORK or getattr(func, "is_view", False) or not outputs:
            return
        self.names[name] += 1
        written = sum(map(tensor_bytes, outputs.values()))
        if name in _GATHERS:
            self.bytes_moved += written + _gathered(name, list(inputs.values()), written)
        else:
            skip = outputs.keys() if name in _WRITE_ONLY else ()
            self.bytes_moved += written + sum(tensor_bytes(t) for region, t in inputs.items() if region not in skip)
        # The formulas ask tensors for strides, which sparse ones do not have.
        if all(t.layout is torch.strided for t in tree_iter((args, kwargs, result)) if isinstance(t, torch.Tensor)):
            self.flops += _flops(func, args, kwargs, result)
        if name in _LIBRARY:
            self.library[name] += 1


def _gathered(name: str, inputs: list[torch.Tensor], written: int) -> int:
    """Bytes that an indexed read touches: the indices, and of the table what they pick (bags pick more than they return)."""
    indices = [t for t in inputs if not t.is_floating_point()]
    picked = written
    if "bag" in name and indices:
        table = next((t for t in inputs if t.is_floating_point()), indices[0])
        picked = max(t.numel() for t in indices) * table.shape[-1] * table.element_size()
    return picked + sum(map(tensor_bytes, indices))


def _flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """By torch's own formulas for matrix-like operators; 0 for others."""
    formula = flop_registry.get(getattr(func, "_overloadpacket", func))
    return int(formula(*args, **kwargs, out_val=result)) if formula else 0


def _is_heavy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    tensors = _strided((args, kwargs))
    if any(t.device.type == "meta" for t in tensors):
        return False
    if sum(t.numel() for t in tensors) > _HEAVY_ELEMENTS:
        return not getattr(func, "is_view", False)
    if getattr(func, "_overloadpacket", None) in flop_registry:
        return math.prod(sorted(max(t.shape, default=1) for t in tensors)[-3:]) > _HEAVY_FLOPS
    return False


def _has_sparse(args: tuple[Any, ...]) -> bool:
    return any(isinstance(t, torch.Tensor) and t.layout is not torch.strided for t in tree_iter(args))


def _run_without_values(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> Any:
    """Shapes and dtypes from the meta device, memory that nobody has touched."""
    if func._schema.is_mutable:
        return args[0] if args else None
    bare = tree_map_only(torch.Tensor, _as_meta, (args, {k: v for k, v in kwargs.items() if k != "device"}))
    shapes = func(*bare[0], **bare[1])
    return tree_map_only(
        torch.Tensor, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device), shapes
    )


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
