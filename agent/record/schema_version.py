"""Brings a database to the schema of this version, by Alembic's migrations from inside the package."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, inspect, text

from tilecast.sandbox.errors import EnvironmentFailure

HEAD = "0001"
"""The newest revision in ``migrations/versions``; a test holds the two together."""


_LOCK_NUMBER = 71_421_001
"""Held on PostgreSQL by the host that migrates: any number that no other program uses."""


def current(engine: Engine) -> str | None:
    """The revision of a database, or None for an empty one."""
    if not inspect(engine).has_table("alembic_version"):
        return None
    with engine.connect() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def migrate(engine: Engine) -> None:
    """Upgrade to :data:`HEAD`; nothing is done, and Alembic not imported, where it is there already.

    Raises:
        EnvironmentFailure: if a newer tilecast wrote the database.
    """
    if current(engine) == HEAD:
        return
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            # Two first runs at once: the second waits here, and then finds the work done.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise EnvironmentFailure(f"the record was written by another version of tilecast: {error}") from error
