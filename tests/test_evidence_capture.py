"""Evidence of real kernels, compiled for GPUs that are not here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import evidence_parts as parts
import pytest
import test_cuda

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.evidence import Evidence, EvidenceCollector, EvidenceStatus, resolve_target
from tilecast.sandbox.evidence_runner import ServerRunner
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.source import load_candidate

has_cutile = importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.tile") is not None


@pytest.fixture(scope="module")
def runner() -> Iterator[ServerRunner]:
    made = ServerRunner()
    yield made
    made.close()


@pytest.fixture
def collector(runner: ServerRunner) -> EvidenceCollector:
    return EvidenceCollector(None, compile_timeout_s=25.0, runners=[runner])


def test_a_launch_is_compiled_as_it_would_be_on_the_gpu(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(parts.ADD), "h200")
    assert evidence.status is EvidenceStatus.OK
    assert evidence.hardware == "h200" and evidence.target == "sm_90" and evidence.languages == ["triton"]
    [launch] = evidence.launches
    assert launch.grid == [1024, 1, 1] and launch.programs == 1024
    assert launch.signature == {"a": "*fp32:16", "b": "*fp32:16", "c": "*fp32:16", "n": "i32:16"}
    assert launch.constants["BLOCK"] == 1024 and launch.constants["num_warps"] == 4
    assert launch.argument_bytes == 3 * 4 << 20
    assert launch.resources is not None and launch.resources.spills == 0 and launch.resources.warps == 4
    # Alignment was seen: every thread loads 128 bits at a time.
    assert launch.instructions is not None and launch.instructions.global_load_bits == {"128": 4}
    assert launch.occupancy is not None and launch.waves == pytest.approx(
        1024 / (132 * launch.occupancy.blocks_per_sm), 1e-3
    )
    assert evidence.work is not None and evidence.work.compulsory_bytes == 3 * 4 << 20
    assert evidence.work.extra_passes == 0 and evidence.work.bound == "launch"
    assert evidence.work.roofline_ms == pytest.approx(3 * (4 << 20) / 4800e9 * 1e3, rel=1e-3)


def test_a_read_past_the_end_whose_value_nobody_uses_is_left_to_the_sanitizer(collector: EvidenceCollector) -> None:
    """What the test of it on a GPU stands on: a compiler may remove such a load."""
    [plain], [past] = (
        collector.collect(parts.problem(test_cuda.REFERENCE), parts.candidate(source), "h200").launches
        for source in (test_cuda.KERNEL, test_cuda.PAST)
    )
    assert plain.instructions is not None and plain.instructions.global_load_bits == {"128": 2}
    assert past.instructions is not None and past.instructions.global_load_bits == {"128": 2, "32": 1}


def test_the_workload_decides_the_specialisation(collector: EvidenceCollector) -> None:
    source = parts.ADD.replace("c = torch.empty_like(a)", "c = torch.empty_like(a); a = a[1:]; b = b[1:]")
    [launch] = collector.collect(parts.problem(), parts.candidate(source), "h200", "small").launches
    assert launch.grid == [1, 1, 1]
    assert launch.signature == {"a": "*fp32", "b": "*fp32", "c": "*fp32:16", "n": "i32"}
    assert launch.instructions is not None and set(launch.instructions.global_load_bits) == {"32"}


def test_an_unknown_workload_or_target_is_said(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(parts.ADD), "h200", "absent")
    assert evidence.work is None and "absent" in evidence.notes[-1]
    with pytest.raises(UsageError, match="h200"):
        collector.collect(parts.problem(), parts.candidate(parts.ADD), "gtx")
    with pytest.raises(UsageError, match="gfx942; did you mean H200"):
        resolve_target("h2000")
    assert resolve_target("NVIDIA A100").arch == "sm_80" and resolve_target("gfx942").hardware is None


def test_amd(collector: EvidenceCollector) -> None:
    [launch] = collector.collect(parts.problem(), parts.candidate(parts.ADD), "gfx942").launches
    assert launch.status is EvidenceStatus.OK
    assert launch.resources is not None and launch.resources.registers and launch.resources.scalar_registers
    assert launch.instructions is not None and launch.instructions.global_load_bits


def test_every_configuration_of_an_autotuned_kernel(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(parts.TUNED), "h200")
    [launch] = evidence.launches
    assert [v.config["BLOCK"] for v in launch.tuned] == [256, 2048] and launch.chosen == 0
    assert launch.grid == [4096, 1, 1] and launch.constants["EVEN"] is True
    assert all(v.status is EvidenceStatus.OK and v.resources is not None for v in launch.tuned)
    # The two operations before the launch are the candidate's, zeroing between benchmarks is not.
    assert evidence.host.count == 2 and set(evidence.host.by_name) == {"mul", "relu"}
    assert evidence.host.bytes_moved == 4 * 4 << 20
    assert evidence.work is not None and evidence.work.intermediate_bytes == 2 * 4 << 20
    assert evidence.work.extra_passes == pytest.approx(4 / 3, rel=1e-3)
    assert any("fuse" in line for line in evidence.advice)


def test_spills(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(parts.SPILLING), "h200")
    assert evidence.status is EvidenceStatus.SPILLS
    use, mix = evidence.launches[0].resources, evidence.launches[0].instructions
    assert use is not None and mix is not None
    assert use.stack_bytes and use.spills == use.stack_bytes // 4 and use.spill_store_bytes
    assert mix.local_store > 0
    assert "num_warps" in evidence.advice[0]


def test_too_much_shared_memory(collector: EvidenceCollector) -> None:
    big = parts.candidate(parts.MATMUL).with_config({"BM": 128, "BN": 128, "BK": 128, "num_stages": 5, "num_warps": 8})
    evidence = collector.collect(parts.problem(parts.MATMUL_PROBLEM), big, "h200")
    assert evidence.status is EvidenceStatus.OUT_OF_RESOURCES
    use = evidence.launches[0].resources
    assert use is not None and use.shared_bytes is not None and use.shared_bytes > 232448
    assert str(use.shared_bytes) in evidence.reason and "232448" in evidence.reason
    assert "num_stages" in evidence.advice[0]


def test_tensor_cores_and_flops(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(parts.MATMUL_PROBLEM), parts.candidate(parts.MATMUL), "sm_80")
    [launch] = evidence.launches
    assert launch.instructions is not None and launch.instructions.tensor_core_kinds == {"HMMA.16816.F32": 16}
    assert launch.instructions.loop["tensor_core"] == 16 and launch.instructions.async_copy > 0
    assert evidence.work is not None and evidence.work.flops == 2 * 1024**3


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (parts.ADD.replace("def forward(self, a, b):", "def forward(self, a, b)"), "SYNTAX_ERROR", "line 17"),
        (
            parts.ADD.replace("tl.load(a + at, mask=at < n)", "tl.lead(a + at)"),
            "COMPILE_ERROR",
            "add: line 13: `tl.store",
        ),
        (parts.ADD.replace("tl.arange(0, BLOCK)", "tl.arange(0, 100)"), "COMPILE_ERROR", "power of 2"),
        (parts.ADD.replace("+ tl.arange(0, BLOCK)", "+ CONFIG['BLOCK']"), "COMPILE_ERROR", "global variable"),
        (parts.ADD.replace("n = a.numel()", "n = a.numbers()"), "HOST_ERROR", "line 19: AttributeError"),
        (parts.ADD.replace("import torch\n", "import torch, absent_package\n"), "UNAVAILABLE", "absent_package"),
    ],
)
def test_each_failure_has_its_status(collector: EvidenceCollector, text: str, status: str, reason: str) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(text), "h200")
    assert evidence.status == status and reason in evidence.reason
    assert status == "UNAVAILABLE" or evidence.advice


def test_a_compiler_that_takes_for_ever(runner: ServerRunner) -> None:
    hasty = EvidenceCollector(None, compile_timeout_s=2.0, runners=[runner])
    evidence = hasty.collect(parts.problem(), parts.candidate(parts.ENDLESS), "h200")
    assert evidence.status is EvidenceStatus.COMPILE_TIMEOUT and "stopped after" in evidence.reason
    # Two seconds of the processor; by the clock up to three times that.
    assert evidence.launches[0].compile_s is not None and evidence.launches[0].compile_s < 8.0
    assert evidence.advice


def test_a_crashing_compiler_takes_nothing_else_with_it(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(parts.CRASHING), "h200")
    assert evidence.status is EvidenceStatus.COMPILER_CRASH and "SIGSEGV" in evidence.reason
    assert [launch.status for launch in evidence.launches] == ["OK", "COMPILER_CRASH"]
    assert evidence.launches[0].resources is not None and evidence.advice[0].startswith("second: ")


def test_host_code_that_reads_values_or_dies(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(parts.READS_VALUES), "h200")
    assert evidence.status is EvidenceStatus.OK and "values" in evidence.notes[0]
    assert evidence.host.by_name["add"] == 1
    dying = parts.READS_VALUES.replace("import torch\n", "import torch, os\n", 1).replace(
        "assert a.is_cuda", "os.abort() ; assert a"
    )
    evidence = collector.collect(parts.problem(), parts.candidate(dying), "h200")
    assert evidence.status is EvidenceStatus.HOST_ERROR and "died" in evidence.reason


def test_plain_torch_and_torch_compile(collector: EvidenceCollector) -> None:
    source = parts.READS_VALUES.replace("torch.add(a, b)", "torch.compile(lambda x, y: x + y)(a, b)")
    evidence = collector.collect(parts.problem(), parts.candidate(source), "h200")
    assert evidence.languages == ["torch"] and evidence.host.compiled and evidence.launches == []
    assert any("torch.compile" in note for note in evidence.notes)


@pytest.mark.skipif(not has_cutile, reason="cuTile is not installed")
def test_cutile(collector: EvidenceCollector) -> None:
    evidence = collector.collect(parts.problem(), parts.candidate(parts.CUTILE), "h200")
    assert evidence.status is EvidenceStatus.OK and evidence.languages == ["cutile"]
    [launch] = evidence.launches
    assert launch.grid == [1024, 1, 1] and launch.constants == {"TILE": 1024}
    assert launch.signature == {"a": "float32[1]:16", "b": "float32[1]:16", "c": "float32[1]:16"}
    assert launch.resources is not None and launch.resources.registers and launch.occupancy is not None
    refused = collector.collect(parts.problem(), parts.candidate(parts.CUTILE), "gfx942")
    assert refused.status is EvidenceStatus.UNAVAILABLE and "gfx942" in refused.reason


def _of_corpus(collector: EvidenceCollector, shared: Path, name: str, config: dict[str, int]) -> Evidence:
    folder = shared / "corpus" / "matmul"
    made = load_candidate(folder / "candidates" / f"{name}.py").with_config(config)
    return collector.collect(load_problem(folder), made, "h200")


@pytest.mark.skipif(not has_cutile, reason="cuTile is not installed")
def test_the_wrong_tile_shows(collector: EvidenceCollector, shared_dir: Path) -> None:
    good = _of_corpus(collector, shared_dir, "ct_01", {"TM": 128, "TN": 128, "TK": 64})
    bad = _of_corpus(collector, shared_dir, "ct_01", {"TM": 128, "TN": 256, "TK": 64})
    assert (good.status, bad.status) == (EvidenceStatus.OK, EvidenceStatus.SPILLS)
    assert good.launches[0].instructions is not None and good.launches[0].instructions.loop["local"] == 0
    assert bad.launches[0].instructions is not None and bad.launches[0].instructions.loop["local"] > 100


@pytest.mark.parametrize(("problem", "name"), [("matmul", "tr_05"), ("decode_attention", "tr_15")])
def test_recorded_resources(collector: EvidenceCollector, shared_dir: Path, problem: str, name: str) -> None:
    """Registers and spills as recorded on the GPU with the same Triton; a kernel that crashed its compiler does so here."""
    import json

    folder = shared_dir / "corpus" / problem
    rows = map(json.loads, (folder / "measurements.jsonl").read_text().splitlines())
    row = next(r for r in rows if r["candidate"] == name and r["config"] == {})
    evidence = collector.collect(load_problem(folder), load_candidate(folder / "candidates" / f"{name}.py"), "h200")
    if row["status"] != "PASSED":
        assert evidence.status is EvidenceStatus.COMPILER_CRASH
        return
    if not evidence.versions["triton"].startswith("3.6."):
        pytest.skip("recorded with Triton 3.6")
    for launch, kernel in zip(evidence.launches, row["kernels"], strict=True):
        use = launch.resources
        assert use is not None
        assert (use.registers, use.spills, use.shared_bytes) == (kernel["regs"], kernel["spills"], kernel["shared"])
