"""`tilecast study CORPUS`: search policies and forecasts replayed over recorded measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.shared import JsonOption, log_line, print_json

if TYPE_CHECKING:
    from tilecast.sandbox.corpus import RecordedProblem
    from tilecast.tools.forecast.dataset import EvidenceTable


def study(
    corpus: Annotated[Path, typer.Argument(help="A folder of recorded problems, or one recorded problem.")],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds a policy is replayed with.")] = 20,
    weights: Annotated[Path | None, typer.Option(help="Forecaster weights (default: those shipped).")] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(help="Evidence collected before, one JSON line a variant (recorded kernels where it has none)."),
    ] = None,
    collect: Annotated[
        bool,
        typer.Option(
            "--collect", help="Compile variants without evidence for their GPU (about a second each, cached)."
        ),
    ] = False,
    save_evidence: Annotated[
        Path | None, typer.Option(help="With --collect: where to keep it (FILE.jsonl or .jsonl.gz).")
    ] = None,
    recorded_only: Annotated[
        bool, typer.Option("--recorded-only", help="Use no evidence but the kernels that the record names.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Replay search policies over recorded measurements: how much of the best speed each finds, and how soon.

    A learned policy never uses a model that has seen the problem. Needs no GPU. Recovery is the best speed found over the
    best there is, at several budgets (at 1 %: of the variants) and on average; docs/forecaster.md explains the rest.

    Example: tilecast study corpus --json
    """
    from tilecast.sandbox.corpus import load_corpus
    from tilecast.sandbox.errors import UsageError
    from tilecast.tools.forecast.model import load
    from tilecast.tools.study.evidence_file import evidence_table, write_evidence
    from tilecast.tools.study.pool import load_pools
    from tilecast.tools.study.study import study as run

    if recorded_only and (collect or evidence is not None):
        raise UsageError("--recorded-only goes with neither --evidence nor --collect")
    if save_evidence is not None and not collect:
        raise UsageError("--save-evidence keeps what --collect collects: give both")
    records = load_corpus(corpus)
    table = evidence_table(evidence, shipped=not recorded_only)
    if collect:
        table = _collected(records, table)
    if save_evidence is not None:
        own = {record.problem.sha256 for record in records}
        write_evidence({key: value for key, value in table.items() if key[0] in own}, save_evidence)
    _tell_evidence(records, table)
    pools, left_out = load_pools(records, load(weights), table)
    for name, why in left_out.items():
        log_line(f"{name} is left out: {why}")
    if not pools:
        raise UsageError(f"{corpus}: none of its {len(records)} problem(s) can be studied")
    document = {"schema": 1, **run(pools, seeds, log_line), "left_out": dict(left_out)}
    if as_json:
        print_json(document)
    else:
        _show(document)


def _collected(records: list[RecordedProblem], known: EvidenceTable) -> EvidenceTable:
    from tilecast.agent.config import home
    from tilecast.sandbox.evidence import EvidenceCollector
    from tilecast.tools.study.collecting import collect

    with EvidenceCollector(home() / "cache" / "evidence") as collector:
        return collect(records, collector, known, log_line)


def _tell_evidence(records: list[RecordedProblem], table: EvidenceTable) -> None:
    """What the forecasts of this study could see of compilers."""
    rows = [(record, row) for record in records for row in record.rows]
    known = [(record.problem.sha256, record.variant(row).sha256) in table for record, row in rows]
    recorded = sum(bool(row.kernels) and not has for (_, row), has in zip(rows, known, strict=True))
    log_line(
        f"{len(rows)} variants of {len(records)} problem(s): {sum(known)} with compile-time evidence, {recorded} with recorded "
        f"kernels only, {len(rows) - sum(known) - recorded} by their source alone"
        + ("" if all(known) else " (--collect compiles them, about a second each)")
    )


def _show(document: dict[str, Any]) -> None:
    """Tables for people: of search policies, and of forecasts."""
    print(f"{'policy':<16}{'recovery':>10}{'at 1 %':>9}{'evals to 95 %':>15}{'speedup':>9}  pool")
    for name, block in document["policies"].items():
        recovery = block["recovery"]
        print(
            f"{name:<16}{recovery['mean']:>10.3f}{recovery['0.01']:>9.3f}{block['evals_to_95']:>15.2f}"
            f"{_number(block['best_speedup']):>9}  {block['pool']}"
        )
    for name, block in document["forecasters"].items():
        print(f"{name}: " + ", ".join(f"{key} {_number(value)}" for key, value in block.items()))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
