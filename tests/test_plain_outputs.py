"""Outputs are plain tensors: nothing attached but what torch's own compiler notes on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tilecast.sandbox.harness.worker.export import report

COMPILED = """
import json

import torch

from tilecast.sandbox.harness.worker.export import report

gather_sum = torch.compile(lambda table, index: table[index].sum(dim=1), backend="aot_eager")
table = torch.nn.Parameter(torch.randn(100, 16))
marks, claims = set(), []
with torch.no_grad():
    for bags in (8, 8, 9, 13):
        index = torch.randint(0, 100, (bags, 5))
        found = gather_sum(table, index)
        marks |= set(vars(found))
        claims += [report(item, [index]) for item in (found, table)]
print(json.dumps({"marks": sorted(marks), "plain": [claim["plain"] for claim in claims]}))
"""


def test_what_the_compiler_marks_where_shapes_vary_is_plain() -> None:
    """Refused before, on the first call with another number of rows."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["marks"] and all(name.startswith("_dynamo_") for name in told["marks"])
    assert all(told["plain"])


@pytest.mark.parametrize("value", [{0}, {0: "a"}, [1], (0, 1), True, 3, "unguarded", None, frozenset({1})])
def test_marks_are_containers_and_numbers(value: Any) -> None:
    tensor = torch.ones(3)
    setattr(tensor, "_dynamo_weak_dynamic_indices", value)  # noqa: B010
    told = report(tensor, [])
    assert told["plain"] is True and told["attached"] == []


class Quiet(dict[str, Any]):
    """Says that it is empty."""

    def items(self) -> Any:
        return [].__iter__()

    def __len__(self) -> int:
        return 0


def attach(name: str, value: Any) -> Callable[[torch.Tensor], None]:
    return lambda tensor: setattr(tensor, name, value)


def replace_dict(tensor: torch.Tensor) -> None:
    tensor.__dict__ = Quiet(fill=lambda: None)


@pytest.mark.parametrize(
    "spoil",
    [
        attach("_dynamo_dynamic_indices", lambda: {0}),
        attach("_dynamo_dynamic_indices", Quiet()),
        attach("_dynamo_dynamic_indices", torch.ones(3)),
        attach("cpu", lambda: torch.ones(3)),
        attach("later", {0}),
        attach("my_dynamo_", {0}),
        replace_dict,
    ],
    ids=["callable", "subclass", "tensor", "shadow", "name", "prefix", "dict"],
)
def test_anything_else_is_not_plain(spoil: Callable[[torch.Tensor], None]) -> None:
    tensor = torch.ones(3)
    spoil(tensor)
    told = report(tensor, [])
    assert told["plain"] is False and len(told["attached"]) == 1
