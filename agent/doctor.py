"""What this machine can do for tilecast: facts by name, and what to do where something is missing."""

from __future__ import annotations

import platform
import sys
from typing import Any

from tilecast.agent import machine
from tilecast.agent.config import Settings, home
from tilecast.sandbox.installed import own_version


def examine(settings: Settings) -> dict[str, Any]:
    """All facts as one JSON document. Nothing is measured, no key is shown, torch is not imported."""
    gpus, packages = machine.gpus(), machine.package_versions()
    facts: dict[str, Any] = {
        "schema": 1,
        "tilecast": own_version("not installed"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "home": str(home()),
        "device": {"auto": f"cuda:0 ({gpus[0].name})" if gpus else "recorded measurements beside a problem, else cpu"},
        "gpus": [gpu.model_dump() for gpu in gpus],
        "cpu": {"name": machine.cpu_name(), "usable": machine.usable_cpus()},
        "packages": packages,
        "compilers": machine.compilers(),
        "triton_tools": machine.triton_tools(),
        "evidence": _evidence(packages),
        "sandbox": _sandbox(),
        "model": {"name": settings.model or "builtin", "keys": machine.keys()},
        "forecaster": _forecaster(settings),
        "configuration": settings.origin,
    }
    facts["advice"] = advice(facts)
    return facts


def advice(facts: dict[str, Any]) -> list[str]:
    """What a user could do about what is missing, most useful first."""
    lines = []
    if not facts["gpus"]:
        lines.append(
            "no NVIDIA GPU: kernels are checked in an interpreter, and timed only where measurements are recorded"
        )
    if not facts["sandbox"]["isolated"]:
        lines.append(
            f"sandbox level is {facts['sandbox']['level']!r}: candidates are not isolated here; allow user namespaces, "
            "or run as root in a container, before judging code you do not trust"
        )
    if "triton" not in facts["packages"] and sys.platform == "linux":
        lines.append("triton is not installed: pip install triton")
    if "cuda-tile" not in facts["packages"]:
        lines.append("cuTile kernels get no compile-time evidence: pip install 'tilecast[cutile]'")
    if not ({"g++", "c++"} & facts["compilers"].keys()):
        lines.append("no C++ compiler: C++ and CUDA C++ candidates, and torch.compile on the CPU, need g++")
    elif "ninja" not in facts["compilers"]:
        lines.append(
            "no ninja: torch.utils.cpp_extension (C++ and CUDA C++ candidates) builds with it: pip install ninja"
        )
    if not facts["model"]["keys"]:
        lines.append(
            "no OPENAI_API_KEY or OPENAI_BASE_URL: proposals come from `builtin`, which changes CONFIG values; "
            "a model also rewrites the kernel's structure"
        )
    return lines


def _evidence(packages: dict[str, str]) -> dict[str, bool]:
    return {"triton": "triton" in packages and bool(machine.triton_tools()), "cutile": "cuda-tile" in packages}


def _sandbox() -> dict[str, Any]:
    """The isolation that workers will get on the CPU; probing makes and drops namespaces in child processes."""
    if sys.platform != "linux":
        return {"level": "limits only", "isolated": False}
    from tilecast.sandbox.harness.isolation import probe

    found = probe()
    return {"level": found.level, "isolated": found.is_sandbox}


def _forecaster(settings: Settings) -> dict[str, Any]:
    from tilecast.sandbox.hardware import catalogue
    from tilecast.tools.forecast.factory import NAMES

    return {"configured": settings.forecaster, "names": list(NAMES), "known_gpus": sorted(catalogue())}
