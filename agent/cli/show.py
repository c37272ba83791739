"""``tilecast show``: one run, or one candidate of it: why it was kept or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tilecast.agent.cli.shared import JsonOption, RunArgument, echo_wrapped, opened_record, print_json, read_run

if TYPE_CHECKING:
    from tilecast.agent.record.store import RunLog
    from tilecast.agent.report.build import RunReport
    from tilecast.sandbox.base import Incident


def show(
    run: RunArgument,
    candidate: Annotated[
        str | None,
        typer.Argument(help="A candidate: its number, `best`, or the start of its hash.", show_default=False),
    ] = None,
    source: Annotated[bool, typer.Option("--source", help="Print the candidate's text and nothing else.")] = False,
    prompt: Annotated[bool, typer.Option("--prompt", help="Also print the prompt and the reply.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show a run, or one candidate of it: diff, forecast, measurement, verdict, cost, and why it was kept or dropped.

    Examples: tilecast show last | tilecast show last best | tilecast show 20260131-1201 7 --prompt
    """
    with opened_record() as record:
        log = read_run(record, run)
        if candidate is None:
            _show_run(log, json_output)
        else:
            _show_candidate(log, candidate, source, prompt, json_output)


def _show_run(log: RunLog, json_output: bool) -> None:
    from tilecast.agent.report.build import build_report

    report = build_report(log)
    if json_output:
        print_json(report)
        return
    echo_wrapped(_run_lines(report, log))


def _run_lines(report: RunReport, log: RunLog) -> list[str]:
    from tilecast.agent.cli.view import baseline_line, decision_line
    from tilecast.agent.report import wording

    device = f"{report.device.name}{wording.mark(report.recorded)}"
    lines = [
        f"run {report.run}: {report.problem} on {device}, {report.status}: {report.why}",
        f"proposals {report.settings.get('model')}, forecaster {report.settings.get('forecaster')}, seed {report.seed}",
        f"spent: {wording.ledger(report.ledger)}; files in {log.run_dir}",
    ]
    if report.baselines is not None:
        lines.append(baseline_line(report.baselines))
    shown = [decision_line(c) for c in log.state.candidates.values() if c.proposed is not None]
    lines += [*shown, *_waited_for(log), *report.notes]
    lines += [line for incident in report.incidents for line in _incident_lines(incident)]
    return [*lines, f"one of them: tilecast show {report.run} NUMBER"] if shown else lines


def _waited_for(log: RunLog) -> list[str]:
    """How many results are waited for, and where they come from if that is a folder."""
    from tilecast.agent.devices import BUNDLE

    state, spec = log.state, log.header.device_spec
    folder = spec.removeprefix(BUNDLE).partition("#")[0] if spec.startswith(BUNDLE) else ""
    if state.baselines is None:
        return [f"the first results are waited for in {folder}"] if folder and state.failed is None else []
    count = sum(candidate.is_measured_next for candidate in state.candidates.values())
    return [f"{count} result(s) are waited for{f' in {folder}' if folder else ''}"] if count else []


def _incident_lines(incident: Incident) -> list[str]:
    """One incident, with the end of what an evaluator printed; ``--json`` has all that the record has."""
    from tilecast.agent.report.wording import LOG_LINES

    head = f"warning: {incident.text}" if incident.warning else incident.text
    return [head, *(f"  {line}" for line in incident.log[-LOG_LINES:])]


def _show_candidate(log: RunLog, wanted: str, source: bool, prompt: bool, json_output: bool) -> None:
    from tilecast.agent.report.detail import detail, detail_lines, find_candidate, prompt_lines

    found = detail(log, find_candidate(log, wanted))
    if json_output:
        print_json(found)
        return
    if source:
        typer.echo(found.source or "", nl=not (found.source or "").endswith("\n"))
        return
    echo_wrapped(detail_lines(found))
    # Code and prompts keep their lines.
    lines = ["", f"difference from {found.diff_against}, which it was built on:", found.diff] if found.diff else []
    for line in [*lines, *(prompt_lines(found) if prompt else [])]:
        typer.echo(line)
