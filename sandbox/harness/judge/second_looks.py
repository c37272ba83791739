"""Outputs looked at again: what a call returned must still be there, unchanged, a few calls later.

On small workloads the copies come with the answer to a later call, so that a second look costs no turn of its own between the
judge's process and the worker's. A large output is copied again by itself, to where it came the first time: there is no room
for two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from torch import Tensor

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.discrepancies import first_difference, item_at
from tilecast.sandbox.harness.judge.failure import Rejected
from tilecast.sandbox.harness.judge.session import CallResult, Look, Session
from tilecast.sandbox.harness.judge.shared_memory import Prepared


@dataclass(frozen=True)
class Kept:
    """A call that was judged, and the number of the call after which its outputs are looked at again."""

    result: CallResult
    prepared: Prepared
    due: int = 0


@dataclass
class SecondLooks:
    """Those of one session that are still to come."""

    session: Session
    done: int = 0
    _pending: list[Kept] = field(default_factory=list)

    def expect(self, kept: Kept) -> None:
        """Look at it when it is due."""
        self._pending.append(kept)

    def uses(self, prepared: Prepared) -> bool:
        """Whether a look is to come that needs this memory."""
        return any(kept.prepared is prepared for kept in self._pending)

    def forget(self, prepared: Prepared) -> None:
        """No second look at calls with these inputs."""
        self.take_of(prepared)

    def take(self, calls: int) -> list[Kept]:
        """Those that are due after so many calls, not pending any more."""
        return self._take(lambda kept: kept.due <= calls)

    def take_of(self, prepared: Prepared) -> list[Kept]:
        """Those that need this memory, not pending any more."""
        return self._take(lambda kept: kept.prepared is prepared)

    def take_all(self) -> list[Kept]:
        """All, none is pending any more."""
        return self._take(lambda kept: True)

    def _take(self, wanted: Callable[[Kept], bool]) -> list[Kept]:
        found = [kept for kept in self._pending if wanted(kept)]
        self._pending = [kept for kept in self._pending if not wanted(kept)]
        return found

    def beside_call(self, due: Sequence[Kept]) -> AbstractContextManager[list[Look]]:
        """Looks that a call's request takes along."""
        return self._looking(due, apart=True)

    def _looking(self, due: Sequence[Kept], *, apart: bool) -> AbstractContextManager[list[Look]]:
        return self.session.looking([(kept.result, kept.prepared) for kept in due], apart=apart)

    def look(self, case: WorkloadCase, due: Sequence[Kept]) -> None:
        """Copy outputs again and compare.

        Raises:
            Rejected: if any has changed.
        """
        groups: list[Sequence[Kept]] = [[kept] for kept in due]
        if case.is_small and due:
            groups = [due]
        for group in groups:
            with self._looking(group, apart=case.is_small) as looks:
                self.compare(case, group, self.session.recheck(looks))

    def compare(self, case: WorkloadCase, due: Sequence[Kept], later: Sequence[Sequence[Tensor | None]]) -> None:
        """The copies against those that were taken when the calls returned.

        Raises:
            Rejected: if any has changed.
        """
        by_contract = {output for output, _ in case.contract.aliases}
        for kept, outputs in zip(due, later, strict=True):
            self.done += 1
            for index, (first, second) in enumerate(zip(kept.result.outputs, outputs, strict=False)):
                if index not in by_contract and first is not None and second is not None:
                    _same(case, index, first, second)


def _same(case: WorkloadCase, index: int, first: Tensor, second: Tensor) -> None:
    place = first_difference(first, second)
    if place is not None:
        detail = (
            f"workload {case.name!r}: output {index} of an earlier call changed afterwards at {place} "
            f"(from {item_at(first, place)} to {item_at(second, place)}): each call must return memory of its own, complete"
        )
        raise Rejected("REWARD_HACK", detail, "output-overwritten", case.name)
