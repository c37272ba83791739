"""Puts the repairs into Triton's interpreter, once a process, before a candidate is imported."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter as _interpreter

from . import (
    triton_asm,
    triton_direct,
    triton_fast,
    triton_host,
    triton_launch,
    triton_memory,
    triton_ops,
    triton_reduce,
    triton_rewrite,
    triton_scaled,
)
from .errors import Unsupported


def _missing(self: Any, name: str) -> Any:
    if name.startswith(("create_", "get_")):
        raise Unsupported(f"the Triton operation {name.partition('_')[2]!r}")
    raise AttributeError(name)


def _builder() -> None:
    builder = _interpreter.InterpreterBuilder
    for name, function in {**triton_ops.table(), **triton_memory.table()}.items():
        setattr(builder, name, function)
    builder.create_inline_asm = triton_asm.create_inline_asm
    builder.create_assume = lambda self, condition: None
    builder.__getattr__ = _missing
    _interpreter.TensorDescHandle.validate = triton_memory.validate_descriptor
    options = _interpreter.interpreter_builder.options
    # Frozen, but the only switch of device_assert; overflow checks would refuse hashes that wrap on purpose.
    object.__setattr__(options, "debug", True)
    object.__setattr__(options, "sanitize_overflow", False)
    object.__setattr__(options, "num_warps", 4)
    if not hasattr(builder, "create_dot_scaled"):
        triton_scaled.install(builder)


def _item(tensor: Any) -> int:
    return int(tensor.handle.data.item())


def _truth(tensor: Any) -> bool:
    data = tensor.handle.data
    return bool(data.item()) if data.size == 1 else True


def _language() -> None:
    """Patch builtins wherever they are bound, for good: the stock interpreter does it anew at every call."""
    scope = _interpreter._LangPatchScope() if hasattr(_interpreter, "_LangPatchScope") else None
    if scope is None:
        raise Unsupported(f"Triton {triton.__version__} (its interpreter is organised differently)")
    import triton.language.extra.libdevice as generic
    from triton.language.extra.cuda import gdc, libdevice, utils

    builder = _interpreter.interpreter_builder
    for module in (tl, tl.core):
        _interpreter._patch_lang_core(module, scope)
    for owner in (tl, tl.core, tl.math, libdevice, gdc, utils, tl.tensor, tl.core.tensor_descriptor_base):
        _interpreter._patch_builtin(owner, builder, scope)
    _interpreter._patch_lang_tensor(tl.core.tensor, scope)
    tl.core.tensor.__index__ = _item
    tl.core.tensor.__bool__ = _truth
    for name, member in vars(libdevice).items():
        if callable(member) and hasattr(generic, name):
            setattr(generic, name, member)
    for module in (tl, tl.core):
        for name, function in triton_reduce.table().items():
            setattr(module, name, function)
        module.range = triton_rewrite.runtime_range
        module.static_range = triton_rewrite.static_range
        for hint in ("multiple_of", "max_contiguous", "max_constancy"):
            setattr(module, hint, lambda value, *_, **__: value)
    _patch_late_imports(scope)
    triton_direct.install()


def _patch_late_imports(scope: Any) -> None:
    """Other modules of the language that hold builtins under their own names."""
    builder = _interpreter.interpreter_builder
    loaded = [module for name, module in list(sys.modules.items()) if name.startswith("triton.language.")]
    # Triton loads its backends' modules by hand: what its package holds need not be what sys.modules holds.
    loaded += [module for module in vars(tl.extra).values() if isinstance(module, ModuleType)]
    for module in loaded:
        _interpreter._patch_builtin(module, builder, scope)


class _NoScope:
    def restore(self) -> None:
        """Nothing was patched for this call."""


def prepare() -> None:
    """The part that does not depend on a candidate; done once a process."""
    if getattr(_interpreter, "_repaired", False):
        return
    if not triton.knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET=1 must be set before triton is first imported")
    _builder()
    _language()
    _interpreter._patch_lang = lambda fn: _NoScope()
    _interpreter.InterpretedFunction.run = triton_launch.run_kernel
    _interpreter.InterpretedFunction.__call__ = triton_launch.call_device_function
    triton_fast.install()
    triton_host.install()
    _interpreter._repaired = True


def warm() -> None:
    """Rewrite Triton's own library functions now, so that forked workers find it done."""
    for member in vars(tl.standard).values():
        if isinstance(member, _interpreter.InterpretedFunction):
            triton_launch.rewritten(member.fn)
