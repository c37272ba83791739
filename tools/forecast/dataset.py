"""Measured variants as training examples: features, log-latency over the problem's floor, and who belongs to whom."""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilecast.sandbox.corpus import EAGER, RecordedProblem, Row
from tilecast.sandbox.hardware import Hardware, find_hardware
from tilecast.sandbox.source import parsed
from tilecast.tools.forecast.excess import excess
from tilecast.tools.forecast.features import Described, describe, problem_floor
from tilecast.tools.forecast.resources import KernelFigures, from_evidence, from_kernels
from tilecast.tools.forecast.trace import ProblemTrace, trace_candidate, trace_problem

Floats = npt.NDArray[np.float64]
EvidenceTable = Mapping[tuple[str, str], Mapping[str, Any]]
"""Evidence documents by (problem hash, hash of the source with its CONFIG)."""


@lru_cache(maxsize=4096)
def problem_key(source: str) -> str:
    """Identity of a problem up to comments, docstrings and layout: what "has seen the problem" is decided by."""
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return hashlib.sha256(source.encode()).hexdigest()[:16]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and _has_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


@lru_cache(maxsize=8192)
def family_key(source: str) -> str:
    """Identity of a source whatever its CONFIG says: variants of one file are one family."""
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return hashlib.sha256(source.encode()).hexdigest()[:16]
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "CONFIG" for t in node.targets):
            node.value = ast.Constant(value=None)
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Example:
    """One measured variant. ``log_ratio`` is ln(ms / floor ms), NaN where it did not pass."""

    problem: str
    family: str
    log_ratio: float
    passed: bool
    plain: Floats
    """Features from source, CONFIG and shapes."""
    recorded: Floats
    """The same with what a measurement's record says of its kernels."""
    informed: Floats
    """The same with the best compile-time figures at hand."""
    covered: bool


@dataclass(frozen=True)
class Variant:
    """One measured candidate as its record has it. ``config`` overrides the source's own CONFIG; ``ms`` only if it passed."""

    source: str
    config: Mapping[str, Any]
    ms: float | None
    figures: Mapping[str, KernelFigures]
    """As recorded with the measurement."""
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ProblemExamples:
    """All variants of one measured problem, in the record's order."""

    name: str
    key: str
    names: tuple[str, ...]
    floor_ms: float
    hardware: Hardware
    examples: tuple[Example, ...]
    rows: tuple[Row, ...] = ()
    """Where the variants come from, if from a corpus."""
    baseline_ms: float | None = None


def problem_examples(record: RecordedProblem, evidence: EvidenceTable | None = None) -> ProblemExamples | None:
    """Examples of one recorded problem; None if its GPU is not in the catalogue or its reference cannot be walked."""
    variants = []
    for row in record.rows:
        source = record.sources[row.candidate].source
        found = evidence.get((record.problem.sha256, record.variant(row).sha256)) if evidence else None
        ms = row.ms if row.status == "PASSED" else None
        variants.append(Variant(source, row.config, ms, from_kernels(k.model_dump() for k in row.kernels), found))
    baseline = record.baselines.get(EAGER)
    made = measured_examples(record.name, record.problem.source, record.info.gpu, variants)
    return made and replace(made, rows=tuple(record.rows), baseline_ms=baseline.ms if baseline is not None else None)


def measured_examples(name: str, reference: str, gpu: str, variants: Sequence[Variant]) -> ProblemExamples | None:
    """Examples of measured variants; None if the GPU is not in the catalogue or the reference cannot be walked."""
    hardware, traced = find_hardware(gpu), trace_problem(reference)
    if hardware is None or traced is None:
        return None
    floor, key = problem_floor(traced, hardware).ms, problem_key(reference)
    examples: list[Example] = []
    names: tuple[str, ...] = ()
    for variant in variants:
        plain, recorded, informed = _tiers(variant, traced, hardware)
        names = plain.names
        passed = variant.ms is not None and variant.ms > 0
        ratio = math.log(variant.ms / floor) if variant.ms and passed else math.nan
        family = key + family_key(variant.source)
        examples.append(
            Example(key, family, ratio, passed, plain.values, recorded.values, informed.values, plain.covered)
        )
    return ProblemExamples(name, key, names, floor, hardware, tuple(examples))


def _tiers(variant: Variant, problem: ProblemTrace, hardware: Hardware) -> tuple[Described, Described, Described]:
    trace = trace_candidate(variant.source, problem, variant.config)
    plain = describe(trace, problem, hardware)
    recorded = describe(trace, problem, hardware, variant.figures) if variant.figures else plain
    if not variant.evidence:
        return plain, recorded, recorded
    return plain, recorded, describe(trace, problem, hardware, {**variant.figures, **from_evidence(variant.evidence)})


@dataclass(frozen=True)
class Table:
    """Examples of several problems as arrays; failed ones stay in, with NaN targets."""

    names: tuple[str, ...]
    plain: Floats
    recorded: Floats
    informed: Floats
    target: Floats
    """Excess over the floor on the learned scale."""
    passed: npt.NDArray[np.bool_]
    problem: npt.NDArray[np.int64]
    family: npt.NDArray[np.int64]
    keys: tuple[str, ...]
    """Problem keys by the numbers in ``problem``."""


def table_of(problems: Sequence[ProblemExamples]) -> Table:
    """Stack problems.

    Raises:
        ValueError: if there are no examples.
    """
    examples = [e for p in problems for e in p.examples]
    if not examples:
        raise ValueError("no measured variants to learn from: the record holds none that could be read")
    keys = tuple(dict.fromkeys(e.problem for e in examples))
    families = {f: i for i, f in enumerate(dict.fromkeys(e.family for e in examples))}
    return Table(
        names=problems[0].names,
        plain=np.array([e.plain for e in examples], dtype=np.float32).astype(np.float64),
        informed=np.array([e.informed for e in examples], dtype=np.float32).astype(np.float64),
        recorded=np.array([e.recorded for e in examples], dtype=np.float32).astype(np.float64),
        target=excess([e.log_ratio for e in examples]),
        passed=np.array([e.passed for e in examples]),
        problem=np.array([keys.index(e.problem) for e in examples]),
        family=np.array([families[e.family] for e in examples]),
        keys=keys,
    )
