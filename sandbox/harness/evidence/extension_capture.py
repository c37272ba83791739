"""C++ and CUDA C++ that a candidate builds for itself: the source is compiled for the target, its host functions never run."""

from __future__ import annotations

import math
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.evidence import cuda_compile, triton_compile
from tilecast.sandbox.harness.evidence.isolate import Budget
from tilecast.sandbox.harness.evidence.launches import Launch, LaunchLog, bytes_of, grid_of, plain
from tilecast.sandbox.harness.evidence.virtual import storage_bytes_at

_HEADERS_CPU_S = 45.0
"""The torch headers alone take nvcc some ten seconds."""
_KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\([^)]*\)\s*)?void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)")
_CPU_ADVICE = "say -O3 -march=native -fopenmp in extra_cflags, and give every thread a contiguous part"


class ExtensionCapture:
    """Replaces ``load_inline``, ``load`` and ``cuda.core`` in this process."""

    def __init__(self, log: LaunchLog, budget: Budget) -> None:
        self.log, self._budget = log, budget
        self._arch: str = "sm_90"
        self._hardware: dict[str, Any] | None = None
        self._compiled: dict[Any, dict[str, Any]] = {}
        self.outputs: Callable[[], Any] = lambda: None
        """What a built function is taken to return: tensors like the reference's."""

    def install(self, imports: set[str]) -> None:
        """Put the stand-ins in place that these imports call for."""
        if any("cpp_extension" in name for name in imports):
            from torch.utils import cpp_extension

            for name in ("load_inline", "load"):
                setattr(cpp_extension, name, getattr(self, name))
        if any(name.startswith("cuda.core") for name in imports):
            module = _core_module(self)
            sys.modules["cuda.core"] = sys.modules["cuda.core.experimental"] = module
            module.experimental = module  # type: ignore[attr-defined]

    def aim(self, arch: str, hardware: dict[str, Any] | None) -> None:
        """Compile for this target from now on."""
        self._arch, self._hardware = arch, hardware

    def load_inline(self, name: str, cpp_sources: Any, cuda_sources: Any = None, **options: Any) -> Any:
        """Takes the place of ``torch.utils.cpp_extension.load_inline``."""
        return _Built(self, name, _joined(cpp_sources), _joined(cuda_sources), options)

    def load(self, name: str, sources: Any, **options: Any) -> Any:
        """Takes the place of ``torch.utils.cpp_extension.load``."""
        paths = [Path(path) for path in ([sources] if isinstance(sources, str | Path) else sources)]
        device = "\n".join(path.read_text() for path in paths if path.suffix in (".cu", ".cuh"))
        host = "\n".join(path.read_text() for path in paths if path.suffix not in (".cu", ".cuh"))
        return _Built(self, name, host, device, options)

    def call_built(self, built: _Built, arguments: Sequence[Any]) -> Any:
        """A call of a built function: every kernel of its source becomes a launch whose grid is unknown."""
        if not built.device:
            self._add(built.name, "cpp", [], {}, arguments, _not_compiled(built))
            return self.outputs()
        flags = [f"-I{path}" for path in _include_paths()] + [
            str(f) for f in built.options.get("extra_cuda_cflags") or []
        ]
        prefix = "" if built.options.get("no_implicit_headers") else _TORCH_HEADERS
        found = self.compile(f"{prefix}{_NUMBERING}{built.device}", flags, _HEADERS_CPU_S)
        for kernel, figures in found.get("kernels", {}).items():
            self._add(
                kernel, "cuda", [], {}, arguments, self._judged(figures, None, 0) | {"compile_s": found["compile_s"]}
            )
        if "kernels" not in found:
            named = _KERNEL.search(built.device)
            self._add(named[1] if named else built.name, "cuda", [], {}, arguments, found)
        return self.outputs()

    def launch_core(self, kernel: Any, config: Any, arguments: Sequence[Any]) -> None:
        """A launch through ``cuda.core``: the grid and the block are known."""
        block = grid_of(config.block)
        found = self.compile(kernel.code, ["-std=c++17", *kernel.flags], self._budget.cpu_s)
        kernels = found.get("kernels", {})
        name = re.split(r"[<(]", kernel.name)[0].split("::")[-1]
        outcome = found
        if kernels:
            figures = kernels.get(name) or next(iter(kernels.values()))
            outcome = self._judged(figures, -(-math.prod(block) // 32), int(getattr(config, "shmem_size", 0) or 0))
            outcome["compile_s"] = found["compile_s"]
        self._add(name, "cuda", grid_of(config.grid), {"block": block}, arguments, outcome)

    def compile(self, source: str, flags: list[str], cpu_s: float) -> dict[str, Any]:
        """nvcc's answer for the target, asked once for the same text."""
        key = (self._arch, source, tuple(flags))
        if key not in self._compiled:
            budget = Budget(cpu_s, self._budget.deadline)
            self._compiled[key] = cuda_compile.compile_isolated(source, flags, budget, self._arch)
        return self._compiled[key]

    def _judged(self, figures: dict[str, Any], warps: int | None, dynamic_bytes: int) -> dict[str, Any]:
        use = dict(figures["resources"])
        use["shared_bytes"] += dynamic_bytes
        if warps is None:
            # Without a block size nothing can be said of occupancy.
            spilled = bool(use["spills"])
            return {**figures, "status": "SPILLS" if spilled else "OK", "reason": "", "advice": ""}
        return triton_compile.judge({**figures, "resources": use | {"warps": warps}}, self._arch, self._hardware)

    def _add(
        self,
        kernel: str,
        language: str,
        grid: list[int],
        constants: dict[str, Any],
        arguments: Any,
        outcome: dict[str, Any],
    ) -> None:
        known = {name: plain(value) for name, value in constants.items()}
        addressed = {value for value in arguments if isinstance(value, int)}
        moved = bytes_of(arguments) + sum(map(storage_bytes_at, addressed))
        self.log.add(Launch(kernel, language, grid, {}, known, moved, dict(outcome)))


class _Built:
    """Stands for the module that ``load_inline`` returns."""

    def __init__(self, capture: ExtensionCapture, name: str, host: str, device: str, options: dict[str, Any]) -> None:
        self.name, self.host, self.device, self.options = name, host, device, options
        self._capture = capture

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._capture.call_built(self, (*args, *kwargs.values()))


_TORCH_HEADERS = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
_NUMBERING = f'#line 1 "{cuda_compile.SOURCE_NAME}"\n'


def _joined(sources: Any) -> str:
    return sources or "" if isinstance(sources, str) or sources is None else "\n".join(sources)


def _include_paths() -> list[str]:
    import sysconfig

    from torch.utils import cpp_extension

    return [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]


def _not_compiled(built: _Built) -> dict[str, Any]:
    flags = " ".join(map(str, built.options.get("extra_cflags") or []))
    parallel, simd = "#pragma omp" in built.host, bool(re.search(r"_mm\d*_|vector_size|#pragma omp.*simd", built.host))
    missing = [flag for flag in ("-O3", "-march=native") if flag not in flags]
    if parallel and "-fopenmp" not in flags:
        missing.append("-fopenmp")
    words = (
        f"OpenMP {'yes' if parallel else 'no'}, explicit vectors {'yes' if simd else 'no'}, flags `{flags or 'none'}`"
    )
    reason = f"C++ for the CPU is compiled where it is verified; its text says: {words}"
    return {"status": "NOT_COMPILED", "reason": reason, "advice": _CPU_ADVICE if missing or not parallel else ""}


def _core_module(capture: ExtensionCapture) -> types.ModuleType:
    """``cuda.core`` as far as compiling and launching goes."""

    class Options:
        def __init__(self, **values: Any) -> None:
            self.__dict__.update(values)

        def __getattr__(self, _: str) -> Any:
            return None

    class Program:
        def __init__(self, code: str, code_type: str = "c++", options: Any = None) -> None:
            self._code, self._options = code, options

        def compile(self, target_type: str = "cubin", name_expressions: Sequence[str] = (), **_: Any) -> Any:
            fast = ["--use_fast_math"] if getattr(self._options, "use_fast_math", None) else []

            def get_kernel(name: str) -> Any:
                # Taking a template's address instantiates it, as NVRTC's name expressions do; the others are not launched.
                keep = f"\nstatic auto kept_instance = &{name};" if "<" in name else ""
                return types.SimpleNamespace(code=self._code + keep, flags=fast, name=name, attributes=Options())

            return types.SimpleNamespace(get_kernel=get_kernel)

        def close(self) -> None: ...

    class Device(Options):
        compute_capability = property(lambda _: (capture._arch.removeprefix("sm_")[:-1], capture._arch[-1]))
        arch = property(lambda _: capture._arch.removeprefix("sm_"))

        def __init__(self, *_: Any) -> None:
            super().__init__(default_stream=Options(), device_id=0)

        def set_current(self, *_: Any) -> None: ...
        def sync(self) -> None: ...
        def create_stream(self, *_: Any, **__: Any) -> Any:
            return Options(sync=lambda: None, close=lambda: None)

    def launch(_stream: Any, config: Any, kernel: Any, *arguments: Any) -> None:
        capture.launch_core(kernel, config, arguments)

    def launch_config(grid: Any = 1, block: Any = 1, cluster: Any = None, shmem_size: int = 0, **_: Any) -> Any:
        return types.SimpleNamespace(grid=grid, block=block, cluster=cluster, shmem_size=shmem_size)

    module = types.ModuleType("cuda.core")
    names = {"Program": Program, "ProgramOptions": Options, "Device": Device, "Stream": Options, "launch": launch}
    module.__dict__.update(names | {"LaunchConfig": launch_config})
    return module
