"""A session: the judge's handle on one worker process that holds one candidate (or the reference).

For verification and timing alike. Typical use::

    session = Session.open(zygotes, SessionOptions(device=torch.device("cpu"), timeout_s=60))
    session.load(source)                                  # import; COMPILE_ERROR is raised as WorkerFailed
    session.construct("ModelNew", init_arguments, seed=seed)
    missing = session.set_parameters(state)               # dict of name -> tensor, copied in as a user would
    prepared = session.prepare(inputs, expected)          # inputs into shared memory, room for the outputs
    result = session.call(prepared)                       # one call; outputs are private copies of the judge
    session.refill(prepared, other_inputs)                # same memory, same tensor objects, other contents
    batch = session.call_many([prepared_1, prepared_2])   # timed back to back; outputs of every call to check
    session.lock()                                        # from now on a new process is the worker's end (SIGSYS)
    session.close()

Two or more sessions (candidate and baseline) may be open at once; calls block, one at a time. Every request has a time
limit and the session a total one, of time spent waiting for the worker. Any failure of the worker raises
:class:`WorkerFailed`; after a crash, a time-out or a forged answer the worker is dead and every further request raises
the same failure. What :class:`CallResult` carries
besides ``outputs`` (bytes the judge read in its own memory) and the judge's clock is the worker's claim: good enough to
reject a candidate, never to accept one.

Memory: ``prepare`` allocates in arenas that stay until ``close``; ``release`` gives regions back for later ones of the
same size. The output region is filled with 0xFF (NaN) before each call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tilecast.sandbox.harness.judge.link import SessionOptions, WorkerLink
from tilecast.sandbox.harness.judge.results import BatchResult, CallResult, Claim, findings_of, moved_of
from tilecast.sandbox.harness.judge.shared_memory import Prepared, Region
from tilecast.sandbox.harness.tensors import TensorSpec, encode_tree
from tilecast.sandbox.harness.wire import Message

__all__ = ["BatchResult", "CallResult", "Claim", "Look", "Session", "SessionOptions"]


@dataclass(frozen=True)
class Look:
    """A call, by its number, whose outputs are to be copied once more, and the regions that they are copied to."""

    call: int
    regions: list[Region]


class Session(WorkerLink):
    """See the module's text."""

    # Loading -----------------------------------------------------------------------------------------------------

    def load(
        self, source: str, name: str = "candidate", *, guarded: bool = True, settings: dict[str, str] | None = None
    ) -> list[str]:
        """Import a file from its text; returns its public names. Its binding (nonce) is handed over afterwards.

        ``settings`` of how torch computes are the problem's own: the file may make them too.
        """
        message = {"op": "load", "source": source, "name": name, "guarded": guarded, "settings": settings or {}}
        reply = self.request(message, "import")
        self._bind()
        return [str(item) for item in reply.get("names", [])]

    def construct(
        self, class_name: str, arguments: Sequence[Any], *, seed: int | None = None, slot: str = ""
    ) -> dict[str, TensorSpec]:
        """Build a module, put it under ``slot`` and use it from now on; returns the specs of its ``state_dict``."""
        tensors: list[Tensor] = []
        tree = encode_tree(list(arguments), tensors)
        with self.memory.lent(tensors) as items:
            message = {"op": "construct", "class": class_name, "arguments": tree, "tensors": items, "seed": seed}
            message["slot"] = slot
            reply = self.request(message, "construction")
        self.buffers = {str(item["name"])[:500] for item in reply["state"] if item.get("buffer") is True}
        self.reseeded = reply.get("reseeded") is True
        return {str(item["name"])[:500]: TensorSpec.from_message(item) for item in reply["state"]}

    def use(self, slot: str) -> None:
        """Go back to the module built under ``slot``."""
        self.request({"op": "use", "slot": slot}, "change of module")

    def set_parameters(self, state: dict[str, Tensor], *, inplace: bool = False) -> list[str]:
        """Copy values in by name (``load_state_dict(strict=False)``, or ``copy_`` on each with ``inplace``).

        Returns the names that the module has and ``state`` lacks, then those it does not know.
        """
        with self.memory.lent(list(state.values())) as items:
            specs = dict(zip(state, items, strict=True))
            reply = self.request({"op": "parameters", "state": specs, "inplace": inplace}, "parameter update")
        return [str(name) for name in [*reply.get("missing", []), *reply.get("unexpected", [])]]

    def read_parameters(self, specs: dict[str, TensorSpec]) -> dict[str, Tensor]:
        """Private copies of values of the module's state."""
        regions = {name: self.memory.allocate(spec.extent) for name, spec in specs.items()}
        spaces = {name: {**regions[name].to_message(), **specs[name].to_message()} for name in specs}
        self.request({"op": "read_parameters", "spaces": spaces}, "reading of parameters")
        values = {name: self.memory.copy_out(regions[name], specs[name]) for name in specs}
        self.memory.release(regions.values())
        return values

    # Calling -----------------------------------------------------------------------------------------------------

    def prepare(
        self,
        inputs: Sequence[Any],
        expected: Sequence[TensorSpec],
        layouts: Sequence[TensorSpec | None] = (),
        *,
        reuse_objects: bool = False,
    ) -> Prepared:
        """Inputs into fresh shared memory, and room for outputs of these shapes.

        ``layouts[i]`` gives tensor ``i`` other strides or an offset into a larger storage. With ``reuse_objects`` later
        calls with this (refilled) get the very same tensor objects.
        """
        return self.memory.prepare(inputs, expected, layouts, reuse_objects=reuse_objects)

    def refill(self, prepared: Prepared, inputs: Sequence[Any]) -> None:
        """Overwrite the inputs in place; shapes and dtypes must be the same."""
        self.memory.refill(prepared, inputs)

    def call(
        self,
        prepared: Prepared,
        *,
        poison: int | None = None,
        hold: int = 0,
        seed: int | None = None,
        watch: bool = True,
        scribble: bool = False,
        looks: Sequence[Look] = (),
    ) -> CallResult:
        """One call of ``forward``.

        ``poison``: byte to fill the worker's free memory with first; ``hold``: how many latest outputs it keeps for
        :meth:`recheck`; ``seed``: set the generators first; ``watch``: look for changed settings around the call;
        ``scribble``: overwrite the outputs in the worker once they are copied out, as a caller may who owns them;
        ``looks``: earlier calls whose outputs are copied once more after this one, which saves a request for that.
        """
        self.memory.poison_outputs(prepared)
        message = {**prepared.to_message(), "op": "call", "poison": poison, "hold": hold, "seed": seed, "watch": watch}
        message |= {"scribble": scribble, "looks": self._look_messages(looks)}
        reply, judge_ms = self.timed(message, "call")
        try:
            result = self._result(reply, prepared, self._sequence, float(reply["call_ns"]) / 1e6, judge_ms)
            return replace(result, looks=self._looked(reply, looks))
        except (KeyError, TypeError, ValueError) as error:
            raise self._forged(f"the answer to a call makes no sense: {error}") from error

    def call_many(
        self, batch: Sequence[Prepared], *, sync_each: bool = False, flush_bytes: int = 0, read_outputs: bool = True
    ) -> BatchResult:
        """Timed calls back to back, each with its own inputs and output room (see :class:`BatchResult`).

        ``flush_bytes``: a buffer of that size is overwritten before each call (cold cache); ``sync_each``: the device
        is waited for before and after each call; ``read_outputs`` False leaves ``outputs`` empty, for warm-up.
        """
        for prepared in batch:
            self.memory.poison_outputs(prepared)
        calls = [prepared.to_message() for prepared in batch]
        message = {"op": "many", "calls": calls, "sync_each": sync_each, "flush_bytes": flush_bytes}
        reply, judge_ms = self.timed(message, "timed calls")
        number = self._sequence
        try:
            walls = [float(value) / 1e6 for value in reply["wall_ns"]]
            events = [float(value) for value in reply["event_ms"]]
            if not len(reply["calls"]) == len(walls) == len(batch):
                raise ValueError(f"{len(walls)} times for {len(batch)} calls")
            results = [
                self._result(item, prepared, number * 1000 + index, walls[index], judge_ms, read=read_outputs)
                for index, (item, prepared) in enumerate(zip(reply["calls"], batch, strict=True))
            ]
            return BatchResult(results, events, walls, judge_ms, findings_of(reply))
        except (KeyError, TypeError, ValueError) as error:
            raise self._forged(f"the answer to timed calls makes no sense: {error}") from error

    def timed(self, message: Message, doing: str) -> tuple[Message, float]:
        """The answer and the milliseconds that it took, without those for which others had the device."""
        self.memory.settle()
        start = time.perf_counter() - self.waited_s
        reply = self.request(message, doing)
        return reply, (time.perf_counter() - self.waited_s - start) * 1e3

    def recheck(self, looks: Sequence[Look]) -> list[list[Tensor | None]]:
        """The outputs of earlier calls (still held) as they are now; of each, none if the worker does not hold them."""
        message: Message = {"op": "recheck", "looks": self._look_messages(looks)}
        reply = self.request(message, "second look at outputs")
        try:
            return self._looked(reply, looks)
        except (KeyError, TypeError, ValueError) as error:
            raise self._forged(f"the answer to a second look makes no sense: {error}") from error

    @contextmanager
    def looking(self, items: Sequence[tuple[CallResult, Prepared]], *, apart: bool) -> Iterator[list[Look]]:
        """Second looks, with room for what they bring: where the first outputs came, or ``apart`` from that.

        Several looks at calls that were made with the same prepared inputs, or beside a call with them, must be apart.
        """
        looks = [
            Look(result.number, self.memory.room(prepared.expected) if apart else prepared.outputs)
            for result, prepared in items
        ]
        try:
            yield looks
        finally:
            if apart:
                self.memory.release(region for look in looks for region in look.regions)

    def _look_messages(self, looks: Sequence[Look]) -> list[Message]:
        for look in looks:
            self.memory.poison(look.regions)
        return [{"call": look.call, "spaces": [region.to_message() for region in look.regions]} for look in looks]

    def _looked(self, reply: Message, looks: Sequence[Look]) -> list[list[Tensor | None]]:
        return [
            [self.memory.read_output(item, look.regions, index) for index, item in enumerate(found)]
            for look, found in zip(looks, reply["looks"], strict=True)
        ]

    def forget(self) -> tuple[list[dict[str, str]], list[str]]:
        """Drop outputs held and input objects kept in the worker.

        Returns:
            What it found on outputs of long ago, and the names in the module's state that calls wrote to since it was set.
        """
        reply = self.request({"op": "forget"}, "clean-up")
        return findings_of(reply), [str(name)[:500] for name in list(reply.get("state", []))[:1000]]

    def _result(
        self, reply: Message, prepared: Prepared, number: int, call_ms: float, judge_ms: float, *, read: bool = True
    ) -> CallResult:
        claims = [Claim.of(item) for item in reply["outputs"]]
        outputs: list[Tensor | None] = []
        if read:
            outputs = [
                self.memory.read_output(item, prepared.outputs, index) for index, item in enumerate(reply["outputs"])
            ]
        changed = reply.get("rng_changed") is True
        found, moved, tree = findings_of(reply), moved_of(reply), reply.get("tree")
        return CallResult(number, outputs, claims, call_ms, judge_ms, found, changed, moved=moved, tree=tree)
