"""`tilecast study CORPUS`: search policies and forecasts replayed over recorded measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.shared import JsonOption, log_line, print_json

if TYPE_CHECKING:
    from tilecast.sandbox.corpus import RecordedProblem


def study(
    corpus: Annotated[Path, typer.Argument(help="A folder of recorded problems, or one recorded problem.")],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds a policy is replayed with.")] = 20,
    weights: Annotated[Path | None, typer.Option(help="Forecaster weights (default: those shipped).")] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(help="Evidence collected before, one JSON line a variant; recorded kernels otherwise."),
    ] = None,
    collect: Annotated[
        bool, typer.Option("--collect", help="Compile every variant for its GPU first (seconds each, cached).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Replay search policies over recorded measurements: how much of the best speed each finds, and how soon.

    A learned policy never uses a model that has seen the problem. Needs no GPU.

    Example: tilecast study corpus --json
    """
    from tilecast.sandbox.corpus import load_corpus
    from tilecast.sandbox.errors import UsageError
    from tilecast.tools.forecast.model import load
    from tilecast.tools.study.evidence_file import read_evidence
    from tilecast.tools.study.pool import load_pools
    from tilecast.tools.study.study import study as run

    records = load_corpus(corpus)
    table = read_evidence(evidence) if evidence is not None else _collected(records) if collect else None
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


def _collected(records: list[RecordedProblem]) -> dict[tuple[str, str], dict[str, Any]]:
    """Evidence of every recorded variant on the GPU it was recorded on; what cannot be had is left out."""
    from tilecast.agent.config import home
    from tilecast.sandbox.errors import TilecastError
    from tilecast.sandbox.evidence import EvidenceCollector

    found: dict[tuple[str, str], dict[str, Any]] = {}
    with EvidenceCollector(home() / "cache" / "evidence") as collector:
        for record in records:
            log_line(f"{record.name}: compiling {len(record.rows)} variants for {record.info.gpu}")
            for variant in map(record.variant, record.rows):
                try:
                    document = collector.collect(record.problem, variant, record.info.gpu)
                except TilecastError as error:
                    log_line(f"{record.name}/{variant.name}: no evidence: {error}")
                    continue
                found[(record.problem.sha256, variant.sha256)] = document.model_dump(mode="json")
    return found


def _show(document: dict[str, Any]) -> None:
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
