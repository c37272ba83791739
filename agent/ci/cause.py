"""Why head may be slower or faster: what the compiler says of both versions, put side by side. A likely cause, not a proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilecast.agent.ci.schema import cut

MOST = 6
_NAMES = ("compile_s", "kernel", "remarks", "advice", "signature", "constants")
_SAME = 0.02
_LEAST_SHARE, _HEAVY = 0.1, 8.0
"""Differences that weigh less than this part of the heaviest (or of a heavy one) are left out."""


@dataclass(frozen=True)
class _Figure:
    """One number of a launch: how to find it, its words, and whether more of it is worse."""

    words: str
    path: tuple[str, ...]
    worse_if_more: bool
    weight: float
    """Doublings count this much: how often such a change is the reason."""


_FIGURES = (
    _Figure("spilled values a thread", ("resources", "spills"), True, 5.0),
    _Figure("bytes of local memory a thread", ("resources", "stack_bytes"), True, 2.0),
    _Figure("tensor-core instructions", ("instructions", "tensor_core"), False, 3.0),
    _Figure("share of warps resident (occupancy)", ("occupancy", "fraction"), False, 2.0),
    _Figure("programs in the grid", ("programs",), True, 1.5),
    _Figure("waves over the GPU", ("waves",), True, 1.4),
    _Figure("registers a thread", ("resources", "registers"), True, 1.0),
    _Figure("shared memory bytes a block", ("resources", "shared_bytes"), True, 0.6),
    _Figure("warps a block", ("resources", "warps"), False, 1.0),
    _Figure("pipeline stages", ("resources", "stages"), False, 1.0),
    _Figure("asynchronous copies", ("instructions", "async_copy"), False, 1.0),
    _Figure("bulk copies (TMA)", ("instructions", "bulk_copy"), False, 1.0),
    _Figure("bits of the widest global load", ("widest_load",), False, 2.0),
    _Figure("barriers", ("instructions", "barriers"), True, 0.5),
)


def from_evidence(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an evidence document that causes are read from."""
    launches = []
    for launch in evidence.get("launches", []):
        loads = (launch.get("instructions") or {}).get("global_load_bits") or {}
        widest = max((int(bits) for bits in loads), default=None)
        launches.append({**launch, "widest_load": widest})
    work, host = evidence.get("work") or {}, evidence.get("host") or {}
    return {
        "launches": launches,
        "launch_count": evidence.get("launch_count"),
        "status": evidence.get("status"),
        "reason": evidence.get("reason", ""),
        "moved_bytes": work.get("moved_bytes"),
        "host_ops": host.get("count"),
        "library_calls": sum((host.get("library_calls") or {}).values()),
    }


def from_record(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same from a recorded measurement's kernels (``details["kernels"]``)."""
    launches = [
        {
            "kernel": kernel.get("name", ""),
            "resources": {
                "registers": kernel.get("regs"),
                "spills": kernel.get("spills"),
                "shared_bytes": kernel.get("shared"),
                "warps": kernel.get("warps"),
                "stages": kernel.get("stages"),
            },
        }
        for kernel in kernels
    ]
    return {"launches": launches, "launch_count": len(launches)}


def likely_causes(
    base: Mapping[str, Any] | None,
    head: Mapping[str, Any] | None,
    slower: bool,
    configs: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = (None, None),
) -> list[str]:
    """Lines on what differs, likeliest first.

    Args:
        base, head: as :func:`from_evidence` or :func:`from_record` give them; None where there is nothing.
        slower: whether head is slower: then what got worse comes first, else what got better.
        configs: CONFIG of base and of head.
    """
    found: list[tuple[float, str]] = []
    configured = _different(configs[0], configs[1])
    found += [(4.0, f"CONFIG {name}: {old!r} → {new!r}") for name, old, new in configured]
    if base and head:
        found += _whole(base, head, slower)
        partners = {_name(launch): launch for launch in base.get("launches", [])}
        for launch in head.get("launches", []):
            partner = partners.get(_name(launch))
            if partner is None and len(base.get("launches", [])) == len(head.get("launches", [])) == 1:
                partner = base["launches"][0]
            if partner is not None:
                found += _launch(partner, launch, slower, configured)
    found.sort(key=lambda item: -item[0])
    likely = [line for weight, line in found if weight >= _LEAST_SHARE * min(found[0][0], _HEAVY)]
    return [cut(line) for line in dict.fromkeys(likely)][:MOST]


def same_code(base: Mapping[str, Any] | None, head: Mapping[str, Any] | None) -> bool:
    """Whether both versions compile to the same, as far as it can be told: every figure, instruction count and launch alike.

    Never true where anything was not compiled, ran on the host beside the launches, or has no figures.
    """
    if not base or not head or base.get("status") not in ("OK", "SPILLS") or head.get("status") != base.get("status"):
        return False
    ours, theirs = base.get("launches", []), head.get("launches", [])
    if not ours or any(not launch.get("instructions") for launch in (*ours, *theirs)):
        return False

    def plain(launch: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in launch.items() if key not in _NAMES}
        # Names of parameters are no part of the code, their order and values are.
        return kept | {key: list((launch.get(key) or {}).values()) for key in ("signature", "constants")}

    alike: Callable[[str], bool] = lambda key: base.get(key) == head.get(key)  # noqa: E731
    return (
        [plain(launch) for launch in ours] == [plain(launch) for launch in theirs]
        and alike("launch_count")
        and alike("moved_bytes")
        and alike("host_ops")
        and alike("library_calls")
    )


def _whole(base: Mapping[str, Any], head: Mapping[str, Any], slower: bool) -> list[tuple[float, str]]:
    found = []
    rows = (("launches of kernels", "launch_count", 4.0), ("bytes moved at least", "moved_bytes", 4.0))
    for words, key, weight in (*rows, ("torch operations around the kernels", "host_ops", 3.0)):
        old, new = base.get(key), head.get(key)
        if isinstance(old, int | float) and isinstance(new, int | float) and old != new:
            line = f"{words}: {_number(old)} → {_number(new)}"
            found.append((_doublings(old, new) * weight * (1.0 if (new > old) == slower else 0.3), line))
    return found


def _launch(
    base: Mapping[str, Any], head: Mapping[str, Any], slower: bool, configured: list[tuple[str, Any, Any]]
) -> list[tuple[float, str]]:
    """What differs in one launch; values of CONFIG that it was handed are not told twice."""
    name = _name(head)
    constants = _different(base.get("constants"), head.get("constants"))
    found = [
        (3.5, f"{name}: {key} {old!r} → {new!r}") for key, old, new in constants if (key, old, new) not in configured
    ]
    for figure in _FIGURES:
        old, new = _at(base, figure.path), _at(head, figure.path)
        if old is None or new is None or abs(new - old) <= _SAME * max(abs(old), abs(new)):
            continue
        worse = (new > old) == figure.worse_if_more
        weight = figure.weight * _doublings(old, new) * (1.0 if worse == slower else 0.2)
        found.append((weight, f"{name}: {figure.words} {_number(old)} → {_number(new)}"))
    limiter = _text(head, ("occupancy", "limiter"))
    if limiter and limiter != _text(base, ("occupancy", "limiter")):
        found.append((0.5, f"{name}: blocks on a multiprocessor are now limited by {limiter}"))
    return found


def _different(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[tuple[str, Any, Any]]:
    if not old or not new:
        return []
    return [(key, old[key], new[key]) for key in sorted(old.keys() & new.keys()) if old[key] != new[key]]


def _name(launch: Mapping[str, Any]) -> str:
    return str(launch.get("kernel") or "kernel")


def _at(launch: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = launch
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(launch: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = launch
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _doublings(old: float, new: float) -> float:
    """How many times over a figure changed, on a log scale that knows zero; at most 4."""
    import math

    return min(
        4.0, abs(math.log2((abs(new) + 1) / (abs(old) + 1))) if max(abs(old), abs(new)) > 1 else abs(new - old) * 2
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}"
