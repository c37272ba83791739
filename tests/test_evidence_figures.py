"""Evidence's arithmetic and parsing, on hand-made input."""

from __future__ import annotations

import os
import signal
import struct
import time

import pytest

from tilecast.sandbox.hardware import require_hardware
from tilecast.sandbox.harness.evidence import advice, cubin, cuda_compile, failures, isolate, occupancy, sass
from tilecast.sandbox.harness.evidence.cutile_compile import read_remarks

H200 = require_hardware("h200").model_dump()

LISTING = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_1:
        /*0020*/              @!P0 LDGSTS.E.BYPASS.LTC128B.128 [R5], desc[UR4][R2.64] ;
        /*0030*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24 ;
.L_x_3:
        /*0034*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R2], R3 ;
        /*0038*/              @!P1 BRA `(.L_x_3) ;
        /*0040*/                   LDL.64 R10, [R1] ;
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0060*/               @P1 BRA `(.L_x_1) ;
        /*0070*/                   MUFU.EX2 R7, R7 ;
        /*0080*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
        /*0090*/                   EXIT ;
.L_x_2:
        /*00a0*/                   BRA `(.L_x_2);
        /*00b0*/                   NOP;
"""


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "blocks", "limiter"),
    [
        (32, 0, 8, 8, "registers"),  # 65536 / (32 * 256) = 8 blocks; 64 / 8 = 8 too
        (255, 0, 4, 2, "registers"),  # 8192 a warp, 2 a partition, 8 warps in all
        (40, 98304, 4, 2, "shared"),  # 233472 / (98304 + 1024)
        (16, 0, 1, 32, "blocks"),
        (24, 0, 16, 4, "warps"),
        (255, 0, 12, 0, "registers"),  # 12 warps of 8192 registers are more than there are
    ],
)
def test_occupancy(registers: int, shared: int, warps: int, blocks: int, limiter: str) -> None:
    found = occupancy.nvidia(registers, shared, warps, H200)
    assert (found["blocks_per_sm"], found["limiter"]) == (blocks, limiter)
    assert found["fraction"] == pytest.approx(blocks * warps / 64, abs=1e-4)


def test_occupancy_on_amd() -> None:
    # 96 registers: five waves a SIMD, twenty a compute unit; 32 KiB of LDS: two blocks.
    found = occupancy.amd(96, 32768, 4)
    assert found["limits"] == {"warps": 8, "registers": 5, "shared": 2, "blocks": 32} and found["limiter"] == "shared"


def test_instruction_mix() -> None:
    mix = sass.instruction_mix(LISTING)
    assert mix["total"] == 13
    assert mix["tensor_core_kinds"] == {"HGMMA.64x128x16.F32.BF16": 1}
    assert mix["global_load_bits"] == {"128": 1} and mix["global_store_bits"] == {"16": 1}
    assert (mix["async_copy"], mix["barriers"], mix["special_function"], mix["local_load"]) == (1, 2, 1, 1)
    # The loop that waits inside the main one does not hide it.
    assert mix["loop"]["total"] == 7 and mix["loop"]["local"] == 1 and mix["loop"]["tensor_core"] == 1


def test_what_is_no_cubin_is_refused() -> None:
    for image in (b"", b"not an ELF file at all" * 9, b"\x7fELF\x01" + bytes(80)):
        with pytest.raises(cubin.NotACubin):
            cubin.kernels(image)


def _cubin() -> bytes:
    """An ELF file with one kernel of 40 registers, 16 bytes of stack and 512 bytes of shared memory."""
    strings = b"\0k\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0, 0, 0, 0, 0)
    info = struct.pack("<BBHII", 4, 0x2F, 8, 1, 40) + struct.pack("<BBHII", 4, 0x12, 8, 1, 16)
    own = struct.pack("<BBHIII", 4, 0x10, 12, 64, 2, 1)
    parts = [("", b""), (".shstrtab", b""), (".strtab", strings), (".symtab", symbols), (".nv.info", info)]
    parts += [(".nv.info.k", own), (".text.k", bytes(64)), (".nv.shared.k", bytes(512))]
    names = b"\0".join(name.encode() for name, _ in parts) + b"\0"
    parts[1] = (".shstrtab", names)
    body, headers, at = b"", b"", 64
    for name, content in parts:
        offset = names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        headers += struct.pack("<IIQQQQIIQQ", offset, 1, 0, 0, at + len(body), len(content), 0, 0, 1, 0)
        body += content
    start = 64 + len(body)
    head = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, start, 0, 64, 0, 0, 64, 8, 1)
    )
    return head + body + headers


def test_resources_of_a_cubin() -> None:
    assert cubin.kernels(_cubin()) == [cubin.KernelUse("k", 40, 16, 512, 64, 128)]


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ({"timeout": 20.0, "log": ""}, "COMPILE_TIMEOUT", "20.0 s"),
        ({"starved": 3.0, "log": ""}, "NOT_COMPILED", "3.0 s"),
        ({"died": -11, "log": "x\nAssertion `y' failed.\n"}, "COMPILER_CRASH", "SIGSEGV): Assertion"),
        ({"died": -9, "log": ""}, "COMPILER_CRASH", "out of memory?"),
        ({"error": {"type": "RuntimeError", "message": "PassManager::run failed"}}, "COMPILER_CRASH", "PassManager"),
        ({"error": {"type": "PTXASError", "message": "`ptxas` raised SIGSEGV"}}, "COMPILER_CRASH", "SIGSEGV"),
        (
            {"error": {"type": "PTXASError", "message": "ptxas error   : Entry uses too much shared data (0x1 bytes)"}},
            "OUT_OF_RESOURCES",
            "too much shared data",
        ),
        (
            {
                "error": {
                    "type": "CompilationError",
                    "message": "Both operands must be same dtype",
                    "line": 4,
                    "text": "a",
                }
            },
            "COMPILE_ERROR",
            "line 4: `a`: Both",
        ),
    ],
)
def test_failures_become_statuses(answer: dict[str, object], status: str, words: str) -> None:
    outcome = failures.explain(answer)
    assert outcome["status"] == status and words in outcome["reason"]
    assert outcome["advice"] or status == "NOT_COMPILED"


def test_nvcc_errors() -> None:
    text = '/tmp/x/kernel.cu(12): error: identifier "q" is undefined\n1 error detected\n'
    assert cuda_compile.read_errors(text, 2)["reason"] == 'CUDA source line 12: identifier "q" is undefined'
    shared = "ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes, 0xc000 max)"
    assert cuda_compile.read_errors(shared, 255)["status"] == "OUT_OF_RESOURCES"
    assert cuda_compile.short_name("_Z5scaleILi256EEvPKfPfi") == "scale" and cuda_compile.short_name("add") == "add"


def test_remarks_are_one_line_each() -> None:
    text = (
        "--- !Missed\nPass: Memory\nName: X\nDebugLoc:        { File: 'k.py', Line: 10, Column: 12 }\nArgs:\n"
        "  - RemarkId:    1\n  - Remark:      Load is not vectorised\n  - Shape:       '[64, 128]'\n...\n"
    )
    assert read_remarks(text) == ["line 10: missed: Load is not vectorised ([64, 128])"]


def test_advice_names_the_worst_first() -> None:
    slow = {"kernel": "a", "status": "OK", "waves": 0.1, "programs": 13, "count": 1, "language": "triton"}
    broken = {"kernel": "b", "status": "COMPILER_CRASH", "advice": "rewrite", "count": 1, "language": "triton"}
    work = {"compulsory_bytes": 100, "flops": 0, "extra_passes": 2.0}
    lines = advice.advise([slow, broken], work, {"count": 1}, "sm_90")
    assert (
        lines[0] == "b: rewrite"
        and "10%" in lines[1]
        and lines[-1].startswith("3 launches and torch operations move 3.0")
    )


def test_warp_specialization_is_warned_of_where_it_hung() -> None:
    mix = {"register_reallocation": 3, "tensor_core": 8}
    launch = {"kernel": "a", "status": "OK", "language": "triton", "count": 1, "instructions": mix}
    assert "warp specialization" in advice.advise([launch], None, {}, "sm_90")[0]
    assert advice.advise([launch], None, {}, "sm_100") == []
    assert advice.advise([launch | {"language": "cutile"}], None, {}, "sm_90") == []


def test_a_child_that_hangs_is_killed_with_its_own() -> None:
    started = time.monotonic()
    answer = isolate.call(lambda: {"never": os.system("sleep 60")}, isolate.Budget(0.2, started + 60.0))
    assert 0.6 <= answer["timeout"] < 5.0 and time.monotonic() - started < 8.0
    answer = isolate.call(lambda: {"never": os.system("sleep 60")}, isolate.Budget(20.0, time.monotonic() + 0.2))
    assert answer["starved"] < 5.0


def test_processor_time_is_what_counts() -> None:
    def spin() -> dict[str, object]:
        while True:
            pass

    answer = isolate.call(spin, isolate.Budget(0.3, time.monotonic() + 60.0))
    assert answer["timeout"] >= 0.3


def test_a_child_that_dies_is_named() -> None:
    def die() -> dict[str, object]:
        os.write(2, b"last words")
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    assert isolate.call(die, isolate.Budget(10.0, time.monotonic() + 30.0)) == {"died": -9, "log": "last words"}
    assert isolate.call(lambda: {"value": 1}, isolate.Budget(10.0, time.monotonic() + 30.0)) == {"value": 1, "log": ""}
