"""Evidence of C++ and CUDA C++ that candidates build for themselves."""

from __future__ import annotations

from collections.abc import Iterator

import evidence_parts as parts
import pytest

from tilecast.sandbox.evidence import EvidenceCollector, EvidenceStatus
from tilecast.sandbox.evidence_runner import ServerRunner
from tilecast.sandbox.harness.evidence.cuda_compile import find_nvcc

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")

CORE = '''
import torch
import torch.nn as nn
from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
template <typename T> __global__ void add(const T* a, const T* b, T* c, long n) {
    __shared__ float kept[64];
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) c[i] = T{a[i].x + b[i].x, a[i].y + b[i].y, a[i].z + b[i].z, a[i].w + b[i].w};
}
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        device = Device()
        device.set_current()
        program = Program(SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
        kernel = program.compile("cubin", name_expressions=("add<float4>",)).get_kernel("add<float4>")
        c, n = torch.empty_like(a), a.numel() // 4
        config = LaunchConfig(grid=n // 256, block=256, shmem_size=1024)
        launch(device.default_stream, config, kernel, a.data_ptr(), b.data_ptr(), c.data_ptr(), n)
        return c
'''

INLINE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HOST = "torch::Tensor add(torch::Tensor a, torch::Tensor b);"
SOURCE = r"""
__global__ void add_kernel(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
    auto c = torch::empty_like(a);
    int n = a.numel();
    add_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
    return c;
}
"""
module = load_inline("added", HOST, SOURCE, functions=["add"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return module.add(a, b).relu()
'''

CPU = """
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

module = load_inline("added", "torch::Tensor add(torch::Tensor a, torch::Tensor b) { return a + b; }", functions=["add"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return module.add(a, b)
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[EvidenceCollector]:
    with EvidenceCollector(None, runners=[ServerRunner()]) as made:
        yield made


@needs_nvcc
def test_a_launch_through_cuda_core(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(CORE), "h200")
    assert evidence.status is EvidenceStatus.OK and evidence.languages == ["cuda"]
    [launch] = evidence.launches
    assert launch.kernel == "add" and launch.grid == [1024, 1, 1] and launch.constants == {"block": [256, 1, 1]}
    assert launch.argument_bytes == 3 * 4 << 20
    assert launch.resources is not None and launch.resources.warps == 8 and launch.resources.shared_bytes == 1024
    assert launch.instructions is not None and launch.instructions.global_load_bits == {"128": 2}
    assert launch.occupancy is not None and launch.occupancy.blocks_per_sm == 8


@needs_nvcc
def test_errors_of_device_code_have_lines(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(CORE.replace("c[i] = T{", "c[i] = S{")), "h200")
    assert evidence.status is EvidenceStatus.COMPILE_ERROR and "line 5" in evidence.reason
    refused = collector.collect(parts.problem(), parts.candidate(CORE), "gfx942")
    assert refused.status is EvidenceStatus.UNAVAILABLE and "gfx942" in refused.reason


def test_cpu_code_is_left_to_its_verification(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(CPU), "h200")
    assert evidence.status is EvidenceStatus.NOT_COMPILED and evidence.languages == ["cpp"]
    assert "OpenMP no" in evidence.reason and "-fopenmp" in evidence.advice[0]


@needs_nvcc
@pytest.mark.acceptance
def test_load_inline(collector: EvidenceCollector) -> None:
    """The torch headers make this one slow."""
    evidence = collector.collect(parts.problem(), parts.candidate(INLINE), "h200")
    assert evidence.status is EvidenceStatus.OK and evidence.host.by_name == {"relu": 1}
    [launch] = evidence.launches
    assert launch.kernel == "add_kernel" and launch.grid == [] and launch.resources is not None
