"""What the compiler says of a candidate, as values: one :class:`Evidence` per candidate, workload and target GPU.

Nothing here is a measurement. Figures that could not be had are None, never zero.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from tilecast.sandbox.schema import Bound, Document, TopLevel

EVIDENCE_VERSION = 1
"""Raised when a field's meaning changes; part of the cache key."""


class EvidenceStatus(StrEnum):
    """What became of a candidate, or of one of its launches, at compile time. The order is from good to bad."""

    OK = "OK"
    SPILLS = "SPILLS"
    """Compiles and fits, but keeps values in local memory."""
    NOT_COMPILED = "NOT_COMPILED"
    """Captured but not compiled: the time for this candidate was spent on earlier launches."""
    UNAVAILABLE = "UNAVAILABLE"
    """Nothing can be said here: a compiler that is not installed, a target the language does not have."""
    HOST_ERROR = "HOST_ERROR"
    """The candidate's own Python raised before or between launches."""
    COMPILE_ERROR = "COMPILE_ERROR"
    OUT_OF_RESOURCES = "OUT_OF_RESOURCES"
    """Compiles, but needs more shared memory, threads or registers than a block may have."""
    COMPILE_TIMEOUT = "COMPILE_TIMEOUT"
    COMPILER_CRASH = "COMPILER_CRASH"
    SYNTAX_ERROR = "SYNTAX_ERROR"


class Resources(Document):
    """What one block of a compiled kernel takes."""

    registers: int | None = None
    """Per thread (AMD: vector registers)."""
    spills: int | None = None
    """As Triton counts ``n_spills``: bytes of local memory a thread, over 4 (AMD: vector registers spilled)."""
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    """Local memory a thread; holds spills and arrays that are indexed at run time."""
    shared_bytes: int | None = None
    """Static and dynamic together, a block."""
    warps: int | None = None
    stages: int | None = None
    ctas: int | None = None
    """Blocks a cluster."""
    code_bytes: int | None = None
    scalar_registers: int | None = None
    accumulator_registers: int | None = None


class Occupancy(Document):
    """Blocks that fit on one multiprocessor at once, and what stops more."""

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    """Resident warps over the most a multiprocessor holds."""
    limiter: Literal["warps", "registers", "shared", "blocks"]
    limits: dict[str, int]
    """Blocks that each resource alone would allow."""


class InstructionMix(Document):
    """Static counts of machine instructions (one for each place in the code, whatever the loops do)."""

    total: int
    tensor_core: int = 0
    tensor_core_kinds: dict[str, int] = {}
    """By full mnemonic, for instance ``HGMMA.64x128x16.F32.BF16``."""
    global_load_bits: dict[str, int] = {}
    """Global loads by bits a thread: ``{"128": 8}``."""
    global_store_bits: dict[str, int] = {}
    async_copy: int = 0
    """LDGSTS: global to shared without registers."""
    bulk_copy: int = 0
    """TMA: UTMALDG, UTMASTG, UBLKCP and kin."""
    shared_load: int = 0
    shared_store: int = 0
    matrix_shared_load: int = 0
    """LDSM, STSM."""
    barriers: int = 0
    """BAR and SYNCS (mbarriers)."""
    special_function: int = 0
    """MUFU: exp2, reciprocal, square root, …"""
    local_load: int = 0
    local_store: int = 0
    atomics: int = 0
    fma: int = 0
    """Float fused multiply-adds, multiplications and additions outside tensor cores."""
    integer: int = 0
    convert: int = 0
    shuffle: int = 0
    branches: int = 0
    register_reallocation: int = 0
    """USETMAXREG: registers moved between groups of warps, the mark of warp specialization."""
    opcodes: dict[str, int] = {}
    """Every base mnemonic."""
    loop: dict[str, int] = {}
    """Counts of the longest innermost backward branch's body: ``total``, ``tensor_core``, ``global_load``, ``async_copy``,
    ``bulk_copy``, ``barriers``, ``shared_load``, ``shared_store``, ``local``."""


class TunedVariant(Document):
    """One configuration of an autotuned launch."""

    config: dict[str, Any]
    status: EvidenceStatus
    reason: str = ""
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    instructions: InstructionMix | None = None


class LaunchEvidence(Document):
    """One kernel launch of ``forward`` (identical ones are merged, see ``count``)."""

    kernel: str
    language: Literal["triton", "cutile", "cuda", "cpp"]
    status: EvidenceStatus
    reason: str = ""
    """The compiler's own message cut to what matters, with file line where it gave one."""
    advice: str = ""
    count: int = 1
    grid: list[int] = []
    programs: int | None = None
    waves: float | None = None
    """Programs over what all multiprocessors hold at once; None where the GPU's figures or the occupancy are unknown."""
    signature: dict[str, str] = {}
    """Type of each argument; ``:16`` marks divisible by 16, ``=1`` a value of one compiled in."""
    constants: dict[str, Any] = {}
    argument_bytes: int | None = None
    """Bytes of the distinct tensors handed over: what one pass over all of them moves."""
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    instructions: InstructionMix | None = None
    tuned: list[TunedVariant] = []
    """Configurations of ``triton.autotune``, in its order; the figures above are of ``tuned[chosen]``."""
    chosen: int | None = None
    """The configuration assumed: the first that compiles and does not spill. The real one is picked by timing."""
    remarks: list[str] = []
    """The compiler's remarks, where it makes any (cuTile)."""
    compile_s: float | None = None


class HostOps(Document):
    """torch operations that ``forward`` itself makes, launches aside (views and empty allocations not counted)."""

    count: int = 0
    bytes_moved: int = 0
    """Each operand and result once, in bytes."""
    flops: int = 0
    by_name: dict[str, int] = {}
    library_calls: dict[str, int] = {}
    """Those a vendor library does: matrix products, convolutions, attention."""
    compiled: bool = False
    """``torch.compile`` is used: operations are fused in a way that is not seen here."""


class Work(Document):
    """What the workload needs at least, and what the candidate adds."""

    compulsory_bytes: int
    """Every input, parameter and output once."""
    moved_bytes: int
    """Least traffic of the candidate: each launch's tensors once, and its torch operations."""
    intermediate_bytes: int
    """Size of the tensors that forward makes and does not return."""
    extra_passes: float
    """(moved - compulsory) / compulsory, at least 0."""
    flops: int
    """Floating-point operations of the reference's matrix-like operators."""
    roofline_ms: float | None = None
    bound: Bound | None = None


class Evidence(TopLevel):
    """Everything the compiler and the host code say of one candidate, for one workload and one target."""

    candidate: str
    source_sha256: str
    problem: str
    problem_sha256: str
    workload: str
    target: str
    """Compiler target: ``sm_90``, ``gfx942``."""
    hardware: str | None = None
    """Key of the GPU whose figures were used for occupancy and waves."""
    languages: list[str] = []
    status: EvidenceStatus
    """The worst of the launches', or of the host code."""
    reason: str = ""
    advice: list[str] = []
    """One line for each thing that the next proposal should change, worst first."""
    launches: list[LaunchEvidence] = []
    launch_count: int = 0
    host: HostOps = HostOps()
    work: Work | None = None
    notes: list[str] = []
    """How the figures were had, where that matters: real inputs were needed, values were assumed."""
    versions: dict[str, str] = {}
    seconds: float = 0.0
    """What collecting took, the first time."""
    cpu_s: float = 0.0
    """Processor time of that, compilers included: unlike ``seconds`` it does not depend on what else the machine does."""
    cached: bool = False
