"""Intercepts cuTile's launches: argument binding is cuTile's own, compilation happens aside, nothing runs."""

from __future__ import annotations

import copy
import math
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tilecast.sandbox.harness.evidence import libcuda_stand_in
from tilecast.sandbox.harness.evidence.isolate import Budget
from tilecast.sandbox.harness.evidence.launches import Launch, LaunchLog, bytes_of, grid_of, plain

_ALIGNMENT_BYTES = 16
_NO_TIME = {
    "status": "NOT_COMPILED",
    "reason": "the time for this candidate was spent before this kernel",
    "advice": "",
}


def available() -> str:
    """Empty, or why cuTile cannot be used here."""
    try:
        import cuda.tile  # noqa: F401
        from cuda.tile import _compile

        _compile._find_compiler_bin()
    except ModuleNotFoundError:
        return "cuTile is not installed: pip install 'tilecast[cutile]'"
    except (ImportError, OSError, AttributeError) as error:
        return f"cuTile is installed but cannot compile: {error}; pip install 'tilecast[cutile]'"
    return ""


class CuTileCapture:
    """Replaces cuTile's launch functions in this process."""

    def __init__(self, log: LaunchLog, budget: Budget) -> None:
        self.log, self._budget = log, budget
        self._arch: str = "sm_90"
        self._hardware: dict[str, Any] | None = None
        self._outcomes: dict[Any, dict[str, Any]] = {}
        self._ready = False
        self._fakes: FakeTensorMode | None = None
        self.watch: Callable[[bool], None] = lambda _: None

    def install(self) -> None:
        """From now on launches are captured."""
        libcuda_stand_in.install()
        import cuda.tile as ct

        for module in (ct, sys.modules["cuda.tile._cext"]):
            setattr(module, "launch", self.launch)  # noqa: B010 - a C module's attribute, unknown to checkers
        for name in ("cuda.tile.tune", "cuda.tile.tune._tune"):
            if name in sys.modules:
                sys.modules[name].exhaustive_search = self.search  # type: ignore[attr-defined]

    def aim(self, arch: str, hardware: dict[str, Any] | None) -> None:
        """Compile for this target from now on."""
        self._arch, self._hardware = arch, hardware

    def launch(self, _stream: Any, grid: Any, kernel: Any, arguments: Sequence[Any], **_: Any) -> None:
        """Takes the place of ``ct.launch``."""
        self.watch(False)
        try:
            outcome, constraints = self._outcome(kernel, arguments)
        finally:
            self.watch(True)
        function = kernel._annotated_function.pyfunc
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        signature, constants = _split(names, constraints, arguments)
        self.log.add(
            Launch(
                kernel=function.__name__,
                language="cutile",
                grid=grid_of(grid),
                signature=signature,
                constants=constants,
                argument_bytes=bytes_of(arguments),
                outcome=outcome,
            )
        )

    def search(
        self,
        search_space: Sequence[Any],
        _stream: Any,
        _grid_fn: Any,
        kernel: Any,
        args_fn: Callable[[Any], Any],
        hints_fn: Callable[[Any], dict[str, Any]] | None = None,
        **_: Any,
    ) -> Any:
        """Takes the place of ``ct.tune.exhaustive_search``: the first configuration that compiles without spilling wins."""
        order = {"OK": 0, "SPILLS": 1, "NOT_COMPILED": 2}
        weighed = []
        self.watch(False)
        for config in search_space:
            used = kernel if hasattr(kernel, "replace_hints") else kernel(config)
            used = used.replace_hints(**(hints_fn(config) if hints_fn else {}))
            weighed.append((order.get(self._outcome(used, args_fn(config))[0]["status"], 3), config))
        self.watch(True)
        best = min(weighed, key=lambda item: item[0])[1]
        measured = types.SimpleNamespace(config=best, mean_us=1.0, num_samples=1, error_margin_us=0.0)
        return types.SimpleNamespace(best=measured, successes=[measured], failures=[], summary=lambda **_: "")

    def _outcome(self, kernel: Any, arguments: Sequence[Any]) -> tuple[dict[str, Any], list[Any]]:
        if not self._arch.startswith("sm_"):
            reason = f"cuTile compiles for NVIDIA GPUs from sm_80 on, not for {self._arch}"
            return {"status": "UNAVAILABLE", "reason": reason, "advice": ""}, []
        from tilecast.sandbox.harness.evidence import cutile_compile

        if not self._ready:
            cutile_compile.prepare()
            self._ready = True
        constraints, signature = self._signature(kernel, arguments)
        key = (self._arch, id(kernel), repr(constraints))
        if key not in self._outcomes:
            if self._budget.spent:
                return dict(_NO_TIME), constraints
            aim = (self._arch, self._hardware)
            self._outcomes[key] = cutile_compile.compile_isolated(kernel, signature, self._budget, *aim)
        return self._outcomes[key], constraints

    def _signature(self, kernel: Any, arguments: Sequence[Any]) -> tuple[list[Any], Any]:
        """What cuTile derives from these arguments at a launch (it must see CUDA tensors, so it is shown fake ones)."""
        from cuda.tile._cext import get_parameter_constraints_from_pyargs
        from cuda.tile.compilation import CallingConvention, KernelSignature

        shown = tuple(self._show(value) for value in arguments)
        for convention in (CallingConvention.cutile_python_v1(), CallingConvention.cutile_python_v2()):
            try:
                constraints = list(get_parameter_constraints_from_pyargs(kernel, shown, convention))
                constraints = [_aligned(c, value) for c, value in zip(constraints, arguments, strict=True)]
                return constraints, KernelSignature(constraints, convention)
            except ValueError as error:
                failure = error
        raise failure

    def _show(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if self._fakes is None:
                self._fakes = FakeTensorMode()
            with torch._C.DisableTorchFunction():
                bare = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            return FakeTensor(self._fakes, bare, torch.device("cuda", 0))
        if isinstance(value, tuple | list):
            return type(value)(self._show(item) for item in value)
        return value


def _aligned(constraint: Any, value: Any) -> Any:
    """With the alignment of the real address: the tensor shown begins at a rounder one."""
    if isinstance(value, torch.Tensor) and hasattr(constraint, "base_addr_divisible_by"):
        alignment = math.gcd(value.data_ptr(), _ALIGNMENT_BYTES)
        if alignment != constraint.base_addr_divisible_by:
            constraint = copy.copy(constraint)
            object.__setattr__(constraint, "base_addr_divisible_by", alignment)
    return constraint


def _split(
    names: Sequence[str], constraints: list[Any], arguments: Sequence[Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for name, constraint, value in zip(names, constraints, arguments, strict=False):
        if hasattr(constraint, "value"):
            constants[name] = plain(value)
        elif hasattr(constraint, "ndim"):
            mark = ":16" if constraint.base_addr_divisible_by % _ALIGNMENT_BYTES == 0 else ""
            signature[name] = f"{constraint.dtype.name}[{constraint.ndim}]{mark}"
        else:
            signature[name] = getattr(getattr(constraint, "dtype", None), "name", type(constraint).__name__)
    return signature, constants
