"""Other parameters than those a constructor makes: both sides get them, and get new ones between calls.

Initial values hide errors (weights of one, biases of zero), so they are replaced by random ones that keep the model
sane. Buffers are replaced only
if they are data (they vary with the seed, or are running statistics): a constant table is part of the program and a
candidate may have derived
its own from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Generator, Tensor

from tilecast.sandbox.harness.judge.families import clamp_to

Rule = Literal["keep", "positive", "free", "integers"]


def parameter_rules(first: Mapping[str, Tensor], second: Mapping[str, Tensor], parameters: set[str]) -> dict[str, Rule]:
    """How each entry of a state dict may vary, from two constructions with different seeds.

    ``parameters`` names the entries that are parameters; the others are buffers.
    """
    return {name: _rule(name, value, second.get(name, value), name in parameters) for name, value in first.items()}


def _rule(name: str, value: Tensor, again: Tensor, is_parameter: bool) -> Rule:
    leaf = name.rsplit(".", 1)[-1]
    running = leaf in ("running_mean", "running_var")
    if value.numel() == 0 or not (is_parameter or running or not torch.equal(value, again)):
        return "keep"
    if value.dtype is torch.bool:
        return "keep"
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        return "integers"
    if not bool(torch.isfinite(_readable(value)).all()):
        return "keep"
    if leaf == "running_var" or (bool((_readable(value) > 0).all()) and not _constant(value)):
        return "positive"
    return "free"


def _readable(value: Tensor) -> Tensor:
    return value.float() if value.dtype.itemsize == 1 else value


def _constant(value: Tensor) -> bool:
    flat = _readable(value).reshape(-1)
    return bool((flat == flat[0]).all())


def randomise(state: Mapping[str, Tensor], rules: Mapping[str, Rule], generator: Generator) -> dict[str, Tensor]:
    """New values for every entry that may vary; entries that stay are left out."""
    return {
        name: _randomised(value, rules[name], generator)
        for name, value in state.items()
        if rules.get(name, "keep") != "keep"
    }


def _randomised(value: Tensor, rule: Rule, generator: Generator) -> Tensor:
    if rule == "integers":
        order = torch.randperm(value.numel(), generator=generator, device=value.device)
        return value.reshape(-1)[order].reshape(value.shape)
    wide = torch.float64 if value.dtype in (torch.float64, torch.complex128) else torch.float32
    if value.dtype.is_complex:
        wide = torch.complex128 if wide is torch.float64 else torch.complex64
    base = value.to(wide)
    noise = torch.empty(value.shape, dtype=wide, device=value.device).normal_(generator=generator)
    if rule == "positive":
        made = base.abs().clamp_min(torch.finfo(wide).tiny) * torch.exp(0.25 * noise)
    else:
        made = _free(base, noise, generator)
    return clamp_to(made, value.dtype).to(value.dtype)


def _free(base: Tensor, noise: Tensor, generator: Generator) -> Tensor:
    """Shuffled old values plus noise of a third of their spread; a constant (ones, zeros) gets noise of 0.3 around
    it.
    """
    flat = base.reshape(-1)
    order = torch.randperm(flat.numel(), generator=generator, device=flat.device)
    spread = float(flat.std()) if flat.numel() > 1 else 0.0
    if not spread > 0:
        return base + 0.3 * noise
    return flat[order].reshape(base.shape) + 0.3 * spread * noise
