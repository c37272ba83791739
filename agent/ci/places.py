"""Where kernels are measured: one sandbox for a machine, one a problem for a record, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from tilecast.agent.config import Settings
from tilecast.agent.devices import REPLAY, make_sandbox, visible_gpus
from tilecast.sandbox.base import Sandbox
from tilecast.sandbox.problem import Problem

NONE = "none"
HARMLESS = ("cpu", NONE)
"""Devices on which a stranger's code may be checked without a maintainer's word (in the sandbox, as always)."""


@dataclass(frozen=True)
class Place:
    """A sandbox, the words that name it again, and what it is."""

    sandbox: Sandbox
    spec: str
    device: str
    versions: dict[str, str]
    recorded: bool
    checks_only: bool
    """Only correctness: its times mean nothing for a GPU kernel."""


class Places:
    """Opens sandboxes as they are needed; all are closed at the end.

    ``auto`` is this machine's GPU, else nowhere; with ``check_on_cpu``, the CPU for correctness alone. What is recorded beside
    a problem is no device here: it would come out of the very change that is to be judged.
    """

    def __init__(self, settings: Settings, gpu_allowed: bool = True) -> None:
        self._settings = settings
        self.notes: list[str] = []
        self.device = ""
        self._open: dict[str, Place] = {}
        self._spec, self._checks_only = self._chosen(settings, gpu_allowed)

    @classmethod
    def nowhere(cls) -> Places:
        """No place at all."""
        return cls(Settings(device=NONE))

    def _chosen(self, settings: Settings, gpu_allowed: bool) -> tuple[str, bool]:
        spec = settings.device
        if spec == "auto":
            spec = "cuda:0" if visible_gpus() else NONE
        if not gpu_allowed and spec not in HARMLESS and not spec.startswith(REPLAY):
            self.notes.append(
                "this push comes from a fork and is not yet allowed on the GPU: a maintainer allows it by giving the "
                "label tilecast:gpu anew"
            )
            spec = NONE
        if spec == NONE and settings.ci.check_on_cpu:
            return "cpu", True
        return spec, False

    def __enter__(self) -> Places:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in self._open.values():
            place.sandbox.close()

    def of(self, problem: Problem | None) -> Place | None:
        """Where a problem's kernels are measured; None for nowhere.

        Raises:
            UsageError: for a device that cannot be used for it.
            EnvironmentFailure: for one that is named and not there.
        """
        if self._spec == NONE or problem is None:
            return None
        key = problem.sha256 if self._spec.startswith(REPLAY) else ""
        if key not in self._open:
            chosen = make_sandbox(
                self._spec, problem, require_sandbox=self._settings.require_sandbox, cluster=self._settings.cluster
            )
            facts = chosen.sandbox.device
            versions = {"driver": facts.driver, **facts.versions} if facts.driver else dict(facts.versions)
            shown = {name[:40]: value[:80] for name, value in versions.items()}
            self._open[key] = Place(chosen.sandbox, chosen.spec, facts.name, shown, facts.recorded, self._checks_only)
            if not self._checks_only:
                self.device = facts.name + (" (recorded)" if facts.recorded else "")
        return self._open[key]
