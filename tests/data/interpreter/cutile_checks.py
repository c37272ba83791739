"""Small cuTile kernels for the CPU stand-in. Run as a script: prints a JSON object, name -> "" or what was wrong."""

from __future__ import annotations

import json
import os
import sys
import traceback

os.environ["TRITON_INTERPRET"] = "1"

import torch
from tilecast.sandbox.harness.worker import interpreters

torch.set_num_threads(1)
interpreters.install("import cuda.tile as ct")

import cuda.tile as ct
from cuda.tile import Constant

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def run(grid, kernel, *arguments):
    ct.launch(torch.cuda.current_stream(), grid, kernel, arguments)


@ct.kernel(occupancy=ct.ByTarget(sm_90=2, default=1))
def matmul(a, b, c, TM: Constant[int], TN: ct.Constant[int], TK: ct.Constant):
    m, n = ct.bid(0), ct.bid(1)
    acc = ct.full((TM, TN), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
        x = ct.load(a, index=(m, k), shape=(TM, TK), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, index=(n, k), shape=(TN, TK), padding_mode=ct.PaddingMode.ZERO).transpose()
        acc = ct.mma(x, y, acc)
    ct.store(c, index=(m, n), tile=ct.astype(acc, c.dtype))


@check
def matmul_with_ragged_edges():
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float16, 4e-3), (torch.float32, 1e-5)):
        a, b = torch.randn(50, 70).to(dtype), torch.randn(40, 70).to(dtype)
        c = torch.full((50, 40), float("nan"), dtype=dtype)
        run((ct.cdiv(50, 32), ct.cdiv(40, 16)), matmul, a, b, c, 32, 16, 32)
        want = a.double() @ b.double().T
        assert ((c.double() - want).norm() / want.norm()).item() < tolerance
    assert isinstance(matmul.replace_hints(occupancy=4), type(matmul))


@ct.kernel
def dtypes(x, eps, out):
    v = ct.load(x, (0,), (8,))
    assert (v * 2).dtype is ct.bfloat16 and (v * 0.5).dtype is ct.bfloat16
    assert (v * eps).dtype is ct.float32 and (ct.arange(8, dtype=ct.int32) / 2).dtype is ct.float32
    assert (ct.arange(8, dtype=ct.int32) * v).dtype is ct.bfloat16
    assert (x.shape[0] * 0.5).dtype is ct.float32
    ct.store(out, (0,), v + v * 0.0078125)


@check
def dtype_rules_and_rounding():
    x, out = torch.randn(8).bfloat16(), torch.empty(8, dtype=torch.bfloat16)
    run((1,), dtypes, x, 1e-5, out)
    assert torch.equal(out, x + x * 0.0078125)


@ct.kernel
def mixed(x, y):
    ct.load(x, (0,), (4,)) + ct.load(y, (0,), (4,))


@check
def promotions_that_do_not_exist():
    for left, right in ((torch.float16, torch.bfloat16), (torch.int32, torch.uint8)):
        try:
            run((1,), mixed, torch.zeros(4, dtype=left), torch.zeros(4, dtype=right))
        except ct.TileTypeError:
            continue
        raise AssertionError(f"{left} + {right} was accepted")


@ct.kernel
def softmax(x, y, N: ct.Constant[int], SIZE: ct.Constant[int]):
    row = ct.bid(0)
    v = ct.load(x, (row, 0), (1, SIZE), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (row, 0), (e / ct.sum(e, axis=1, keepdims=True)).astype(ct.bfloat16))


@check
def softmax_with_padding():
    x, y = torch.randn(3, 50).bfloat16(), torch.empty(3, 50, dtype=torch.bfloat16)
    run((3, 1, 1), softmax, x, y, 50, 64)
    assert (y.float() - x.float().softmax(1)).abs().max() < 4e-3


@ct.kernel
def moves(x, out, index):
    i = ct.arange(8, dtype=ct.int32)
    g = ct.gather(x, (i.reshape((8, 1)), ct.load(index, (0,), (4,)).reshape((1, 4))), padding_value=-1)
    ct.scatter(out, (i[:, None], ct.arange(4, dtype=ct.int32)[None, :]), g, mask=(i < 6)[:, None])
    s = x.slice(axis=0, start=1, stop=3)
    ct.atomic_add(out, (ct.arange(2, dtype=ct.int32) * 0, 0), ct.load(s, (0, 0), (2, 1)).reshape((2,)))


@check
def gather_scatter_and_atomics():
    x, out = torch.arange(20.0).reshape(5, 4), torch.zeros(8, 4)
    run((1,), moves, x, out, torch.tensor([3, -1, 1, 9], dtype=torch.int32))
    want = torch.zeros(8, 4)
    want[:5, 0], want[:5, 2], want[:6, 1], want[:6, 3] = x[:, 3], x[:, 1], -1, -1
    want[5, 0] = want[5, 2] = -1
    want[0, 0] += 4 + 8
    assert torch.equal(out, want), out


@ct.kernel
def reductions(x, out):
    v = ct.load(x, (0, 0), (4, 8))
    ct.store(out, (0, 0), ct.cumsum(v, 1))
    ct.store(out, (1, 0), ct.broadcast_to(ct.reduce(v, 1, lambda a, b: ct.maximum(a, b), 0, keepdims=True), (4, 8)))
    ct.store(out, (2, 0), ct.scan(v, 1, lambda a, b: a + b, 0, reverse=True))
    ct.store(out, (3, 0), ct.broadcast_to(ct.astype(ct.argmax(v, 1, keepdims=True), ct.float32), (4, 8)))
    ct.store(out, (4, 0), ct.permute(ct.reshape(v, (4, 2, 4)), (0, 2, 1)).reshape((4, 8)))


@check
def reductions_scans_and_shapes():
    x, out = torch.randn(4, 8), torch.empty(20, 8)
    run((1,), reductions, x, out)
    want = [
        x.cumsum(1), x.amax(1, keepdim=True).expand(4, 8), x.flip(1).cumsum(1).flip(1),
        x.argmax(1, keepdim=True).float().expand(4, 8), x.reshape(4, 2, 4).permute(0, 2, 1).reshape(4, 8),
    ]  # fmt: skip
    assert (out - torch.cat(want)).abs().max() < 1e-5


@ct.kernel
def unchecked(x, out):
    ct.store(out, (0,), ct.gather(x, ct.arange(8, dtype=ct.int32), check_bounds=False))


@check
def out_of_bounds_is_an_error():
    try:
        run((1,), unchecked, torch.zeros(5), torch.zeros(8))
    except interpreters.OutOfBounds as error:
        assert "kernel unchecked" in str(error) and "(5,)" in str(error)
        return
    raise AssertionError("nothing was reported")


@ct.kernel
def transposed(x, y, T: ct.Constant[int]):
    tile = ct.load(x, (ct.bid(1), ct.bid(0)), (T, T), order="F")
    ct.store(y, (ct.bid(1), ct.bid(0)), tile)
    for i in ct.static_iter(range(2)):
        ct.static_assert(i < 2)


@check
def orders_and_strided_arrays():
    x, y = torch.randn(24, 16), torch.empty(16, 24)
    run((3, 2), transposed, x, y, 8)
    assert torch.equal(y, x.T)
    z = torch.empty(24, 16)
    run((2, 3), transposed, x.T, z, 8)
    assert torch.equal(z, x)


@check
def missing_things_are_named():
    for use in (lambda: ct.mma_scaled(), lambda: ct.compilation.export_kernel, lambda: ct.something_new):
        try:
            use()
        except interpreters.Unsupported as error:
            assert error.feature.startswith("cuda.tile.")
            continue
        raise AssertionError("nothing was raised")


@check
def wrong_use_is_refused():
    for use, error in (
        (lambda: matmul(1, 2, 3), TypeError),
        (lambda: run((1, 1, 1, 1), softmax, torch.zeros(1, 4), torch.zeros(1, 4), 4, 4), interpreters.LaunchError),
        (lambda: run((1,), softmax, torch.zeros(1, 4)), interpreters.LaunchError),
        (lambda: ct.kernel(occupancy=64)(lambda x: None), ValueError),
        (lambda: ct.full((3,), 0, ct.float32), ct.TileTypeError),
    ):
        try:
            use()
        except error:
            continue
        raise AssertionError("accepted")


def main() -> None:
    results = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        try:
            function()
            results[name] = ""
        except BaseException:
            results[name] = traceback.format_exc()[-1500:]
    json.dump({"results": results}, sys.stdout)


if __name__ == "__main__":
    main()
