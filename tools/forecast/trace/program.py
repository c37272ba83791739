"""From a file's text to what it does: problem facts by shape, and the launches of a candidate with their work."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tilecast.sandbox.source import parsed
from tilecast.tools.forecast.trace.cutile_kernel import CutileEvaluator
from tilecast.tools.forecast.trace.host import HostEvaluator
from tilecast.tools.forecast.trace.host_op import HostOp
from tilecast.tools.forecast.trace.language import FunctionReturn, Limit, LoopBreak, LoopContinue
from tilecast.tools.forecast.trace.launching import Launch
from tilecast.tools.forecast.trace.tiles import KernelEvaluator
from tilecast.tools.forecast.trace.triton_kernel import TritonEvaluator, argument
from tilecast.tools.forecast.trace.values import UNKNOWN, Class, Function, Instance, Tensor
from tilecast.tools.forecast.trace.work import Work

SAMPLED_PROGRAMS = (0.31, 0.77)
"""Positions in the grid, as fractions, whose programs are walked to stand for all."""

MORE_PROGRAMS = (0.03, 0.11, 0.21, 0.41, 0.52, 0.63, 0.88, 0.97)
"""Walked as well where the first ones found nothing to do or disagree."""

UNEVEN = 1.2
MAX_LAUNCHES = 512


BROKEN = (
    Limit, RecursionError, KeyError, AttributeError, TypeError, ValueError, IndexError, MemoryError,
    LoopBreak, LoopContinue, FunctionReturn,
)  # fmt: skip
"""What walking a text may end in: it is a value here, never the caller's problem."""


@dataclass
class ProblemTrace:
    """Shapes and least work of a problem's ``full`` workload."""

    inputs: list[Any]
    init: list[Any]
    parameters: list[Tensor]
    outputs: list[Tensor]
    min_bytes: float
    flops: float
    dtype: str
    ops: list[HostOp]
    complete: bool


@dataclass
class LaunchTrace:
    """One launch: its extent and options, and the mean work of a program."""

    language: str
    kernel: str
    grid: tuple[int, ...]
    options: dict[str, Any]
    work: Work
    imbalance: float
    arguments: list[Any]
    constants: dict[str, Any]
    complete: bool

    @property
    def programs(self) -> int:
        """Programs in the grid."""
        return math.prod(self.grid)


@dataclass
class Trace:
    """What ``forward`` of a candidate does, in order."""

    launches: list[LaunchTrace] = field(default_factory=list)
    ops: list[HostOp] = field(default_factory=list)
    storages: dict[int, float] = field(default_factory=dict)
    """Bytes of every tensor that a launch is handed, by storage."""
    inputs: set[int] = field(default_factory=set)
    complete: bool = True
    reason: str = ""


@lru_cache(maxsize=512)
def _tree(source: str) -> ast.Module:
    return parsed(source)


def _module(source: str, evaluator: HostEvaluator, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Walk a module; ``config`` replaces the values of its CONFIG as soon as that is assigned."""
    scope: dict[str, Any] = {}
    for node in _tree(source).body:
        evaluator.run([node], scope)
        if config and isinstance(node, ast.Assign) and isinstance(scope.get("CONFIG"), dict):
            scope["CONFIG"].update(config)
    evaluator.events.clear()
    return scope


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, list | tuple) else []


def _parameters(instance: Instance) -> list[Tensor]:
    found: list[Tensor] = []
    for value in instance.attributes.values():
        if isinstance(value, Instance):
            found.extend(_parameters(value))
        else:
            found.extend(_tensors(value))
    return found


def trace_problem(source: str, workload: str = "full") -> ProblemTrace | None:
    """Shapes, least bytes and flops of a reference by walking ``get_inputs``, the constructor and ``forward``.

    None if it cannot be walked, or if the file has no workload of that name.
    """
    evaluator = HostEvaluator()
    try:
        scope = _module(source, evaluator)
        named = {} if workload == "full" else scope["WORKLOADS"][workload]
        inputs = evaluator.invoke(scope["get_inputs"], [], _taken(scope["get_inputs"], named))
        init = evaluator.invoke(scope["get_init_inputs"], [], _taken(scope["get_init_inputs"], named))
        inputs = list(inputs) if isinstance(inputs, list | tuple) else []
        init = list(init) if isinstance(init, list | tuple) else []
        evaluator.events.clear()
        model = evaluator.construct(scope["Model"], init, {})
        output = evaluator.call_instance(model, list(inputs), {})
    except (SyntaxError, *BROKEN):
        return None
    ops = [e for e in evaluator.events if isinstance(e, HostOp)]
    outputs, parameters = _tensors(output), _parameters(model)
    given = [*_tensors(inputs), *parameters]
    if not given or not outputs:
        return None
    touched = _bytes_needed(given, ops) + sum(t.nbytes for t in outputs)
    floats = [t.dtype for t in given if t.dtype.startswith(("float", "bfloat"))]
    dtype = max(set(floats), key=lambda d: sum(t.nbytes for t in given if t.dtype == d)) if floats else "float32"
    flops = sum(op.flops for op in ops if op.kind == "library")
    return ProblemTrace(inputs, init, parameters, outputs, touched, flops, dtype, ops, evaluator.unknown_calls == 0)


def _taken(function: Function, named: Mapping[str, Any]) -> dict[str, Any]:
    """Those keyword arguments that a function names."""
    own = {a.arg for a in (*function.node.args.args, *function.node.args.kwonlyargs)}
    return {key: value for key, value in named.items() if key in own}


def _bytes_needed(given: list[Tensor], ops: list[HostOp]) -> float:
    """Each input once; a table that is only gathered from counts as the rows that were read."""
    total = 0.0
    for storage, tensor in {t.storage: t for t in given}.items():
        readers = [op for op in ops if storage in op.reads]
        gathers = [op for op in readers if op.kind == "gather"]
        if readers and len(gathers) == len(readers):
            total += min(tensor.nbytes, sum(op.bytes / 2 for op in gathers))
        else:
            total += tensor.nbytes
    return total


def trace_candidate(source: str, problem: ProblemTrace, config: Mapping[str, Any] | None = None) -> Trace:
    """Walk ``ModelNew`` on the problem's shapes; what could not be walked leaves ``complete`` False with the reason.

    ``config`` holds values that replace those of the text's own CONFIG.
    """
    evaluator, trace = HostEvaluator(), Trace()
    try:
        scope = _module(source, evaluator, config)
        target = scope.get("ModelNew")
        if not isinstance(target, Class):
            return Trace(complete=False, reason="no class ModelNew")
        model = evaluator.construct(target, list(problem.init), {})
        evaluator.call_instance(model, list(problem.inputs), {})
    except SyntaxError as error:
        return Trace(complete=False, reason=f"does not parse: {error}")
    except BROKEN as error:
        trace.complete, trace.reason = False, f"host code: {type(error).__name__} {error}"
    else:
        trace.inputs = {t.storage for t in [*_tensors(problem.inputs), *_parameters(model)]}
    for event in evaluator.events[:MAX_LAUNCHES]:
        if isinstance(event, HostOp):
            trace.ops.append(event)
            continue
        launched = _walk(event)
        trace.launches.append(launched)
        for item in [*event.args, *event.kwargs.values()]:
            tensor = item if isinstance(item, Tensor) else getattr(item, "base", None)
            if isinstance(tensor, Tensor):
                trace.storages[tensor.storage] = max(trace.storages.get(tensor.storage, 0.0), tensor.nbytes)
        if not launched.complete:
            trace.complete, trace.reason = False, trace.reason or "a kernel's body could not be walked"
    if not trace.launches and not trace.ops:
        trace.complete, trace.reason = False, trace.reason or "no work was found in forward"
    return trace


def _walk(launch: Launch) -> LaunchTrace:
    """Mean work of a few programs of a launch."""
    total, complete = math.prod(launch.grid), launch.options.get("known_grid") is True
    works: list[Work] = []
    for fractions in (SAMPLED_PROGRAMS, MORE_PROGRAMS):
        for spot in sorted({min(int(total * f), total - 1) for f in fractions}):
            work, walked = _walk_one(launch, spot, len(works))
            works.append(work)
            complete = complete and walked
        sizes = [w.load_bytes + w.store_bytes + w.dot_flops for w in works]
        if total <= len(works) or (min(sizes) > 0 and max(sizes) <= UNEVEN * min(sizes)):
            break
    mean = _mean(works)
    heaviest = max(w.load_bytes + w.dot_flops / 64 + w.float_ops for w in works)
    average = mean.load_bytes + mean.dot_flops / 64 + mean.float_ops
    constants = {k: v for k, v in launch.kwargs.items() if isinstance(v, int | float | str)}
    flat = [a for a in launch.args if isinstance(a, int | float) and not isinstance(a, bool)]
    name = getattr(launch.kernel.node, "name", "lambda")
    return LaunchTrace(
        launch.language,
        name,
        launch.grid,
        launch.options,
        mean,
        heaviest / average if average else 1.0,
        flat,
        constants,
        complete,
    )


def _walk_one(launch: Launch, spot: int, seed: int) -> tuple[Work, bool]:
    """Work of the program at ``spot`` of the grid, and whether its body was walked to the end."""
    work = Work()
    kind = CutileEvaluator if launch.language == "cutile" else TritonEvaluator
    evaluator: KernelEvaluator = kind(work, _place(spot, launch.grid), launch.grid, seed)
    cutile = launch.language == "cutile"
    args = launch.args if cutile else [argument(a) for a in launch.args]
    kwargs = launch.kwargs if cutile else {k: argument(v) for k, v in launch.kwargs.items()}
    try:
        evaluator.invoke(launch.kernel, list(args), dict(kwargs))
    except BROKEN:
        return work, False
    return work, True


def _place(spot: int, grid: tuple[int, ...]) -> tuple[int, ...]:
    place = []
    for size in grid:
        place.append(spot % size)
        spot //= size
    return tuple(place)


def _mean(works: list[Work]) -> Work:
    """Numbers averaged, maxima kept, the first one's loops."""
    result = works[-1]
    for name, value in vars(result).items():
        if isinstance(value, float) and not name.startswith(("largest", "widest")):
            setattr(result, name, sum(getattr(w, name) for w in works) / len(works))
    for table in ("by_storage", "stored_storage"):
        keys = {k for w in works for k in getattr(w, table)}
        setattr(result, table, {k: sum(getattr(w, table).get(k, 0.0) for w in works) / len(works) for k in keys})
    return result


def walk_launch(
    language: str, kernel: Function, grid: tuple[int, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> LaunchTrace:
    """Work of one launch with given arguments by name."""
    return _walk(Launch(language, kernel, grid, [], dict(kwargs), {**options, "known_grid": True}))


def kernels_of(source: str) -> list[Function]:
    """Device functions of a file, for tests and diagnosis."""
    evaluator = HostEvaluator()
    scope = _module(source, evaluator)
    return [v for v in scope.values() if isinstance(v, Function) and v.kernel]


__all__ = ["UNKNOWN", "LaunchTrace", "ProblemTrace", "Trace", "kernels_of", "trace_candidate", "trace_problem"]
