"""Evidence documents collected before, one JSON line a variant: read for studies and training, never collected here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import UsageError


def read_evidence(file: Path) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Documents by (problem hash, hash of the source with its CONFIG). A line is a document, or ``{"evidence": document}``.

    Raises:
        UsageError: naming the file and line that is no evidence.
    """
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            document = item.get("evidence", item)
            found[(document["problem_sha256"], document["source_sha256"])] = document
        except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
            raise UsageError(f"{file}:{number}: no evidence document ({error})") from error
    return found
