"""The least traffic of a reference: a bound that no honest kernel can go below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tilecast.sandbox.harness.worker.traffic import compulsory_traffic


class Lambda(torch.nn.Module):
    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.function = forward

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


@pytest.mark.parametrize(
    ("forward", "arguments", "read", "written"),
    [
        (lambda a, b: a + b, (x(1024), x(1024)), 8192, 4096),
        (lambda a: a.transpose(0, 1), (x(64, 32),), 0, 0),
        (lambda a: a.transpose(0, 1).contiguous(), (x(64, 32),), 8192, 8192),
        (lambda a: a[:, :16].clone(), (x(64, 32),), 4096, 4096),
        (lambda a: a.sum(), (x(4096),), 16384, 4),
        (lambda a: a.relu_(), (x(1024),), 4096, 4096),
        (lambda a: a.expand(1000, 1024), (x(1024),), 0, 0),
        (lambda a: a + x(1024), (x(1, 1).expand(8, 1024),), 4, 8 * 4096),
        (lambda a, b: torch.mm(torch.tril(a), b), (x(32, 32), x(32, 32)), 4096, 4096),
        (lambda a: (a, a * 2), (x(256),), 1024, 1024),
        (lambda a: a, (x(256),), 0, 0),
        (lambda a: torch.zeros(512), (x(256),), 0, 2048),
    ],
)
def test_bytes(forward: Callable[..., Any], arguments: tuple[Any, ...], read: int, written: int) -> None:
    found = compulsory_traffic(Lambda(forward), arguments)
    assert found == {"read_bytes": read, "written_bytes": written}


def test_a_table_is_not_read_in_full_by_looking_up() -> None:
    table = torch.nn.Embedding(10_000, 64)
    ids = torch.randint(0, 10_000, (32,))
    found = compulsory_traffic(table, (ids,))
    assert found["read_bytes"] <= 32 * 64 * 4 + 32 * 8 and found["written_bytes"] == 32 * 64 * 4


def test_parameters_count() -> None:
    layer = torch.nn.Linear(128, 64)
    found = compulsory_traffic(layer, (x(8, 128),))
    assert found["read_bytes"] == (8 * 128 + 64 * 128 + 64) * 4
