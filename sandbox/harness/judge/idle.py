"""What an idle judge does: it gives back what torch keeps of a device that it shares, for nobody can ask it to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import torch

from tilecast.sandbox.harness.device_memory import give_back
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.room import kept_bytes
from tilecast.sandbox.harness.wire import Channel, Message, WireTimeout

IDLE_S = 2.0
"""A judge at work gets its next request at once."""


def next_request(channel: Channel, rest: Callable[[], None]) -> Message:
    """Wait for the next request; ``rest`` is called once, if none came for a while.

    Raises:
        WireClosed: if the host is gone.
    """
    try:
        return channel.receive(IDLE_S)
    except WireTimeout:
        rest()
    return channel.receive(None)


def rest(device: torch.device, quiet: Quiet, references: Iterable[Reference]) -> None:
    """Give memory back, here and in the references' workers, as far as others on the device may want it."""
    over = kept_bytes(device, quiet.sharers)
    if over is None:
        return
    with quiet.shared(), suppress(RuntimeError):  # a device that is broken shows with the next request
        for reference in references:
            reference.rest(over)
        give_back(device, over, idle=True)
