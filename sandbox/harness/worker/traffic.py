"""How few bytes a correct program could move for a forward pass, judged by what the reference's operators read and write.

A lower bound, since a limit built on it may reject: an input counts by the largest part of it that one operator reads in
full; operators that choose among elements (gathers, masks, triangles) count as reading nothing of what they choose from;
an output that is a view of an input is not written at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

CHOOSING = (
    "embedding",
    "index",
    "gather",
    "take",
    "where",
    "masked",
    "tril",
    "triu",
    "scatter",
    "nonzero",
    "topk",
    "searchsorted",
    "bucketize",
    "slice_backward",
    "select_backward",
)
"""Beginnings of operator names whose operands need not be read in full."""


class TrafficCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches operators and keeps, for each storage that existed before, the most bytes that one operator reads of it."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storage_bytes = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in known}
        self.read_bytes = dict.fromkeys(self.storage_bytes, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1].lstrip("_")
        if not _is_view(func) and not name.startswith(CHOOSING):
            for item in tree_flatten((args, kwargs))[0]:
                if isinstance(item, Tensor):
                    self._reads(item)
        return result

    def _reads(self, tensor: Tensor) -> None:
        key = tensor.untyped_storage()._cdata
        if key in self.read_bytes:
            size = min(distinct_bytes(tensor), self.storage_bytes[key])
            self.read_bytes[key] = max(self.read_bytes[key], size)


def distinct_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements, those that share memory by stride 0 counted once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 or size == 0 else 1
    return count * tensor.element_size()


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def compulsory_traffic(module: torch.nn.Module, arguments: Sequence[Any]) -> dict[str, int]:
    """Run one forward pass and count: ``{"read_bytes", "written_bytes"}``.

    Inputs that the reference changes in place count as written, by the whole of the changed view.
    """
    inputs = [item for item in tree_flatten(list(arguments))[0] if isinstance(item, Tensor)]
    own = [*module.parameters(), *module.buffers()]
    versions = [t._version for t in inputs]
    with TrafficCounter([*inputs, *own]) as counter, torch.no_grad():
        result = module(*arguments)
    outputs = [item for item in tree_flatten(result)[0] if isinstance(item, Tensor)]
    before = {t.untyped_storage()._cdata for t in [*inputs, *own]}
    written = sum(
        {t.untyped_storage()._cdata: distinct_bytes(t) for t in outputs}.get(key, 0) for key in _fresh(outputs, before)
    )
    written += sum(distinct_bytes(t) for t, version in zip(inputs, versions, strict=True) if t._version != version)
    return {"read_bytes": sum(counter.read_bytes.values()), "written_bytes": written}


def _fresh(outputs: Sequence[Tensor], before: set[int]) -> set[int]:
    return {t.untyped_storage()._cdata for t in outputs} - before
