"""Compile-time evidence for a candidate, a workload and a target GPU that need not be here.

``EvidenceCollector.collect(problem, candidate, target, workload) -> Evidence``. The format is
:class:`~tilecast.sandbox.evidence_schema.Evidence`; ``Evidence.model_dump(mode="json")`` is the ``evidence`` dict that
forecasters and ``tilecast forecast --evidence`` see. In short::

    {"status": "OK", "reason": "", "advice": [...], "target": "sm_90", "languages": ["triton"], "launch_count": 1,
     "launches": [{"kernel", "language", "status", "count", "grid": [x, y, z], "programs", "waves",
                   "resources": {"registers", "spills", "stack_bytes", "shared_bytes", "warps", "stages", ...},
                   "occupancy": {"blocks_per_sm", "fraction", "limiter", ...},
                   "instructions": {"total", "tensor_core", "global_load_bits", "async_copy", "bulk_copy", ...},
                   "tuned": [...], "chosen", "constants", "signature", "argument_bytes"}],
     "host": {"count", "bytes_moved", "library_calls", ...},
     "work": {"compulsory_bytes", "moved_bytes", "intermediate_bytes", "extra_passes", "flops", "roofline_ms", "bound"}}
"""

from __future__ import annotations

from tilecast.sandbox.evidence_schema import (
    Evidence,
    EvidenceStatus,
    HostOps,
    InstructionMix,
    LaunchEvidence,
    Occupancy,
    Resources,
    TunedVariant,
    Work,
)

__all__ = [
    "Evidence",
    "EvidenceStatus",
    "HostOps",
    "InstructionMix",
    "LaunchEvidence",
    "Occupancy",
    "Resources",
    "TunedVariant",
    "Work",
]
