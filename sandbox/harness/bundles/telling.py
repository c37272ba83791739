"""What a worker of bundles is told and tells: lengths of time, a line an item, and the document of ``--json``. Pure."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Mapping

from tilecast.sandbox.harness.wire import Message


def told(outcome: Message) -> str:
    """One item's outcome in a few words."""
    if not outcome["ok"]:
        return f"{outcome['error']['kind']}: {outcome['error']['message'].splitlines()[0][:120]}"
    result = outcome["result"]
    if "fastest" in result:
        return f"fastest is {result['fastest']}, {result['times_ms'][result['fastest']]:.4g} ms"
    text = str(result.get("status", "done"))
    if result.get("speedup"):
        text += f", {result['verdict']} {result['speedup']['ratio']:.3f}x, {result['latency_ms']['candidate']:.4g} ms"
    elif result.get("reason"):
        text += f": {str(result['reason']).splitlines()[0][:100]}"
    return text


def document(folder: str, device: str, done: int, refused: Mapping[str, str], incomplete: Collection[str]) -> Message:
    """What ``--json`` prints: items done, bundles refused with the reason, bundles that are not all there yet."""
    return {
        "schema": 1,
        "folder": folder,
        "device": device,
        "done": done,
        "refused": dict(refused),
        "incomplete": list(incomplete),
    }


def seconds(text: str) -> float:
    """A number of seconds from a flag.

    Raises:
        ArgumentTypeError: for what is no length of time.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text}: must be a number of seconds, 0 or more")
    return value
