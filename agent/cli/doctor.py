"""`tilecast doctor`: what this machine can do."""

from __future__ import annotations

from typing import Any

from tilecast.agent.cli.shared import JsonOption, print_json


def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can do: GPUs, compilers, sandbox level, keys, forecaster, and what to do about the rest.

    Example: tilecast doctor --json
    """
    from tilecast.agent.config import resolve
    from tilecast.agent.doctor import examine

    facts = examine(resolve())
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if name not in ("schema", "advice"):
            print(f"{name:<14} {_line(value)}")
    for line in facts["advice"]:
        print(f"advice: {line}")


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_line(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_line, value)) or "none"
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
