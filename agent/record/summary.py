"""What a run is about, and its summary for lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilecast.agent.record.fold import RunState
from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.schema import Document


class RunHeader(Document):
    """Fixed at the start; a resumed run must agree with it in problem and device.

    ``settings`` holds what else was chosen (model, forecaster, strategy, limits, evaluation options), as plain JSON.
    """

    problem: str
    problem_path: str
    problem_sha256: str
    extras_sha256: str = ""
    device: DeviceFacts
    device_spec: str
    seed: int
    settings: dict[str, Any]
    start_sha256: str | None = None
    version: str = ""


class RunSummary(Document):
    """One line of ``tilecast runs``: ``status`` is ``running``, ``failed`` or what stopped it; times in milliseconds."""

    run: str
    created_at: str
    updated_at: str
    problem: str
    device: str
    model: str
    status: str
    best_speedup: float | None
    best_ms: float | None
    recorded: bool
    evals: int
    run_dir: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> RunSummary:
        """From a row of the table of runs."""
        header = RunHeader.model_validate_json(row["header"])
        return cls(
            run=row["id"],
            device=header.device.name,
            model=str(header.settings.get("model", "")),
            **{k: row[k] for k in ("created_at", "updated_at", "problem", "status", "best_speedup", "best_ms")},
            **{k: row[k] for k in ("recorded", "evals", "run_dir")},
        )


def summary_columns(state: RunState) -> dict[str, Any]:
    """The columns of the table of runs that follow the state."""
    best = state.best_state()
    result = None if best is None else best.result
    status = "running" if state.stopped is None else state.stopped.stopped_by
    return {
        "status": "failed" if state.failed is not None else status,
        "best_speedup": None if result is None or result.speedup is None else result.speedup.ratio,
        "best_ms": None if result is None or result.latency_ms is None else result.latency_ms.candidate,
        "evals": state.spent.evals,
    }
