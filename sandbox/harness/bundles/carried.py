"""The harness as one file that runs anywhere: its sources packed with a start program, named by the hash of the sources.

The same hash is computed from an installed package, so that a bundle names the version that has to do it either way.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import lru_cache
from pathlib import Path

SANDBOX = Path(__file__).resolve().parents[2]
"""The folder of ``tilecast.sandbox``."""
BESIDE = ("__init__.py", "errors.py", "process.py")
"""Modules of the sandbox beside the harness that the worker stands on; like it they need the standard library alone."""
_STAMP = (1980, 1, 1, 0, 0, 0)
_START = '''"""Unpacks the harness into a private folder and runs the worker of bundles from there."""
import os, shutil, sys, tempfile, zipfile

if sys.version_info < (3, 11):
    sys.exit("error: the worker needs Python 3.11 or newer, this is " + sys.version.split()[0])
here = os.path.abspath(sys.argv[0])
arguments = sys.argv[1:]
if not any(not a.startswith("-") and os.path.isdir(a) for a in arguments):
    arguments = [os.path.dirname(here), *arguments]
os.umask(0o022)  # confined workers run under another user and read these sources
folder = tempfile.mkdtemp(prefix="tilecast-worker-")
os.chmod(folder, 0o755)
try:
    with zipfile.ZipFile(here) as archive:
        archive.extractall(folder, [n for n in archive.namelist() if n.startswith("tilecast/")])
    old = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder + (os.pathsep + old if old else "")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["TILECAST_WORKER_FROM"] = folder
    sys.path.insert(0, folder)
    from tilecast.sandbox.harness.bundles.worker import main

    code = main(arguments)
finally:
    shutil.rmtree(folder, ignore_errors=True)
sys.exit(code)
'''


@lru_cache(maxsize=1)
def sources() -> dict[str, bytes]:
    """Every file of the harness by its place under ``tilecast/sandbox``, sorted."""
    files = [*(SANDBOX / name for name in BESIDE), *(SANDBOX / "harness").rglob("*.py")]
    return {file.relative_to(SANDBOX).as_posix(): file.read_bytes() for file in sorted(files)}


@lru_cache(maxsize=1)
def harness_version() -> str:
    """SHA-256 over names and contents of the sources, in hex."""
    total = hashlib.sha256()
    for name, content in sources().items():
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def program() -> bytes:
    """The runnable file, the same bytes whenever it is made from the same sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        members = {"__main__.py": _START.encode()}
        members |= {f"tilecast/sandbox/{name}": content for name, content in sources().items()}
        for name, content in members.items():
            info = zipfile.ZipInfo(name, _STAMP)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return b"#!/usr/bin/env python3\n" + buffer.getvalue()
