"""One run from end to end: wires problem, sandbox, proposer, forecaster, ledger and record, and drives the graph.

Command line, chat, CI bot and MCP server are faces on this; they listen to typed progress and get one result.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilecast.agent.assembly import Parts, assemble, check_same_run, plan_of
from tilecast.agent.budget import Ledger, Plan
from tilecast.agent.elsewhere import bind_device, leave, no_more_wanted, stop_waiting, take_up
from tilecast.agent.flights import Flights
from tilecast.agent.knowledge import Knowledge, Told
from tilecast.agent.policy import BARREN_LIMIT_FREE, BARREN_LIMIT_PAID, Rules
from tilecast.agent.pool import ProposalPool
from tilecast.agent.preparing import prepare
from tilecast.agent.progress import Began, Ended, Listener, Said, Step
from tilecast.agent.record.events import Failed, SessionOpened
from tilecast.agent.record.journal import RunJournal
from tilecast.agent.record.store import Record, RunLog, sqlite_url
from tilecast.agent.record.summary import RunHeader
from tilecast.agent.request import OptimizeRequest
from tilecast.agent.result import result_of, write_winner
from tilecast.agent.state import Services
from tilecast.agent.turns import RunLock, make_folder, sandbox_turn
from tilecast.sandbox.base import DeviceFacts, Preflight
from tilecast.sandbox.errors import TilecastError, WorkLeft
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.sandbox.hardware import find_hardware
from tilecast.sandbox.installed import own_version
from tilecast.sandbox.schema import OptimizeResult
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import EvidenceProvider
from tilecast.tools.forecast.factory import make_forecaster

ANSWERS_AFTER_STOP_S = 5.0
"""How long a stopped run waits for cancelled requests, so that what they cost is known and not guessed."""


WHOLE = 64
"""Judged candidates whose details stay in memory; a report reads those of all from the record."""

EVIDENCE_FAILURES = 3
"""Attempts after which a machine is taken to have no compiler for the target."""

EVIDENCE_FOR = frozenset({"auto", "learned", "llm", "ensemble"})


def evidence_provider(collector: EvidenceCollector, request: OptimizeRequest, target: str) -> EvidenceProvider:
    """Evidence of candidates of one run; None where it cannot be had on this machine, which is tried a few times only."""
    failures = 0

    def provide(candidate: Candidate) -> dict[str, Any] | None:
        nonlocal failures
        if failures >= EVIDENCE_FAILURES:
            return None
        try:
            found = collector.collect(request.problem, candidate, target, request.options.workload)
        except TilecastError:
            failures += 1
            return None
        return found.model_dump(mode="json")

    return provide


def open_record(request_url: str | None, home: Path) -> Record:
    """The record that the configuration names, else the file in the user's tilecast folder."""
    return Record(request_url or sqlite_url(home))


class Engine:
    """A run that is about to begin, or to be taken up again.

    Args:
        request: what to do.
        listeners: told of all progress, from the thread that calls :meth:`run`.
        resume: the run to take up.
        make: puts device and proposer together; another one than :func:`assemble` where a face brings its own.

    Raises:
        UsageError: for what cannot be used as asked, or a run on another problem or device.
        EnvironmentFailure: if a device or the record is not there.
    """

    def __init__(
        self,
        request: OptimizeRequest,
        listeners: Sequence[Listener] = (),
        resume: str | None = None,
        make: Callable[[OptimizeRequest, Preflight | None], Parts] = assemble,
    ) -> None:
        self.request = request
        self._listeners = list(listeners)
        self._services: Services | None = None
        self._interrupted = False
        self._record: Record | None = None
        self._log: RunLog | None = None
        self._collector: EvidenceCollector | None = None
        if resume is not None:
            self._record = open_record(request.settings.database_url, request.home)
            self._log = self._record.open(self._record.find(resume), time.monotonic)
        known = None if self._log is None or self._log.state.preflight is None else self._log.state.preflight.preflight
        self.parts: Parts = make(request, known)
        if (tell_waiting := getattr(self.parts.device.sandbox, "tell_waiting", None)) is not None:
            tell_waiting(self._say_step)
        if self._log is not None:
            try:
                bind_device(self._log, self.parts.device.sandbox)
                check_same_run(self._log, request, self.parts)
            except TilecastError:
                self.close()
                raise

    def plan(self) -> Plan:
        """What the budget buys; nothing is started."""
        return plan_of(self.request, self.parts)

    def run(self) -> OptimizeResult:
        """Go on until the run stops.

        Raises:
            TilecastError: what ended the session without a result; the run can be taken up again.
        """
        from tilecast.agent.graph import run as run_graph

        log = self._log or self._begin()
        lock = RunLock(log.run_dir, log.run_id)
        try:
            services = self._services = self._open(log)
            if self._interrupted:  # before there were services to tell
                services.interrupted.set()
            try:
                prepare(services)
                run_graph(services, log.run_dir)
                no_more_wanted(services)
            except WorkLeft as left:
                leave(services, left)
            except TilecastError as error:
                self._wind_up(services)
                log.append(Failed(error=str(error)))
                raise
            self._wind_up(services)
            return self._result(services)
        finally:
            self.close()
            lock.release()

    def close(self) -> None:
        """End every process that belongs to the run; :meth:`run` does so itself."""
        if self._collector is not None:
            self._collector.close()
        self.parts.device.sandbox.close()

    @property
    def run_id(self) -> str | None:
        """Name of the run, once it has one."""
        return None if self._log is None else self._log.run_id

    def interrupt(self) -> None:
        """Finish the current step, then stop; safe in a signal handler."""
        self._interrupted = True
        if self._services is not None:
            self._services.interrupted.set()
            self._services.pool.wake()
        stop_waiting(self.parts.device.sandbox)

    def _begin(self) -> RunLog:
        request, parts = self.request, self.parts
        run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        run_dir = (request.run_dir or request.home / "runs").absolute() / run_id
        header = RunHeader(
            problem=request.problem.name,
            problem_path=str(Path(request.problem.path).absolute()),
            problem_sha256=request.problem.sha256,
            extras_sha256=_sha(request.problem.extras.model_dump_json()),
            device=parts.device.sandbox.device,
            device_spec=parts.device.spec,
            seed=request.seed,
            settings=request.recorded_settings(parts.model),
            start_sha256=request.start.sha256 if request.start else None,
            version=own_version(),
        )
        self._record = open_record(request.settings.database_url, request.home)
        make_folder(run_dir, named=request.run_dir is not None)
        self._log = self._record.create(run_id, header, run_dir, time.monotonic)
        return self._log

    def _open(self, log: RunLog) -> Services:
        """Take the log up: charge what was lost with the last process, and put the services together."""
        resumed = log.state.sessions > 0
        start = [self.request.start.source] if self.request.start else []
        limits = self.request.limits.as_dict()
        log.append(SessionOpened(number=log.state.sessions + 1, resumed=resumed, limits=limits), start)
        take_up(log, self.parts.device.sandbox)
        log.state.keep_whole(WHOLE)
        # The requests open in the record are of the last process: the new ledger holds nothing for them.
        RunJournal(log, Ledger(self.request.limits, time.monotonic)).lose_open()
        spent, minutes = log.state.spent, log.state.elapsed_s / 60
        ledger = Ledger(self.request.limits, time.monotonic, spent, minutes)
        services = self._services_of(log, ledger)
        device = self.parts.device.sandbox.device
        names = (services.proposer.name, services.forecaster.name)
        best = log.state.best_state()
        services.tell(Began(log.run_id, str(log.run_dir), log.header.problem, device, *names, resumed, best))
        return services

    def _services_of(self, log: RunLog, ledger: Ledger) -> Services:
        request, parts = self.request, self.parts
        proposer, model = parts.proposer.proposer, parts.proposer.model
        journal, device = RunJournal(log, ledger), parts.device.sandbox.device
        told = Told(parts.language, request.settings.target, request.options.workload)
        paid = proposer.costs_money
        pool = ProposalPool(parts.in_flight, inline=not paid)
        return Services(
            log=log,
            ledger=ledger,
            journal=journal,
            knowledge=Knowledge(log, request.problem, device, told),
            pool=pool,
            problem=request.problem,
            sandbox=parts.device.sandbox,
            proposer=proposer,
            forecaster=parts.forecaster or make_forecaster(request.settings.forecaster, model=model, journal=journal),
            options=request.options,
            rules=Rules(
                request.target_speedup,
                request.patience,
                BARREN_LIMIT_PAID if paid else BARREN_LIMIT_FREE,
                request.confirm,
            ),
            seed=log.header.seed,
            listeners=self._listeners,
            device_turn=lambda: sandbox_turn(parts.device.sandbox, self._say_step),
            evidence=self._evidence(device),
            interrupt_model=None if model is None else model.interrupt,
            flights=Flights(parts.device.sandbox, pool.wake),
        )

    def _evidence(self, device: DeviceFacts) -> EvidenceProvider | None:
        """Compile-time evidence for forecasts on a GPU. A record answers faster than a compiler: there only on request."""
        settings = self.request.settings
        here = find_hardware(device.name) if device.kind == "cuda" or device.recorded else None
        target = settings.target or (None if here is None else here.key)
        wanted = settings.evidence == "always" or (settings.evidence == "auto" and not device.recorded)
        if settings.forecaster not in EVIDENCE_FOR or not wanted or target is None:
            return None
        elsewhere = getattr(self.parts.device.sandbox, "evidence_runners", None)
        runners = None if elsewhere is None else elsewhere()
        self._collector = EvidenceCollector(self.request.home / "cache" / "evidence", runners=runners)
        return evidence_provider(self._collector, self.request, target)

    def _say_step(self, text: str) -> None:
        for listener in self._listeners:
            listener(Step(text))

    def _wind_up(self, services: Services) -> None:
        """Cancel what is in flight; what was reserved and never settled is charged as lost."""
        if services.pool.in_flight:
            self._say_step("waiting for cancelled requests, to know what they cost")
            if services.interrupt_model is not None:
                services.interrupt_model()
            services.pool.settle(ANSWERS_AFTER_STOP_S)
        lost = services.journal.lose_open()
        if lost:
            services.tell(Said(f"{lost} request(s) in flight are charged as lost", warning=True))

    def _result(self, services: Services) -> OptimizeResult:
        stopped = services.log.state.stopped
        assert stopped is not None
        services.tell_spent()
        services.tell(Ended(stopped.stopped_by, stopped.why))
        return result_of(services.log, services.ledger.document(), write_winner(services.log))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
