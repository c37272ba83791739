"""Versions of what is installed here, by the names of distributions."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Versions by name; what is not installed is left out."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def own_version(otherwise: str = "0") -> str:
    """The version of tilecast, ``otherwise`` where it runs without being installed."""
    return versions_of(["tilecast"]).get("tilecast", otherwise)
