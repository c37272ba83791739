"""A device that several runs use one after the other: starting judges takes as long as several measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import _bootstrap  # noqa: F401 - makes tilecast importable

from tilecast.agent.assembly import Parts, assemble
from tilecast.agent.devices import ChosenDevice
from tilecast.agent.request import OptimizeRequest
from tilecast.sandbox.base import ParallelSandbox, Preflight


class KeptSandbox:
    """A sandbox that outlives the run that uses it: starting a judge takes as long as several measurements."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def close(self) -> None:
        """Left open; see :meth:`end`."""

    def end(self) -> None:
        """Close it for good."""
        self._sandbox.close()


class KeptLanes(KeptSandbox):
    """The same with several judges: what makes the loop use them must be seen without asking the wrapped one."""

    @property
    def slots(self) -> int:
        """One a lane."""
        return int(self._sandbox.slots)

    @property
    def dashboard(self) -> str:
        """None."""
        return ""

    def slot(self) -> Any:
        """A place for one evaluation."""
        return self._sandbox.slot()

    def workers(self) -> Any:
        """The lanes."""
        return self._sandbox.workers()

    def incidents(self) -> Any:
        """What happened to them."""
        return self._sandbox.incidents()


class Device:
    """The device of all runs, opened by the first one and again after a failure."""

    def __init__(self) -> None:
        self._kept: ChosenDevice | None = None

    def make(self, request: OptimizeRequest, known: Preflight | None) -> Parts:
        """As :func:`assemble`, with the device that is open already."""
        parts = assemble(request, known)
        if self._kept is None:
            kind = KeptLanes if isinstance(parts.device.sandbox, ParallelSandbox) else KeptSandbox
            self._kept = replace(parts.device, sandbox=kind(parts.device.sandbox))
        return replace(parts, device=self._kept)

    def drop(self) -> None:
        """Close it; the next run opens another."""
        if self._kept is not None:
            self._kept.sandbox.end()
        self._kept = None
