"""A run's measurements as a recorded problem: what `--device replay:DIR` reads and `forecaster fit` learns from.

Candidates that differ in CONFIG only are rows of one file; the kernel the run began with keeps its place as `kernel.py`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilecast.agent.record.fold import CandidateState
from tilecast.agent.record.store import RunLog
from tilecast.agent.result import write_text
from tilecast.sandbox.corpus import BASELINE_NAMES
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import EvaluationStatus, Measurement
from tilecast.sandbox.source import Candidate, canonical_key, source_sha256

MEASUREMENTS, INFO = "measurements.jsonl", "corpus.toml"
METHOD = (
    "paired with the baseline in one window, cold L2, median; p10 and p90 carry the bootstrap interval of the ratio; "
    "every timed output checked"
)
UNTOLD = frozenset({EvaluationStatus.NOT_RECORDED, EvaluationStatus.ENVIRONMENT_ERROR})
"""Statuses that say nothing about the candidate."""


def write_corpus(log: RunLog, folder: Path) -> list[Path]:
    """Write ``measurements.jsonl``, ``corpus.toml``, ``reference.py`` and the candidate files; returns what was written.

    Raises:
        UsageError: if the run's times are recorded ones themselves, or it measured nothing.
    """
    if log.header.device.recorded:
        raise UsageError(f"run {log.run_id} replays a record; only what was measured on a device can become one")
    done = [c for c in log.state.candidates.values() if c.result is not None and c.result.status not in UNTOLD]
    if not done or log.state.baselines is None:
        raise UsageError(f"run {log.run_id} measured nothing")
    folder.mkdir(parents=True, exist_ok=True)
    rows, files = _rows(log, done)
    reference = Path(log.header.problem_path).read_text(encoding="utf-8")
    if source_sha256(reference) != log.header.problem_sha256:
        raise UsageError(
            f"{log.header.problem_path} was changed since run {log.run_id}; its times belong to the old text"
        )
    written = [write_text(folder / "reference.py", reference)]
    for name, source in files.items():
        place = folder / "kernel.py" if name == "kernel" else folder / "candidates" / f"{name}.py"
        place.parent.mkdir(exist_ok=True)
        written.append(write_text(place, source))
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in [*_baselines(log), *rows])
    written.append(write_text(folder / MEASUREMENTS, text))
    written.append(write_text(folder / INFO, _info(log)))
    return written


def _rows(log: RunLog, done: list[CandidateState]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows, and the files they belong to by stem."""
    by_family: dict[str, str] = {}
    files: dict[str, str] = {}
    rows = []
    start = log.header.start_sha256
    if start is not None:
        source = log.record.text(start)
        by_family[_family(source)], files["kernel"] = "kernel", source
    for state in done:
        assert state.sha256 is not None and state.result is not None
        source = log.record.text(state.sha256)
        family = _family(source)
        if family not in by_family:
            by_family[family] = f"c_{state.index:03d}"
            files[by_family[family]] = source
        stem = by_family[family]
        own, config = (
            Candidate(name=stem, source=files[stem]).config or {},
            Candidate(name=stem, source=source).config or {},
        )
        overrides = {key: value for key, value in config.items() if own.get(key) != value}
        rows.append(_row(stem, overrides, state.result))
    return rows, files


def _family(source: str) -> str:
    candidate = Candidate(name="", source=source)
    config = candidate.config
    return canonical_key(candidate.with_config(dict.fromkeys(config)).source) if config else canonical_key(source)


def _row(stem: str, overrides: dict[str, Any], result: Measurement) -> dict[str, Any]:
    row: dict[str, Any] = {
        "candidate": stem,
        "config": overrides,
        "status": str(result.status),
        "seconds": result.seconds,
    }
    if result.reason:
        row["error"] = result.reason
    if result.latency_ms is not None and result.speedup is not None:
        ms, speed = result.latency_ms.candidate, result.speedup
        row |= {"ms": ms, "p10": ms * speed.ratio / speed.high, "p90": ms * speed.ratio / speed.low}
        row |= {"paired": {"baseline": result.baseline, "baseline_ms": result.latency_ms.baseline}}
        row["paired"] |= {"ratio": speed.ratio, "low": speed.low, "high": speed.high, "samples": result.samples}
    if "kernels" in result.details:
        row["kernels"] = result.details["kernels"]
    return row


def _baselines(log: RunLog) -> list[dict[str, Any]]:
    assert log.state.baselines is not None
    names = {label: key for key, label in BASELINE_NAMES.items()}
    return [
        {"candidate": names.get(name, f"__{name}__"), "config": {}, "status": "BASELINE", "ms": ms}
        for name, ms in log.state.baselines.baselines.times_ms.items()
    ]


def _info(log: RunLog) -> str:
    device = log.header.device
    pairs = {
        "gpu": device.name,
        "compute_capability": device.compute_capability,
        "driver": device.driver,
        "measured": f"{datetime.now(UTC):%Y-%m-%d}",
        **device.versions,
        "timing": METHOD,
        "run": log.run_id,
        "tilecast": log.header.version,
    }
    return "".join(f"{key.replace('-', '_')} = {json.dumps(value)}\n" for key, value in pairs.items() if value)
