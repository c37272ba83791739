"""What a budget buys, in words and as a document."""

from __future__ import annotations

from typing import Any

from tilecast.agent.budget import FLAGS, Plan


def plan_lines(plan: Plan) -> list[str]:
    """For people."""
    spend = plan.expected
    count = "candidates without end" if plan.candidates is None else f"about {plan.candidates} candidates"
    limit = f", limited by {FLAGS[plan.limited_by]}" if plan.limited_by else ""
    usd = "an unknown price" if spend.usd is None else f"${spend.usd:.2f}"
    cost = (
        ""
        if plan.candidates is None
        else (
            f"expected: {spend.gpu_seconds:.3g} device seconds, {spend.tokens} tokens, {usd}, {plan.minutes:.2g} minutes"
        )
    )
    return [f"the budget buys {count}{limit}", *([cost] if cost else []), f"basis: {plan.basis}", "nothing was started"]


def plan_document(plan: Plan, lines: list[str]) -> dict[str, Any]:
    """For scripts; ``candidates`` is null where nothing limits them."""
    spend = plan.expected
    return {
        "schema": 1,
        "dry_run": True,
        "candidates": plan.candidates,
        "limited_by": plan.limited_by,
        "expected": {
            "evals": spend.evals,
            "gpu_seconds": spend.gpu_seconds,
            "tokens": spend.tokens,
            "usd": spend.usd,
            "minutes": plan.minutes,
        },
        "basis": plan.basis,
        "notes": lines,
    }
