"""``tilecast runs`` over 1,000 runs: no log is read, and the answer comes at once."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

from sqlalchemy import insert
from test_record import HEADER

from tilecast.agent.config import home
from tilecast.agent.record.models import RUNS
from tilecast.agent.record.store import Record, sqlite_url

COUNT, LIMIT_S = 1000, 2.0
"""Of processor time, start-up included: the machine may be busy with other tests."""


def processor_s() -> float:
    """Seconds of processor time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_runs_over_a_thousand_runs(tmp_path: Path) -> None:
    record = Record(sqlite_url(home()))
    about = {
        "problem": "softmax",
        "problem_sha256": "a" * 64,
        "header": HEADER.model_dump_json(),
        "run_dir": "/nowhere",
    }
    state = {"status": "running", "recorded": True, "evals": 40, "best_speedup": 1.5, "best_ms": 0.2}
    rows = [{"id": f"run-{n:04d}", "created_at": f"{n:06d}", "updated_at": "x", **about, **state} for n in range(COUNT)]
    with record.engine.begin() as connection:
        connection.execute(insert(RUNS), rows)
    record.close()
    for form in (["--json"], []):
        began_s = processor_s()
        command = [sys.executable, "-c", "from tilecast.agent.cli.app import main; main()", "runs", "--all", *form]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if form:
            assert [run["run"] for run in json.loads(out)["runs"]][:2] == ["run-0999", "run-0998"]
            assert len(json.loads(out)["runs"]) == COUNT
        else:
            head, first, *rest = out.splitlines()
            assert len(rest) == COUNT - 1 and first.startswith("run-0999") and head.split()[0] == "run"
        print(f"runs --all {' '.join(form)}: {processor_s() - began_s:.2f} s of processor time")
        assert processor_s() - began_s < LIMIT_S
