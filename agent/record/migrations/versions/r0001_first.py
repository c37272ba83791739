"""Runs, events, texts.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("problem", sa.String(255), nullable=False),
        sa.Column("problem_sha256", sa.String(64), nullable=False),
        sa.Column("header", sa.Text(), nullable=False),
        sa.Column("run_dir", sa.Text(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("best_speedup", sa.Float(), nullable=True),
        sa.Column("best_ms", sa.Float(), nullable=True),
        sa.Column("recorded", sa.Boolean(), nullable=False),
        sa.Column("evals", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.String(32), nullable=False),
    )
    op.create_index("ix_runs_created_at", "runs", ["created_at"])
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("candidate", sa.Integer(), nullable=True),
        sa.Column("elapsed_s", sa.Float(), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.UniqueConstraint("run_id", "seq"),
    )
    op.create_index("ix_events_run_id", "events", ["run_id"])
    op.create_table(
        "texts",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("body", sa.Text(), nullable=False),
    )


def downgrade() -> None:
    """Drop everything."""
    for table in ("texts", "events", "runs"):
        op.drop_table(table)
