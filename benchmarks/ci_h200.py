"""`tilecast ci` on a GPU: a real repository in which one commit halves a tile, and others that change nothing or break something.

    python benchmarks/ci_h200.py --out "$OUT"

Writes ``ci_h200.json`` (every answer, and whether it is as it must be) and ``ci_h200.md`` (the comment on the halved tile).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write

REFERENCE = """
import torch
import torch.nn as nn

DOMAIN = "declared"
WORKLOADS = {"small": {"m": 96, "n": 160, "k": 224}, "other": {"m": 1000, "n": 1032, "k": 520}}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs(m=4096, n=4096, k=4096):
    return [torch.randn(m, k, dtype=torch.bfloat16), torch.randn(k, n, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
"""

TILES = """
import triton
import triton.language as tl


@triton.jit
def matmul_tiles(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    program = tl.program_id(0)
    across = tl.cdiv(N, BN)
    first = program // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    row = first + program % (GROUP * across) % height
    column = program % (GROUP * across) // height
    rows = row * BM + tl.arange(0, BM)
    columns = column * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16), mask=inside)
"""

KERNEL = """
import torch
import torch.nn as nn
import triton

from lib.tiles import matmul_tiles

CONFIG = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3}


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        a, b = a.contiguous(), b.contiguous()
        c = torch.empty((m, n), dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(m, CONFIG["BM"]) * triton.cdiv(n, CONFIG["BN"]),)
        matmul_tiles[grid](
            a, b, c, m, n, k, BM=CONFIG["BM"], BN=CONFIG["BN"], BK=CONFIG["BK"], GROUP=CONFIG["GROUP"],
            num_warps=CONFIG["num_warps"], num_stages=CONFIG["num_stages"],
        )
        return c
"""

CHANGES: dict[str, tuple[dict[str, tuple[str, str]], str]] = {
    "halves a tile": ({"kernels/matmul/kernel.py": ('"BM": 128', '"BM": 64')}, "slower"),
    "docs and a comment": (
        {"kernels/matmul/kernel.py": ("CONFIG =", "# The tile.\nCONFIG ="), "README.md": ("K", "k")},
        "",
    ),
    "renames a variable": ({"lib/tiles.py": ("total", "accumulated")}, "same"),
    "scales the products": (
        {"lib/tiles.py": ("total = tl.dot(a, b, total)", "total += tl.dot(a, b) * 1.02")},
        "incorrect",
    ),
}
"""Name -> (file -> what is replaced by what, verdict that the kernel must get; empty is not reached at all)."""


class Repository:
    """A git repository with the kernel, one commit for each change on top of the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")
        self.files = {
            "README.md": "# Kernels\n",
            "kernels/matmul/reference.py": REFERENCE,
            "kernels/matmul/kernel.py": KERNEL,
            "lib/tiles.py": TILES,
        }
        self.base = self.commit("kernels", self.files)

    def git(self, *arguments: str) -> str:
        """Run git here."""
        identity = {f"GIT_{who}_{what}": "tilecast" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        command = ["git", "-C", str(self.folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **identity}, check=True)
        return done.stdout.strip()

    def commit(self, message: str, files: dict[str, str]) -> str:
        """Write files and commit them."""
        for path, text in files.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def change(self, message: str, edits: dict[str, tuple[str, str]]) -> str:
        """A commit on top of the first."""
        self.git("checkout", "-q", "--detach", self.base)
        return self.commit(message, {path: self.files[path].replace(*edit) for path, edit in edits.items()})


def ci(repository: Repository, head: str, device: str, *more: str) -> tuple[int, str, float]:
    """Exit code, stdout and seconds of the command."""
    command = [sys.executable, "-m", "tilecast.agent.cli.app", "ci", "--folder", str(repository.folder)]
    command += ["--base", repository.base, "--head", head, "--device", device, *more]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, time.monotonic() - began


def told(report: dict[str, Any]) -> str:
    """The kernel's verdict; empty if it was not reached."""
    return report["kernels"][0]["verdict"] if report.get("kernels") else ""


def main() -> int:
    """Run every change; exit code 1 if an answer is not as it must be."""
    arguments = parser(__doc__)
    arguments.add_argument("--target", help="GPU to forecast for (default: the device's own)")
    given = arguments.parse_args()
    device = device_name(given.device)
    target = ("--target", given.target) if given.target else ()
    results = []
    with tempfile.TemporaryDirectory(prefix="tilecast-ci-") as folder:
        os.environ["TILECAST_HOME"] = str(Path(folder) / "home")
        (Path(folder) / "repository").mkdir()
        repository = Repository(Path(folder) / "repository")
        for name, (edits, expected) in CHANGES.items():
            head = repository.change(name, edits)
            code, out, took_s = ci(repository, head, device, *target, "--format", "json", "--fail-on", "regression")
            report = json.loads(out) if out.startswith("{") else {"error": out}
            right = told(report) == expected and code == (1 if expected in ("slower", "incorrect") else 0)
            results.append(
                {
                    "change": name,
                    "expected": expected,
                    "right": right,
                    "code": code,
                    "seconds": round(took_s, 1),
                    "report": report,
                }
            )
            print(f"{name}: {told(report) or 'not reached'}, exit {code}, {took_s:.1f} s", file=sys.stderr)
            if expected == "slower":
                # The second time nothing is measured: the pair is kept.
                _, markdown, again_s = ci(repository, head, device, *target)
                results[-1]["again_seconds"] = round(again_s, 1)
                given.out.mkdir(parents=True, exist_ok=True)
                (given.out / "ci_h200.md").write_text(markdown, encoding="utf-8")
    write(given.out, "ci_h200", {**header("ci_h200"), "root": ROOT.name, "results": results})
    return 0 if all(result["right"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
