"""Evidence collected before, one JSON line a variant: read for studies and training, never collected here.

The package ships the figures that features use for the measurements its weights were trained on (:data:`SHIPPED`), so that a study
of them or a refit needs no compiler.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import UsageError
from tilecast.tools.forecast.dataset import EvidenceTable
from tilecast.tools.forecast.resources import MIX

SHIPPED = "evidence.jsonl.gz"
RESOURCES = ("registers", "spills", "shared_bytes", "warps", "stages")


def evidence_table(file: Path | None = None, shipped: bool = True) -> EvidenceTable:
    """Evidence of a file over what is shipped; variants that neither knows have what their record says of them.

    Raises:
        UsageError: naming the file and line that is no evidence.
    """
    known: EvidenceTable = shipped_evidence() if shipped else {}
    return {**known, **read_evidence(file)} if file is not None else known


@lru_cache(maxsize=1)
def shipped_evidence() -> EvidenceTable:
    """Figures of the training measurements, compiled for the GPU they were measured on."""
    return _parse(files("tilecast.tools.study").joinpath(SHIPPED).read_bytes(), SHIPPED)


def read_evidence(file: Path) -> EvidenceTable:
    """Documents by (problem hash, hash of the source with its CONFIG). A line is a document, or ``{"evidence": document}``.

    Raises:
        UsageError: naming the file and line that is no evidence.
    """
    try:
        return _parse(file.read_bytes(), str(file))
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error


def _parse(content: bytes, name: str) -> EvidenceTable:
    text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8")
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            document = item.get("evidence", item)
            found[(document["problem_sha256"], document["source_sha256"])] = document
        except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
            raise UsageError(f"{name}:{number}: no evidence document ({error})") from error
    return found


def compact(document: Mapping[str, Any]) -> dict[str, Any]:
    """What features use of an evidence document, in its own form; about a tenth of its size."""
    return {
        **{key: document.get(key) for key in ("problem_sha256", "source_sha256", "status")},
        "launches": [_launch(launch) for launch in document.get("launches") or []],
    }


def _launch(launch: Mapping[str, Any]) -> dict[str, Any]:
    resources, mix = launch.get("resources") or {}, launch.get("instructions")
    return {
        "kernel": launch.get("kernel"),
        "status": launch.get("status"),
        "resources": {key: resources[key] for key in RESOURCES if resources.get(key) is not None},
        "instructions": {key: mix[key] for key in MIX if mix.get(key)} if isinstance(mix, Mapping) else None,
    }


def write_evidence(table: EvidenceTable, file: Path) -> None:
    """Write compact documents for :func:`read_evidence`; compressed where the name ends in ``.gz``."""
    lines = sorted(json.dumps(compact(document), separators=(",", ":")) for document in table.values())
    content = ("\n".join(lines) + "\n").encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content, 9, mtime=0) if file.suffix == ".gz" else content)
