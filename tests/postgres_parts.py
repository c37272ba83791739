"""A PostgreSQL server of a test's own: Debian's binaries, a socket in a temporary folder, no network."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def binaries() -> Path | None:
    """The folder of the newest server, or None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).parent


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """A running server; its URL for SQLAlchemy. PostgreSQL refuses root, so there it runs as ``postgres``."""
    folder = Path(tempfile.mkdtemp(prefix="tilecast-pg-", dir="/tmp"))
    account = pwd.getpwnam("postgres") if os.getuid() == 0 else None
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    more = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=90, **more)
        assert done.returncode == 0, done.stdout + done.stderr

    store = str(folder / "store")
    run(str(programs / "initdb"), "-D", store, "-U", "tilecast", "--auth=trust", "--no-sync", "-E", "UTF8")
    options = f"-k {folder} -c listen_addresses='' -c shared_buffers=32MB"
    run(str(programs / "pg_ctl"), "-D", store, "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://tilecast@/postgres?host={folder}"
    finally:
        run(str(programs / "pg_ctl"), "-D", store, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
