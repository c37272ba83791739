"""The reference's results come with its answer where they fit, and are asked for where they do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tilecast.sandbox.harness.judge import landing
from tilecast.sandbox.harness.judge.landing import Landing
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.shared_memory import SharedMemory
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import BadSpec, TensorSpec, packed
from tilecast.sandbox.harness.wire import Message
from tilecast.sandbox.source import source_sha256

CPU = torch.device("cpu")
# Two outputs of different types and sizes, one of them not laid out plainly, and an empty one.
SOURCE = """
import torch
import torch.nn as nn

WORKLOADS = {'small': {'n': 33}}


class Model(nn.Module):
    def forward(self, x):
        return x.to(torch.float16).t(), x.sum(1), x[:0]


def get_inputs(n=1500):
    return [torch.randn(n, n + 1)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    zygotes = Zygotes()
    made = Reference.open(zygotes, {"name": "p", "source": SOURCE, "sha256": source_sha256(SOURCE)}, CPU)
    yield made
    made.close()
    zygotes.close()


def operations(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    real = reference.session._request

    def request(message: Message, doing: str, timeout_s: float | None) -> Message:
        asked.append(str(message["op"]))
        return real(message, doing, timeout_s)

    monkeypatch.setattr(reference.session, "_request", request)
    return asked


@pytest.mark.parametrize(
    ("workload", "expected"),
    [("small", ["draw", "run", "truth"]), ("full", ["draw", "take", "run", "take", "truth", "take"])],
)
def test_small_results_take_no_request_of_their_own(
    reference: Reference, monkeypatch: pytest.MonkeyPatch, workload: str, expected: list[str]
) -> None:
    reference.select(workload)
    asked = operations(reference, monkeypatch)
    inputs = reference.draw(workload)
    native = reference.run(inputs, 1)
    truth = reference.raw(inputs, native, 1)
    assert asked == expected
    (x,) = inputs
    assert native.values[0].dtype is torch.float16 and torch.equal(native.values[0], x.half().t())
    assert native.values[0].stride() == x.half().t().stride()
    torch.testing.assert_close(native.values[1], x.sum(1))
    assert native.values[2].shape == (0, x.shape[1])
    torch.testing.assert_close(truth.truth[1], x.double().sum(1))


def test_many_draws_that_do_not_fit_together_are_asked_for(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = landing.LANDING_BYTES // (33 * 34 * 4) + 1
    asked = operations(reference, monkeypatch)
    draws = reference.draw_many("small", count)
    assert asked == ["draw", "take"] and len(draws) == count
    assert len({float(values[0].sum()) for values in draws}) == count
    assert len(reference.draw_many("small", 3)) == 3 and asked[2:] == ["draw"]


def test_what_was_taken_is_not_changed_by_the_next_answer(reference: Reference) -> None:
    first = reference.draw("small", 5)[0]
    again = first.clone()
    second = reference.draw("small", 6)[0]
    assert torch.equal(first, again) and not torch.equal(first, second)


def test_offsets_are_aligned_and_follow_each_other() -> None:
    specs = [TensorSpec.dense((n,), torch.uint8) for n in (1, 512, 0, 513)]
    assert packed(specs, 512) == ([0, 512, 1024, 1024], 2048)


def test_more_than_fits_cannot_have_come_and_a_room_given_back_is_made_anew() -> None:
    memory = SharedMemory(CPU, lambda arena: None, lambda numbers: None)
    here = Landing(memory)
    specs = [TensorSpec.dense((landing.LANDING_BYTES + 1,), torch.uint8)]
    with pytest.raises(BadSpec, match="results came where"):
        here.take({"landed": True}, specs)
    first = here.offer()
    assert here.offer() == first and here.take({}, specs) is None
    with pytest.raises(BadSpec, match=f"where {landing.LANDING_BYTES} fit"):
        here.take({"landed": True}, specs)
    here.give_back()
    here.give_back()
    memory.trim()
    assert memory.held_bytes == 0
    assert here.offer()["room"]["size"] == landing.LANDING_BYTES
    memory.close()


def test_the_truth_comes_with_the_run_and_is_the_same(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    reference.select("small")
    inputs = reference.draw("small")
    asked = operations(reference, monkeypatch)
    both = reference.run(inputs, 3, truth=True)
    truth = reference.raw(inputs, both, 3)
    assert asked == ["run"]
    alone = reference.run(inputs, 3)
    again = reference.raw(inputs, alone, 3)
    assert asked == ["run", "run", "truth"]
    assert truth.method == again.method and truth.reduction == again.reduction and len(truth.truth) == 3
    for first, second in zip([*both.values, *truth.truth], [*alone.values, *again.truth], strict=True):
        assert torch.equal(first, second)


WRITES_ITS_STATE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        self.count += x
        return self.count


def get_inputs():
    return [torch.ones(4)]


def get_init_inputs():
    return []
"""


def test_an_output_that_lies_in_the_state_is_told_as_it_was_returned() -> None:
    """The state is put back after each run; what was returned must not change with it."""
    zygotes = Zygotes()
    problem = {"name": "p", "source": WRITES_ITS_STATE, "sha256": source_sha256(WRITES_ITS_STATE)}
    try:
        reference = Reference.open(zygotes, problem, CPU)
        reference.select("full")
        for truth in (False, True, False):
            native = reference.run([torch.ones(4)], 1, truth=truth)
            assert native.effects["state"] == ["count"]
            assert torch.equal(native.values[0], torch.ones(4)) and torch.equal(native.values[1], torch.ones(4))
            assert torch.equal(reference.raw([torch.ones(4)], native, 1).truth[0], torch.ones(4).double())
        reference.close()
    finally:
        zygotes.close()
