"""Makes `import tilecast` work from a bare checkout (torch, triton and numpy there, nothing installed), also in child processes.

Import this first in every script of this folder. It also holds what they share: the output folder and the header of a result.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _make_importable() -> None:
    """Unless tilecast is installed, put a folder with a link of that name to the checkout on the path, for children too."""
    if importlib.util.find_spec("tilecast") is not None:
        return
    place = tempfile.mkdtemp(prefix="tilecast-path-")
    os.symlink(ROOT, Path(place) / "tilecast")
    sys.path.insert(0, place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH", "")]))


_make_importable()


def parser(description: str | None) -> argparse.ArgumentParser:
    """Arguments that every script takes."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ROOT / "benchmarks" / "results")))
    made.add_argument("--device", default="auto", help="cuda[:N], cpu or auto")
    return made


def device_name(wanted: str) -> str:
    """`auto` resolved, without importing torch: the first GPU if nvidia-smi knows one; a GPU always by its number."""
    if wanted == "auto":
        wanted = "cuda" if _card() else "cpu"
    return "cuda:0" if wanted == "cuda" else wanted


def _card() -> str:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def header(name: str) -> dict[str, Any]:
    """Date, card, versions and commit: what a figure needs to mean anything."""
    versions = {"python": platform.python_version()}
    for package in ("torch", "triton", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "missing"
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "benchmark": name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "card": _card() or "none",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": versions,
        "commit": commit.stdout.strip() or "unknown",
    }


def write(out: Path, name: str, document: dict[str, Any]) -> Path:
    """Write a result beside the others and print it."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.json"
    text = json.dumps(document, indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    print(text)
    print(f"written to {file}", file=sys.stderr)
    return file
