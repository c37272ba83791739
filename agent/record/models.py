"""Tables of the record, in SQL that every SQLAlchemy database speaks. Changes go through ``migrations/``."""

from __future__ import annotations

from sqlalchemy import Boolean, Float, ForeignKey, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """All tables of the record."""


class RunRow(Base):
    """A run: what it is about (never changes), and a summary for lists (rewritten with every event that changes it)."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    created_at: Mapped[str] = mapped_column(String(32), index=True)
    problem: Mapped[str] = mapped_column(String(255))
    problem_sha256: Mapped[str] = mapped_column(String(64))
    header: Mapped[str] = mapped_column(Text)
    run_dir: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(32))
    best_speedup: Mapped[float | None] = mapped_column(Float, nullable=True)
    best_ms: Mapped[float | None] = mapped_column(Float, nullable=True)
    recorded: Mapped[bool] = mapped_column(Boolean, default=False)
    evals: Mapped[int] = mapped_column(Integer, default=0)
    updated_at: Mapped[str] = mapped_column(String(32))


class EventRow(Base):
    """One event of a run: append-only, numbered from 1 without gaps."""

    __tablename__ = "events"
    __table_args__ = (UniqueConstraint("run_id", "seq"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    seq: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(32))
    candidate: Mapped[int | None] = mapped_column(Integer, nullable=True)
    elapsed_s: Mapped[float] = mapped_column(Float)
    at: Mapped[str] = mapped_column(String(32))
    body: Mapped[str] = mapped_column(Text)


class TextRow(Base):
    """A text by the hash of its content: sources, prompts, replies. Stored once however often it is named."""

    __tablename__ = "texts"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    body: Mapped[str] = mapped_column(Text)
