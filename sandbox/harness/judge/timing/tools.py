"""NVIDIA's tools around one candidate, confined: found, run within a time limit, their report read back as text."""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.surroundings import harness_path, limits_for
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import TensorSpec, bytes_in, encode_tree
from tilecast.sandbox.harness.wire import WireClosed, WireError
from tilecast.sandbox.harness.worker.tool import FINISHED, LIBRARY

REPORT = "report.txt"
_REPORT_BYTES = 4 << 20
SHOWN_CHARS = 200
_PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/nsight-compute/*")


class ToolFailed(Exception):
    """The tool took too long or wrote nothing; the text says which."""


class NotOnThisMachine(ToolFailed):
    """It is not there, or may not work here, whatever it is asked to watch."""


@dataclass(frozen=True)
class Report:
    """What a tool wrote into its report, the end of what it and its program printed, and whether the program made all calls."""

    text: str
    log: str
    finished: bool


def find_tool(name: str) -> str | None:
    """Path of one of NVIDIA's programs, on the path or where its toolkit is usually installed."""
    found = shutil.which(name)
    places = [place for pattern in _PLACES for place in sorted(glob.glob(pattern), reverse=True)]
    return found or next((f"{place}/{name}" for place in places if os.access(f"{place}/{name}", os.X_OK)), None)


def run_tool(
    zygotes: Zygotes,
    program: Sequence[str],
    case: WorkloadCase,
    source: str,
    inputs: Sequence[Any],
    *,
    device: str,
    limit_s: float,
) -> Report:
    """Run ``program`` (its report goes to ``{cache}/report.txt``) around a few calls of the candidate.

    Raises:
        NotOnThisMachine: if it cannot be run here.
        ToolFailed: if it did not end, or wrote nothing.
    """
    if zygotes.abilities()["namespaces"] == "none":
        raise NotOnThisMachine(f"{program[0]} needs a network namespace of its own, which this machine does not give")
    folder = Path(tempfile.mkdtemp(prefix="tilecast-tool-"))
    folder.chmod(0o777)
    try:
        write_case(folder, case, source, inputs, device)
        _add_library(folder)
        limits = replace(limits_for("cuda"), cpu_s=int(limit_s) + 30)
        arguments = {"device": device, "program": list(program)}
        worker = zygotes.spawn_job("tool", arguments, limits, cache=str(folder), loopback=True)
        try:
            ended = _wait(worker, limit_s)
            log = worker.log_tail()
        finally:
            worker.kill()
        report = folder / REPORT
        if not ended:
            raise ToolFailed(f"{program[0]} did not finish within {limit_s:g} s: {log[-SHOWN_CHARS:] or 'no output'}")
        if not report.is_file() or report.is_symlink():
            raise ToolFailed(f"{program[0]} wrote no report: {log or 'no output'}")
        with report.open("rb") as file:
            text = file.read(_REPORT_BYTES).decode("utf-8", "replace")
        return Report(text, log, (folder / FINISHED).exists())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _add_library(folder: Path) -> None:
    """Where a new Python finds the harness: a worker is a fork that has it already, but a tool starts a program of its own.

    However this package was installed, of it there is one folder in the sandbox, which is linked to under its name.
    """
    place = folder / LIBRARY / "tilecast" / "sandbox"
    place.mkdir(parents=True)
    (place / "harness").symlink_to(harness_path())


def _wait(worker: Any, limit_s: float) -> bool:
    """Whether it ended in time; a message before that says that it never started."""
    end = time.monotonic() + limit_s
    try:
        message = worker.channel.receive(5.0)
        raise NotOnThisMachine(str(message.get("failed", message))[:300])
    except WireClosed:
        pass  # the program has taken the process over, which closes the channel
    except WireError as error:
        raise NotOnThisMachine(f"the tool did not start: {error}") from error
    while time.monotonic() < end:
        if worker.wait_status(0.0) is not None:
            return True
        time.sleep(0.05)
    return False


def write_case(folder: Path, case: WorkloadCase, source: str, inputs: Sequence[Any], device: str) -> None:
    """What the standalone runner reads: JSON, and the raw bytes of every tensor in it."""
    tensors: list[Tensor] = []
    document: dict[str, Any] = {
        "device": device,
        "source": source,
        "warm_calls": 2,
        "calls": 1,
        "arguments": encode_tree(list(case.arguments), tensors),
        "inputs": encode_tree(list(inputs), tensors),
    }
    document["state"] = {name: len(tensors) + index for index, name in enumerate(case.state)}
    tensors += case.state.values()
    blob, items = bytearray(), []
    for tensor in tensors:
        spec = TensorSpec.dense(tuple(tensor.shape), tensor.dtype)
        items.append({"at": len(blob), "spec": spec.to_message()})
        if spec.extent:
            blob += bytes(bytes_in(tensor.detach()).cpu().numpy())
        blob += bytes(-len(blob) % 64)
    document["tensors"] = items
    (folder / "case.bin").write_bytes(blob)
    (folder / "case.json").write_text(json.dumps(document), encoding="utf-8")
