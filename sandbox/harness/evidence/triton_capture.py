"""Intercepts Triton's launches: argument binding is Triton's own, compilation happens aside, nothing runs."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tilecast.sandbox.harness.evidence import triton_compile
from tilecast.sandbox.harness.evidence.isolate import Budget
from tilecast.sandbox.harness.evidence.launches import Launch, LaunchLog, bytes_of, grid_of, plain

_REAL_RUN = JITFunction.run
_REAL_TUNE = Autotuner.run
_NO_TIME = {
    "status": "NOT_COMPILED",
    "reason": "the time for this candidate was spent before this kernel",
    "advice": "",
}


def gpu_target(arch: str) -> GPUTarget:
    """Triton's target for ``sm_90``, ``gfx942``, …

    Raises:
        ValueError: for a name of another form.
    """
    if arch.startswith("sm_"):
        return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    if arch.startswith("gfx"):
        return GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
    raise ValueError(f"unknown compiler target {arch!r}: expected sm_NN or gfxNNN")


class StandInDriver:
    """What Triton asks of a GPU driver before a launch, answered for a GPU that is not here."""

    def __init__(self) -> None:
        self.target = gpu_target("sm_90")
        self.index = 0
        self.utils = types.SimpleNamespace(get_device_properties=self._properties)
        self.properties: dict[str, int] = {}

    def _properties(self, _: Any = 0) -> dict[str, int]:
        return self.properties

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        # Triton keeps compiled kernels by device: another number for each target keeps them apart.
        return self.index

    def set_current_device(self, _: Any) -> None: ...

    def get_current_stream(self, _: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def map_python_to_cpp_type(self, name: str) -> str:
        return name

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return _call_once

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, device="cuda")

    def clear_cache(self, _: Any) -> None: ...


def _call_once(function: Callable[[], Any], *_: Any, quantiles: Any = (0.5, 0.2, 0.8), **__: Any) -> list[float]:
    function()
    return [1.0] * len(quantiles or (1,))


class _Captured:
    """Stands for Triton's ``CompiledKernel`` in host code that asks about it, or launches it."""

    def __init__(self, capture: TritonCapture, call: tuple[Any, Any, dict[str, Any]], outcome: dict[str, Any]) -> None:
        use = outcome.get("resources") or {}
        self.n_regs = use.get("registers") or 32
        self.n_spills = use.get("spills") or 0
        self.n_max_threads = 1024
        self.metadata = types.SimpleNamespace(
            shared=use.get("shared_bytes") or 0, num_warps=use.get("warps") or 4, num_stages=use.get("stages") or 1
        )
        self.asm: dict[str, Any] = {}
        self._capture, self._call = capture, call

    def _init_handles(self) -> None: ...

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        function, _, options = self._call

        def launch(*args: Any, **kwargs: Any) -> None:
            names = [p.name for p in function.params if not p.is_constexpr]
            given = args if len(args) == len(function.params) else ()
            bound = dict(zip(names, args, strict=False)) if not given else {}
            self._capture.run(function, *given, grid=grid, warmup=False, **options, **bound, **kwargs)

        return launch


class TritonCapture:
    """Replaces Triton's launch path in this process; ``log`` takes what it sees while ``recording``."""

    def __init__(self, budget: Budget) -> None:
        self.driver = StandInDriver()
        self.log = LaunchLog()
        self._budget = budget
        self._arch: str = "sm_90"
        self._hardware: dict[str, Any] | None = None
        self._outcomes: dict[Any, dict[str, Any]] = {}
        self._variants: list[tuple[dict[str, Any], dict[str, Any]]] | None = None
        self._tuned: dict[Any, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
        self._config: dict[str, Any] | None = None
        self.watch: Callable[[bool], None] = lambda _: None
        """Told False when what follows is not the candidate's own work, True when it is again."""

    def install(self) -> None:
        """From now on launches are captured."""
        capture = self
        triton.runtime.driver.set_active(self.driver)
        JITFunction.run = lambda function, *args, **kwargs: capture.run(function, *args, **kwargs)
        Autotuner.run = lambda tuner, *args, **kwargs: capture.tune(tuner, *args, **kwargs)
        triton.testing.do_bench = lambda function, *_, **__: _call_once(function, quantiles=(0.5,))[0]
        triton.testing.do_bench_cudagraph = triton.testing.do_bench

    def aim(self, arch: str, hardware: dict[str, Any] | None) -> None:
        """Compile for this target from now on."""
        self._arch, self._hardware = arch, hardware
        self.driver.target = gpu_target(arch)
        self.driver.index += 1
        figures = hardware or {}
        self.driver.properties = {
            "max_shared_mem": int(figures.get("shared_per_block_bytes", 65536)),
            "multiprocessor_count": int(figures.get("sms", 132)),
            "max_num_regs": int(figures.get("registers_per_sm", 65536)),
            "warpSize": self.driver.target.warp_size,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def run(self, function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> _Captured:
        """Takes the place of ``JITFunction.run``."""
        bound, key, signature, constants = self._bind(function, args, kwargs)
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = self._outcomes[key] = self._compile(function, args, kwargs)
        if self._variants is not None and self._config is not None:
            self._variants.append((self._config, outcome))
        elif not warmup:
            size = grid(bound) if callable(grid) else grid
            launch = Launch(
                kernel=function.fn.__name__,
                language="triton",
                grid=grid_of(size),
                signature=signature,
                constants=constants,
                argument_bytes=bytes_of(bound.values()),
                outcome=outcome,
            )
            self.log.add(launch)
        return _Captured(self, (function, args, kwargs), outcome)

    def _bind(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], Any, dict[str, str], dict[str, Any]]:
        """Triton's own binder: bound arguments, identity of the specialisation, types and constants by name."""
        *_, binder = function.device_caches[self.driver.index]
        bound, specialization, options = binder(*args, **kwargs)
        signature: dict[str, str] = {}
        constants: dict[str, Any] = {}
        for parameter, (kind, mark) in zip(function.params, specialization, strict=True):
            if parameter.is_constexpr or kind == "constexpr":
                value = bound[parameter.name]
                constants[parameter.name] = plain(value)
                if not parameter.is_constexpr:
                    signature[parameter.name] = f"={plain(value)}"
            else:
                signature[parameter.name] = str(kind) + (":16" if mark and "D" in str(mark) else "")
        constants |= {name: plain(value) for name, value in options.items() if name in _OPTION_NAMES}
        key = (self._arch, _identity(function), str(specialization), str(sorted(map(str, options.items()))))
        return bound, key, signature, constants

    def _compile(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._budget.spent:
            return dict(_NO_TIME)
        outcome = triton_compile.compile_isolated(
            lambda: _REAL_RUN(function, *args, grid=(1,), warmup=True, **kwargs),
            self._budget,
            self._arch,
            self._hardware,
        )
        if outcome["status"] in ("COMPILE_ERROR", "COMPILER_CRASH"):
            outcome["reason"] = f"{function.fn.__name__}: {outcome['reason']}"
        return outcome

    def tune(self, tuner: Any, *args: Any, **kwargs: Any) -> Any:
        """Takes the place of ``Autotuner.run``: every configuration is compiled, the first good one is chosen."""
        before = len(self.log.launches), self._variants
        tuner.cache_results = False
        tuner.do_bench = self._weigh
        self._variants = []
        bench, tuner._bench = tuner._bench, lambda *a, config, **meta: self._one_config(bench, a, config, meta)
        try:
            launched = self._tune_and_launch(tuner, args, kwargs)
        finally:
            tuner._bench, self._variants = bench, before[1]
        return launched

    def _tune_and_launch(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        variants = self._variants
        launched = _REAL_TUNE(tuner, *args, **kwargs)
        key = (id(tuner), self._arch, str(tuner.best_config))
        if variants:
            self._tuned[key] = variants
        if self.log.launches and (found := self._tuned.get(key)):
            launch = self.log.launches[-1]
            launch.tuned = [_variant(config, outcome) for config, outcome in found]
            chosen = str(_config_of(tuner.best_config))
            launch.chosen = next((i for i, (config, _) in enumerate(found) if str(config) == chosen), None)
        return launched

    def _one_config(self, bench: Any, args: tuple[Any, ...], config: Any, meta: dict[str, Any]) -> Any:
        self._config = _config_of(config)
        self.watch(False)
        try:
            return bench(*args, config=config, **meta)
        finally:
            self._config = None
            self.watch(True)

    def _weigh(self, function: Callable[[], Any], quantiles: Any = (0.5, 0.2, 0.8), **_: Any) -> list[float]:
        """Stands for a benchmark: a configuration that compiles without spilling wins, then one that compiles."""
        function()
        status = self._variants[-1][1]["status"] if self._variants else "OK"
        return [{"OK": 1.0, "SPILLS": 2.0, "NOT_COMPILED": 3.0}.get(status, float("inf"))] * len(quantiles)


def _identity(function: Any) -> str:
    """By content; what a kernel's text makes impossible to find out is the compiler's to say."""
    try:
        return str(function.cache_key)
    except Exception:  # noqa: BLE001 - Triton raises whatever its dependency search meets
        return f"{function.fn.__module__}.{function.fn.__qualname__}"


_OPTION_NAMES = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim"})


def _config_of(config: Any) -> dict[str, Any]:
    return {name: plain(value) for name, value in config.all_kwargs().items()}


def _variant(config: dict[str, Any], outcome: dict[str, Any]) -> dict[str, Any]:
    fields = ("status", "reason", "resources", "occupancy", "instructions")
    return {"config": config} | {name: outcome[name] for name in fields if name in outcome}
