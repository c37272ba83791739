"""Host-side Triton without a GPU: a driver that answers questions, and autotuning that chooses instead of measuring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

SM_COUNT = 132
DEVICE_PROPERTIES: dict[str, int] = {
    "max_shared_mem": 232448, "max_num_regs": 65536, "multiprocessor_count": SM_COUNT, "warpSize": 32,
    "sm_clock_rate": 1980000, "mem_clock_rate": 3201000, "mem_bus_width": 6144,
}  # fmt: skip
"""What ``driver.active.utils.get_device_properties`` says of an NVIDIA H200."""


class _Utils:
    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        return dict(DEVICE_PROPERTIES)


class StandInDriver:
    """Answers for one Hopper GPU; tensors live on the CPU."""

    def __init__(self) -> None:
        self.utils = _Utils()

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return (9, 0)

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1024, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()

    def get_benchmarker(self) -> Callable[..., Any]:
        return benchmark


def benchmark(call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """Runs the call once and says that it took 1 ms: times do not exist here."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0


@dataclass
class Choice:
    """Which configuration autotuned kernels take, and what there was to choose from."""

    forced: int = 0
    seen: dict[str, list[str]] = field(default_factory=dict)


choice = Choice()


def force_config(index: int) -> None:
    """Let every autotuned kernel take its ``index``-th configuration (modulo how many it has)."""
    choice.forced = index


def autotune_configs() -> dict[str, list[str]]:
    """Configurations, as text, of each autotuned kernel that was launched so far, after pruning."""
    return {name: list(configs) for name, configs in choice.seen.items()}


def config_count() -> int:
    """How many runs see every configuration: forcing 0 … n-1 covers all."""
    return max((len(configs) for configs in choice.seen.values()), default=1)


def run_autotuned(self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Replaces ``Autotuner.run``: the configuration that is forced, without benchmarking any."""
    self.nargs = dict(zip(self.arg_names, arguments, strict=False))
    configs = self.prune_configs(keywords) if len(self.configs) > 1 else self.configs
    known = choice.seen.setdefault(self.base_fn.__name__, [])
    if len(configs) > len(known):
        known[:] = [str(config) for config in configs]
    config = configs[choice.forced % len(configs)]
    self.best_config = config
    chosen = config.all_kwargs()
    conflict = set(keywords) & set(config.kwargs)
    if conflict:
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(sorted(conflict))}: given by the launch and by autotune"
        )
    if config.pre_hook is not None:
        config.pre_hook({**self.nargs, **keywords, **chosen})
    if len(configs) > 1 and _first_time(self, keywords, config):
        self.pre_hook({**self.nargs, **keywords, **chosen}, reset_only=True)
    out = self.fn.run(*arguments, **{**keywords, **chosen})
    self.nargs = None
    return out


def _first_time(tuner: Any, keywords: dict[str, Any], config: Any) -> bool:
    """Whether the real autotuner would tune now: only then does it reset what ``reset_to_zero`` names."""
    known = {name: item for name, item in {**tuner.nargs, **keywords}.items() if name in tuner.arg_names}
    dtypes = [str(item.dtype) for item in known.values() if hasattr(item, "dtype")]
    key = (*(known[name] for name in tuner.keys if name in known), *dtypes)
    if key in tuner.cache:
        return False
    tuner.cache[key] = config
    return True


def install() -> None:
    """Put driver and autotuner in place."""
    import triton.testing
    from triton.runtime import autotuner

    triton.runtime.driver.set_active(StandInDriver())
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = benchmark
    autotuner.Autotuner.run = run_autotuned
