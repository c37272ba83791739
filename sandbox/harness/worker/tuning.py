"""Autotuned kernels one configuration at a time, so that each is verified and not only the one that won."""

from __future__ import annotations

import gc
import sys
from typing import Any

from tilecast.sandbox.harness.wire import Message


class TuningHandlers:
    """Operations ``configurations`` (how many runs see them all) and ``force`` (take one; None goes back to tuning)."""

    def __init__(self, *, interpret: bool) -> None:
        self._interpret = interpret
        self._original: dict[int, list[Any]] = {}
        self._tuned: dict[int, dict[Any, Any]] = {}

    def handlers(self) -> dict[str, Any]:
        """By operation name."""
        return {"configurations": self.configurations, "force": self.force}

    def configurations(self, message: Message) -> Message:
        """The most configurations that one autotuned kernel has."""
        if self._interpret:
            from tilecast.sandbox.harness.worker import interpreters

            return {"count": interpreters.config_count()}
        return {"count": max((len(self._configs(tuner)) for tuner in _tuners()), default=1)}

    def force(self, message: Message) -> Message:
        """Let every autotuned kernel take its configuration number ``index`` (modulo how many it has)."""
        index = message.get("index")
        if self._interpret:
            from tilecast.sandbox.harness.worker import interpreters

            interpreters.force_config(0 if index is None else int(index))
            return {}
        for tuner in _tuners():
            configs = self._configs(tuner)
            tuned = self._tuned.setdefault(id(tuner), dict(tuner.cache))
            tuner.configs = configs if index is None else [configs[int(index) % len(configs)]]
            tuner.cache.clear()
            if index is None:  # what tuning had chosen before: it need not be done again
                tuner.cache.update(tuned)
        return {}

    def _configs(self, tuner: Any) -> list[Any]:
        return self._original.setdefault(id(tuner), list(tuner.configs))


def _tuners() -> list[Any]:
    kind = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if kind is None:
        return []
    return [item for item in gc.get_objects() if type(item) is kind and getattr(item, "configs", None)]
