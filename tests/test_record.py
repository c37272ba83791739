"""The record: durable, migrated, folded the same whenever it is read; and the journal of paid calls on it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from tilecast.agent.budget import Amount, Ledger, Limits
from tilecast.agent.record import schema_version
from tilecast.agent.record.events import EvaluationDone, Noted, ProposalAsked, SessionOpened, Stopped
from tilecast.agent.record.journal import RunJournal
from tilecast.agent.record.models import METADATA
from tilecast.agent.record.store import Record, RunLog, sqlite_url
from tilecast.agent.record.summary import RunHeader
from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.schema import EvaluationStatus, Measurement
from tilecast.tools.model.base import BudgetRefused, ChatAnswer, ChatRequest, Usage

HEADER = RunHeader(
    problem="softmax",
    problem_path="softmax/reference.py",
    problem_sha256="a" * 64,
    device=DeviceFacts(kind="replay", name="NVIDIA H200", recorded=True),
    device_spec="replay:x",
    seed=1,
    settings={"model": "builtin", "limits": {}},
)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(sqlite_url(tmp_path))


def begin(record: Record, name: str = "run-1") -> RunLog:
    return record.create(name, HEADER, Path("/nowhere") / name, time.monotonic)


def request(key: str) -> ChatRequest:
    return ChatRequest(key=key, purpose="propose", messages=[{"role": "user", "content": f"question {key}"}])


def test_what_was_appended_is_there_for_another_process_at_once(record: Record) -> None:
    log = begin(record)
    log.append(SessionOpened(number=1))
    log.append(ProposalAsked(index=0, parent_sha256=None), texts=["a text"])
    other = Record(record.url).open("run-1", time.monotonic)
    assert other.state.seq == 2 and list(other.state.candidates) == [0]
    assert [s.event.kind for s in other.events()] == ["session", "asked"]
    assert other.events(candidate=0)[0].seq == 2


def test_commits_reach_the_disk(record: Record) -> None:
    with record.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2


def test_two_writers_of_one_run_are_told_apart(record: Record) -> None:
    begin(record)
    first, second = record.open("run-1", time.monotonic), record.open("run-1", time.monotonic)
    first.append(Noted(text="first"))
    with pytest.raises(EnvironmentFailure, match="another process is writing to it"):
        second.append(Noted(text="second"))


def test_threads_append_one_after_the_other(record: Record) -> None:
    log = begin(record)
    work = [threading.Thread(target=lambda n=n: [log.append(Noted(text=f"{n}")) for _ in range(20)]) for n in range(5)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert [s.seq for s in log.events()] == list(range(1, 101))


def test_a_text_is_kept_once_and_odd_ones_survive(record: Record) -> None:
    log = begin(record)
    for _ in range(2):
        log.append(Noted(text="x"), texts=["the same", "with a lone surrogate \ud800", ""])
    with record.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM texts")).scalar() == 3


def test_time_counts_all_sessions(record: Record) -> None:
    now = 0.0
    log = record.create("timed", HEADER, Path("/x"), lambda: now)
    now = 30.0
    log.append(Noted(text="half a minute"))
    again = record.open("timed", lambda: now)
    assert again.state.elapsed_s == 30.0
    now = 40.0
    assert again.append(Noted(text="ten more")).elapsed_s == 40.0


def test_the_schema_in_the_migrations_is_the_schema_of_the_models(record: Record, tmp_path: Path) -> None:
    plain = Record(sqlite_url(tmp_path / "second")).engine
    METADATA.drop_all(plain)
    METADATA.create_all(plain)
    for name in METADATA.tables:
        migrated = {c["name"]: (str(c["type"]), c["nullable"]) for c in inspect(record.engine).get_columns(name)}
        declared = {c["name"]: (str(c["type"]), c["nullable"]) for c in inspect(plain).get_columns(name)}
        assert migrated == declared
        assert inspect(record.engine).get_indexes(name) == inspect(plain).get_indexes(name)


def test_head_is_the_newest_migration(record: Record) -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [schema_version.HEAD]
    assert schema_version.current(record.engine) == schema_version.HEAD


def test_opening_a_migrated_record_does_not_load_alembic(record: Record) -> None:
    import subprocess
    import sys

    program = f"import sys; from tilecast.agent.record.store import Record; Record({record.url!r}); print('alembic' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_many_first_openings_at_once_make_one_schema(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = f"from tilecast.agent.record.store import Record; Record({sqlite_url(tmp_path)!r})"
    work = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[1][-500:] for process in work] == [""] * 4


def test_a_record_of_a_newer_version_is_refused(record: Record) -> None:
    with record.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(EnvironmentFailure, match="another version of tilecast"):
        Record(record.url)


def test_runs_are_found_by_id_start_folder_and_last(record: Record, tmp_path: Path) -> None:
    for name in ("2026-a1", "2026-a2", "2027-b1"):
        begin(record, name)
        time.sleep(0.002)
    (tmp_path / "2026-a1").mkdir()
    assert record.find("2027") == record.find("last") == "2027-b1"
    assert record.find(str(tmp_path / "2026-a1")) == "2026-a1"
    with pytest.raises(UsageError, match="several: 2026-a2, 2026-a1"):
        record.find("2026")
    for missing in ("nope", "", "%"):
        with pytest.raises(UsageError, match="no run"):
            record.find(missing)


def test_the_list_of_runs_follows_the_log(record: Record) -> None:
    log = begin(record)
    assert record.runs()[0].status == "running"
    done = Measurement(status=EvaluationStatus.TIMEOUT, source_sha256="0" * 64)
    log.append(EvaluationDone(index=0, result=done, counted=True, charged_gpu_s=1.0))
    log.append(Stopped(stopped_by="evals", why=""))
    found = record.runs()[0]
    assert (found.status, found.evals, found.best_speedup, found.recorded, found.model) == (
        "evals",
        1,
        None,
        True,
        "builtin",
    )


def test_a_thousand_runs_are_listed_within_a_second(record: Record) -> None:
    for number in range(1000):
        record.create(f"run-{number:04d}", HEADER, Path("/x"), time.monotonic)
    log = record.open("run-0999", time.monotonic)
    for number in range(300):
        log.append(Noted(text="x" * 500, figures={"number": number}))
    began = time.perf_counter()
    found = Record(record.url).runs()
    assert len(found) == 1000 and time.perf_counter() - began < 1.0


def test_the_journal_reserves_before_and_settles_after(record: Record) -> None:
    log = begin(record)
    ledger = Ledger(Limits(tokens=1000), time.monotonic)
    journal = RunJournal(log, ledger)
    journal.reserve(request("a"), Usage(input_tokens=100, output_tokens=500))
    assert ledger.left("tokens") == 400 and "a" in log.state.open_calls
    answer = ChatAnswer(text="yes", usage=Usage(input_tokens=90, output_tokens=10, usd=0.5))
    journal.settle(request("a"), answer)
    assert ledger.left("tokens") == 900 and log.state.spent == Amount(tokens=100, usd=0.5)
    fresh = record.open("run-1", time.monotonic)
    assert RunJournal(fresh, ledger).answered("a") == answer
    assert RunJournal(fresh, ledger).answered("b") is None
    with pytest.raises(BudgetRefused):
        journal.reserve(request("b"), Usage(input_tokens=901))
    assert "b" not in log.state.open_calls


def test_a_failed_call_may_be_asked_again_under_its_key(record: Record) -> None:
    log = begin(record)
    ledger = Ledger(Limits(tokens=1000), time.monotonic)
    journal = RunJournal(log, ledger)
    journal.reserve(request("a"), Usage(input_tokens=600))
    journal.release(request("a"), "cut off", Usage(input_tokens=50))
    journal.reserve(request("a"), Usage(input_tokens=600))
    assert ledger.spent.tokens == 50 and ledger.reserved.tokens == 600


def test_calls_open_when_the_process_died_are_charged_as_lost(record: Record) -> None:
    log = begin(record)
    journal = RunJournal(log, Ledger(Limits(), time.monotonic))
    journal.reserve(request("a"), Usage(input_tokens=100, output_tokens=500, usd=0.25))
    fresh = record.open("run-1", time.monotonic)
    assert RunJournal(fresh, Ledger(Limits(), time.monotonic)).lose_open() == 1
    assert fresh.state.spent == Amount(tokens=600, usd=0.25)
    assert record.open("run-1", time.monotonic).state.spent == Amount(tokens=600, usd=0.25)
    assert fresh.state.lost_calls == 1 and not fresh.state.open_calls


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match="cannot be opened"):
        Record(sqlite_url(tmp_path / "file" / "below"))
