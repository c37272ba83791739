"""Library functions and classes as they were before a candidate was imported, and which of them hold something else now.

Clocks, comparisons and what baselines are made of: whoever replaces those answers for other code of the same process. New
names are fine, unless they hide what a class inherits.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import inspect
import math
import os
import random
import signal
import statistics
import sys
import threading
import time
import timeit
import types
from collections.abc import Iterator
from typing import Any

import numpy
import numpy.testing
import torch
import torch.profiler
import torch.testing

from tilecast.sandbox.harness.worker.findings import Finding
from tilecast.sandbox.harness.worker.places import is_private

_COMPILERS = ("torch._dynamo.", "torch._inductor.", "torch._functorch.")
_MODULES = (
    *(builtins, gc, importlib, inspect, math, os, random, signal, statistics, threading, time, timeit),
    *(torch, torch.nn, torch.nn.functional, torch.nn.init, torch.autograd, torch.linalg, torch.special, torch.fft),
    *(torch.random, torch.testing, torch.cuda, torch.profiler),
    *(numpy, numpy.linalg, numpy.random, numpy.testing),
)
_STOPWATCHES = "torch.utils.benchmark"
_IF_IMPORTED = (
    _STOPWATCHES,
    "torch.autograd.profiler",
    "torch.cuda.graphs",
    "torch.cuda.random",
    "torch.cuda.streams",
    "torch.testing._comparison",
    "torch.utils.benchmark.utils.timer",
    "triton",
    "triton.runtime.autotuner",
    "triton.testing",
)
_CALLABLE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_MEMBERS = (*_CALLABLE, property, classmethod, staticmethod, types.GetSetDescriptorType, types.MemberDescriptorType)
_TABLES = ("torch.testing",)
"""Modules whose tables (upper-case dicts) decide what passes for equal."""
_SHAPES_ONLY = "Meta"
"""The dispatch key of implementations that compute no values."""


def prepare() -> None:
    """Import what is watched and may be imported in a worker only, never in its fork server.

    torch's stopwatches ask for a GPU when they are imported, and after that no process forked from this one can use one.
    """
    importlib.import_module(_STOPWATCHES)


def _classes() -> Iterator[type]:
    yield from (torch.Tensor, torch._C.TensorBase, torch.nn.Parameter, torch.cuda.Event, torch.cuda.Stream)
    yield from (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch.Generator)
    yield from {value for value in vars(torch.nn).values() if isinstance(value, type)}
    if _STOPWATCHES in sys.modules:
        yield sys.modules[_STOPWATCHES].Timer


def _watched() -> Iterator[tuple[str, dict[str, Any], type | None]]:
    """Name, contents, and the class whose contents they are (None for a module)."""
    for module in _MODULES:
        yield module.__name__, vars(module), None
    for name in sorted(sys.modules):
        if name in _IF_IMPORTED or name.startswith("tilecast.sandbox.harness"):
            module = sys.modules[name]
            yield name, vars(module) if module is not None else {}, None
    for kind in _classes():
        yield f"{kind.__module__}.{kind.__qualname__}", dict(vars(kind)), kind


def _kinds() -> dict[str, type]:
    """Classes of the watched modules: one of a class of its own answers for any name what it likes."""
    names = [*(module.__name__ for module in _MODULES), *_IF_IMPORTED]
    return {name: type(sys.modules[name]) for name in names if name in sys.modules}


def _is_installed(finder: object) -> bool:
    """Whether an import hook comes from a package of this machine (setuptools has one) and not from a candidate."""
    kind = finder if isinstance(finder, type) else type(finder)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return bool(file) and not is_private(file)


def _inner(value: object) -> tuple[object, ...]:
    """What can be swapped within a function: its code and its defaults, by identity."""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if not isinstance(value, types.FunctionType):
        return ()
    defaults = value.__defaults__ or ()
    named = value.__kwdefaults__ or {}
    return (value.__code__, *defaults, *(item for pair in sorted(named.items()) for item in pair))


def _same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _tables(watched: dict[str, dict[str, Any]]) -> dict[tuple[str, str], tuple[object, ...]]:
    return {
        (place, name): tuple(item for pair in value.items() for item in pair)
        for place, names in watched.items()
        if place.startswith(_TABLES)
        for name, value in list(names.items())
        if isinstance(value, dict) and name.isupper()
    }


def _overridden() -> set[str]:
    """Operators of torch that got another implementation from Python (``torch.library``), as ``aten/relu/CPU``."""
    found = getattr(torch.library, "_impls", ())
    return {name for name in list(found) if name.startswith("aten/") and not name.endswith(f"/{_SHAPES_ONLY}")}


class Bindings:
    """Which functions and classes the watched places hold. New names are fine, replaced and hidden ones are a finding."""

    def __init__(self) -> None:
        prepare()
        self._kept: dict[tuple[str, str], tuple[Any, tuple[object, ...]]] = {}
        self._inherited: dict[str, set[str]] = {}
        watched: dict[str, dict[str, Any]] = {}
        for place, names, kind in _watched():
            watched[place] = names
            for name, value in list(names.items()):
                if isinstance(value, _CALLABLE if kind is None else _MEMBERS):
                    self._kept[place, name] = (value, _inner(value))
            if kind is not None:
                bases = {name for base in kind.__mro__[1:] for name in vars(base)}
                self._inherited[place] = bases - set(names)
        self._tables = _tables(watched)
        self._overridden = _overridden()
        self._kinds = _kinds()
        self._finders = list(sys.meta_path)

    def changes(self) -> list[Finding]:
        """Names that now hold something else, whose code or defaults were swapped, or that hide an inherited one."""
        now = {place: names for place, names, _ in _watched()}
        found = []
        for (place, name), (value, inner) in self._kept.items():
            current = now.get(place, {}).get(name)
            if current is not value and not _compilers_own(current):
                found.append(Finding("patched", f"{place}.{name} was replaced by {_name(current)}"))
            elif current is value and not _same(inner, _inner(current)):
                found.append(Finding("patched", f"the code or the defaults of {place}.{name} were swapped"))
        for place, inherited in self._inherited.items():
            hiding = sorted(inherited & set(now.get(place, {})))
            found += [Finding("patched", f"{place}.{name} hides the one it inherits") for name in hiding]
        tables = _tables(now)
        for key, items in self._tables.items():
            if not _same(items, tables.get(key, ())):
                found.append(Finding("patched", f"the table {'.'.join(key)} was changed"))
        kinds = _kinds()
        for name, kind in self._kinds.items():
            if kinds.get(name, kind) is not kind:
                found.append(
                    Finding("patched", f"the class of module {name} was swapped for {kinds[name].__qualname__:.60}")
                )
        strange = [item for item in sys.meta_path if item not in self._finders and not _is_installed(item)]
        found += [Finding("patched", f"imports are looked up by {_name(item)} of its own") for item in strange]
        overridden = sorted(_overridden() - self._overridden)
        what = "of torch was given another implementation"
        return [*found, *(Finding("patched", f"operator {name} {what}") for name in overridden)]


def _compilers_own(value: object) -> bool:
    """Replaced by torch's own compiler, which does so when something is first compiled: a function of its modules."""
    space = getattr(value, "__globals__", None)
    name = space.get("__name__", "") if isinstance(space, dict) else ""
    module = sys.modules.get(name) if isinstance(name, str) and name.startswith(_COMPILERS) else None
    return module is not None and vars(module) is space


def _name(value: object) -> str:
    kind = type(value).__name__
    return f"{kind} {getattr(value, '__qualname__', '')!s:.60}".strip()
