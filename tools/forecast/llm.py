"""The language model as a forecaster: reads reference, candidates (comments stripped), shapes, device, what is measured, evidence.

It answers in JSON, by candidate; probabilities are renormalised. An answer that cannot be read is an abstention for that
candidate, never a candidate dropped.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilecast.prompts import render
from tilecast.sandbox import bins
from tilecast.sandbox.hardware import Hardware
from tilecast.sandbox.problem import TensorFacts
from tilecast.sandbox.schema import Cost, Forecast
from tilecast.sandbox.source import Candidate, parsed
from tilecast.tools.forecast.base import ForecastContext
from tilecast.tools.forecast.predictive import LEVELS, Predictive, abstention, forecast_of, normalised
from tilecast.tools.forecast.selection import STRADDLE
from tilecast.tools.model.base import CallJournal, ChatAnswer, ChatModel, ChatRequest

PER_CALL = 4
"""Candidates in one question: the problem's text is paid for once, and answers stay apart."""

ROOM_PER_CANDIDATE = 1500
"""Output tokens that one candidate may take, reasoning included."""

OUTER_OCTAVES = 1.0
"""How far the two open bins are taken to reach beyond their edge, in octaves."""


class LlmForecaster:
    """Forecasts by a chat model (``--forecaster llm``)."""

    name = "llm"

    def __init__(self, model: ChatModel, journal: CallJournal, per_call: int = PER_CALL) -> None:
        self._model, self._journal, self._per_call = model, journal, per_call

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]:
        """One forecast a candidate, in order.

        Raises:
            BudgetRefused: if asking would not fit in the budget.
            EnvironmentFailure: if the provider is down.
        """
        baseline = (context.baseline_name, context.baseline_ms)
        if context.hardware is None:
            return [abstention(c, "the GPU is not in the catalogue", "llm", baseline) for c in candidates]
        found: list[Forecast] = []
        for start in range(0, len(candidates), self._per_call):
            found += self._ask(candidates[start : start + self._per_call], context, context.hardware)
        return found

    def _ask(self, group: Sequence[Candidate], context: ForecastContext, hardware: Hardware) -> list[Forecast]:
        request = question(group, context, hardware)
        answer = self._model.complete(request, self._journal)
        share = Cost(
            seconds=answer.seconds / len(group),
            tokens=math.ceil(answer.usage.tokens / len(group)),
            usd=None if answer.usage.usd is None else answer.usage.usd / len(group),
        )
        stated = read_answer(answer, len(group))
        return [document(c, s, context, share) for c, s in zip(group, stated, strict=True)]


def question(group: Sequence[Candidate], context: ForecastContext, hardware: Hardware) -> ChatRequest:
    """The request for some candidates; its key is the hash of what is asked."""
    user = render(
        "forecast",
        problem_name=context.problem.name,
        reference=stripped(context.problem.source),
        timed_workload="full",
        workloads=[
            f"`{w.name}`: ({_tensors(w.inputs)}) -> ({_tensors(w.outputs)}); at least {w.min_bytes:,} bytes, {w.flops:,} flops"
            for w in context.facts.workloads
        ],
        device=device_lines(hardware),
        baseline=_timed(context.baseline_name, context.baseline_ms),
        known=known_lines(context),
        candidates=[{"source": stripped(c.source), "evidence": _evidence(c, context)} for c in group],
        bins_text=render("speedup_bins", bins=[bins.label(i) for i in range(bins.COUNT)]),
    )
    messages = [{"role": "system", "content": render("forecast_system")}, {"role": "user", "content": user}]
    digest = hashlib.sha256(json.dumps(messages).encode()).hexdigest()
    room = ROOM_PER_CANDIDATE * len(group)
    return ChatRequest(key=f"forecast:{digest[:24]}", purpose="forecast", messages=messages, max_output_tokens=room)


def stripped(source: str) -> str:
    """The text without comments and docstrings; as it stands if it does not parse."""
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _tensors(tensors: Sequence[TensorFacts]) -> str:
    return ", ".join(f"{t.dtype}{t.shape}" for t in tensors)


def _timed(name: str, ms: float | None) -> str:
    return f"{name}, not measured yet" if ms is None else f"{name}, {ms:.4g} ms"


def device_lines(hardware: Hardware) -> list[str]:
    """The device's figures."""
    return [
        f"{hardware.key.upper()}, compute capability {hardware.compute_capability}, {hardware.sms} multiprocessors",
        f"Memory {hardware.bandwidth_gbs:g} GB/s, L2 {hardware.l2_bytes} bytes",
        f"TFLOP/s, dense: fp32 {hardware.fp32_tflops:g}, tf32 {hardware.tf32_tflops:g}, fp16 and bf16 {hardware.fp16_tflops:g}, "
        f"fp8 {hardware.fp8_tflops:g}",
        f"A launch takes about {hardware.launch_us:g} microseconds",
    ]


def known_lines(context: ForecastContext, most: int = 6) -> list[str]:
    """The incumbent and the latest measurements, by their CONFIG only where they share a source with nothing shown."""
    lines = [] if context.incumbent_ms is None else [f"Best kernel so far: {context.incumbent_ms:.4g} ms"]
    measured = [t for t in context.tried if t.latency_ms is not None][-most:]
    return lines + [f"Measured before: {t.latency_ms:.4g} ms with CONFIG {t.candidate.config}" for t in measured]


def _evidence(candidate: Candidate, context: ForecastContext) -> list[str]:
    found = context.evidence(candidate) if context.evidence is not None else None
    lines = []
    for launch in (found or {}).get("launches") or []:
        resources, fit = launch.get("resources") or {}, launch.get("occupancy") or {}
        facts = {
            "grid": launch.get("grid"), "registers": resources.get("registers"), "spills": resources.get("spills"),
            "shared bytes": resources.get("shared_bytes"), "warps": resources.get("warps"),
            "blocks per multiprocessor": fit.get("blocks_per_sm"), "waves": launch.get("waves"), "status": launch.get("status"),
        }  # fmt: skip
        lines.append(", ".join(f"{k} {v}" for k, v in facts.items() if v is not None))
    return lines


Stated = Mapping[str, Any]


def read_answer(answer: ChatAnswer, count: int) -> list[Stated | None]:
    """What was said of each candidate; None where nothing readable was."""
    found: list[Stated | None] = [None] * count
    body = _first_object(answer.text)
    items = body.get("forecasts") if body is not None else None
    if items is None and body is not None and "p" in body and count == 1:
        items = [body]
    for position, item in enumerate(items if isinstance(items, list) else []):
        number = item.get("candidate", position + 1) if isinstance(item, dict) else None
        if isinstance(number, int) and 1 <= number <= count and _readable(item):
            found[number - 1] = item
    return found


def _first_object(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text that may have prose or a fence round it."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            at = text.find("{", at + 1)
            continue
        return value if isinstance(value, dict) else None
    return None


def _readable(item: Mapping[str, Any]) -> bool:
    p = item.get("p")
    numbers = isinstance(p, list) and len(p) == bins.COUNT and all(_finite(v) and v >= 0 for v in p)
    return bool(numbers) and isinstance(p, list) and sum(p) > 0


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def predictive_of(p: Sequence[float], baseline_ms: float) -> Predictive:
    """Bins of speedup over a baseline as a distribution of log-latency: even within a bin in log-speedup."""
    edges = [math.log(e) for e in bins.EDGES]
    reach = OUTER_OCTAVES * math.log(2)
    points = [edges[0] - reach, *edges, edges[-1] + reach]
    cumulative = np.concatenate([[0.0], np.cumsum(normalised(p))])
    # Strictly rising, so that every quantile is one point.
    cumulative = (cumulative + 1e-9 * np.arange(len(cumulative))) / (1 + 1e-9 * (len(cumulative) - 1))
    shape = tuple(-float(np.interp(1 - level, cumulative, points)) for level in LEVELS)
    return Predictive(math.log(baseline_ms), 1.0, shape)


def document(candidate: Candidate, stated: Stated | None, context: ForecastContext, cost: Cost) -> Forecast:
    """The forecast document of what was said; an abstention where nothing was, or nothing is measured to relate it to."""
    baseline = (context.baseline_name, context.baseline_ms)
    if stated is None:
        return abstention(candidate, "the language model's answer could not be read", "llm", baseline, cost)
    if context.baseline_ms is None:
        return abstention(candidate, "no baseline is measured yet to relate its speedup to", "llm", baseline, cost)
    predictive = predictive_of(stated["p"], context.baseline_ms)
    target = context.incumbent_ms or context.baseline_ms
    chance = predictive.cdf(math.log(target))
    valid = stated.get("p_valid")
    return forecast_of(
        candidate,
        predictive,
        baseline,
        "llm",
        p_valid=min(1.0, max(0.0, float(valid))) if _finite(valid) and valid is not None else 0.9,
        abstain=STRADDLE[0] < chance < STRADDLE[1],
        why=str(stated.get("why", ""))[:300],
        cost=cost,
    )
