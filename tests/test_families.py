"""Inputs stay in their domain, layouts hold their values, parameters stay sane, schedules visit everything."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from tilecast.sandbox.harness.judge.changes import (
    batch_choices,
    change_elements,
    change_operand,
    layout_kinds,
    layout_of,
    row_counts,
    with_rows,
)
from tilecast.sandbox.harness.judge.families import (
    FLOAT_FAMILIES,
    UNEQUAL,
    draw,
    family_names,
    is_finite,
    survives,
)
from tilecast.sandbox.harness.judge.input_profiles import profile_inputs
from tilecast.sandbox.harness.judge.parameters import parameter_rules, randomise
from tilecast.sandbox.harness.judge.planting import dependent, plant
from tilecast.sandbox.harness.judge.probes import POISON_BYTES, call_count, schedule

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def offsets() -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(1, 9, (20,)).cumsum(0)])


def kinds(make: Any) -> list[str]:
    return [profile.kind for profile in profile_inputs([make(), make(), make()])]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: torch.randn(6, 5), "float"),
        (lambda: torch.rand(6, 5) + 0.1, "positive"),
        (lambda: torch.softmax(torch.randn(6, 5), -1), "probability"),
        (lambda: (torch.rand(6, 5) < 0.3).float(), "fixed"),
        (lambda: torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1) > 0, -torch.inf), "fixed"),
        (lambda: torch.rand(6, 5) < 0.3, "bool"),
        (lambda: torch.ones(5, 5, dtype=torch.bool).tril(), "fixed"),
        (lambda: torch.randint(0, 100, (50,)), "index"),
        (offsets, "fixed"),
        (lambda: torch.randperm(30), "fixed"),
        (lambda: torch.arange(9), "fixed"),
        (lambda: 3, "fixed"),
        (lambda: None, "fixed"),
        (lambda: torch.zeros(0, 4), "fixed"),
        (lambda: torch.randn(4, 4, dtype=torch.complex64), "float"),
    ],
)
def test_inputs_are_recognised(make: Any, kind: str) -> None:
    assert kinds(lambda: [make()]) == [kind]


def test_numbers_of_inputs_must_agree() -> None:
    with pytest.raises(ValueError, match="from call to call"):
        profile_inputs([[1], [1, 2]])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FLOAT_FAMILIES)
def test_every_family_fits_every_type(name: str, dtype: torch.dtype) -> None:
    fresh = [torch.randn(7, 33).to(dtype), torch.randn(()).to(dtype), torch.randn(5).to(dtype)]
    profiles = profile_inputs([fresh, [torch.randn(item.shape).to(dtype) for item in fresh]])
    made = draw(name, profiles, fresh, generator())
    assert [(item.shape, item.dtype) for item in made] == [(item.shape, item.dtype) for item in fresh]
    assert all(is_finite(item) for item in made)


def test_families_are_what_their_names_say() -> None:
    fresh = [torch.rand(64, 200)]
    profiles = profile_inputs([fresh, [torch.rand(64, 200)]])
    made = {name: draw(name, profiles, fresh, generator())[0] for name in family_names(profiles, "open")}
    assert made["declared"] is fresh[0]
    assert abs(float(made["normal"].mean())) < 0.05
    assert float(made["negative"].max()) < 0
    assert float(made["large"].abs().max()) > 1e4
    assert 0 < float(made["tiny"].abs().max()) < 1e-4
    assert float(made["offset"].mean()) > 1000
    assert not made["zeros"].any()
    assert 0.02 < float((made["sparse"] != 0).double().mean()) < 0.1
    assert ((made["one-hot-rows"] != 0).sum(-1) == 1).all()
    constant = (made["constant-rows"] == made["constant-rows"][:, :1]).all(-1)
    assert 5 < int(constant.sum()) < 60
    sizes = made["scaled-rows"].abs().amax(-1)
    assert float(sizes.max() / sizes.min()) > 100


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("only", [None, 0, 1])
def test_one_operand_is_small_beside_the_others_and_still_counts(dtype: torch.dtype, only: int | None) -> None:
    fresh = [torch.randn(64, 33).to(dtype), torch.randn(64, 33).to(dtype), 2.5]
    profiles = profile_inputs([fresh, [torch.randn(64, 33).to(dtype), torch.randn(64, 33).to(dtype), 2.5]])
    assert UNEQUAL in family_names(profiles, "open") and UNEQUAL not in family_names(profiles[:1], "open")
    seen = set()
    for seed in range(12):
        made = draw(UNEQUAL, profiles, fresh, generator(seed), only)
        sizes = [float(item.float().abs().mean()) for item in made[:2]]
        small = sizes.index(min(sizes))
        seen.add(small)
        assert made[2] == 2.5 and all(item.dtype is dtype and is_finite(item) for item in made[:2])
        unit = torch.finfo(dtype).eps
        assert 0.9 * unit < min(sizes) / max(sizes) < 0.3, "too small to count, or not small"
    assert seen == ({0, 1} if only is None else {only})


def test_declared_means_declared() -> None:
    profiles = profile_inputs([[torch.rand(3)], [torch.rand(3)]])
    assert family_names(profiles, "declared") == ["declared"]
    assert family_names(profile_inputs([[1], [1]]), "open") == ["declared"]


@given(st.sampled_from(sorted(FLOAT_FAMILIES)), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_indices_masks_and_probabilities_stay_in_their_domain(name: str, seed: int) -> None:
    def make() -> list[Any]:
        target = torch.randint(0, 40, (30,))
        target[::7] = -100
        return [target, torch.rand(30) < 0.2, torch.softmax(torch.randn(6, 9), -1), offsets(), 2.5]

    torch.manual_seed(seed)
    fresh = make()
    made = draw(name, profile_inputs([fresh, make(), make()]), fresh, generator(seed))
    assert set(made[0].tolist()) <= {-100, *range(40)}
    assert made[1].dtype is torch.bool
    assert torch.allclose(made[2].sum(-1), torch.ones(6), atol=1e-5) and float(made[2].min()) >= 0
    assert torch.equal(made[3], fresh[3]) and made[4] == 2.5


def test_one_operand_alone_may_change() -> None:
    fresh = [torch.rand(4, 4), torch.rand(4, 4)]
    profiles = profile_inputs([fresh, [torch.rand(4, 4), torch.rand(4, 4)]])
    made = draw("negative", profiles, fresh, generator(), only=1)
    assert made[0] is fresh[0] and float(made[1].max()) < 0


def test_families_that_the_reference_does_not_survive_are_left_out() -> None:
    bad, good = torch.tensor([1.0, torch.inf]), torch.tensor([1.0, 2.0])
    assert survives([good, torch.tensor([1])], True)
    assert not survives([good, bad], True)
    assert survives([good, bad], False), "get_inputs makes such values itself"


@pytest.mark.parametrize("what", ["nan", "inf"])
def test_planting(what: Any) -> None:
    base = [torch.randint(0, 5, (6, 3)), torch.randn(6, 8)]
    profiles = profile_inputs([base, [torch.randint(0, 5, (6, 3)), torch.randn(6, 8)]])
    made = plant(what, profiles, base, generator(2))
    assert made is not None and made.operand == 1
    odd = ~torch.isfinite(made.inputs[1])
    assert 1 <= int(odd.sum()) <= 2 and int(odd.sum(-1).max()) == 1
    assert torch.isnan(made.inputs[1]).any() == (what == "nan")
    assert torch.equal(made.inputs[1][~odd], base[1][~odd])
    depends = dependent([torch.relu(made.low[1])], [torch.relu(made.high[1])])
    assert torch.equal(depends[0], odd)
    assert plant(what, profiles[:1], base[:1], generator()) is None


@given(st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_small_changes_are_small_and_real(seed: int) -> None:
    torch.manual_seed(seed)
    inputs, donor = [torch.rand(5, 6), torch.randint(0, 9, (5,))], [torch.rand(5, 6), torch.randint(0, 9, (5,))]
    profiles = profile_inputs([inputs, donor])
    changed = change_elements(profiles, inputs, donor, generator(seed))
    assert changed is not None
    differing = [int((a != b).sum()) for a, b in zip(inputs, changed, strict=True)]
    assert sum(1 for n in differing if n) == 1 and 1 <= sum(differing) <= 3
    assert float(changed[0].min()) >= 0 and int(changed[1].min()) >= 0 and int(changed[1].max()) < 9
    swapped = change_operand(inputs, donor, 1)
    assert swapped[0] is inputs[0] and swapped[1] is donor[1]


def test_nothing_variable_means_no_change() -> None:
    inputs = [1, torch.arange(4)]
    assert change_elements(profile_inputs([inputs, inputs]), inputs, inputs, generator()) is None


@pytest.mark.parametrize("shape", [(), (1,), (7,), (4, 6), (3, 4, 5), (2, 1, 3, 4), (0, 3)])
@pytest.mark.parametrize("kind", layout_kinds("open"))
def test_layouts_hold_their_values(shape: tuple[int, ...], kind: Any) -> None:
    value = torch.randn(shape)
    layout = layout_of(value, kind)
    placed = layout.place(value)
    assert torch.equal(placed, value)
    assert placed.storage_offset() == layout.offset
    if kind == "column-major" and shape == (4, 6):
        assert not placed.is_contiguous() and placed.stride() == (1, 4)
    if kind == "padded-rows" and shape == (4, 6):
        assert placed.stride() == (9, 1)


def test_declared_layouts_stay_aligned_and_keep_the_strides_of_get_inputs() -> None:
    assert layout_kinds("declared") == ["contiguous", "offset-aligned"]
    transposed = torch.randn(5, 4).t()
    layout = layout_of(transposed, "offset-aligned")
    assert layout.stride == (1, 4) and layout.offset * 4 % 256 == 0


def test_rows_are_cut_and_lengthened() -> None:
    value, donor = [torch.randn(4, 3), torch.randn(3)], [torch.randn(4, 3), torch.randn(3)]
    assert with_rows(value, [0], 2, donor)[0].shape == (2, 3)
    longer = with_rows(value, [0], 7, donor)
    assert longer[0].shape == (7, 3) and longer[1] is value[1]
    assert batch_choices([torch.zeros(4, 2), 3, torch.zeros(4), torch.zeros(2)], 4) == [[0, 2], [0], [2]]
    assert batch_choices([torch.zeros(4, 2)], 4) == [[0]] and batch_choices([torch.zeros(3)], 4) == []
    assert row_counts(32, 3, "open") == [1, 2, 31, 33]
    assert row_counts(32, 3, "declared") == [] and row_counts(32, 1, "open") == []


def test_parameters_vary_and_stay_sane() -> None:
    def module() -> nn.Module:
        made = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.LayerNorm(5))
        made.register_buffer("table", torch.arange(5.0))
        made.register_buffer("codes", torch.randint(-9, 9, (40,), dtype=torch.int8))
        made.register_buffer("scale", torch.rand(5) + 0.1)
        return made

    torch.manual_seed(0)
    first, second = module(), module()
    state = first.state_dict()
    rules = parameter_rules(state, second.state_dict(), {name for name, _ in first.named_parameters()})
    assert rules["table"] == rules["1.num_batches_tracked"] == "keep"
    assert rules["1.running_var"] == rules["scale"] == "positive"
    assert rules["codes"] == "integers"
    for seed in range(5):
        made = randomise(state, rules, generator(seed))
        assert "table" not in made
        assert float(made["1.running_var"].min()) > 0 and float(made["scale"].min()) > 0
        assert torch.equal(made["codes"].sort().values, state["codes"].sort().values)
        assert all(value.dtype is state[name].dtype and is_finite(value) for name, value in made.items())
        for name in ("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias", "1.running_mean"):
            assert float((made[name] - state[name]).abs().mean()) > 0.02, name


@given(st.integers(0, 10_000), st.integers(20, 120), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_schedules(seed: int, calls: int, operands: int) -> None:
    families = ["declared", *list(FLOAT_FAMILIES)]
    steps = schedule(random.Random(seed), families, calls, operands, layout_kinds("open"))
    assert abs(len(steps) - calls) <= calls // 10
    assert steps[0].content == "fresh"
    fresh = {step.family for step in steps if step.content == "fresh"}
    # In their order; the two kinds that must occur may take the place of two fresh draws.
    due = families[: sum(step.content == "fresh" for step in steps)]
    assert len(set(due) - fresh) <= 2
    contents = Counter(step.content for step in steps)
    assert (contents["elements"] > 0 and contents["operand"] > 0) if operands else set(contents) == {"fresh"}
    assert any(step.update_parameters for step in steps)
    assert any(step.burst for step in steps) == (len(steps) >= 30)
    assert all(step.layout == "contiguous" for step in steps if step.buffer == "refill")
    assert all(0 <= step.poison < len(POISON_BYTES) for step in steps)


def test_schedules_differ() -> None:
    plans = {tuple(schedule(random.Random(seed), ["a", "b"], 30, 2)) for seed in range(20)}
    assert len(plans) == 20


def test_poison_is_nan_in_every_type_or_far_away() -> None:
    for byte in POISON_BYTES:
        filled = torch.full((16,), byte, dtype=torch.uint8)
        for dtype in FLOATS:
            values = filled.view(dtype).double()
            assert bool((values.isnan() | (values.abs() > 1e30)).all()), (byte, dtype)


def test_calls_follow_the_budget() -> None:
    assert call_count(0.001, 10) == 72
    assert call_count(1.0, 20) == 20
    assert call_count(60.0, 20) == 12
    assert call_count(0.0, 20) == 72
