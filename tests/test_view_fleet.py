"""The evaluators on screen: plain lines and the live picture."""

from __future__ import annotations

import io

from rich.console import Console

from tilecast.agent.cli.view import LiveView, PlainView
from tilecast.agent.progress import Fleet
from tilecast.sandbox.base import WorkerState

STARTING = WorkerState(name="worker 1 on a", device="", state="starting")
IDLE = WorkerState(name="worker 1 on a GPU-01", device="NVIDIA H200", state="idle")
BUSY = WorkerState(name="worker 2 on b GPU-02", device="NVIDIA H200", state="busy", item="triton_007", done=4)
OTHER = WorkerState(name="worker 3 on c GPU-03", device="NVIDIA A100", state="idle", role="verifies")


def test_plain_lines_tell_each_evaluator_once_and_the_dashboard() -> None:
    stream = io.StringIO()
    view = PlainView(stream)
    view(Fleet((STARTING,), "http://head:8265"))
    assert stream.getvalue() == ""
    view(Fleet((IDLE, BUSY), "http://head:8265"))
    view(Fleet((IDLE.model_copy(update={"done": 1}), BUSY, OTHER), "http://head:8265"))
    assert stream.getvalue().splitlines() == [
        "dashboard http://head:8265",
        "worker 1 on a GPU-01: NVIDIA H200",
        "worker 2 on b GPU-02: NVIDIA H200",
        "worker 3 on c GPU-03: NVIDIA A100, only verifies",
    ]


def test_the_live_picture_shows_what_each_evaluator_does() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    view = LiveView(console)
    try:
        view(Fleet((IDLE, BUSY, *[OTHER] * 9), "http://head:8265"))
        shown = Console(width=100, record=True, file=io.StringIO())
        shown.print(view._picture())
        text = shown.export_text()
    finally:
        view.close()
    assert "evaluators  1 busy, 10 idle · http://head:8265" in text
    assert "worker 2 on b GPU-02: NVIDIA H200, 4 done, busy triton_007" in text
    assert "and 3 more" in text
