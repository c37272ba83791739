"""What is written over before a call: memory that the allocator of a GPU holds free, and no other."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilecast.sandbox.harness.worker import poison
from tilecast.sandbox.harness.worker.poison import fill_free_memory, free_blocks, some_of


def segment(*blocks: tuple[int, str], **other: Any) -> dict[str, Any]:
    """A segment at address 1000 on device 0 and the default stream, in the form torch gives it."""
    sizes = [{"size": size, "state": state} for size, state in blocks]
    return {"device": 0, "stream": 0, "address": 1000, "segment_pool_id": (0, 0), "blocks": sizes} | other


def test_free_blocks_lie_between_those_in_use() -> None:
    found = free_blocks([segment((64, "inactive"), (32, "active_allocated"), (16, "inactive"))], 0, 0)
    assert found == [(1000, 64), (1096, 16)]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(segment((64, "inactive"), device=1), id="another device"),
        pytest.param(segment((64, "inactive"), stream=7), id="another stream, whose work may not be over"),
        pytest.param(segment((64, "inactive"), segment_pool_id=(0, 1)), id="a graph's own pool"),
        pytest.param(segment((64, "active_pending_free")), id="still to be freed"),
        pytest.param(segment((64, "active_allocated")), id="in use"),
    ],
)
def test_what_others_may_still_use_is_left_alone(other: dict[str, Any]) -> None:
    assert free_blocks([other, segment((8, "inactive"))], 0, 0) == [(1000, 8)]


def test_an_address_that_is_told_counts() -> None:
    told = segment((8, "inactive"))
    told["blocks"][0]["address"] = 5000
    assert free_blocks([told], 0, 0) == [(5000, 8)]


def test_so_many_bytes_are_written_and_in_time_all_have_been() -> None:
    blocks = [(1000 * index, 100) for index in range(20)]
    assert some_of(blocks, 2000) == blocks
    written: set[int] = set()
    for _ in range(200):
        part = some_of(blocks, 250)
        assert sum(size for _, size in part) == 250 and {size for _, size in part} == {100, 50}
        written |= {address for address, _ in part}
    assert written == {address for address, _ in blocks}


def test_which_comes_first_is_not_drawn_from_a_generator_that_a_candidate_may_watch() -> None:
    before = random.getstate()
    some_of([(0, 10), (10, 10)], 5)
    assert random.getstate() == before


def test_free_blocks_are_written_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, int, int, int]] = []
    segments = [segment((64, "inactive"), (32, "active_allocated"), (16, "inactive"), stream=7)]
    monkeypatch.setattr(poison, "_SNAPSHOT", lambda pool: {"segments": segments})
    monkeypatch.setattr(poison, "_STREAM", lambda: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(poison, "fill_on_device", lambda *given: written.append(given))
    fill_free_memory(0xA5, [], torch.device("cuda:0"))
    assert written == [(1000, 0xA5, 64, 7), (1096, 0xA5, 16, 7)]


@pytest.mark.gpu
def test_on_a_gpu_all_that_is_free_is_written_over_and_nothing_more_is_taken() -> None:
    device = torch.device("cuda", 0)
    kept = torch.zeros(1 << 20, dtype=torch.uint8, device=device)
    freed = [torch.zeros(size, dtype=torch.uint8, device=device) for size in (1 << 12, 1 << 20, 3 << 20, 40 << 20)]
    sizes = [tensor.numel() for tensor in freed]
    del freed
    spaces = [{"size": 1 << 20}]
    fill_free_memory(0xA5, spaces, device)
    held = torch.cuda.memory_reserved()
    for _ in range(20):
        fill_free_memory(0xA5, spaces, device)
    again = [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
    assert torch.cuda.memory_reserved() == held  # before anything is compared, which takes memory
    assert all(bool((tensor == 0xA5).all()) for tensor in again) and not bool(kept.any())
