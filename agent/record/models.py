"""Tables of the record, in SQL that every SQLAlchemy database speaks. Changes go through ``migrations/``.

Plain tables: loading SQLAlchemy's object mapper as well would take a third of the time of ``tilecast runs``.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Integer, MetaData, String, Table, Text, UniqueConstraint

METADATA = MetaData()

RUNS = Table(
    "runs",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("created_at", String(32), nullable=False, index=True),
    Column("problem", String(255), nullable=False),
    Column("problem_sha256", String(64), nullable=False),
    Column("header", Text, nullable=False),
    Column("run_dir", Text, nullable=False),
    Column("status", String(32), nullable=False),
    Column("best_speedup", Float, nullable=True),
    Column("best_ms", Float, nullable=True),
    Column("recorded", Boolean, nullable=False),
    Column("evals", Integer, nullable=False),
    Column("updated_at", String(32), nullable=False),
)
"""A run: what it is about (never changes), and a summary for lists (rewritten with every event that changes it)."""

EVENTS_TABLE = Table(
    "events",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String(64), ForeignKey("runs.id"), nullable=False, index=True),
    Column("seq", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("candidate", Integer, nullable=True),
    Column("elapsed_s", Float, nullable=False),
    Column("at", String(32), nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("run_id", "seq"),
)
"""One event of a run: append-only, numbered from 1 without gaps."""

TEXTS = Table(
    "texts",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("body", Text, nullable=False),
)
"""A text by the hash of its content: sources, prompts, replies. Stored once however often it is named."""
