"""Outputs looked at again, in one turn with a later call: nothing overwrites what is looked at, and what changed is seen."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.failure import Rejected
from tilecast.sandbox.harness.judge.second_looks import Kept, SecondLooks
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.shared_memory import Prepared, SharedMemory
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import TensorSpec
from tilecast.sandbox.harness.wire import Message

CPU = torch.device("cpu")
SPEC = TensorSpec.dense((64,), torch.float32)
HONEST = """
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2
"""
ONE_BUFFER = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = torch.empty(64)

    def forward(self, x):
        return torch.mul(x, 2, out=self.kept)
"""


class Case:
    """What second looks ask of a workload."""

    name = "small"

    def __init__(self, *, small: bool = True) -> None:
        self.is_small = small
        self.contract = type("Contract", (), {"aliases": frozenset()})()


def case(*, small: bool = True) -> WorkloadCase:
    return cast(WorkloadCase, Case(small=small))


def opened(zygotes: Zygotes, source: str) -> Session:
    session = Session.open(zygotes, SessionOptions(CPU, timeout_s=60.0))
    session.load(source)
    session.construct("ModelNew", [], seed=0)
    return session


def counted(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that are asked of it from here on."""
    asked: list[str] = []
    real = session._request

    def request(message: Message, doing: str, timeout_s: float | None) -> Message:
        asked.append(str(message["op"]))
        return real(message, doing, timeout_s)

    monkeypatch.setattr(session, "_request", request)
    return asked


def test_a_look_at_a_call_with_the_same_inputs_is_taken_beside_the_next_one(
    zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs are refilled: both calls answer into the same memory, and the look must not go there."""
    with opened(zygotes, HONEST) as session:
        later = SecondLooks(session)
        first, second = torch.randn(64), torch.randn(64)
        prepared = session.prepare([first], [SPEC], reuse_objects=True)
        kept = Kept(session.call(prepared, hold=5), prepared)
        session.refill(prepared, [second])
        asked = counted(session, monkeypatch)
        with later.beside_call([kept]) as looks:
            result = session.call(prepared, hold=5, looks=looks)
        later.compare(case(), [kept], result.looks)
        assert asked == ["call"] and later.done == 1
        assert torch.equal(cast(Tensor, result.outputs[0]), second * 2)
        assert torch.equal(cast(Tensor, result.looks[0][0]), first * 2)


@pytest.mark.parametrize("small", [True, False])
def test_an_output_that_the_next_call_overwrites_is_seen(zygotes: Zygotes, small: bool) -> None:
    with opened(zygotes, ONE_BUFFER) as session:
        later, large = SecondLooks(session), case(small=False)
        prepared = [session.prepare([torch.randn(64)], [SPEC]) for _ in range(2)]
        kept = Kept(session.call(prepared[0], hold=5), prepared[0])
        with later.beside_call([kept] if small else ()) as looks:
            result = session.call(prepared[1], hold=5, looks=looks)
        look = (lambda: later.compare(case(), [kept], result.looks)) if small else lambda: later.look(large, [kept])
        with pytest.raises(Rejected, match="changed afterwards at") as caught:
            look()
        assert caught.value.rule == "output-overwritten"


def test_large_outputs_are_copied_one_by_one_to_where_they_came_first(
    zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(zygotes, HONEST) as session:
        later = SecondLooks(session)
        batch = [session.prepare([torch.randn(64)], [SPEC]) for _ in range(3)]
        kept = [Kept(result, prepared) for result, prepared in zip(session.call_many(batch).calls, batch, strict=True)]
        asked, sizes = counted(session, monkeypatch), []
        monkeypatch.setattr(session.memory, "allocate", sizes.append)
        later.look(case(small=False), kept)
        assert asked == ["recheck"] * 3 and not sizes and later.done == 3
        monkeypatch.undo()
        asked = counted(session, monkeypatch)
        later.look(case(), kept)
        assert asked == ["recheck"] and later.done == 6


def test_a_call_that_is_not_held_any_more_brings_nothing(zygotes: Zygotes) -> None:
    with opened(zygotes, HONEST) as session:
        prepared = session.prepare([torch.randn(64)], [SPEC])
        result = session.call(prepared, hold=0)
        with session.looking([(result, prepared)], apart=True) as looks:
            assert session.recheck(looks) == [[]]


def test_room_for_looks_is_given_back(zygotes: Zygotes) -> None:
    with opened(zygotes, HONEST) as session:
        prepared = session.prepare([torch.randn(64)], [SPEC])
        result = session.call(prepared, hold=1)
        places = []
        for _ in range(3):
            with session.looking([(result, prepared)], apart=True) as looks:
                places.append(looks[0].regions[0].at)
                session.recheck(looks)
        assert len(set(places)) == 1 and places[0] != prepared.outputs[0].at


class Waits:
    """``torch.cuda.synchronize``, counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, device: object) -> None:
        self.count += 1


def test_however_much_is_written_or_read_the_device_is_waited_for_once_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a GPU: the memory lies on the CPU and says that it is one, the wait is counted."""
    waits = Waits()
    monkeypatch.setattr(torch.cuda, "synchronize", waits)
    memory = SharedMemory(CPU, lambda arena: None, lambda numbers: None)
    prepared: list[Prepared] = [memory.prepare([torch.ones(64)], [SPEC], (), reuse_objects=False)]
    monkeypatch.setattr(memory, "device", torch.device("cuda", 0))
    steps: list[tuple[Any, int]] = [
        (lambda: memory.settle(), 1),
        (lambda: memory.settle(), 1),
        (lambda: memory.refill(prepared[0], [torch.zeros(64)]), 1),
        (lambda: memory.poison_outputs(prepared[0]), 1),
        (lambda: memory.settle(), 2),
        (lambda: memory.inputs_now(prepared[0]), 2),
        (lambda: memory.settle(), 3),
        (lambda: memory.read_output({"placed": SPEC.to_message()}, prepared[0].outputs, 0), 3),
        (lambda: memory.settle(), 4),
        (lambda: memory.settle(), 4),
        (lambda: memory.poison(prepared[0].outputs), 4),
        (lambda: memory.close(), 5),
        (lambda: memory.settle(), 5),
    ]
    for step, expected in steps:
        step()
        assert waits.count == expected


def test_every_request_waits_for_what_was_written_before_it(zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(zygotes, HONEST) as session:
        order: list[str] = []
        monkeypatch.setattr(session.memory, "settle", lambda: order.append("settled"))
        prepared = session.prepare([torch.ones(64)], [SPEC])
        assert not order
        send = session._worker.channel.send

        def noted(message: Message, *rest: Any, **named: Any) -> None:
            order.append("sent")
            send(message, *rest, **named)

        monkeypatch.setattr(session._worker.channel, "send", noted)
        session.call(prepared)
        session.set_parameters({})
        session.call_many([prepared])
        sent = [index for index, entry in enumerate(order) if entry == "sent"]
        assert len(sent) == 3 and all(order[index - 1] == "settled" for index in sent)
