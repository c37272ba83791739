"""The named jobs that a confined worker can run; anything else is refused."""

from __future__ import annotations

from typing import Any

from tilecast.sandbox.harness.wire import Channel
from tilecast.sandbox.harness.worker import launch_stubs, tool
from tilecast.sandbox.harness.worker import main as worker

_SERVED = ("candidate", "reference")


def run(name: str, args: dict[str, Any], channel: Channel) -> int:
    """Run one job in this process and return its exit status.

    ``candidate`` and ``reference`` answer requests until the judge hangs up; ``evidence`` answers once, with
    ``{"result": …}`` or ``{"failed": why}``, and so does ``stubs``; ``tool`` becomes another program.
    """
    if name in _SERVED:
        return worker.serve(name, args, channel)
    if name == "evidence":
        return _once(args, channel)
    if name == "stubs":
        channel.send({"result": launch_stubs.build(args)})
        return 0
    if name == "tool":
        return tool.run(args, channel)
    channel.send({"failed": f"there is no job {name!r}"})
    return 2


def _once(args: dict[str, Any], channel: Channel) -> int:
    from tilecast.sandbox.harness.evidence import job

    channel.send({"result": job.run(args)}, timeout_s=None)
    return 0
