"""Does once, before forking, what the first compilation and the first virtual tensor in a process pay for."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile

from tilecast.sandbox.harness.evidence import cutile_compile


def warm() -> None:
    """Find the compilers' versions, compile an empty kernel, touch the operators' shape functions; children inherit it all."""
    for name in ("torch.fx.experimental.symbolic_shapes", "torch._meta_registrations", "torch._refs", "torch._decomp"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _touch_operators()
    with tempfile.TemporaryDirectory(prefix="evidence-warm-") as folder, _triton_cache(folder):
        _compile_empty()
    with contextlib.suppress(ImportError):
        cutile_compile.remember_compiler()


def _touch_operators() -> None:
    import torch

    from tilecast.sandbox.harness.evidence.recording import OpRecorder
    from tilecast.sandbox.harness.evidence.virtual import VirtualDevice, forget_storages

    recorder = OpRecorder(skip_heavy=False)
    with torch.no_grad(), VirtualDevice("meta", recorder.attention), recorder:
        layer = torch.nn.Linear(16, 16, dtype=torch.float32)
        rows = torch.randn(16, 16)
        layer(torch.relu(rows + 1)).float().softmax(-1).sum(-1).contiguous()
        torch.empty_like(rows).zero_()
        torch.randint(0, 4, (4,))
    forget_storages()


@contextlib.contextmanager
def _triton_cache(folder: str):  # type: ignore[no-untyped-def]
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRITON_CACHE_DIR"]
        else:
            os.environ["TRITON_CACHE_DIR"] = before


def _compile_empty() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from tilecast.sandbox.harness.evidence.empty_kernel import empty

    compile(ASTSource(fn=empty, signature={"pointer": "*fp32"}, constexprs={}), target=GPUTarget("cuda", 90, 32))
