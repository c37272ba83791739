"""Where runs are kept: one database (a SQLite file unless a URL says otherwise), appended to durably, migrated on opening."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Engine, create_engine, event, insert, make_url, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from tilecast.agent.record.events import EVENTS, CallAnswered, Event, Stored
from tilecast.agent.record.fold import RunState
from tilecast.agent.record.models import EVENTS_TABLE, RUNS, TEXTS
from tilecast.agent.record.schema_version import migrate
from tilecast.agent.record.summary import RunHeader, RunSummary, summary_columns
from tilecast.sandbox.errors import EnvironmentFailure, UsageError

FILE_NAME = "record.sqlite"


def sqlite_url(folder: Path) -> str:
    """URL of the default record in a folder."""
    return f"sqlite:///{folder / FILE_NAME}"


def text_sha256(text: str) -> str:
    """Under which hash a text is kept. Lone surrogates, which no UTF-8 has, are replaced."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Record:
    """All runs of one database."""

    def __init__(self, url: str) -> None:
        """Open, creating or migrating the tables.

        Raises:
            EnvironmentFailure: if the database cannot be opened or written.
        """
        self.url = shown(url)
        try:
            if url.startswith("sqlite:///"):
                Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
            self.engine = _engine(url)
            migrate(self.engine)
        except (SQLAlchemyError, OSError) as error:
            raise EnvironmentFailure(f"the record at {self.url} cannot be opened: {_short(error)}") from error
        except ModuleNotFoundError as error:
            raise EnvironmentFailure(
                f"the record at {self.url} needs the Python package {error.name}; for PostgreSQL: pip install 'tilecast[postgres]'"
            ) from error

    def create(self, run_id: str, header: RunHeader, run_dir: Path, clock: Callable[[], float]) -> RunLog:
        """Begin a run.

        Raises:
            UsageError: if there is a run of this name.
        """
        row = {
            "id": run_id,
            "created_at": _now(),
            "problem": header.problem,
            "problem_sha256": header.problem_sha256,
            "header": header.model_dump_json(),
            "run_dir": str(run_dir),
            "status": "running",
            "recorded": header.device.recorded,
            "evals": 0,
            "updated_at": _now(),
        }
        try:
            with self.engine.begin() as connection:
                connection.execute(insert(RUNS), row)
        except IntegrityError:
            raise UsageError(f"there is a run {run_id!r} already") from None
        return RunLog(self, run_id, header, run_dir, clock)

    def open(self, run_id: str, clock: Callable[[], float]) -> RunLog:
        """Take up or read a run: its log is read and folded.

        Raises:
            UsageError: if there is no such run.
        """
        with self.engine.connect() as connection:
            row = connection.execute(select(RUNS.c.header, RUNS.c.run_dir).where(RUNS.c.id == run_id)).one_or_none()
        if row is None:
            raise UsageError(f"no run {run_id!r} in {self.url}; `tilecast runs` lists them")
        log = RunLog(self, run_id, RunHeader.model_validate_json(row[0]), Path(row[1]), clock)
        for stored in log.events():
            log.state.apply(stored)
        log.begin_session(log.state.elapsed_s)
        return log

    def find(self, name: str) -> str:
        """The run that ``name`` means: an id, the only one that starts so, ``last``, or a run's folder.

        Raises:
            UsageError: if there is none, or more than one.
        """
        if name and Path(name).is_dir():
            name = Path(name).resolve().name
        with self.engine.connect() as connection:
            newest = select(RUNS.c.id).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
            if name == "last":
                found = list(connection.scalars(newest.limit(1)))
            else:
                found = list(connection.scalars(select(RUNS.c.id).where(RUNS.c.id == name)))
                if not found and name:
                    found = list(connection.scalars(newest.where(RUNS.c.id.startswith(name, autoescape=True)).limit(5)))
        if len(found) == 1:
            return str(found[0])
        if found:
            raise UsageError(f"run {name!r} is not one run but several: {', '.join(found)}")
        raise UsageError(f"no run {name!r} in {self.url}; `tilecast runs` lists them")

    def runs(self, limit: int | None = None, problem: str | None = None) -> list[RunSummary]:
        """Summaries, newest first, without reading any log."""
        query = select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
        if problem is not None:
            query = query.where(RUNS.c.problem == problem)
        with self.engine.connect() as connection:
            return [RunSummary.of(dict(row._mapping)) for row in connection.execute(query.limit(limit))]

    def text(self, sha256: str) -> str:
        """A stored text.

        Raises:
            KeyError: if it is not in the record.
        """
        with self.engine.connect() as connection:
            body = connection.scalar(select(TEXTS.c.body).where(TEXTS.c.sha256 == sha256))
        if body is None:
            raise KeyError(sha256)
        return str(body)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class RunLog:
    """The log of one run: append, and the state folded from it. Safe to use from several threads."""

    def __init__(
        self, record: Record, run_id: str, header: RunHeader, run_dir: Path, clock: Callable[[], float]
    ) -> None:
        self.record, self.run_id, self.header, self.run_dir = record, run_id, header, run_dir
        self.state = RunState()
        self.lock = threading.RLock()
        self._clock = clock
        self._known_texts: set[str] = set()
        self.begin_session(0.0)

    def begin_session(self, elapsed_before_s: float) -> None:
        """Start counting the run's time from what it has taken before, in seconds."""
        self._began_s, self._before_s = self._clock(), elapsed_before_s

    @property
    def elapsed_s(self) -> float:
        """Seconds of the run, all sessions together."""
        return self._before_s + self._clock() - self._began_s

    def append(self, new: Event, texts: Iterable[str] = ()) -> Stored:
        """Write one event and the texts that it names; durable when this returns, and folded into the state.

        Raises:
            EnvironmentFailure: if it cannot be written, or another process writes to this run.
        """
        with self.lock:
            stored = Stored(seq=self.state.seq + 1, elapsed_s=self.elapsed_s, at=_now(), event=new)
            before = summary_columns(self.state)
            try:
                with self.record.engine.begin() as connection:
                    self._put_texts(connection, texts)
                    connection.execute(insert(EVENTS_TABLE), self._row(stored))
                    self.state.apply(stored)
                    after = summary_columns(self.state)
                    if after != before:
                        change = update(RUNS).where(RUNS.c.id == self.run_id).values(updated_at=stored.at, **after)
                        connection.execute(change)
            except IntegrityError as error:
                raise EnvironmentFailure(f"run {self.run_id}: another process is writing to it") from error
            except SQLAlchemyError as error:
                raise EnvironmentFailure(f"run {self.run_id} cannot be recorded: {_short(error)}") from error
            return stored

    def events(self, kind: str | None = None, candidate: int | None = None) -> list[Stored]:
        """The log, or a part of it, in order."""
        query = select(EVENTS_TABLE).where(EVENTS_TABLE.c.run_id == self.run_id).order_by(EVENTS_TABLE.c.seq)
        if kind is not None:
            query = query.where(EVENTS_TABLE.c.kind == kind)
        if candidate is not None:
            query = query.where(EVENTS_TABLE.c.candidate == candidate)
        with self.record.engine.connect() as connection:
            return [_stored(row) for row in connection.execute(query)]

    def answer(self, seq: int) -> CallAnswered:
        """The answered call at a place of the log."""
        query = select(EVENTS_TABLE).where(EVENTS_TABLE.c.run_id == self.run_id, EVENTS_TABLE.c.seq == seq)
        with self.record.engine.connect() as connection:
            found = _stored(connection.execute(query).one()).event
        assert isinstance(found, CallAnswered)
        return found

    def _put_texts(self, connection: Any, texts: Iterable[str]) -> None:
        for text in texts:
            sha256 = text_sha256(text)
            if sha256 in self._known_texts:
                continue
            if connection.scalar(select(TEXTS.c.sha256).where(TEXTS.c.sha256 == sha256)) is None:
                # PostgreSQL keeps no NUL in a text.
                body = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
                connection.execute(_insert_text(connection.dialect.name), {"sha256": sha256, "body": body})
            self._known_texts.add(sha256)

    def _row(self, stored: Stored) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "seq": stored.seq,
            "kind": stored.event.kind,
            "candidate": getattr(stored.event, "index", None),
            "elapsed_s": stored.elapsed_s,
            "at": stored.at,
            "body": stored.event.model_dump_json(),
        }


def shown(url: str) -> str:
    """A database's URL as it may be shown and stored: without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "the configured URL"


def _insert_text(dialect: str) -> Any:
    """Another host may have written the same text a moment ago: then it is there, which is all that is wanted."""
    if dialect == "postgresql":
        return postgresql.insert(TEXTS).on_conflict_do_nothing()
    return sqlite.insert(TEXTS).on_conflict_do_nothing() if dialect == "sqlite" else insert(TEXTS)


def _stored(row: Any) -> Stored:
    try:
        body = EVENTS.validate_python(json.loads(row.body))
    except ValidationError as error:
        raise EnvironmentFailure(
            f"event {row.seq} of run {row.run_id} was written by another version of tilecast: {_short(error)}"
        ) from error
    return Stored(seq=row.seq, elapsed_s=row.elapsed_s, at=row.at, event=body)


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": 60, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    return engine


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0]
