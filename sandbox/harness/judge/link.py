"""The judge's end of the conversation with one worker: requests bound to answers, time limits, how it ended, what it left."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from tilecast.sandbox.harness import arena, process_tree
from tilecast.sandbox.harness.isolation import Limits
from tilecast.sandbox.harness.judge.failure import (
    CANDIDATE,
    FORK_SERVER,
    EnvironmentBroken,
    Failure,
    WorkerFailed,
    of_wait_status,
)
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.results import findings_of
from tilecast.sandbox.harness.judge.room import MEMORY_PATIENCE_S
from tilecast.sandbox.harness.judge.shared_memory import SharedMemory
from tilecast.sandbox.harness.judge.surroundings import limits_for
from tilecast.sandbox.harness.judge.worker_process import WorkerProcess
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.wire import COMPILED, COMPILING, Message, WireClosed, WireError, WireTimeout

_UP_TIMEOUT_S = 60.0
_MOST_EVENTS = 2000


@dataclass(frozen=True)
class SessionOptions:
    """How to run a worker. ``timeout_s`` bounds the whole session, ``cache`` is a folder kept for one candidate's compilers."""

    device: torch.device
    role: str = "candidate"
    interpret: bool = False
    timeout_s: float | None = 60.0
    """Time that may be spent waiting for the worker, in all; None: each request has ``request_timeout_s``."""
    request_timeout_s: float = 300.0
    cache: str | None = None
    limits: Limits | None = None
    shared_bytes: int = 0
    """How much memory the session will share, by estimate: added to the worker's limit on the CPU."""
    whose: str = CANDIDATE
    """Who is to blame for what fails."""


class WorkerLink:
    """A live worker and its conversation. Not thread-safe, except :meth:`kill`."""

    def __init__(self, worker: WorkerProcess, options: SessionOptions, level: str, quiet: Quiet) -> None:
        self._worker, self.options, self.level, self.quiet = worker, options, level, quiet
        self._left_s = options.timeout_s
        self._sequence = 0
        self._nonce: str | None = None
        self._dead: Failure | None = None
        self._abandoned = False
        self.locked = False
        self.waited_s = 0.0
        """For how long others had the device within requests, in all."""
        self.buffers: set[str] = set()
        """Names in the state of the module built last that are buffers, not parameters."""
        self.reseeded = False
        """Whether the constructor of the module built last set the seed of torch's global generator."""
        patience_s = MEMORY_PATIENCE_S if quiet.sharers > 1 else 0.0
        self.memory = SharedMemory(options.device, self._announce, self._withdraw, patience_s)

    @classmethod
    def open(cls, zygotes: Zygotes, options: SessionOptions) -> Self:
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
        return cls(worker, options, zygotes.level, zygotes.quiet)

    def request(self, message: Message, doing: str, *, timeout_s: float | None = None) -> Message:
        """One request and its only answer.

        Raises:
            WorkerFailed: for a failure reported, a crash, a time-out or an answer that is not bound to this request.
        """
        # The wait for others on the device is not the worker's time.
        with self.quiet.shared():
            return self._request(message, doing, timeout_s)

    def _request(self, message: Message, doing: str, timeout_s: float | None) -> Message:
        if self._dead is not None:
            raise self._failed(self._dead)
        limit = self._time_left(timeout_s)
        if self._worker.channel.pending() and not self._hung_up():
            raise self._forged(f"an answer came that nobody had asked for, before {doing}")
        self.memory.settle()
        self._sequence += 1
        start = time.monotonic()
        try:
            # A helper's compiler is not heard: it may hold what the one who times waits for.
            hears = {"hears": True} if self.quiet.sharers > 1 and self.options.whose == CANDIDATE else {}
            self._worker.channel.send({**message, **hears, "seq": self._sequence}, timeout_s=max(0.1, limit))
            waited_s = self.waited_s
            reply = self._answer(start + limit, doing)
            if self._left_s is not None:
                self._left_s -= time.monotonic() - start - (self.waited_s - waited_s)
        except WireTimeout:
            allowed = self.options.timeout_s or timeout_s or self.options.request_timeout_s
            raise self._fail(Failure("TIMEOUT", f"did not finish within {allowed:g} s (during {doing})")) from None
        except WireClosed:
            raise self._fail(self._obituary(doing)) from None
        except WireError as error:
            raise self._forged(f"the answer during {doing} is not one: {error}") from error
        finally:
            # A worker that failed is gone by now: whoever has the device meanwhile is not kept from it, nor disturbed.
            self.quiet.take_back()
        failure = reply.get("failure")
        if isinstance(failure, dict):
            raise WorkerFailed(_reported(failure), self.options.whose)
        return reply

    def _answer(self, end: float, doing: str) -> Message:
        """The answer, bound to the request. Only where judges share a device does a worker say that it compiles: meanwhile
        another may time, and ``waited_s`` grows by what that took.
        """
        events = 0
        while True:
            reply = self._worker.channel.receive(max(0.0, end - time.monotonic()))
            if reply.get("re") != self._sequence or reply.get("nonce") != self._nonce:
                raise self._forged(f"an answer during {doing} does not belong to the request")
            if "event" not in reply:
                return reply
            events += 1
            if self.quiet.sharers == 1 or events > _MOST_EVENTS or reply["event"] not in (COMPILING, COMPILED):
                raise self._forged(f"during {doing} the worker said what nobody wants to hear")
            if reply["event"] == COMPILING:
                self.quiet.let_go()
                continue
            waited_s = self.quiet.take_back()
            self.waited_s, end = self.waited_s + waited_s, end + waited_s
            self._worker.channel.send({"go": True})

    def _send(self, message: Message, fds: Sequence[int] = ()) -> None:
        try:
            self._worker.channel.send(message, fds, timeout_s=30.0)
        except WireClosed:
            raise self._fail(self._obituary("hand-over")) from None

    def _announce(self, new: arena.Arena) -> None:
        with self.quiet.shared():
            self._share(new)

    def _share(self, new: arena.Arena) -> None:
        description, fds = new.message()
        if self._dead is not None:
            raise self._failed(self._dead)
        self._sequence += 1
        self._send({"op": "arena", "arena": description, "seq": self._sequence}, fds)
        try:
            reply = self._worker.channel.receive(max(0.1, self._time_left(60.0)))
        except WireTimeout:
            raise self._fail(Failure("TIMEOUT", "did not answer while memory was shared")) from None
        except WireError:
            raise self._fail(self._obituary("sharing of memory")) from None
        if isinstance(reply.get("failure"), dict):
            raise WorkerFailed(_reported(reply["failure"]), self.options.whose)

    def _withdraw(self, numbers: list[int]) -> None:
        """Have the worker let go of arenas before they are freed."""
        if self._dead is None:
            self.request({"op": "detach", "arenas": numbers}, "hand-over of memory")

    def _time_left(self, timeout_s: float | None) -> float:
        if self._left_s is None:
            return timeout_s or self.options.request_timeout_s
        return self._left_s if timeout_s is None else min(self._left_s, timeout_s)

    def _hung_up(self) -> bool:
        """Whether what is pending is only the end of the connection (on a busy machine its cause is reported later)."""
        return self._worker.channel.hung_up() or self._worker.wait_status(0.0) is not None

    def _obituary(self, doing: str) -> Failure:
        status = self._worker.wait_status(2.0)
        return of_wait_status(status, locked=self.locked, doing=doing, log=self._worker.log_tail())

    def _fail(self, failure: Failure) -> WorkerFailed:
        self._dead = failure
        self._abandoned = self._worker.is_abandoned
        self._worker.kill()
        return self._failed(failure)

    def _failed(self, failure: Failure) -> WorkerFailed:
        return WorkerFailed(failure, FORK_SERVER if self._abandoned else self.options.whose)

    def _forged(self, reason: str) -> WorkerFailed:
        return self._fail(Failure("REWARD_HACK", f"{reason}: answers are bound to one request each", "forged-answer"))

    def _bind(self) -> None:
        """Hand over the nonce that later answers must carry: nothing prepared before can be bound to it."""
        self._nonce = secrets.token_hex(16)
        self._send({"op": "nonce", "nonce": self._nonce})

    # Watching and ending -----------------------------------------------------------------------------------------

    def findings(self) -> list[dict[str, str]]:
        """Everything that the candidate changed in its process since before its import: ``rule`` and ``detail`` each."""
        return findings_of(self.request({"op": "guards"}, "guard"))

    def lock(self) -> bool:
        """End of compilation: from now on the worker may start no process. False where the platform has no such rule."""
        self.locked = self.request({"op": "lock"}, "lock").get("locked") is True
        if self.locked:
            self._worker.locked()
        return self.locked

    def child_processes(self) -> list[str]:
        """Command lines of processes that the candidate left running, seen from outside."""
        # The worker lies below the init of its namespace, where it has one.
        own = process_tree.eldest_chain(self._worker.pid, 2 if "namespaces" in self.level else 1)
        return [process_tree.command_line(pid) for pid in self._worker.processes() if pid not in own]

    def processes(self) -> list[int]:
        """Process ids of the worker and what it started, seen from outside."""
        return self._worker.processes()

    def threads(self) -> int:
        """Number of threads of the worker, seen from outside (0 if it is gone)."""
        pids = self._worker.processes()
        return max((process_tree.thread_count(pid) for pid in pids), default=0)

    def log_tail(self) -> str:
        """The last of what the worker printed."""
        return self._worker.log_tail()

    def extend(self, seconds: float) -> None:
        """From now on the session has ``seconds`` left, whatever it had (timing has a budget of its own)."""
        self._left_s = seconds

    @property
    def alive(self) -> bool:
        """Whether the worker still answers, as far as is known."""
        return self._dead is None

    def kill(self) -> None:
        """End the worker and all it started."""
        self._dead = self._dead or Failure("RUNTIME_ERROR", "the session is closed")
        self._worker.kill()

    def close(self) -> None:
        """As :meth:`kill`, and give the shared memory back."""
        with self.quiet.shared():
            self.kill()
            self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_STATUSES = ("COMPILE_ERROR", "RUNTIME_ERROR", "OUT_OF_MEMORY", "ENVIRONMENT_ERROR", "INCORRECT_SHAPE")


def _reported(failure: Message) -> Failure:
    status = str(failure.get("status"))
    return Failure(status if status in _STATUSES else "RUNTIME_ERROR", str(failure.get("reason", ""))[:2000])
