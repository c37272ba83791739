"""Tools about runs: optimize and tune within a share of the session's budget, show over the record."""

from __future__ import annotations

import math
import time

from tilecast.agent.budget import METERS, Amount, Limits
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.record.store import RunLog
from tilecast.agent.report import wording
from tilecast.agent.report.summary import result_lines
from tilecast.agent.request import OptimizeRequest
from tilecast.agent.toolbox import arguments as args
from tilecast.agent.toolbox.base import Fact, Stopped, ToolResult
from tilecast.agent.toolbox.measuring import fact_of
from tilecast.agent.toolbox.workbench import Workbench
from tilecast.agent.tuning import space_size
from tilecast.sandbox.errors import TilecastError
from tilecast.sandbox.schema import LedgerDocument, OptimizeResult
from tilecast.sandbox.source import Candidate, load_candidate


def optimize(work: Workbench, asked: args.Optimize) -> ToolResult:
    """The search loop, bounded; its progress goes to the hooks."""
    kernel = None if asked.kernel is None else work.candidate(asked.kernel, {})
    if kernel is None and work.problem.kernel is not None:
        kernel = load_candidate(work.problem.kernel)
    model = {"builtin": "builtin", "model": work.settings.model, None: work.settings.model}[asked.proposals]
    return _run(work, "optimize", kernel, model, asked.max_evals, asked.save_to)


def tune(work: Workbench, asked: args.Tune) -> ToolResult:
    """The best CONFIG of one candidate."""
    kernel = work.candidate(asked.path, {})
    space_size(kernel)
    return _run(work, "tune", kernel, "builtin", asked.max_evals, asked.save_to)


def show(work: Workbench, asked: args.Show) -> ToolResult:
    """A run, or one candidate of it, as the record has it."""
    from tilecast.agent.cli.view import decision_line
    from tilecast.agent.report.build import build_report
    from tilecast.agent.report.detail import detail, detail_lines, find_candidate

    record = open_record(work.settings.database_url, work.home)
    try:
        log = record.open(record.find(asked.run), time.monotonic)
        facts = facts_of_run(log)
        if asked.candidate is not None:
            found = detail(log, find_candidate(log, asked.candidate))
            lines = detail_lines(found)
            text = "\n".join(lines) + (f"\n{found.diff}" if found.diff else "")
            return ToolResult(tool="show", ok=True, summary=lines[0], text=text, facts=facts)
        report = build_report(log)
        device = f"{report.device.name}{wording.mark(report.recorded)}"
        head = f"run {report.run}: {report.problem} on {device}, {report.status}: {report.why}"
        lines = [head, f"spent: {wording.ledger(report.ledger)}"]
        lines += [decision_line(c) for c in log.state.candidates.values() if c.proposed is not None]
        return ToolResult(tool="show", ok=True, summary=head, text="\n".join(lines), facts=facts)
    finally:
        record.close()


def facts_of_run(log: RunLog) -> list[Fact]:
    """What a run measured, one fact a candidate."""
    facts = []
    for state in log.state.candidates.values():
        if state.result is None or state.sha256 is None or state.proposed is None:
            continue
        named = f"{state.index} {state.proposed.name}".strip()
        candidate = Candidate(name=named, source=log.record.text(state.sha256))
        facts.append(fact_of(state.result, candidate, log.header.problem, f"run {log.run_id}"))
    return facts


def _run(
    work: Workbench, tool: str, kernel: Candidate | None, model: str | None, max_evals: int, save_to: str | None
) -> ToolResult:
    if save_to is not None:
        work.files.place_for(save_to)
    request = OptimizeRequest(
        problem=work.problem,
        start=kernel,
        settings=work.settings.model_copy(update={"model": model, "strategy": "search"}),
        home=work.home,
        options=work.options(),
        limits=_share(work, max_evals),
    )
    recorded = work.sandbox.device.recorded
    each = work.sandbox.estimate(work.problem)
    seconds = each.setup_seconds + each.seconds_per_eval * max_evals
    amount = Amount(evals=max_evals, gpu_seconds=seconds)
    key = work.reserve(f"{tool} with {max_evals} evaluations", amount, 0.0 if recorded else seconds / 60, each.basis)
    # The run opens the device itself: two judges on one device would wait for each other's memory.
    work.close_device()
    spent: LedgerDocument | None = None
    engine: Engine | None = None
    try:
        engine = Engine(request, [work.hooks.progress])
        work.on_stop = engine.interrupt
        result = engine.run()
        spent = result.ledger
    except TilecastError:
        if work.stopping.is_set():
            raise Stopped from None
        raise
    finally:
        work.on_stop = None
        if engine is not None:
            engine.close()
            spent = spent or _spent(work, engine)
        work.ledger.settle(key, _amount(spent))
    return _result(work, tool, kernel, result, save_to)


def _share(work: Workbench, max_evals: int) -> Limits:
    """The run's own limits: what is asked, and of every other meter what the session has left."""
    left = {meter: work.ledger.left(meter) for meter in METERS if meter != "evals"}
    return Limits(evals=max_evals, **{meter: None if math.isinf(value) else value for meter, value in left.items()})


def _spent(work: Workbench, engine: Engine) -> LedgerDocument | None:
    """What a run that ended with an error had spent, by its record."""
    from tilecast.agent.report.build import ledger_of

    if engine.run_id is None:
        return None
    record = open_record(work.settings.database_url, work.home)
    try:
        return ledger_of(record.open(engine.run_id, time.monotonic))
    finally:
        record.close()


def _amount(spent: LedgerDocument | None) -> Amount:
    if spent is None:
        return Amount()
    return Amount(
        evals=int(spent.evals.spent or 0),
        gpu_seconds=spent.gpu_seconds.spent or 0.0,
        tokens=int(spent.tokens.spent or 0),
        usd=spent.usd.spent,
    )


def _result(
    work: Workbench, tool: str, kernel: Candidate | None, result: OptimizeResult, save_to: str | None
) -> ToolResult:
    lines, change = result_lines(result), None
    record = open_record(work.settings.database_url, work.home)
    try:
        log = record.open(result.run, time.monotonic)
        facts = facts_of_run(log)
        source = None if result.best is None else record.text(result.best.source_sha256)
    finally:
        record.close()
    if source is not None:
        best = Candidate(name="best", source=source)
        if best.config is not None:
            lines.append(f"  CONFIG = {best.config!r}")
        if save_to is not None:
            change = work.files.write(save_to, source)
            lines.append(f"  written to {change.path}")
            facts += [
                fact.model_copy(update={"candidate": change.path})
                for fact in facts
                if result.best is not None and fact.source_sha256 == result.best.source_sha256
            ]
    stopped = result.stopped_by == "interrupted"
    summary = f"{tool} (run {result.run}): {lines[0]}" + (", stopped by the user" if stopped else "")
    return ToolResult(
        tool=tool,
        ok=result.best is not None,
        summary=summary,
        text="\n".join([summary, *lines[1:]]),
        facts=facts,
        change=change,
        document=result.model_dump(mode="json", by_alias=True),
        interrupted=stopped,
    )
