"""The record on a real PostgreSQL server: a whole run, one killed and taken up, the commands that read, two writers at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_parts import TINY
from postgres_parts import binaries, server
from sqlalchemy import inspect
from test_record import HEADER

from tilecast.agent.config import resolve
from tilecast.agent.record import schema_version
from tilecast.agent.record.events import Noted
from tilecast.agent.record.models import METADATA
from tilecast.agent.record.store import Record
from tilecast.sandbox.errors import EnvironmentFailure, UsageError

HERE = Path(__file__).parent
PROGRAMS = binaries()
pytestmark = pytest.mark.skipif(PROGRAMS is None, reason="no PostgreSQL server here (apt-get install postgresql)")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pytest.importorskip("psycopg")
    assert PROGRAMS is not None
    with server(PROGRAMS) as found:
        yield found


def command(url: str, tmp_path: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """``tilecast`` with the small problem's preflight known, its record on the server."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    chosen = {**os.environ, "TILECAST_RECORD_URL": url, "TILECAST_HOME": str(tmp_path / "home"), "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, str(HERE / "loop_parts.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**chosen, **environment},
    )


def finish(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return json.loads(out)


OPTIMIZE = ("optimize", str(TINY), "--device", f"replay:{TINY}", "--forecaster", "none", "--max-evals", "12", "--json")


def test_a_run_and_the_commands_that_read_it(url: str, tmp_path: Path) -> None:
    result = finish(command(url, tmp_path, *OPTIMIZE))
    assert result["ledger"]["evals"]["spent"] == 12 and not list((tmp_path / "home").glob("record.sqlite*"))
    runs = finish(command(url, tmp_path, "runs", "--json"))["runs"]
    assert [run["run"] for run in runs if run["run"] == result["run"]] == [result["run"]]
    assert finish(command(url, tmp_path, "show", result["run"], "--json"))
    assert finish(command(url, tmp_path, "report", result["run"], "--format", "json"))["run"] == result["run"]


def test_a_run_killed_and_taken_up(url: str, tmp_path: Path) -> None:
    process = command(url, tmp_path, *OPTIMIZE, LOOP_PAUSE_S="0.3")
    record, end = Record(url), time.monotonic() + 60
    try:
        known = {run.run for run in record.runs()}
        while (
            not (new := [r for r in record.runs() if r.run not in known or r.status == "running"]) or new[0].evals < 3
        ):
            assert time.monotonic() < end
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        result = finish(command(url, tmp_path, "optimize", "--resume", new[0].run, "--json"))
        assert result["run"] == new[0].run and result["ledger"]["evals"]["spent"] == 12
    finally:
        record.close()


def test_migrations_give_the_tables_of_the_models(url: str) -> None:
    record = Record(url)
    assert schema_version.current(record.engine) == schema_version.HEAD
    found = inspect(record.engine)
    for table in METADATA.sorted_tables:
        assert {c["name"] for c in found.get_columns(table.name)} == {c.name for c in table.columns}
    record.close()


def test_two_hosts_share_a_record_and_not_a_run(url: str) -> None:
    first, second = Record(url), Record(url)
    shared = "the same long text"

    def write(record: Record, name: str) -> None:
        log = record.create(name, HEADER, Path("/nowhere") / name, time.monotonic)
        for number in range(30):
            log.append(Noted(text=f"{number}"), texts=[shared, f"{shared} {number}"])

    work = [threading.Thread(target=write, args=pair) for pair in ((first, "host-1"), (second, "host-2"))]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert (
        len(first.open("host-1", time.monotonic).events()) == 30 == len(second.open("host-2", time.monotonic).events())
    )
    one, other = first.open("host-1", time.monotonic), second.open("host-1", time.monotonic)
    one.append(Noted(text="mine"))
    with pytest.raises(EnvironmentFailure, match="another process is writing to it"):
        other.append(Noted(text="also mine"))
    first.close()
    second.close()


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(EnvironmentFailure) as caught:
        Record("postgresql+psycopg://team:s3cret@/x?host=/nowhere")
    assert "s3cret" not in str(caught.value) and "postgresql" in str(caught.value)


def test_the_environment_names_the_record_and_a_projects_file_may_not(tmp_path: Path) -> None:
    assert resolve({}, tmp_path, {"TILECAST_RECORD_URL": "sqlite:///x"}).database_url == "sqlite:///x"
    (tmp_path / "tilecast.toml").write_text('database_url = "postgresql://stranger/x"\n')
    with pytest.raises(UsageError, match="may not stand in a project's file"):
        resolve({}, tmp_path, {})
