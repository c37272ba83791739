"""The verification of candidates of one studied problem: a status with its reason for each.

Order: known hangs are refused; the file is imported and its module built in a fresh worker; one call a workload and layout
(compilation happens here), one for each autotune configuration; then the worker may start no process any more, and
segments of all workloads follow in random order. The first defect ends it. See ``candidate_run``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from tilecast.sandbox.harness.judge.build_folders import BuildFolders
from tilecast.sandbox.harness.judge.candidate_run import CandidateRun
from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.judge.hangs import KnownHangs
from tilecast.sandbox.harness.judge.languages import needs_interpreter
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.spare import Spare
from tilecast.sandbox.harness.judge.stubs import LaunchStubs
from tilecast.sandbox.harness.judge.study import Progress, Study
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.wire import Message

__all__ = ["CandidateRun", "Progress", "Verifier", "refused"]


@dataclass
class Verifier:
    """Verifies candidates of one studied problem on one device."""

    zygotes: Zygotes
    study: Study
    device: torch.device
    hangs: KnownHangs
    builds: BuildFolders = field(default_factory=BuildFolders)
    stubs: LaunchStubs | None = None
    spare: Spare | None = None

    def verify(self, candidate: Message, options: Message, progress: Progress) -> Message:
        """The fields of the host's ``Verification`` (without the schema's number)."""
        start, waited_s = time.monotonic(), self.zygotes.quiet.waited_s
        run = CandidateRun(self, candidate, options, progress)
        status, reason, workload = run.outcome()
        return {
            "status": status,
            "reason": reason,
            "workloads": run.workload_results(status, workload),
            "checks": run.trail.checks,
            "source_sha256": candidate["sha256"],
            "sandbox_level": self.zygotes.level,
            "device": str(self.device),
            "seconds": time.monotonic() - start - (self.zygotes.quiet.waited_s - waited_s),
            "candidate": candidate["name"],
        }

    def open(self, options: Message, source: str) -> tuple[Session, str]:
        """A fresh worker for a candidate of this problem and its folder for compilers: the spare one, if there is one."""
        if self.spare is not None and not self.builds.knows(source):
            taken = self.spare.take(self._session_options(options, source, None))
            if taken is not None:
                return taken
        cache = self.builds.take(source)
        try:
            return self.session(options, source, cache), cache
        except BaseException:
            self.builds.give_back(source, cache, passed=False)
            raise

    def session(self, options: Message, source: str, cache: str | None) -> Session:
        """A fresh worker, made now."""
        return Session.open(self.zygotes, self._session_options(options, source, cache))

    def _session_options(self, options: Message, source: str, cache: str | None) -> SessionOptions:
        return SessionOptions(
            self.device,
            interpret=needs_interpreter(source, self.device),
            timeout_s=float(options.get("timeout_s", 60.0)),
            cache=cache,
            shared_bytes=sum(case.call_bytes for case in self.study.cases) * 8,
        )


def refused(candidate: Message, refusal: ProblemRefused, device: str, level: str) -> Message:
    """The answer where the problem itself is unusable."""
    return {
        "status": refusal.status,
        "reason": refusal.reason,
        "workloads": [],
        "checks": [],
        "source_sha256": candidate["sha256"],
        "sandbox_level": level,
        "device": device,
        "seconds": 0.0,
        "candidate": candidate["name"],
    }
