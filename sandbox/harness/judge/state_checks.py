"""What a candidate leaves behind in its process and its module: the judge's rules on state, beside those on single calls."""

from __future__ import annotations

from collections.abc import Iterable

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.failure import Rejected
from tilecast.sandbox.harness.judge.session import Session

_FINDINGS = {
    "unsupported": ("ENVIRONMENT_ERROR", "a kernel met something that this machine cannot run: "),
    "out-of-bounds": ("RUNTIME_ERROR", "a kernel reached outside of its tensors: "),
}


def refuse_findings(session: Session, when: str) -> None:
    """What the worker found changed in its process since before the import.

    Raises:
        Rejected: for the first of it.
    """
    for item in session.findings():
        status, opening = _FINDINGS.get(item["rule"], ("REWARD_HACK", "the candidate changed its process: "))
        raise Rejected(status, f"during {when} {opening}{item['detail']}", item["rule"])


def refuse_reseeding(session: Session, case: WorkloadCase) -> None:
    """After a construction: the seed of torch's global generator is its user's.

    Raises:
        Rejected: if the constructor set it, and the reference's does not.
    """
    if session.reseeded and not case.reseeds:
        detail = (
            "its constructor sets the seed of torch's global random generator, which the reference leaves alone: "
            "draw from a torch.Generator of its own, or within torch.random.fork_rng()"
        )
        raise Rejected("REWARD_HACK", f"workload {case.name!r}: {detail}", "rng", case.name)


def refuse_written_state(case: WorkloadCase, written: Iterable[str]) -> None:
    """What the reference's forward leaves alone of its state is as it was set; it belongs to the module's user.

    Args:
        case: the workload whose calls were made.
        written: names of entries that hold something else since they were set.

    Raises:
        Rejected: naming the first entry that had to stay.
    """
    for name in written:
        if name in case.state and name not in case.contract.written_state:
            detail = f"forward wrote to {name!r} of the module's state, which the reference leaves as it is"
            raise Rejected("REWARD_HACK", f"workload {case.name!r}: {detail}", "state-mutation", case.name)
