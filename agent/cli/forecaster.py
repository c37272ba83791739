"""`tilecast forecaster fit` and `eval`: retrain on measurements, and say how good the forecasts are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.shared import JsonOption, log_line, opened_record, print_json

if TYPE_CHECKING:
    from tilecast.agent.record.store import Record
    from tilecast.tools.forecast.dataset import ProblemExamples

app = typer.Typer(
    name="forecaster",
    no_args_is_help=True,
    add_completion=False,
    help="The learned forecaster: retrain it, and see how good it is.",
)
CorpusArgument = Annotated[
    list[Path] | None, typer.Argument(help="Folders of recorded problems (default: this machine's own runs).")
]
EvidenceOption = Annotated[
    Path | None,
    typer.Option(help="Evidence collected before (`study --collect --save-evidence`), beside that shipped."),
]
RecordedOnlyOption = Annotated[
    bool, typer.Option("--recorded-only", help="Use no evidence but the kernels that the record names.")
]


@app.command()
def fit(
    corpora: CorpusArgument = None,
    output: Annotated[Path, typer.Option(help="Where to write the weights.")] = Path("forecaster.npz"),
    evidence: EvidenceOption = None,
    recorded_only: RecordedOnlyOption = False,
    folds: Annotated[
        bool, typer.Option(help="Also keep, for each problem, a model that never saw it (for studies).")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Fit the forecaster on measured candidates: of recorded problems, or of this machine's runs.

    Needs the `train` extra (LightGBM). The weights are used with `--weights`, or by putting them in place of the shipped ones.

    Example: tilecast forecaster fit corpus --output mine.npz
    """
    from tilecast.tools.forecast.model import save
    from tilecast.tools.forecast.training import fit as train
    from tilecast.tools.forecast.training import require_lightgbm

    require_lightgbm()
    problems = _problems(corpora or [], evidence, recorded_only)
    log_line(f"{sum(len(p.examples) for p in problems)} variants of {len(problems)} problem(s)")
    weights = train(problems, log_line, folds)
    save(weights, output)
    card = {"schema": 1, "output": str(output), "bytes": output.stat().st_size, **dict(weights.card)}
    if as_json:
        print_json(card)
    else:
        print(
            f"{output}: {card['bytes']} bytes, fitted on {card['passed']} measured variants of {len(problems)} problems"
        )


@app.command("eval")
def evaluate(
    corpora: Annotated[list[Path], typer.Argument(help="Folders of recorded problems.")],
    weights: Annotated[Path | None, typer.Option(help="Weights (default: those shipped).")] = None,
    evidence: EvidenceOption = None,
    recorded_only: RecordedOnlyOption = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds a policy is replayed with.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Accuracy, calibration and recovery on recorded problems, each by a model that never saw it.

    Example: tilecast forecaster eval corpus
    """
    from tilecast.sandbox.corpus import load_corpus
    from tilecast.sandbox.errors import UsageError
    from tilecast.tools.forecast.model import load
    from tilecast.tools.study.evidence_file import evidence_table
    from tilecast.tools.study.pool import load_pools
    from tilecast.tools.study.study import study

    records = [record for folder in corpora for record in load_corpus(folder)]
    table = evidence_table(evidence, shipped=not recorded_only)
    pools, left_out = load_pools(records, load(weights), table)
    if not pools:
        raise UsageError(f"none of the {len(records)} problem(s) can be judged: {dict(left_out)}")
    whole = study(pools, seeds, log_line)
    document = {
        "schema": 1,
        "problems": whole["problems"],
        "forecaster": whole["forecaster"],
        "recovery": {name: block["recovery"] for name, block in whole["policies"].items()},
        "selection": whole["selection"],
        "reliability": whole["reliability"].get("learned", []),
        "risk_coverage": whole["risk_coverage"].get("learned", []),
        "left_out": dict(left_out),
    }
    if as_json:
        print_json(document)
        return
    for key, value in document["forecaster"].items():
        print(f"{key:<12} {value}")
    for name, recovery in document["recovery"].items():
        print(f"recovery of {name:<15} " + "  ".join(f"{q} {v:.3f}" for q, v in recovery.items()))


def _problems(corpora: list[Path], evidence: Path | None, recorded_only: bool) -> list[ProblemExamples]:
    """Examples of corpora, or of the user's own record.

    Raises:
        UsageError: if there are none.
    """
    from tilecast.sandbox.corpus import load_corpus
    from tilecast.sandbox.errors import UsageError
    from tilecast.tools.forecast.dataset import problem_examples
    from tilecast.tools.study.evidence_file import evidence_table

    if corpora:
        table = evidence_table(evidence, shipped=not recorded_only)
        found = [problem_examples(record, table) for folder in corpora for record in load_corpus(folder)]
    else:
        with opened_record() as record:
            found = _own_runs(record)
    usable = [p for p in found if p is not None and any(e.passed for e in p.examples)]
    if not usable:
        raise UsageError(
            "there is nothing measured to learn from: name a folder of recorded problems, or run optimize first"
        )
    return usable


def _own_runs(record: Record) -> list[ProblemExamples | None]:
    """Measured candidates of all runs on real GPUs, by problem and device."""
    import time

    from tilecast.sandbox.schema import EvaluationStatus
    from tilecast.tools.forecast.dataset import Variant, measured_examples

    groups: dict[tuple[str, str], dict[str, Variant]] = {}
    references: dict[str, tuple[str, str]] = {}
    for line in record.runs():
        log = record.open(line.run, time.monotonic)
        header = log.header
        if header.device.kind != "cuda":
            continue
        references[header.problem_sha256] = (header.problem, record.text(header.problem_sha256))
        group = groups.setdefault((header.problem_sha256, header.device.name), {})
        for state in log.state.candidates.values():
            result = state.result
            if result is None or state.sha256 is None or result.status is EvaluationStatus.ENVIRONMENT_ERROR:
                continue
            ms = result.latency_ms.candidate if result.latency_ms is not None else None
            group[state.sha256] = Variant(record.text(state.sha256), {}, ms, _figures(result.details))
    return [
        measured_examples(*references[problem], gpu, list(group.values())) for (problem, gpu), group in groups.items()
    ]


def _figures(details: dict[str, Any]) -> dict[str, Any]:
    from tilecast.tools.forecast.resources import from_kernels

    kernels = details.get("kernels")
    return dict(from_kernels(kernels)) if isinstance(kernels, list) else {}
