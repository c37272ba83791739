"""A workload's shapes, least traffic and arithmetic, learned without allocating it: the reference run on meta tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tilecast.sandbox.harness.tensors import dtype_name, outputs_in, tensors_in
from tilecast.sandbox.harness.worker.arithmetic import Arithmetic

_GATHERS = ("aten.index.", "aten.index_select", "aten.embedding", "aten.gather", "aten._embedding_bag")


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """For each leaf: bytes of what is gathered from it, or all of it once anything else reads it."""

    def __init__(self, leaves: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._keys = {id(leaf): index for index, leaf in enumerate(leaves)}
        self._sizes = [leaf.numel() * leaf.element_size() for leaf in leaves]
        self._gathered = [0] * len(leaves)
        self._whole: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        gathers = str(func).startswith(_GATHERS)
        for position, item in enumerate(tensors_in(list(args))):
            index = self._keys.get(id(item))
            if index is None:
                continue
            if gathers and position == 0 and isinstance(result, Tensor):
                self._gathered[index] += result.numel() * result.element_size()
            else:
                self._whole.add(index)
        return result

    def least_bytes(self) -> int:
        """Compulsory reads of all leaves."""
        total = 0
        for index, size in enumerate(self._sizes):
            only_gathered = index not in self._whole and self._gathered[index] > 0
            total += min(size, self._gathered[index]) if only_gathered else size
        return total


def describe(source: ModuleType, workload: dict[str, Any], *, dry: bool) -> dict[str, Any]:
    """Shapes and dtypes of inputs and outputs, least bytes, flops of matrix-like operators.

    ``dry`` allocates nothing: meta tensors, else fake ones; else everything is run for real, with a note.
    """
    attempts: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        ("meta", lambda: _on_device(source, workload, "meta")),
        ("fake", lambda: _faked(source, workload)),
    ]
    problems = []
    for name, attempt in attempts if dry else []:
        try:
            return attempt()
        except Exception as error:  # noqa: BLE001 - user code on tensors without contents may raise anything
            problems.append(f"{name}: {type(error).__name__}: {str(error)[:120]}")
    if dry:
        return {"failed": "; ".join(problems)}
    facts = _on_device(source, workload, "cpu")
    return {**facts, "note": "shapes are from a real run: the reference does not run on meta tensors"}


def _faked(source: ModuleType, workload: dict[str, Any]) -> dict[str, Any]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return _on_device(source, workload, "cpu")


def _on_device(source: ModuleType, workload: dict[str, Any], device: str) -> dict[str, Any]:
    with torch.device(device), torch.no_grad():
        inputs = list(_call(source.get_inputs, workload))
        module = source.Model(*_call(source.get_init_inputs, workload))
    state = module.state_dict()
    leaves = [*tensors_in(inputs), *(item for item in [*module.parameters(), *module.buffers()])]
    with torch.no_grad(), Arithmetic() as arithmetic, _Reads(leaves) as reads:
        outputs = outputs_in(module(*inputs))
    written = sum(int(item.numel()) * item.element_size() for item in outputs)
    return {
        "inputs": _facts_of_inputs(source, inputs),
        "outputs": [_fact(f"output {i}" if len(outputs) > 1 else "output", item) for i, item in enumerate(outputs)],
        "parameters": [_fact(name, item) for name, item in state.items()],
        "min_bytes": int(reads.least_bytes() + written),
        "flops": arithmetic.flops,
    }


def _call(function: Any, workload: dict[str, Any]) -> Any:
    names = inspect.signature(function).parameters
    takes_all = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in names.values())
    return function(**{key: value for key, value in workload.items() if takes_all or key in names})


def _fact(name: str, tensor: Tensor) -> dict[str, Any]:
    return {"name": name, "shape": [int(size) for size in tensor.shape], "dtype": dtype_name(tensor.dtype)}


def _facts_of_inputs(source: ModuleType, inputs: list[Any]) -> list[dict[str, Any]]:
    """Named as ``forward`` names them; a nested tensor by its place, a scalar with its Python type as dtype."""
    names = [name for name in inspect.signature(source.Model.forward).parameters if name != "self"]
    facts = []
    for index, value in enumerate(inputs):
        name = names[index] if index < len(names) else f"input {index}"
        inside = tensors_in(value)
        if isinstance(value, Tensor):
            facts.append(_fact(name, value))
        elif inside:
            facts += [_fact(f"{name}[{place}]", item) for place, item in enumerate(inside)]
        else:
            facts.append({"name": name, "shape": [], "dtype": type(value).__name__})
    return facts
