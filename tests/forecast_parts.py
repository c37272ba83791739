"""A small problem, kernels for it, and a context to forecast in."""

from __future__ import annotations

import hashlib
from typing import Any

from tilecast.sandbox.hardware import find_hardware
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext
from tilecast.tools.forecast.facts import facts_from_text

REFERENCE = '''
"""Scale and shift of a matrix."""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs(m=8192, n=8192):
    return [torch.randn(m, n)]

def get_init_inputs():
    return []
'''

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"BLOCK": 2048, "num_warps": 8}

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    # the fastest of all kernels
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs, mask=mask) * 2 + 1, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        scale[(triton.cdiv(n, CONFIG["BLOCK"]),)](x, y, n, BLOCK=CONFIG["BLOCK"], num_warps=CONFIG["num_warps"])
        return y
"""

STRIDED = KERNEL.replace(
    "offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    "offs = (tl.program_id(0) + tl.arange(0, BLOCK) * (n // BLOCK)) % n",
)
EAGER = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        y = x * 2
        z = y.clone()
        return (z + 1).contiguous().clone()
"""


def problem(source: str = REFERENCE) -> Problem:
    return Problem(name="p", path="p.py", source=source, sha256=hashlib.sha256(source.encode()).hexdigest())


def candidate(source: str = KERNEL, name: str = "k") -> Candidate:
    return Candidate(name=name, source=source)


def context(gpu: str = "H200", **known: Any) -> ForecastContext:
    fields: dict[str, Any] = {"baseline_name": "eager", "baseline_ms": 0.25, "incumbent_ms": None, **known}
    return ForecastContext(problem=problem(), facts=facts_from_text(problem()), hardware=find_hardware(gpu), **fields)
