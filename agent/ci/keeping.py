"""Results of pairs on disk, by the content of everything that decides them: an unchanged pair is never measured twice."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.installed import own_version
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate

if TYPE_CHECKING:
    from tilecast.agent.ci.measuring import Measured

_PASSING = frozenset({EvaluationStatus.ENVIRONMENT_ERROR, EvaluationStatus.NOT_RECORDED, EvaluationStatus.TIMEOUT})
"""May be otherwise the next time."""


class Keeping:
    """A folder of results; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def key(
        self,
        problem: Problem,
        base: Candidate | None,
        head: Candidate,
        device: DeviceFacts,
        how: Mapping[str, Any],
    ) -> str:
        """Name of a result: sources, problem, device, versions, and how it was asked for."""
        parts = [
            problem.payload() | {"name": ""},
            base.sha256 if base is not None else None,
            head.sha256,
            device.model_dump(exclude={"index"}),
            how,
            own_version(),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def read(self, key: str) -> Measured | None:
        """A kept result, or None."""
        from tilecast.agent.ci.measuring import Measured

        try:
            return None if self._folder is None else Measured.model_validate_json(self._file(key).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, key: str, found: Measured) -> None:
        """Keep a result, unless it may be otherwise the next time."""
        if self._folder is None or found.status is None or {found.status, found.base_status} & _PASSING:
            return
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as temporary:
            temporary.write(found.model_dump_json().encode())
        os.replace(temporary.name, file)

    def _file(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}.json"
