"""A worker as timing uses it: a pool of inputs in its shared memory, legs of calls over them, outputs read back and checked.

Contents are drawn anew for every leg and never used twice, so a cache of answers, whatever its key, has nothing to repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import Tensor

from tilecast.sandbox.harness.judge.failure import Failure, WorkerFailed
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.shared_memory import Prepared
from tilecast.sandbox.harness.judge.timing.interference import waited_ms
from tilecast.sandbox.harness.judge.timing.lead import FEWEST
from tilecast.sandbox.harness.judge.timing.statistics import Floats
from tilecast.sandbox.harness.tensors import BadSpec, TensorSpec

Mode = Literal["cold", "warm", "empty"]


@dataclass
class Content:
    """One set of inputs, drawn once and used for one call of each side.

    ``expected`` are the eager reference's outputs on it, once known; the judge's private memory.
    """

    inputs: list[Any]
    seed: int | None = None
    expected: list[Tensor] | None = None


@dataclass(frozen=True)
class LegRun:
    """Raw observations of one leg, milliseconds. ``outputs`` are private copies, one list a call."""

    inner_ms: Floats
    worker_ms: float
    judge_ms: float
    outputs: list[list[Tensor | None]]
    claims: list[list[dict[str, Any]]]
    findings: list[dict[str, str]]
    joined_by_synchronising: int = 0
    queueing_ms: float = 0.0
    """What the host took to queue a call, as the worker says; only makes the lead longer."""


@dataclass
class TimedWorker:
    """A session whose module is ready to be called, with its pool.

    Attributes:
        session: the worker.
        output_specs: what a call returns, by the reference.
        pool: inputs and room for outputs, one entry for each call of a leg.
    """

    session: Session
    output_specs: Sequence[TensorSpec]
    pool: list[Prepared] = field(default_factory=list)
    _pids: list[int] | None = None

    def leg(
        self,
        contents: Sequence[Content],
        mode: Mode,
        flush_bytes: int = 0,
        *,
        flushes: int = FEWEST,
        read: bool = True,
    ) -> LegRun:
        """Put the contents in, make the calls (each after so many flushes), read the outputs.

        Raises:
            WorkerFailed: as the session raises it, and for an answer that makes no sense.
        """
        self._fill(contents)
        batch = self.pool[: len(contents)]
        for prepared in batch:
            self.session.memory.poison_outputs(prepared)
        calls = [
            prepared.to_message() | {"seed": content.seed} for prepared, content in zip(batch, contents, strict=True)
        ]
        message = {"op": "leg", "mode": mode, "flush_bytes": flush_bytes, "flushes": flushes, "calls": calls}
        reply, judge_ms = self.session.timed(message, "timed calls")
        try:
            run = self._parse(reply, batch, judge_ms, read=read and mode != "empty")
            if mode != "empty" and not bool((run.inner_ms > 0).all()):
                raise BadSpec("a call took no time at all")
            return run
        except (KeyError, TypeError, ValueError) as error:
            reason = f"the answer to timed calls makes no sense: {str(error)[:200]}"
            raise WorkerFailed(Failure("REWARD_HACK", reason, "forged-answer"), self.session.options.whose) from error

    def waited_ms(self) -> float:
        """How long its processes have waited for a CPU so far, by the kernel's account."""
        if self._pids is None:
            self._pids = self.session.processes()
        return waited_ms(self._pids)

    def _fill(self, contents: Sequence[Content]) -> None:
        for index, content in enumerate(contents):
            if index < len(self.pool):
                self.session.refill(self.pool[index], content.inputs)
            else:
                self.pool.append(self.session.prepare(content.inputs, self.output_specs))

    def _parse(self, reply: dict[str, Any], batch: list[Prepared], judge_ms: float, *, read: bool) -> LegRun:
        inner = np.array([_nanoseconds(value) for value in reply["inner_ns"]], dtype=np.float64) / 1e6
        if not len(reply["calls"]) == inner.size == len(batch):
            raise BadSpec(f"{inner.size} times and {len(reply['calls'])} answers for {len(batch)} calls")
        outputs: list[list[Tensor | None]] = []
        for prepared, item in zip(batch, reply["calls"], strict=True):
            found = item["outputs"] if read else []
            outputs.append([self.session.memory.read_output(out, prepared.outputs, i) for i, out in enumerate(found)])
        return LegRun(
            inner_ms=inner,
            worker_ms=_nanoseconds(reply["leg_ns"]) / 1e6,
            judge_ms=judge_ms,
            outputs=outputs,
            claims=[list(item["outputs"]) for item in reply["calls"]],
            findings=[dict(item) for item in reply["findings"]],
            joined_by_synchronising=int(reply["joined_by_synchronising"]),
            queueing_ms=_nanoseconds(reply["queueing_ns"]) / 1e6,
        )

    def inputs_now(self, index: int) -> list[Tensor]:
        """What the inputs of the leg's call ``index`` hold after it."""
        return self.session.memory.inputs_now(self.pool[index])

    def shift(self, contents: Sequence[Content], offsets: Sequence[int]) -> None:
        """Replace the pool by inputs that start ``offsets[i]`` bytes (a multiple of 16) into a larger storage."""
        self.drop_pool()
        for content, offset in zip(contents, offsets, strict=True):
            layouts = [
                TensorSpec(dense.shape, dense.dtype, dense.stride, offset // dense.dtype.itemsize)
                for dense in (
                    TensorSpec.dense(tuple(t.shape), t.dtype) for t in content.inputs if isinstance(t, Tensor)
                )
            ]
            self.pool.append(self.session.prepare(content.inputs, self.output_specs, layouts))

    def drop_pool(self) -> None:
        """Give the pool's memory back to the session."""
        for prepared in self.pool:
            self.session.memory.discard(prepared)
        self.pool.clear()


def _nanoseconds(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise BadSpec(f"{value!r:.40} is not a time in nanoseconds")
    return value
