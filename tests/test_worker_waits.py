"""A worker's answer means that it is through with the judge's memory: on a device, where work goes on after a function returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tilecast.sandbox.harness import arena
from tilecast.sandbox.harness.tensors import TensorSpec
from tilecast.sandbox.harness.wire import Channel, Message
from tilecast.sandbox.harness.worker.main import Worker

CPU = torch.device("cpu")
SOURCE = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, x):
        if x.shape[0] == 2:
            raise ValueError("two rows")
        return x * self.table
"""


class Device:
    """Work that was queued and not waited for."""

    def __init__(self) -> None:
        self.waits = 0
        self.busy = False

    def synchronize(self) -> None:
        self.waits += 1
        self.busy = False


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Device:
    """Every tensor taken from the judge's memory stands for a copy from it, still to be made."""
    made = Device()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(Worker, "_synchronize", lambda self: made.synchronize())
    return made


@pytest.fixture
def worker(device: Device, monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker({"device": "cpu"}, Channel.pair()[0])
    made.memory.attach(arena.create(1 << 16, CPU))
    real = made.memory.tensors

    def tensors(items: list[dict[str, Any]]) -> list[torch.Tensor]:
        device.busy = device.busy or bool(items)
        return real(items)

    monkeypatch.setattr(made.memory, "tensors", tensors)
    return made


def at(offset: int, *shape: int) -> Message:
    spec = TensorSpec.dense(shape, torch.float32)
    return {"arena": 0, "at": offset, "size": spec.extent, **spec.to_message()}


def loaded(worker: Worker) -> None:
    assert "failure" not in worker.answer({"op": "load", "source": SOURCE, "name": "candidate_that_waits"})
    message = {"op": "construct", "class": "ModelNew", "arguments": {"l": [{"t": 0}]}, "tensors": [at(0, 3)], "seed": 1}
    assert "failure" not in worker.answer(message)


def test_a_constructors_arguments_are_read_before_it_is_told_that_it_is_built(worker: Worker, device: Device) -> None:
    loaded(worker)
    assert device.waits and not device.busy


def test_parameters_are_read_and_written_before_it_is_told(worker: Worker, device: Device) -> None:
    loaded(worker)
    assert "failure" not in worker.answer({"op": "parameters", "state": {"table": at(0, 3)}, "inplace": True})
    assert not device.busy


def test_what_a_failed_request_began_is_waited_for(worker: Worker, device: Device) -> None:
    """Its reader goes on to other requests: on the reference a family of inputs that it does not take is no end."""
    loaded(worker)
    call = {"op": "call", "seq": 5, "inputs": {"l": [{"t": 0}]}, "tensors": [at(512, 2, 3)], "spaces": []}
    answer = worker.answer(call)
    assert "two rows" in answer["failure"]["reason"]
    assert not device.busy


def test_a_device_that_fails_once_more_does_not_hide_why(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(worker)

    def broken(_: Worker) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Worker, "_synchronize", broken)
    call = {"op": "call", "seq": 5, "inputs": {"l": [{"t": 0}]}, "tensors": [at(512, 2, 3)], "spaces": []}
    assert "two rows" in worker.answer(call)["failure"]["reason"]
