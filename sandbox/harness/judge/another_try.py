"""Another try for what is nobody's fault: memory that other judges had, a worker of the judge's own that ended."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from tilecast.sandbox.harness.judge.failure import HelperLost, OutOfDeviceMemory, ProblemRefused
from tilecast.sandbox.harness.wire import Message

TRIES_BESIDE_OTHERS = 3
PAUSE_S = 2.0
_SHOWN_CHARS = 240
_FULL = "device memory ran out beside other judges"


def with_another_try(
    work: Callable[[], Message],
    device: torch.device,
    sharers: int,
    give_room: Callable[[], None],
    progress: Callable[[str], None],
) -> Message:
    """Do it, and again where that may help, with all that this judge keeps given back before.

    Only the last try's failure is believed. A judge that has the device to itself tries again only if it lost a worker.
    The answer's ``seconds`` are those of all tries that were answered: the device was used in each.

    Raises:
        OutOfDeviceMemory, torch.OutOfMemoryError, HelperLost, ProblemRefused: as the last try raised it.
    """
    tries = 1 if sharers == 1 else TRIES_BESIDE_OTHERS
    number, spent_s = 0, 0.0
    failed: list[str] = []
    while True:
        number += 1
        why, last = "", number >= tries
        try:
            answer = work()
            if "seconds" in answer:
                answer["seconds"] = spent_s = answer["seconds"] + spent_s
            if last or answer.get("status") != "OUT_OF_MEMORY":
                return _told(answer, failed)
            why = f"{_FULL} ({answer.get('reason')})"
        except HelperLost as lost:
            if number >= max(2, tries):
                raise
            why = str(lost)
        except (OutOfDeviceMemory, torch.OutOfMemoryError) as error:
            if last:
                raise
            why = f"{_FULL} ({error})"
        except ProblemRefused as refusal:
            if last or refusal.status != "OUT_OF_MEMORY":
                raise
            why = f"{_FULL} ({refusal})"
        progress(f"{why[:_SHOWN_CHARS]}: once more")
        failed.append(why[:_SHOWN_CHARS])
        give_room()
        if device.type == "cuda":
            time.sleep(PAUSE_S * number)


def _told(answer: Message, failed: list[str]) -> Message:
    """The answer, with what went wrong before among its checks."""
    if failed and isinstance(answer.get("checks"), list):
        detail = f"not the candidate's fault, and done once more: {'; '.join(failed)}"
        answer["checks"] = [*answer["checks"], {"name": "another try", "passed": True, "detail": detail}]
    return answer
