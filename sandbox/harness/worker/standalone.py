"""One candidate called a few times in a process of its own, for tools that must start the process they watch.

Runs confined, under Nsight Compute or compute-sanitizer: ``python -m tilecast.sandbox.harness.worker.standalone CASE.json``.
The case names the candidate's file and raw bytes of its arguments, parameters and inputs. Nothing it prints is trusted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.tensors import TensorSpec, decode_tree, place
from tilecast.sandbox.harness.worker import builds
from tilecast.sandbox.harness.worker.loading import construct, load_source
from tilecast.sandbox.harness.worker.tool import FINISHED


def main(case_file: str) -> int:
    """Construct, warm up, then make the calls that are watched."""
    file = Path(case_file)
    case = json.loads(file.read_text(encoding="utf-8"))
    device = torch.device(case["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)  # Triton launches on the current one
    if "cpp_extension" in case["source"]:
        builds.prepare()
    raw = torch.frombuffer(bytearray((file.parent / "case.bin").read_bytes()) or bytearray(1), dtype=torch.uint8)
    tensors = [_tensor(raw, item, device) for item in case["tensors"]]
    module = construct(
        load_source(case["source"], "candidate", str(device)), "ModelNew", _decode(case["arguments"], tensors), device
    )
    state = {name: tensors[index] for name, index in case["state"].items()}
    if state:
        module.load_state_dict(state, strict=False)
    inputs = _decode(case["inputs"], tensors)
    with torch.no_grad():
        for _ in range(int(case["warm_calls"])):
            module(*_copies(inputs))
        # Copies are made before: a profile is to show the candidate's kernels only.
        watched = [_copies(inputs) for _ in range(int(case["calls"]))]
        with _profiled() if device.type == "cuda" else nullcontext():
            for arguments in watched:
                module(*arguments)
    (file.parent / FINISHED).touch()
    return 0


@contextmanager
def _profiled() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    yield
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def _tensor(raw: Tensor, item: dict[str, Any], device: torch.device) -> Tensor:
    spec = TensorSpec.from_message(item["spec"])
    return place(raw[item["at"] : item["at"] + max(spec.extent, 0)].clone(), spec).to(device)


def _decode(tree: dict[str, Any], tensors: list[Tensor]) -> list[Any]:
    return list(decode_tree(tree, tensors))


def _copies(values: list[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
