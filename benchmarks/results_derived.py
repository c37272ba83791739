"""Figures derived from records, kept by the content of what decides them: replays of the search, and compile-time evidence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results_data import Entry, best_candidate

from tilecast.sandbox.corpus import Row
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.tools.forecast.dataset import EvidenceTable, problem_examples, problem_key
from tilecast.tools.forecast.model import Model, Weights, load
from tilecast.tools.study.metrics import Speeds, evals_to
from tilecast.tools.study.policies import online_order, random_order
from tilecast.tools.study.pool import Pool, pool_of

SEEDS, NEAR = 20, 0.99
"""A search has found the best once it measured a variant within 1 % of it, or one whose interval holds times of the best's."""
RULE = 2
"""Raised when the rule of :func:`_search` changes: figures found by another one are made again."""
CURVE = 40
KIN = {"attention": "causal_attention", "softmax_bf16": "softmax"}
"""Names under which the forecaster's training data has the same operator."""


class Derived:
    """The kept figures. ``make`` says whether what is missing may be made; otherwise it is left out.

    ``compiled``: compile-time evidence of the recorded variants, for the forecaster; see ``evidence_table``.
    """

    def __init__(self, file: Path, make: bool, compiled: EvidenceTable) -> None:
        self._file, self._make, self.compiled = file, make, compiled
        self._known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        self._used: dict[str, Any] = {}

    def get(self, kind: str, entry: Entry, content: str, make: Callable[[], Any]) -> Any:
        """One figure by kind, entry and the text that decides it; None where it is missing and may not be made."""
        key = f"{kind}:{entry.name}:{entry.language}:{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        if key not in self._known:
            if not self._make:
                return None
            self._known[key] = make()
        self._used[key] = self._known[key]
        return self._used[key]

    def text(self) -> str:
        """The file that belongs to what was asked for."""
        return json.dumps(dict(sorted(self._used.items())), indent=1) + "\n"

    def save(self) -> None:
        """Write it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self.text(), encoding="utf-8")


def search(entry: Entry, derived: Derived) -> dict[str, Any] | None:
    """Evaluations until within 1 % of the best, without and with the forecaster, over the recorded variants of a language."""
    weights = load()
    text = (entry.record.folder / "measurements.jsonl").read_text(encoding="utf-8")
    sources = "".join(sorted(c.source for c in entry.record.sources.values()))
    problem = entry.record.problem.sha256
    compiled = {key: value for key, value in derived.compiled.items() if key[0] == problem}
    known = json.dumps([compiled[key] for key in sorted(compiled)], sort_keys=True)
    content = f"{RULE}{text}{sources}{problem}{json.dumps(weights.card, sort_keys=True)}{known}"
    found: dict[str, Any] | None = derived.get("search", entry, content, lambda: _search(entry, weights, compiled))
    return found


def unseen(entry: Entry, weights: Weights) -> tuple[Model | None, str]:
    """The model that saw neither this problem nor the training problem of the same operator; and that one's name."""
    key = problem_key(entry.record.problem.source)
    if key in weights.trained_on:
        return weights.for_problem(key), str(weights.card["problems"][key])
    name = KIN.get(entry.name, entry.name)
    kin = next((k for k, n in weights.card.get("problems", {}).items() if n == name), None)
    return (weights.models.get(kin), name) if kin is not None else (weights.for_problem(key), "")


def _search(entry: Entry, weights: Weights, compiled: EvidenceTable) -> dict[str, Any] | None:
    examples = problem_examples(entry.record, compiled)
    pool = pool_of(entry.record, examples, None) if examples is not None else None
    if pool is None or examples is None:
        return None
    own = {id(row) for row in entry.rows}
    places = [i for i, row in enumerate(examples.rows) if id(row) in own]
    part, rows = pool.take(places), [examples.rows[i] for i in places]
    model, left_out = unseen(entry, weights)
    if model is None or len(part) < 3:
        return None
    part = _with_model(part, model)
    orders = {
        "without": [random_order(part, seed) for seed in range(SEEDS)],
        "with": [online_order(part, seed) for seed in range(SEEDS)],
    }
    near = as_good(rows, part.speeds)
    reached = np.where(near, part.speeds.max(), part.speeds)
    first = rows[orders["with"][0][0]]
    return {
        "variants": len(part),
        "near_best": round(float(near.mean()), 4),
        "first": {"status": first.status, "error": (first.error or "").split(":")[0]},
        "compiled": sum(
            (entry.record.problem.sha256, entry.record.variant(row).sha256) in compiled for row in entry.rows
        ),
        "left_out": left_out,
        "evals": {
            name: round(float(np.mean([evals_to(o, reached, NEAR) for o in of])), 2) for name, of in orders.items()
        },
        "seconds": {
            name: round(float(np.mean([part.seconds[o[: evals_to(o, reached, NEAR)]].sum() for o in of])), 1)
            for name, of in orders.items()
        },
        "curve": {name: _curve(of, part) for name, of in orders.items()},
    }


def as_good(rows: Sequence[Row], speeds: Speeds) -> NDArray[np.bool_]:
    """Which variants are the best, as far as its measurement tells: within 1 % of it, or timed in turn with the baseline as it was,
    with an interval that overlaps the best's.
    """
    best = rows[int(np.argmax(speeds))]
    alike = np.asarray(speeds >= NEAR * speeds.max())
    if best.paired is None or best.p90 is None:
        return alike
    overlap = [row.paired is not None and row.p10 is not None and row.p10 <= best.p90 for row in rows]
    return alike | (np.asarray(overlap) & (speeds > 0))


def _with_model(pool: Pool, model: Model) -> Pool:
    from dataclasses import replace

    return replace(pool, model=model)


def _curve(orders: list[list[int]], pool: Pool) -> list[float]:
    """Mean best speed so far over the pool's best, by evaluation."""
    top = float(pool.speeds.max())
    runs = [np.maximum.accumulate(pool.speeds[np.asarray(order)])[:CURVE] / top for order in orders]
    return [round(float(v), 4) for v in np.mean(runs, axis=0)]


def evidence(entry: Entry, derived: Derived, collector: Callable[[], EvidenceCollector]) -> dict[str, Any] | None:
    """What the compiler says of the best variant, cut to the figures that a reason is made of."""
    best = best_candidate(entry)
    found: dict[str, Any] | None = derived.get(
        "evidence", entry, best.source + entry.record.problem.sha256, lambda: _evidence(entry, collector())
    )
    return found


def _evidence(entry: Entry, collector: EvidenceCollector) -> dict[str, Any]:
    found = collector.collect(entry.record.problem, best_candidate(entry), entry.record.info.gpu).model_dump(
        mode="json"
    )
    kept = []
    for launch in found["launches"]:
        mix, use, room = launch.get("instructions") or {}, launch.get("resources") or {}, launch.get("occupancy") or {}
        kept.append(
            {
                "kernel": launch["kernel"],
                "count": launch["count"],
                "programs": launch["programs"],
                "waves": launch["waves"],
                "registers": use.get("registers"),
                "spills": use.get("spills"),
                "shared_bytes": use.get("shared_bytes"),
                "warps": use.get("warps"),
                "blocks_per_sm": room.get("blocks_per_sm"),
                "occupancy": room.get("fraction"),
                "limiter": room.get("limiter"),
                "tensor_core_kinds": mix.get("tensor_core_kinds", {}),
                "async_copy": mix.get("async_copy"),
                "bulk_copy": mix.get("bulk_copy"),
                "global_load_bits": mix.get("global_load_bits", {}),
                "loop": mix.get("loop", {}),
            }
        )
    work = found.get("work") or {}
    return {
        "status": found["status"],
        "reason": found["reason"],
        "advice": found["advice"],
        "launches": kept,
        "extra_passes": work.get("extra_passes"),
    }


def reason(found: dict[str, Any] | None) -> str:
    """One line of figures and, where the compiler's output says what to change, that."""
    if found is None:
        return "no compile-time evidence was collected"
    if not found["launches"]:
        return f"no kernel was compiled: {found['status']} {found['reason']}".strip()
    told = [_launch(launch) for launch in found["launches"][:3]]
    if found.get("extra_passes"):
        told.append(f"{found['extra_passes']:.2f} passes over the data more than needed")
    advice = f" Advice: {'; '.join(found['advice'][:2])}." if found["advice"] else ""
    return f"{'; '.join(told)}.{advice}"


def _launch(launch: dict[str, Any]) -> str:
    parts = [f"{launch['registers']} registers, {launch['spills'] or 0} spills"]
    if launch["occupancy"] is not None:
        parts.append(
            f"occupancy {launch['occupancy']:.0%} ({launch['blocks_per_sm']} blocks, limited by {launch['limiter']})"
        )
    if launch["waves"] is not None:
        parts.append(f"{launch['waves']:.2g} waves")
    kinds = launch["tensor_core_kinds"]
    if kinds:
        parts.append("tensor cores " + ", ".join(f"{kind} x{count}" for kind, count in list(kinds.items())[:2]))
    for name, words in (("async_copy", "asynchronous copies"), ("bulk_copy", "TMA copies")):
        if launch[name]:
            parts.append(f"{launch[name]} {words}")
    widths = launch["global_load_bits"]
    if widths:
        parts.append(
            "loads of "
            + ", ".join(f"{bits} bits x{count}" for bits, count in sorted(widths.items(), key=lambda i: int(i[0])))
        )
    return f"`{launch['kernel']}`: {', '.join(parts)}"
