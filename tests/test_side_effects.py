"""What a call does beside returning: to its caller's objects, to the module's state, to outputs of long ago."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tilecast.sandbox.harness.tensors import bytes_in, encode_outputs, misplaced, outputs_in
from tilecast.sandbox.harness.worker import side_effects
from tilecast.sandbox.harness.worker.export import Space, export, report, scribble
from tilecast.sandbox.harness.worker.side_effects import (
    OF_ALL_ARGUMENTS,
    Given,
    HandedOut,
    StateMarks,
    _differing,
    registered,
    weighted_sum,
)


def _other_memory(x: Tensor) -> None:
    x.data = torch.zeros_like(x)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_other_memory, "other memory"),
        (lambda x: x.unsqueeze_(0), "another shape"),
        (lambda x: x.t_(), "another shape"),
        (lambda x: x.requires_grad_(True), "another requires_grad"),
        (lambda x: x.resize_(1, 3), "another shape"),
    ],
)
def test_a_callers_tensor_that_is_no_longer_what_it_was(change: Callable[[Tensor], Any], told: str) -> None:
    x, y = torch.randn(2, 3), torch.randn(2)
    given = Given([x, y], [x, y])
    change(x)
    ((number, text),) = given.moved()
    assert number == 0 and told in text


def test_reading_and_writing_do_not_move_arguments() -> None:
    x = torch.randn(2, 3)
    given = Given([x, [x, 2.0], {"a": x}], [x, x, x])
    x.mul_(2).t().contiguous()
    assert given.moved() == []


@pytest.mark.parametrize("change", [lambda v: v.pop(), lambda v: v.append(1), lambda v: v.reverse()])
def test_a_callers_list_that_was_changed(change: Callable[[list[Any]], Any]) -> None:
    inner = [torch.randn(2), torch.randn(2)]
    given = Given([inner], list(inner))
    change(inner)
    assert [number for number, _ in given.moved()] == [OF_ALL_ARGUMENTS]


def test_state_that_was_written_to_is_named_and_other_strides_are_no_writing() -> None:
    module, marks = torch.nn.Linear(3, 4), StateMarks()
    assert marks.changed(module) == []
    marks.mark(module, ["weight", "bias"])
    module.weight.data = module.weight.data.t().contiguous().t()
    module(torch.randn(2, 3))
    assert marks.changed(module) == []
    with torch.no_grad():
        module.weight[3, 2] += 1
    assert marks.changed(module) == ["weight"]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 1001])
def test_every_change_of_a_byte_and_every_exchange_shows_in_the_sum(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, in several chunks, from any address."""
    monkeypatch.setattr(side_effects, "_CHUNK_WORDS", 3)
    room = torch.randint(0, 256, (count + 8,), dtype=torch.uint8)
    for offset in (0, 3):
        data = room[offset : offset + count]
        before = int(weighted_sum(data))
        assert int(weighted_sum(data.clone())) == before
        for place in range(0, count, max(1, count // 40)):
            old = int(data[place])
            data[place] = old ^ 0x81
            assert int(weighted_sum(data)) != before
            data[place] = old
            other = count - 1 - place
            if int(data[other]) != old:
                data[place], data[other] = int(data[other]), old
                assert int(weighted_sum(data)) != before
                data[other], data[place] = int(data[place]), old
        assert int(weighted_sum(data)) == before


def test_marks_hold_with_the_sums_of_a_gpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_effects, "fingerprint", lambda tensor: weighted_sum(bytes_in(tensor.detach())))
    test_state_that_was_written_to_is_named_and_other_strides_are_no_writing()
    for buffers in (1, 40):
        test_a_ring_of_buffers_is_found_however_long(buffers)
    test_what_changes_by_contract_is_no_ring()


def test_an_entry_that_is_gone_or_of_another_shape_was_written_to() -> None:
    module, marks = torch.nn.Linear(3, 4), StateMarks()
    marks.mark(module, ["weight", "bias"])
    module.weight = torch.nn.Parameter(torch.zeros(2, 2))
    del module.bias
    assert marks.changed(module) == ["weight", "bias"]


def test_small_pieces_of_large_storages_do_not_keep_those_alive() -> None:
    """An answer may be the last row of something large: sixty-four of those were more than a device has."""
    kept, large = HandedOut(), HandedOut.MOST_BYTES // 4
    for _ in range(3):
        for size in (3 * large, 64, 5 * large):
            output = torch.zeros(size, dtype=torch.uint8)[-8:]
            _add(kept, output, [])
            assert kept.held_bytes <= max(HandedOut.MOST_BYTES, size)
    output.fill_(1)
    assert [item.rule for item in kept.changes()] == ["output-overwritten"]
    for _ in range(100):
        _add(kept, torch.zeros(8), [])
    assert kept.held_bytes == HandedOut.MOST * 32


def test_a_ring_within_one_large_storage_is_found() -> None:
    kept, slab = HandedOut(), torch.zeros(HandedOut.MOST_BYTES + 400, dtype=torch.uint8)
    for call in range(40):
        _add(kept, slab[10 * call : 10 * call + 10].fill_(call), [])
    assert kept.changes() == []
    slab[3] = 99
    assert "40 calls ago" in kept.changes()[0].detail


class _Tells(torch.nn.Linear):
    """Its ``state_dict`` says what it likes."""

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"weight": torch.zeros(4, 3), "bias": torch.zeros(4)}


def test_marks_are_of_what_was_set_alone_however_the_module_tells_it() -> None:
    """What a module adds may have no bytes: one with a sparse buffer could not be given its parameters any more."""
    module, marks = _Tells(3, 4), StateMarks()
    module.register_buffer("mask", torch.eye(3).to_sparse_csr())
    module.register_buffer("counts", torch.zeros(2))
    marks.mark(module, ["weight", "mask", "no such name"])
    module.counts += 1
    assert marks.changed(module) == []
    with torch.no_grad():
        module.bias += 1
        marks.mark(module, ["bias"])
        module.weight[0, 0] += 1
    marks.mark(module, ["bias"])
    assert marks.changed(module) == ["weight"]
    marks.forget(module)
    assert marks.changed(module) == []


def test_what_torch_has_registered_under_any_depth() -> None:
    inner = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
    inner.register_buffer("passing", torch.zeros(1), persistent=False)
    outer = torch.nn.ModuleDict({"a": inner})
    assert [name for name, _ in registered(outer)] == list(outer.state_dict())
    inner.add_module("itself", outer)
    assert "a.0.weight" in dict(registered(outer))


def test_fingerprints_of_several_devices_are_compared_each_on_its_own() -> None:
    one, two, far = torch.tensor(1), torch.tensor(2), torch.tensor(3, device="meta")
    assert _differing([one, two, far], [one, one, two]) == [1, 2]
    assert _differing([one, two, one], [one, two, far]) == [2]
    assert _differing([], []) == []


def test_a_sum_over_memory_that_begins_at_an_odd_address() -> None:
    """Its eighth byte may be at an address that a word can have, and can be viewed as one no more for that."""
    room = bytearray(range(80))
    whole = torch.frombuffer(room, dtype=torch.uint8)
    for start in range(1, 9):
        base = torch.frombuffer(room, dtype=torch.uint8, offset=start)
        for skip in range(9):
            assert weighted_sum(base[skip : skip + 40]) == weighted_sum(whole[start + skip : start + skip + 40].clone())


def _add(kept: HandedOut, output: Tensor, state: list[Tensor], inside: int | None = None) -> None:
    kept.add([output], [{"in_input": inside, "plain": True, "placed": {}}], state)


@pytest.mark.parametrize("buffers", [1, 7, 40])
def test_a_ring_of_buffers_is_found_however_long(buffers: int) -> None:
    kept, room = HandedOut(), torch.zeros(3 + 5 * buffers)
    state, ring = [room[:3]], list(room[3:].split(5))
    for call in range(buffers):
        _add(kept, ring[call].fill_(call), state)
        assert kept.changes() == []
    ring[0].fill_(99.0)
    assert [item.rule for item in kept.changes()] == ["output-overwritten"]


def test_what_changes_by_contract_is_no_ring() -> None:
    """Outputs in an input, or in state that is set from outside, change with those; large ones are not held."""
    kept, module = HandedOut(), torch.nn.Linear(3, 3)
    x, large = torch.zeros(4), torch.zeros(1 << 19)
    _add(kept, x, [], inside=0)
    _add(kept, module.weight.detach()[1], [module.weight])
    _add(kept, large, [])
    with torch.no_grad():
        module.weight.zero_()
    x.fill_(1)
    large.fill_(1)
    assert kept.changes() == []


def test_bytes_of_a_single_element_of_any_stride() -> None:
    """The judge failed on it: one number out of a column of a wider tensor counts as contiguous and cannot be viewed as bytes."""
    one = torch.tensor([[1.0, 2.0]])[:, 1].as_strided((1,), (2,))
    assert bytes_in(one).tolist() == bytes_in(one.clone().reshape(())).tolist()
    assert bytes_in(torch.arange(6, dtype=torch.int16).reshape(2, 3).t()).tolist() == [
        0,
        0,
        3,
        0,
        1,
        0,
        4,
        0,
        2,
        0,
        5,
        0,
    ]


class _Lazy(torch.Tensor):
    """Has no memory at all."""

    @staticmethod
    def __new__(cls, like: Tensor) -> _Lazy:
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)  # type: ignore[attr-defined,no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("nobody asks it")


@pytest.mark.parametrize("made", [_Lazy(torch.ones(3)), torch.ones(3).to_sparse(), torch.empty(3, device="meta")])
def test_what_has_no_memory_is_not_read(made: Tensor) -> None:
    """Reading the first one was a crash, and asking the second one for its storage an error of its own."""
    room = torch.zeros(12, dtype=torch.uint8)
    assert "missing" in export(made, Space(room.data_ptr(), 12), None)
    told = report(made, [])
    assert told["shape"] == [3] and told["plain"] is (type(made) is torch.Tensor)
    assert told["device"] == ("meta" if made.is_meta else "cpu")


def test_lazy_conjugation_is_carried_out() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    for lazy in (torch.conj(x), torch.conj(x).imag):
        wanted = lazy.clone().resolve_conj().resolve_neg()
        room = torch.zeros(wanted.numel() * wanted.element_size(), dtype=torch.uint8)
        assert "placed" in export(lazy, Space(room.data_ptr(), room.numel()), None)
        assert torch.equal(room.view(wanted.dtype), wanted)


def test_an_owner_overwrites_what_was_made_in_inference_mode() -> None:
    with torch.inference_mode():
        made = torch.ones(3)
    for output in (made, torch.ones(3, requires_grad=True)):
        scribble(output)
        assert bool(output.isnan().all())
    assert not torch.is_inference_mode_enabled()


A, B = torch.ones(1), torch.zeros(1)


def test_dicts_go_by_name() -> None:
    assert [t is A for t in outputs_in({"b": B, "a": A})] == [True, False]
    assert [t is A for t in outputs_in({"a": A, "b": B})] == [True, False]


@pytest.mark.parametrize(
    ("expected", "got", "told"),
    [
        ({"a": A, "b": [A, B]}, {"b": (A, B), "a": A}, ""),
        ((A, B), [A, B], ""),
        ((A, (B, A)), [A, B, A], ""),
        ((A, B), {"first": A, "second": B}, ""),
        ((A, None), (A,), ""),
        ({"a": A, "b": B}, [A, B], "no dict"),
        ({"a": A, "b": B}, {"a": A, "c": B}, "keys ['a', 'c']"),
        ([A, {"a": {"b": B}}], [A, {"a": {"c": B}}], "in 'a'"),
    ],
)
def test_containers_are_one_and_the_same_but_names_count(expected: Any, got: Any, told: str) -> None:
    wrong = misplaced(encode_outputs(expected, []), encode_outputs(got, []))
    assert (told in wrong) if told else wrong == ""
