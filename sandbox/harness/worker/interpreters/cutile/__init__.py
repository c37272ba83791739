"""A stand-in for ``cuda.tile`` that runs cuTile kernels on CPU tensors, whether or not the real package is installed."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

from ..errors import Unsupported

_TYPES = (
    "DType", "ByTarget", "MemoryOrder", "MemoryScope", "PaddingMode", "RoundingMode", "ArrayAnnotation", "Constant",
    "ConstantAnnotation", "IndexedWithInt64", "ListAnnotation", "ScalarInt64", "Slice", "TileError", "TileTypeError",
    "TileValueError", "TileSyntaxError", "TileStaticAssertionError", "TileStaticEvalError", "TileUnsupportedFeatureError",
    "TileRecursionError", "TileInternalError", "TileCompilerExecutionError", "TileCompilerTimeoutError", "StaticException",
)  # fmt: skip


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise Unsupported(f"cuda.tile.{name}")


@contextmanager
def _compiler_timeout(seconds: float) -> Any:
    """Nothing is compiled here."""
    yield


def _first_configuration(
    search_space: Any, stream: Any, grid_fn: Any, kernel: Any, args_fn: Any, hints_fn: Any = None, **_: Any
) -> Any:
    """``tune.exhaustive_search`` without measuring: the configuration that the worker forces, the first by default."""
    from .. import triton_host

    configs = list(search_space)
    if not configs:
        raise ValueError("the search space is empty")
    known = triton_host.choice.seen.setdefault("cuda.tile.tune", [])
    if len(configs) > len(known):
        known[:] = [str(config) for config in configs]
    chosen = configs[triton_host.choice.forced % len(configs)]
    best = SimpleNamespace(config=chosen, mean_us=1.0, num_samples=1, error_margin_us=0.0)
    return SimpleNamespace(best=best, successes=[best], failures=[], summary=lambda **_: str(chosen))


def build() -> ModuleType:
    """The module object, with every public name of cuda-tile 1.7.0 that can run here."""
    from . import atomics, launch, memory, ops, reductions, tile, types, views

    for name in ("__matmul__", "__rmatmul__"):
        setattr(tile.Tile, name, ops.matmul if name == "__matmul__" else lambda self, other: ops.matmul(other, self))
    module = ModuleType("cuda.tile", __doc__)
    members: dict[str, Any] = {
        **{name: getattr(types, name) for name in _TYPES},
        **types.DTYPES,
        **ops.names(),
        **reductions.names(),
        **memory.names(),
        **atomics.names(),
        **launch.names(),
        "Array": memory.Array,
        "Tile": tile.Tile,
        "TiledView": views.TiledView,
        "Scalar": int | float,
        "compiler_timeout": _compiler_timeout,
        "__version__": "1.7.0",
        "__path__": [],
    }
    for name, member in members.items():
        setattr(module, name, member)
    tune = ModuleType("cuda.tile.tune")
    tune.exhaustive_search = _first_configuration  # type: ignore[attr-defined]
    compilation = ModuleType("cuda.tile.compilation")
    for part in (tune, compilation):
        setattr(module, part.__name__.rsplit(".", 1)[1], part)
    module.__getattr__ = _missing  # type: ignore[method-assign]
    compilation.__getattr__ = lambda name: _missing(f"compilation.{name}")  # type: ignore[method-assign]
    return module


def install() -> None:
    """Let ``import cuda.tile`` find the stand-in, in this process."""
    module = build()
    try:
        package = importlib.import_module("cuda")
    except ImportError:
        package = ModuleType("cuda")
        package.__path__ = []
        sys.modules["cuda"] = package
    sys.modules["cuda.tile"] = module
    for name in ("tune", "compilation"):
        sys.modules[f"cuda.tile.{name}"] = getattr(module, name)
    package.tile = module  # type: ignore[attr-defined]
