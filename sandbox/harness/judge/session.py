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
limit and the session a total one. Any failure of the worker raises :class:`WorkerFailed`; after a crash, a time-out or a
forged answer the worker is dead and every further request raises the same failure. What :class:`CallResult` carries
besides ``outputs`` (bytes the judge read in its own memory) and the judge's clock is the worker's claim: good enough to
reject a candidate, never to accept one.

Memory: ``prepare`` allocates in arenas that stay until ``close``; ``release`` gives regions back for later ones of the
same size. The output region is filled with 0xFF (NaN) before each call.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness import arena
from tilecast.sandbox.harness.isolation import Limits
from tilecast.sandbox.harness.judge.failure import EnvironmentBroken, Failure, WorkerFailed, of_wait_status
from tilecast.sandbox.harness.judge.shared_memory import Prepared, SharedMemory
from tilecast.sandbox.harness.judge.zygotes import WorkerProcess, Zygotes, limits_for
from tilecast.sandbox.harness.tensors import BadSpec, TensorSpec, encode_tree
from tilecast.sandbox.harness.wire import Message, WireClosed, WireError, WireTimeout

_UP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class SessionOptions:
    """How to run a worker. ``timeout_s`` bounds the whole session, ``cache`` is a folder kept for one candidate's compilers."""

    device: torch.device
    role: str = "candidate"
    interpret: bool = False
    timeout_s: float = 60.0
    cache: str | None = None
    limits: Limits | None = None
    shared_bytes: int = 0
    """How much memory the session will share, by estimate: added to the worker's limit on the CPU."""


@dataclass(frozen=True)
class Claim:
    """What the worker says about one output. ``spec`` has its true strides."""

    spec: TensorSpec
    device: str
    plain: bool
    kind: str
    fits: bool
    in_input: int | None
    missing: str

    @classmethod
    def of(cls, message: Message) -> Claim:
        """Parsed strictly.

        Raises:
            BadSpec: if it is not what a worker sends.
        """
        inside = message.get("in_input")
        if inside is not None and type(inside) is not int:
            raise BadSpec("in_input must be a number")
        return cls(
            TensorSpec.from_message(message),
            str(message.get("device", ""))[:30],
            message.get("plain") is True,
            str(message.get("kind", ""))[:60],
            message.get("fits") is True,
            inside,
            str(message.get("missing", ""))[:200],
        )


@dataclass(frozen=True)
class CallResult:
    """One call. ``outputs[i]`` is the judge's private copy of the bytes that had arrived when the worker answered."""

    number: int
    outputs: list[Tensor | None]
    claims: list[Claim]
    call_ms: float
    judge_ms: float
    findings: list[dict[str, str]] = field(default_factory=list)
    rng_changed: bool = False


@dataclass(frozen=True)
class BatchResult:
    """Timed calls. Milliseconds: ``event_ms`` between CUDA events (empty on the CPU), ``wall_ms`` the worker's clock
    around each call, ``judge_ms`` the judge's own clock around the whole batch."""

    calls: list[CallResult]
    event_ms: list[float]
    wall_ms: list[float]
    judge_ms: float
    findings: list[dict[str, str]]


class Session:
    """See the module's text. Not thread-safe, except :meth:`kill`."""

    def __init__(self, worker: WorkerProcess, options: SessionOptions, level: str) -> None:
        self._worker, self.options, self.level = worker, options, level
        self._deadline = time.monotonic() + options.timeout_s
        self._sequence = 0
        self._nonce: str | None = None
        self._dead: Failure | None = None
        self.locked = False
        self.memory = SharedMemory(options.device, self._announce)

    @classmethod
    def open(cls, zygotes: Zygotes, options: SessionOptions) -> Session:
        """Fork and confine a worker.

        Raises:
            EnvironmentBroken: if that is not possible.
        """
        limits = options.limits or limits_for(options.device.type, options.shared_bytes)
        args = {"device": str(options.device), "interpret": options.interpret}
        worker = zygotes.spawn_job(options.role, args, limits, interpret=options.interpret, cache=options.cache)
        try:
            first = worker.channel.receive(_UP_TIMEOUT_S)
        except WireError as error:
            log = worker.log_tail()
            worker.kill()
            raise EnvironmentBroken(f"a worker did not come up: {error}; {log}") from error
        if first != {"up": True}:
            worker.kill()
            raise EnvironmentBroken(f"a worker could not be confined: {first.get('setup_failed', first)}")
        return cls(worker, options, zygotes.level)

    # Loading -----------------------------------------------------------------------------------------------------

    def load(self, source: str, name: str = "candidate", *, guarded: bool = True) -> list[str]:
        """Import a file from its text; returns its public names. Its binding (nonce) is handed over afterwards."""
        reply = self.request({"op": "load", "source": source, "name": name, "guarded": guarded}, "import")
        self._nonce = secrets.token_hex(16)
        self._send({"op": "nonce", "nonce": self._nonce})
        return [str(item) for item in reply.get("names", [])]

    def construct(self, class_name: str, arguments: Sequence[Any], seed: int | None = None) -> dict[str, TensorSpec]:
        """Build the module; returns the specs of its ``state_dict``."""
        tensors: list[Tensor] = []
        tree = encode_tree(list(arguments), tensors)
        with self.memory.lent(tensors) as items:
            message = {"op": "construct", "class": class_name, "arguments": tree, "tensors": items, "seed": seed}
            reply = self.request(message, "construction")
        return {str(item["name"])[:500]: TensorSpec.from_message(item) for item in reply["state"]}

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
    ) -> CallResult:
        """One call of ``forward``.

        ``poison``: byte to fill the worker's free memory with first; ``hold``: how many latest outputs it keeps for
        :meth:`recheck`; ``seed``: set the generators first; ``watch``: look for changed settings around the call.
        """
        self.memory.poison_outputs(prepared)
        message = {**prepared.to_message(), "op": "call", "poison": poison, "hold": hold, "seed": seed, "watch": watch}
        start = time.perf_counter()
        reply = self.request(message, "call")
        judge_ms = (time.perf_counter() - start) * 1e3
        try:
            return self._result(reply, prepared, self._sequence, float(reply["call_ns"]) / 1e6, judge_ms)
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
        self._synchronize()
        start = time.perf_counter()
        reply = self.request(message, "timed calls")
        judge_ms = (time.perf_counter() - start) * 1e3
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
            return BatchResult(results, events, walls, judge_ms, _findings(reply))
        except (KeyError, TypeError, ValueError) as error:
            raise self._forged(f"the answer to timed calls makes no sense: {error}") from error

    def recheck(self, result: CallResult, prepared: Prepared) -> list[Tensor | None]:
        """The outputs of an earlier call (still held) as they are now; empty if the worker does not hold them."""
        self.memory.poison_outputs(prepared)
        spaces = [region.to_message() for region in prepared.outputs]
        reply = self.request({"op": "recheck", "call": result.number, "spaces": spaces}, "second look at outputs")
        try:
            return [self.memory.read_output(item, prepared, index) for index, item in enumerate(reply["outputs"])]
        except (KeyError, TypeError, ValueError) as error:
            raise self._forged(f"the answer to a second look makes no sense: {error}") from error

    def forget(self) -> None:
        """Drop outputs held and input objects kept in the worker."""
        self.request({"op": "forget"}, "clean-up")

    # Watching and ending -----------------------------------------------------------------------------------------

    def findings(self) -> list[dict[str, str]]:
        """Everything that the candidate changed in its process since before its import: ``rule`` and ``detail`` each."""
        return _findings(self.request({"op": "guards"}, "guard"))

    def lock(self) -> bool:
        """End of compilation: from now on the worker may start no process. False where the platform has no such rule."""
        self.locked = self.request({"op": "lock"}, "lock").get("locked") is True
        return self.locked

    def child_processes(self) -> list[str]:
        """Command lines of processes that the candidate left running, seen from outside."""
        return [_command(pid) for pid in self._worker.processes() if not _is_harness(pid, self._worker.pid)]

    def threads(self) -> int:
        """Number of threads of the worker, seen from outside (0 if it is gone)."""
        pids = self._worker.processes()
        return max((_thread_count(pid) for pid in pids), default=0)

    def log_tail(self) -> str:
        """The last of what the worker printed."""
        return self._worker.log_tail()

    def kill(self) -> None:
        """End the worker and all it started."""
        self._dead = self._dead or Failure("RUNTIME_ERROR", "the session is closed")
        self._worker.kill()

    def close(self) -> None:
        """As :meth:`kill`, and give the shared memory back."""
        self.kill()
        self.memory.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The wire ----------------------------------------------------------------------------------------------------

    def request(self, message: Message, doing: str, *, timeout_s: float | None = None) -> Message:
        """One request and its only answer.

        Raises:
            WorkerFailed: for a failure reported, a crash, a time-out or an answer that is not bound to this request.
        """
        if self._dead is not None:
            raise WorkerFailed(self._dead)
        left = self._deadline - time.monotonic()
        limit = left if timeout_s is None else min(left, timeout_s)
        if self._worker.channel.pending() and not self._hung_up():
            raise self._forged(f"an answer came that nobody had asked for, before {doing}")
        self._sequence += 1
        try:
            self._worker.channel.send({**message, "seq": self._sequence}, timeout_s=max(0.1, limit))
            reply = self._worker.channel.receive(max(0.0, limit))
        except WireTimeout:
            seconds = self.options.timeout_s if timeout_s is None or left < timeout_s else timeout_s
            raise self._fail(Failure("TIMEOUT", f"did not finish within {seconds:g} s (during {doing})")) from None
        except WireClosed:
            raise self._fail(self._obituary(doing)) from None
        except WireError as error:
            raise self._forged(f"the answer during {doing} is not one: {error}") from error
        if reply.get("re") != self._sequence or reply.get("nonce") != self._nonce:
            raise self._forged(f"an answer during {doing} does not belong to the request")
        failure = reply.get("failure")
        if isinstance(failure, dict):
            raise WorkerFailed(_reported(failure))
        return reply

    def _send(self, message: Message, fds: Sequence[int] = ()) -> None:
        try:
            self._worker.channel.send(message, fds, timeout_s=30.0)
        except WireClosed:
            raise self._fail(self._obituary("hand-over")) from None

    def _announce(self, new: arena.Arena) -> None:
        description, fds = new.message()
        if self._dead is not None:
            raise WorkerFailed(self._dead)
        self._sequence += 1
        self._send({"op": "arena", "arena": description, "seq": self._sequence}, fds)
        try:
            reply = self._worker.channel.receive(min(60.0, max(0.1, self._deadline - time.monotonic())))
        except WireTimeout:
            raise self._fail(Failure("TIMEOUT", "did not answer while memory was shared")) from None
        except WireError:
            raise self._fail(self._obituary("sharing of memory")) from None
        if isinstance(reply.get("failure"), dict):
            raise WorkerFailed(_reported(reply["failure"]))

    def _hung_up(self) -> bool:
        """Whether what is pending is only the end of the connection."""
        return self._worker.wait_status(0.0) is not None

    def _obituary(self, doing: str) -> Failure:
        status = self._worker.wait_status(2.0)
        return of_wait_status(status, locked=self.locked, doing=doing, log=self._worker.log_tail())

    def _fail(self, failure: Failure) -> WorkerFailed:
        self._dead = failure
        self._worker.kill()
        return WorkerFailed(failure)

    def _forged(self, reason: str) -> WorkerFailed:
        return self._fail(Failure("REWARD_HACK", f"{reason}: answers are bound to one request each", "forged-answer"))

    def _synchronize(self) -> None:
        if self.options.device.type == "cuda":
            torch.cuda.synchronize(self.options.device)

    def _result(
        self, reply: Message, prepared: Prepared, number: int, call_ms: float, judge_ms: float, *, read: bool = True
    ) -> CallResult:
        claims = [Claim.of(item) for item in reply["outputs"]]
        outputs: list[Tensor | None] = []
        if read:
            outputs = [self.memory.read_output(item, prepared, index) for index, item in enumerate(reply["outputs"])]
        changed = reply.get("rng_changed") is True
        return CallResult(number, outputs, claims, call_ms, judge_ms, _findings(reply), changed)


def _findings(reply: Message) -> list[dict[str, str]]:
    found = reply.get("findings", [])
    if not isinstance(found, list):
        return []
    return [
        {"rule": str(item.get("rule", ""))[:60], "detail": str(item.get("detail", ""))[:300]}
        for item in found[:20]
        if isinstance(item, dict)
    ]


_STATUSES = ("COMPILE_ERROR", "RUNTIME_ERROR", "OUT_OF_MEMORY", "ENVIRONMENT_ERROR", "INCORRECT_SHAPE")


def _reported(failure: Message) -> Failure:
    status = str(failure.get("status"))
    return Failure(status if status in _STATUSES else "RUNTIME_ERROR", str(failure.get("reason", ""))[:2000])


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120] or f"process {pid}"
    except OSError:
        return f"process {pid}"


def _is_harness(pid: int, outermost: int) -> bool:
    """The namespace's init and the worker itself: the only child of the outermost process, and its only child."""
    chain = [outermost]
    for _ in range(2):
        children = _children(chain[-1])
        if not children:
            break
        chain.append(min(children))
    return pid in chain


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(item) for item in file.read().split()]
    except OSError:
        return []


def _thread_count(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
