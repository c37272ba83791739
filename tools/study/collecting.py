"""Evidence of every recorded variant, compiled for the GPU it was recorded on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilecast.sandbox.corpus import RecordedProblem
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.sandbox.hardware import require_device
from tilecast.tools.forecast.dataset import EvidenceTable

BATCH = 8
Say = Callable[[str], None]


def collect(
    records: Sequence[RecordedProblem], collector: EvidenceCollector, known: EvidenceTable, say: Say
) -> EvidenceTable:
    """``known`` and what it lacks. Where this machine cannot compile, what was had until then, with a word about it."""
    found: dict[tuple[str, str], Mapping[str, Any]] = dict(known)
    todo = [
        (record, variant)
        for record in records
        for variant in map(record.variant, record.rows)
        if (record.problem.sha256, variant.sha256) not in found
    ]
    started, done = time.monotonic(), 0
    for record in records:
        own = [variant for other, variant in todo if other is record]
        gpu = require_device(record.info.gpu).key if own else ""
        for start in range(0, len(own), BATCH):
            part = own[start : start + BATCH]
            try:
                documents = collector.collect_many(record.problem, part, gpu)
            except EnvironmentFailure as error:
                say(f"no more evidence: {error}; recorded figures are used for {len(todo) - done} variants")
                return found
            for variant, document in zip(part, documents, strict=True):
                found[(record.problem.sha256, variant.sha256)] = document.model_dump(mode="json")
            done += len(part)
            left = (time.monotonic() - started) / done * (len(todo) - done)
            say(f"{record.name}: evidence of {done} of {len(todo)} variants, about {left:.0f} s to go")
    return found
