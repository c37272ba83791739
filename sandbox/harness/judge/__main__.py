"""The judge: answers the host's requests on an inherited socket. ``python -m tilecast.sandbox.harness.judge FD CONFIG``.

CONFIG is a JSON object: ``device`` (``cpu`` or ``cuda:N``), ``state_dir`` (or null), ``require_sandbox``, and for a device that
several judges share ``quiet``, its lock file, and ``sharers``, their number. One request at
a time; long work sends progress lines. The host interrupts by ending this process's group.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tilecast.sandbox.harness.isolation import Limits
from tilecast.sandbox.harness.judge.another_try import with_another_try
from tilecast.sandbox.harness.judge.build_folders import BuildFolders
from tilecast.sandbox.harness.judge.describe import describe_problem
from tilecast.sandbox.harness.judge.failure import EnvironmentBroken, ProblemRefused
from tilecast.sandbox.harness.judge.hangs import KnownHangs
from tilecast.sandbox.harness.judge.idle import next_request, rest
from tilecast.sandbox.harness.judge.lint import lint_study
from tilecast.sandbox.harness.judge.lint import refused as lint_refused
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.spare import Spare
from tilecast.sandbox.harness.judge.stubs import LaunchStubs
from tilecast.sandbox.harness.judge.study import Study, preflight, study_problem
from tilecast.sandbox.harness.judge.telling import Telling
from tilecast.sandbox.harness.judge.timing.operations import TimingDesk
from tilecast.sandbox.harness.judge.verify import Verifier, refused
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.wire import Channel, Message, WireClosed

Progress = Callable[[str], None]
_KEPT_STUDIES = 2


@dataclass
class Judge:
    """Operations by name, over studies of problems that are kept for the next candidate."""

    device: torch.device
    state_dir: str | None
    require_sandbox: bool
    zygotes: Zygotes = field(default_factory=Zygotes)
    studies: dict[str, Study | ProblemRefused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hangs = KnownHangs(self.state_dir)
        self.stubs = LaunchStubs(self.zygotes, self.device.type)
        self.builds = BuildFolders(seed=self.stubs.seed)
        self.spare = Spare(self.zygotes, self.device, self.builds)
        self.desk = TimingDesk(None if self.state_dir is None else Path(self.state_dir))
        self.operations: dict[str, Callable[[Message, Progress], Message]] = {
            "hello": self._hello,
            "describe": self._describe,
            "preflight": self._preflight,
            "verify": self._verify,
            "bench": self._bench,
            "baselines": self._baselines,
            "ceilings": self._ceilings,
            "lint": self._lint,
            "evidence": self._evidence,
        }

    def answer(self, message: Message, progress: Progress) -> Message:
        """The final reply to one request (without its id)."""
        operation = self.operations.get(str(message.get("op")))
        try:
            if operation is None:
                return _error("internal", f"the judge has no operation {message.get('op')!r}")
            args = message.get("args") or {}
            if (self.require_sandbox or args.get("options", {}).get("require_sandbox")) and not self.zygotes.is_sandbox:
                reason = f"a sandbox is required, and this machine offers {self.zygotes.level!r} only"
                return _error("environment", reason + "; see `tilecast doctor`, or run without --require-sandbox")
            return {"ok": True, "result": operation(args, progress)}
        except ProblemRefused as refusal:
            return _error("problem", refusal.reason)
        except EnvironmentBroken as error:
            return _error("environment", str(error))
        except torch.OutOfMemoryError as error:
            return _error("environment", f"the judge ran out of device memory: {str(error)[:300]}")
        except MemoryError:
            return _error("environment", "the judge ran out of memory")
        except Exception as error:  # noqa: BLE001 - a bug must reach the host as an answer, with its place
            traceback.print_exc()
            return _error("internal", f"{type(error).__name__}: {error}"[:1000])

    def _hello(self, args: Message, progress: Progress) -> Message:
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        try:
            import triton

            versions["triton"] = triton.__version__
        except ImportError:
            versions["triton"] = ""
        abilities = self.zygotes.abilities()
        return {"device": device_facts(self.device, versions), "sandbox": abilities, "pid": os.getpid()}

    def _study(self, problem: Message, progress: Progress) -> Study:
        key = str(problem["sha256"]) + json.dumps([problem.get(k) for k in ("workloads", "tolerance", "domain")])
        known = self.studies.get(key)
        if isinstance(known, Study) and not known.reference.session.alive:
            self._drop(key)
            known = None
        if known is None:
            while len(self.studies) >= (_KEPT_STUDIES if self.zygotes.quiet.sharers == 1 else 1):
                self._drop(next(iter(self.studies)))
            try:
                with self.zygotes.quiet.shared():
                    known = study_problem(self.zygotes, problem, self.device, progress)
            except ProblemRefused as refusal:
                known = refusal
            if not self._may_pass(known):
                self.studies[key] = known
        if isinstance(known, ProblemRefused):
            raise known
        return known

    def _may_pass(self, known: Study | ProblemRefused) -> bool:
        """Whether a refusal may have been for want of memory that others took."""
        return isinstance(known, ProblemRefused) and known.status == "OUT_OF_MEMORY" and self.device.type == "cuda"

    def _drop(self, key: str) -> None:
        study = self.studies.pop(key)
        if isinstance(study, Study):
            self.desk.forget(study)
            study.close()

    def _verifier(self, args: Message, progress: Progress) -> Verifier:
        study = self._study(args["problem"], progress)
        return Verifier(self.zygotes, study, self.device, self.hangs, self.builds, self.stubs, self.spare)

    def _describe(self, args: Message, progress: Progress) -> Message:
        reference = Reference.open(self.zygotes, args["problem"], self.device)
        try:
            return describe_problem(reference, [])
        finally:
            reference.close()

    def _preflight(self, args: Message, progress: Progress) -> Message:
        return preflight(lambda: self._study(args["problem"], progress))

    def _verify(self, args: Message, progress: Progress) -> Message:
        return self._for_candidate(args, progress, lambda v: v.verify(args["candidate"], args["options"], progress))

    def _bench(self, args: Message, progress: Progress) -> Message:
        def measure(verifier: Verifier) -> Message:
            return self.desk.bench(verifier, args["candidate"], args["options"], progress)

        return self._for_candidate(args, progress, measure)

    def _for_candidate(self, args: Message, progress: Progress, run: Callable[[Verifier], Message]) -> Message:
        try:
            return self._with_room(lambda: run(self._verifier(args, progress)), progress)
        except ProblemRefused as refusal:
            return refused(args["candidate"], refusal, str(self.device), self.zygotes.level)

    def _baselines(self, args: Message, progress: Progress) -> Message:
        def work() -> Message:
            verifier = self._verifier(args, progress)
            self.spare.settle()
            return self.desk.baselines(verifier, args["options"], progress)

        answer = self._with_room(work, progress)
        self.spare.prepare()  # a candidate comes next, and the first one is waited for longest
        return answer

    def _ceilings(self, args: Message, progress: Progress) -> Message:
        self.spare.settle()
        return self.desk.ceilings(self.device)

    def _with_room(self, work: Callable[[], Message], progress: Progress) -> Message:
        return with_another_try(work, self.device, self.zygotes.quiet.sharers, self._give_room, progress)

    def _give_room(self) -> None:
        self.spare.close()
        for key in list(self.studies):
            self._drop(key)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def rest(self) -> None:
        """No request has come for a while."""
        studies = (study for study in self.studies.values() if isinstance(study, Study))
        rest(self.device, self.zygotes.quiet, (study.reference for study in studies))

    def _lint(self, args: Message, progress: Progress) -> Message:
        try:
            return lint_study(self._study(args["problem"], progress), progress)
        except ProblemRefused as refusal:
            return lint_refused(refusal.reason)

    def _evidence(self, args: Message, progress: Progress) -> Message:
        timeout_s = float(args.get("timeout_s", 120.0))
        limits = Limits(memory_bytes=8 << 30, cpu_s=int(timeout_s) + 5)
        answer = self.zygotes.run_job("evidence", args, limits, timeout_s)
        if "result" not in answer:
            raise EnvironmentBroken(f"no evidence: {answer.get('failed', answer)}")
        return dict(answer["result"])

    def close(self) -> None:
        """End every worker."""
        self.spare.close()
        self.desk.close()
        for key in list(self.studies):
            self._drop(key)
        self.zygotes.close()
        self.builds.close()
        self.stubs.close()


def _error(kind: str, message: str) -> Message:
    return {"ok": False, "error": {"kind": kind, "message": message}}


def device_facts(device: torch.device, versions: dict[str, str]) -> Message:
    """Fields of the host's ``DeviceFacts``."""
    if device.type == "cpu":
        return {"kind": "cpu", "name": _cpu_name(), "versions": versions}
    properties = torch.cuda.get_device_properties(device)
    return {
        "kind": "cuda",
        "name": properties.name,
        "index": device.index or 0,
        "uuid": str(getattr(properties, "uuid", "")),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "driver": _driver(),
        "versions": {**versions, "cuda": str(torch.version.cuda or "")},
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.machine()
    return platform.machine()


def _driver() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
    words = text.split()
    return next((word for word in words if word[:1].isdigit() and word.count(".") >= 1), "")


def serve(channel: Channel, judge: Judge) -> None:
    """Answer until the host is gone."""
    telling = Telling(channel)
    while True:
        try:
            message = next_request(channel, judge.rest)
        except WireClosed:
            return
        telling.begin(message.get("id"))
        telling.end(judge.answer(message, telling))


def main(arguments: list[str]) -> int:
    """Start the fork server first, then everything else."""
    config: dict[str, Any] = json.loads(arguments[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel.from_fd(int(arguments[0]))
    device = torch.device(config["device"])
    torch.set_num_threads(1)  # small tensors, on a machine that others use too; on a GPU the comparisons run there
    torch.set_grad_enabled(False)
    zygotes = Zygotes(Quiet(config.get("quiet"), int(config.get("sharers", 1))))
    judge = Judge(device, config.get("state_dir"), bool(config.get("require_sandbox")), zygotes)
    judge.zygotes.start()
    try:
        if device.type == "cuda" and not torch.cuda.is_available():
            channel.send({"fatal": "no such CUDA device is usable here; --device cpu runs on the CPU"})
            return 3
        if device.type == "cuda":
            torch.cuda.set_device(device)
        channel.send({"ready": True})
        serve(channel, judge)
    except WireClosed:
        return 0
    finally:
        judge.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
