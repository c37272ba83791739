"""The reference in a worker of its own, which never sees a candidate: inputs drawn, native runs, effects, float64 truth."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor

from tilecast.sandbox.harness.device_memory import is_roomy
from tilecast.sandbox.harness.judge.extras import FULL as FULL
from tilecast.sandbox.harness.judge.extras import Workload, read_extras
from tilecast.sandbox.harness.judge.failure import Failure, ProblemRefused, WorkerFailed
from tilecast.sandbox.harness.judge.landing import Landing
from tilecast.sandbox.harness.judge.oracle import RawOutputs
from tilecast.sandbox.harness.judge.room import MEMORY_PATIENCE_S, is_heavy, keep_little, kept_bytes, truth_bytes
from tilecast.sandbox.harness.judge.runs import Contract, NativeRun, raw_outputs
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.shared_memory import Prepared
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import TensorSpec, decode_tree
from tilecast.sandbox.harness.wire import Message

Result = TypeVar("Result")
_POLL_S = 0.5


def fresh_seed() -> int:
    """A seed from the operating system, for one draw."""
    return int.from_bytes(os.urandom(6), "little")


class Reference:
    """One problem's reference, loaded and ready; ``select`` a workload first."""

    def __init__(self, session: Session, problem: Message) -> None:
        self.session, self.problem = session, problem
        self._selected: dict[str, dict[str, TensorSpec]] = {}
        self.workload = ""
        self.proven = False
        """Set once the problem is studied: what fails from then on is no fault of the problem's."""
        self.settings: dict[str, str] = {}
        """How torch computes where the reference ran, as far as the reference has changed that: see :meth:`note_settings`."""
        self._landing = Landing(session.memory)
        self._device, self._sharers = session.options.device, session.quiet.sharers
        reply = self._request({"op": "extras"}, "reading of WORKLOADS, TOLERANCE, DOMAIN")
        self.extras = read_extras(reply["extras"], problem)
        self.workloads: dict[str, Workload] = self.extras.workloads

    @classmethod
    def open(cls, zygotes: Zygotes, problem: Message, device: torch.device) -> Reference:
        """Load the problem's file.

        Raises:
            ProblemRefused: INVALID_REFERENCE, if it does not import or its extra names make no sense.
        """
        options = SessionOptions(device, role="reference", timeout_s=None, shared_bytes=8 << 30, whose="the reference")
        session = Session.open(zygotes, options)
        keep = kept_bytes(device, zygotes.quiet.sharers)
        try:
            session.load(str(problem["source"]), "reference", guarded=False)
            if keep is not None:
                session.request({"op": "keep_little", "bytes": keep}, "limit of memory")
            return cls(session, problem)
        except WorkerFailed as error:
            session.close()
            raise _refusal(error.failure, "import") from error

    @property
    def tolerance(self) -> float | None:
        """TOLERANCE, None for the default of each dtype."""
        return self.extras.tolerance

    @property
    def domain(self) -> str:
        """``open`` or ``declared``."""
        return self.extras.domain

    def note_settings(self) -> None:
        """After it has run: a candidate may set what the reference sets."""
        found = self._request({"op": "settings"}, "reading of settings")["settings"]
        self.settings = {str(name): str(value) for name, value in found.items()}

    def describe(self, workload: str, *, dry: bool = True) -> Message:
        """Facts of a workload, or ``{"failed": why}`` if a dry run does not work."""
        message = {"op": "describe", "workload": self.workloads[workload], "dry": dry}
        return self._request(message, f"description of workload {workload!r}")

    def select(self, workload: str, seed: int | None = None) -> dict[str, TensorSpec]:
        """Construct (once, or again with a ``seed``) the module of a workload and use it; returns its state's specs."""
        if workload in self._selected and seed is None:
            self._patiently(lambda: self.session.use(workload), "change of workload")
        else:
            fresh = fresh_seed() if seed is None else seed
            arguments = self.init_arguments(workload, fresh)
            self._selected[workload] = self._patiently(
                lambda: self.session.construct("Model", arguments, seed=fresh, slot=workload),
                f"construction for workload {workload!r}",
            )
        self.workload = workload
        return self._selected[workload]

    def init_arguments(self, workload: str, seed: int) -> list[Any]:
        """``get_init_inputs`` of a workload, as private values of the judge."""
        return self._draw("get_init_inputs", workload, [seed])[0]

    def draw(self, workload: str, seed: int | None = None) -> list[Any]:
        """``get_inputs`` of a workload, as private values of the judge."""
        return self._draw("get_inputs", workload, [fresh_seed() if seed is None else seed])[0]

    def draw_many(self, workload: str, count: int) -> list[list[Any]]:
        """So many draws of ``get_inputs``, each from a seed of its own, in one request: all lie in memory at once."""
        return self._draw("get_inputs", workload, [fresh_seed() for _ in range(count)])

    def _draw(self, function: str, workload: str, seeds: list[int]) -> list[list[Any]]:
        message = {"op": "draw", "function": function, "workload": self.workloads[workload], "seeds": seeds}
        reply, tensors = self._results(message, f"{function}() for workload {workload!r}")
        draws = decode_tree(reply["tree"], tensors)
        return [list(values) for values in draws]

    def state(self) -> dict[str, Tensor]:
        """Private copies of the selected module's ``state_dict``."""
        specs = self._selected[self.workload]
        return self._patiently(lambda: self.session.read_parameters(specs), "reading of parameters")

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Copy values into the selected module."""
        if state:
            self._patiently(lambda: self.session.set_parameters(state), "parameter update")

    def run(
        self,
        inputs: Sequence[Any],
        seed: int,
        layouts: Sequence[TensorSpec | None] = (),
        contract: Contract | None = None,
        *,
        truth: bool = False,
    ) -> NativeRun:
        """One forward in the reference's own precision, on clones with the given layouts.

        With a ``contract`` exactly its written inputs and state are reported, without one those that this run wrote to. With
        ``truth`` the float64 run follows in the same request: both are in memory at once.
        """
        prepared = self.session.prepare(inputs, [], layouts)
        message = {**_inputs(prepared), "op": "run", "seed": seed}
        if truth:
            message["truth"] = self._truth_options()
        if contract is not None:
            message["effects"] = contract.to_message(list(self._selected[self.workload]))
        try:
            reply, values = self._results(message, f"forward on {self.workload!r}")
        finally:
            self.session.memory.discard(prepared)
        overlaps = tuple(bool(item) for item in reply["overlaps"])
        count, effects = int(reply["outputs"]), reply["effects"]
        own = count + len(effects["inputs"]) + len(effects["state"])
        raw = raw_outputs(values[:own], values[own:], reply["truth"]) if truth else None
        return NativeRun(values[:own], count, overlaps, effects, reply["result"], raw)

    def raw(
        self, inputs: Sequence[Any], native: NativeRun, seed: int, layouts: Sequence[TensorSpec | None] = ()
    ) -> RawOutputs:
        """Float64 truth of a run, with the effect of one rounding, for ``oracle.expect``."""
        if native.raw is not None:
            return native.raw
        prepared = self.session.prepare(inputs, [], layouts)
        message = {**_inputs(prepared), "op": "truth", "seed": seed, "effects": native.effects, **self._truth_options()}
        try:
            reply, values = self._results(message, f"float64 run on {self.workload!r}")
        finally:
            self.session.memory.discard(prepared)
        return raw_outputs(native.values, values, reply)

    def _truth_options(self) -> Message:
        return {"budget_bytes": truth_bytes(self._device, self._sharers), "perturb": True}

    def _results(self, message: Message, doing: str) -> tuple[Message, list[Tensor]]:
        """The answer to a request, and the tensors that it is about."""
        reply = self._request(message | self._landing.offer(), doing)
        return reply, self._take(reply)

    def _take(self, reply: Message) -> list[Tensor]:
        specs = [TensorSpec.from_message(item) for item in reply["tensors"]]
        landed = self._landing.take(reply, specs)
        if landed is not None:
            return landed
        memory = self.session.memory
        regions = []
        try:
            regions += [memory.allocate(spec.extent) for spec in specs]
            self._request({"op": "take", "spaces": [region.to_message() for region in regions]}, "hand-over of results")
            return [memory.copy_out(region, spec) for region, spec in zip(regions, specs, strict=True)]
        finally:
            memory.release(regions)

    @contextmanager
    def careful(self, call_bytes: int) -> Iterator[None]:
        """Around a float64 run and what is made of it: beside other judges, large ones are made by one at a time."""
        if not is_heavy(self._device, self._sharers, call_bytes):
            yield
            return
        with self.session.quiet.heavy():
            yield
        keep_little(self._device, self._sharers)
        if self.session.memory.held_bytes > (kept_bytes(self._device, self._sharers) or 0) and not is_roomy(
            self._device
        ):
            self._landing.give_back()
            self._patiently(self.session.memory.trim, "hand-over of memory")

    def _request(self, message: Message, doing: str) -> Message:
        return self._patiently(lambda: self.session.request(message, doing), doing)

    def _patiently(self, work: Callable[[], Result], doing: str) -> Result:
        """Ask the worker; where other judges have the memory that it lacks, again until they give some back.

        Every request may be repeated: results are held until they are taken, seeds are given.
        """
        end = time.monotonic() + (MEMORY_PATIENCE_S if self._sharers > 1 else 0.0)
        while True:
            try:
                return work()
            except WorkerFailed as error:
                short = error.failure.status == "OUT_OF_MEMORY" and self.session.alive
                if short and time.monotonic() < end:
                    time.sleep(_POLL_S)
                    continue
                if self.proven and (short or not self.session.alive):
                    raise error.of_a_helper() or error from error
                raise _refusal(error.failure, doing) from error

    def rest(self, keep_bytes: int) -> None:
        """Have its worker keep no more than so much memory for later, whoever may need it; a worker that is gone keeps none."""
        if self.session.alive:
            with suppress(WorkerFailed):
                self.session.request({"op": "keep_little", "bytes": keep_bytes, "idle": True}, "limit of memory")

    def close(self) -> None:
        """End its worker."""
        self.session.close()


def _inputs(prepared: Prepared) -> Message:
    message = prepared.to_message()
    return {"inputs": message["inputs"], "tensors": message["tensors"]}


def _refusal(failure: Failure, doing: str) -> ProblemRefused:
    status = "OUT_OF_MEMORY" if failure.status == "OUT_OF_MEMORY" else "INVALID_REFERENCE"
    return ProblemRefused(status, f"the reference failed in its {doing}: {failure.reason}")
