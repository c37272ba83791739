"""What pruning by forecast saves an autotuned kernel: configurations benchmarked, wall time, and the speed of the chosen one.

    python benchmarks/autotune_prune.py --top-k 8

Needs a CUDA GPU of the catalogue, torch and triton (minutes: the whole space is compiled). The same matmul is autotuned once over
the ``--top-k`` configurations that the performance model ranks first and once over its whole space, each from empty caches.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import _bootstrap  # first: makes `tilecast` importable from the checkout
import torch
import triton
import triton.language as tl

from tilecast.tools.forecast.autotune import perf_model

SPACE = {
    "BM": [64, 128, 256],
    "BN": [64, 128, 256],
    "BK": [32, 64],
    "GROUP": [8],
    "num_warps": [4, 8],
    "num_stages": [3, 4],
}


def grid(meta: Any) -> tuple[int, ...]:
    """Programs of one launch."""
    return (triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"]),)


def configurations() -> list[triton.Config]:
    """Every point of the space whose accumulator fits into registers."""
    found = []
    for values in itertools.product(*SPACE.values()):
        point = dict(zip(SPACE, values, strict=True))
        warps, stages = point.pop("num_warps"), point.pop("num_stages")
        if point["BM"] * point["BN"] > 32 * warps * 255:
            continue  # the accumulator alone is more than the registers of the block: nobody would list these
        found.append(triton.Config(point, num_warps=warps, num_stages=stages))
    return found


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    gm = tl.cdiv(M, BM)
    gn = tl.cdiv(N, BN)
    width = GROUP * gn
    first = (pid // width) * GROUP
    size = tl.minimum(gm - first, GROUP)
    rm = (first + (pid % width) % size) * BM + tl.arange(0, BM)
    rn = ((pid % width) // size) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16))


def run(name: str, prune: dict[str, Any] | None, operands: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    """Tune once from empty caches and time what was chosen."""
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="autotune_")
    if hasattr(matmul, "device_caches"):
        matmul.device_caches.clear()
    measured = 0

    def counting(call: Any, quantiles: Any = None) -> Any:
        nonlocal measured
        measured += 1
        if measured % 10 == 0:
            print(f"{name}: {measured} configurations benchmarked", file=sys.stderr, flush=True)
        return triton.testing.do_bench(call, warmup=25, rep=100, quantiles=quantiles)

    tuned = triton.autotune(configs=configurations(), key=["M", "N", "K"], prune_configs_by=prune, do_bench=counting)(
        matmul
    )
    a, b, c = operands
    sizes = (a.shape[0], b.shape[1], a.shape[1])
    torch.cuda.synchronize()
    started = time.perf_counter()
    tuned[grid](a, b, c, *sizes)
    torch.cuda.synchronize()
    tuning_s = time.perf_counter() - started
    best_ms = triton.testing.do_bench(lambda: tuned[grid](a, b, c, *sizes), warmup=100, rep=500, quantiles=[0.5])
    wrong = float((c.float() - a.float() @ b.float()).norm() / c.float().norm())
    return {
        "name": name,
        "benchmarked": measured,
        "tuning_s": tuning_s,
        "chosen": str(tuned.best_config),
        "ms": best_ms,
        "error": wrong,
    }


def main() -> None:
    """Both runs, and their ratio, as one JSON document."""
    parser = _bootstrap.parser(__doc__)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--size", type=int, default=4096)
    given = parser.parse_args()
    n = given.size
    make = {"device": "cuda", "dtype": torch.bfloat16}
    operands = (torch.randn(n, n, **make), torch.randn(n, n, **make), torch.empty(n, n, **make))
    model = perf_model(__file__, "matmul", grid)
    pruned = run("pruned by forecast", {"perf_model": model, "top_k": given.top_k}, operands)
    whole = run("whole space", None, operands)
    cublas_ms = triton.testing.do_bench(lambda: torch.mm(operands[0], operands[1], out=operands[2]), quantiles=[0.5])
    document = {
        **_bootstrap.header("autotune_prune"),
        "device": torch.cuda.get_device_name(),
        "size": n,
        "space": len(configurations()),
        "runs": [pruned, whole],
        "cublas_ms": cublas_ms,
        "speed_kept": whole["ms"] / pruned["ms"],
        "time_saved": 1 - pruned["tuning_s"] / whole["tuning_s"],
    }
    _bootstrap.write(given.out, "autotune_prune", document)


if __name__ == "__main__":
    main()
