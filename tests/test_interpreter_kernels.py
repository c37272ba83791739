"""Triton and cuTile kernels in the interpreter: each repair has a kernel of its own, run in one process for all."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

CHECKS = Path(__file__).parent / "data" / "interpreter"
HANGS_IN_STOCK = "programs_may_wait_for_each_other"
STOCK_IS_RIGHT = "pointers_out_of_tables"
"""Nothing is repaired here; it is checked because our bounds must let such pointers through."""


def names_in(file: str) -> list[str]:
    """Checks defined in a script, without importing it."""
    tree = ast.parse((CHECKS / file).read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id == "check" for d in node.decorator_list)
    ]


@cache
def results(file: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(CHECKS / file), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcome: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])["results"]
    return outcome


@pytest.mark.parametrize("name", names_in("triton_checks.py"))
def test_triton_kernel(name: str) -> None:
    assert results("triton_checks.py", "repaired")[name] == ""


@pytest.mark.parametrize("name", names_in("triton_features.py"))
def test_triton_operation(name: str) -> None:
    assert results("triton_features.py")[name] == ""


@pytest.mark.parametrize("name", names_in("triton_idioms.py"))
def test_triton_host_code(name: str) -> None:
    assert results("triton_idioms.py")[name] == ""


@pytest.mark.parametrize("name", names_in("cutile_checks.py"))
def test_cutile_kernel(name: str) -> None:
    assert results("cutile_checks.py")[name] == ""


@pytest.mark.acceptance
@pytest.mark.parametrize("name", [n for n in names_in("triton_checks.py") if n not in (HANGS_IN_STOCK, STOCK_IS_RIGHT)])
def test_the_stock_interpreter_fails(name: str) -> None:
    """What makes each check worth having: it tells the stock interpreter from the repaired one."""
    asked = [n for n in names_in("triton_checks.py") if n != HANGS_IN_STOCK]
    assert results("triton_checks.py", "stock", *asked)[name] != ""
