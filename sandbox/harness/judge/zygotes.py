"""The judge's end of the fork servers: started on demand, restarted when one dies, workers spawned and killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from typing import Any

from tilecast.sandbox.harness import process_tree
from tilecast.sandbox.harness.isolation import Enclosure, Limits
from tilecast.sandbox.harness.judge.failure import EnvironmentBroken
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.surroundings import clean_environment, enclosure_for, limits_for
from tilecast.sandbox.harness.judge.worker_process import WorkerProcess
from tilecast.sandbox.harness.wire import Channel, WireError

_END_TIMEOUT_S = 60.0
"""A driver that is busy takes long to clear up after a process that was killed; to stop the fork server ends all others too."""
_START_TIMEOUT_S = 180.0


class _Server:
    """One running fork server."""

    def __init__(self, *, interpret: bool) -> None:
        self.control, theirs = Channel.pair()
        command = [sys.executable, "-P", "-m", "tilecast.sandbox.harness.zygote", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command,
            env=clean_environment(interpret=interpret),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # it outlives a killed judge just long enough to clean up
        )
        theirs.close()
        self._next = 0
        self.turn = threading.RLock()
        """The control channel is for one thread at a time: a spare worker is made by another one."""
        self._ended: set[int] = set()
        self.abilities: dict[str, Any] = {}
        self._stopping = False

    def wait_ready(self) -> None:
        """Until it has imported everything.

        Raises:
            EnvironmentBroken: if it does not start.
        """
        if self.abilities:
            return
        with self.turn:
            if self.abilities:
                return
            try:
                self.abilities = self.control.receive(_START_TIMEOUT_S)["abilities"]
            except WireError as error:
                code = self.process.poll()
                raise EnvironmentBroken(f"the fork server did not start ({error}; exit status {code})") from error

    def spawn(self, job: str, args: dict[str, Any], enclosure: Enclosure, limits: Limits) -> WorkerProcess:
        """A new confined worker."""
        with self.turn:
            return self._spawn(job, args, enclosure, limits)

    def _spawn(self, job: str, args: dict[str, Any], enclosure: Enclosure, limits: Limits) -> WorkerProcess:
        self.wait_ready()
        self._next += 1
        channel, theirs = Channel.pair()
        status_read, status_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(status_write, True)
        log = os.memfd_create("log", os.MFD_CLOEXEC)
        message = {
            "op": "spawn",
            "id": self._next,
            "job": job,
            "args": args,
            "enclosure": asdict(enclosure),
            "limits": asdict(limits),
        }
        try:
            self.control.send(message, [theirs.fileno(), status_write, log])
            reply = self.next_of("spawned", self._next, 30.0)
        finally:
            theirs.close()
            os.close(status_write)
        return WorkerProcess(self._next, int(reply["pid"]), channel, status_read, log, self)

    def kill(self, worker: WorkerProcess) -> None:
        """End a worker's whole tree."""
        with self.turn:
            self._kill(worker)

    def _kill(self, worker: WorkerProcess) -> None:
        if worker.number in self._ended:
            return
        if self.abilities.get("namespaces") == "none":
            process_tree.kill_descendants(worker.pid)
        try:
            self.control.send({"op": "kill", "id": worker.number}, timeout_s=5.0)
            self.next_of("ended", worker.number, _END_TIMEOUT_S)
        except WireError:
            self.stop()

    def next_of(self, kind: str, number: object, timeout_s: float) -> dict[str, Any]:
        """The next message of a kind about a worker; ends of others are noted on the way."""
        end = time.monotonic() + timeout_s
        while True:
            if kind == "ended" and number in self._ended:
                return {}
            message = self.control.receive(max(0.0, end - time.monotonic()))
            if "ended" in message:
                self._ended.add(int(message["ended"]))
            elif message.get(kind) == number:
                return message

    @property
    def alive(self) -> bool:
        """Whether it still runs, and is to."""
        return not self._stopping and self.process.poll() is None

    def stop(self) -> None:
        """End it; what it forked goes with it."""
        self._stopping = True
        with self.turn:
            self.control.close()
            try:
                self.process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Zygotes:
    """Both fork servers (native and interpreter), by need."""

    def __init__(self, quiet: Quiet | None = None) -> None:
        self._servers: dict[bool, _Server] = {}
        self._turn = threading.Lock()
        self.quiet = quiet or Quiet()

    def start(self, *, interpret: bool = False) -> None:
        """Begin starting one, without waiting."""
        self._server(interpret)

    def _server(self, interpret: bool) -> _Server:
        with self._turn:  # two threads that find it dead start one, not two of which one is forgotten
            server = self._servers.get(interpret)
            if server is None or not server.alive:
                server = self._servers[interpret] = _Server(interpret=interpret)
            return server

    def warm(self) -> None:
        """Let the native server initialise the compilers: the jobs forked after that start faster.

        Raises:
            EnvironmentBroken: if no fork server can be started.
        """
        server = self._server(False)
        server.wait_ready()
        try:
            with server.turn:
                server.control.send({"op": "warm"})
                server.next_of("warmed", True, _START_TIMEOUT_S)
        except WireError as error:
            server.stop()
            raise EnvironmentBroken(f"the fork server died while warming up: {error}") from error

    def abilities(self) -> dict[str, Any]:
        """What the machine offers and the ``level`` in force (see ``isolation.Abilities``)."""
        server = next((s for s in self._servers.values() if s.alive), None) or self._server(False)
        server.wait_ready()
        return server.abilities

    @property
    def level(self) -> str:
        """The sandbox level in force."""
        return str(self.abilities()["level"])

    @property
    def is_sandbox(self) -> bool:
        """Whether files and system calls are confined."""
        found = self.abilities()
        return bool(found["seccomp"]) and (found["namespaces"] != "none" or found["landlock_abi"] > 0)

    def spawn_job(
        self,
        name: str,
        args: dict[str, Any],
        limits: Limits | None = None,
        *,
        interpret: bool = False,
        cache: str | None = None,
        loopback: bool = False,
    ) -> WorkerProcess:
        """A confined worker running a named job (``candidate``, ``reference``, ``evidence``). ``args["device"]`` is required.

        Raises:
            EnvironmentBroken: if no fork server can be started.
        """
        kind = str(args.get("device", "cpu")).partition(":")[0]
        limits = limits or limits_for(kind)
        for attempt in (1, 2):
            server = self._server(interpret)
            try:
                return server.spawn(name, args, enclosure_for(kind, cache, loopback=loopback), limits)
            except WireError as error:
                server.stop()
                if attempt == 2:
                    raise EnvironmentBroken(f"the fork server died twice while starting a worker: {error}") from error
        raise AssertionError("unreachable")

    def run_job(
        self,
        name: str,
        args: dict[str, Any],
        limits: Limits,
        timeout_s: float,
        *,
        interpret: bool = False,
    ) -> dict[str, Any]:
        """Run a one-shot job and return its only answer, ``{"result": …}`` or ``{"failed": why}``.

        Raises:
            EnvironmentBroken: if no worker can be started.
        """
        limits = replace(limits, cpu_s=min(limits.cpu_s, int(timeout_s) + 5))
        worker = self.spawn_job(name, args, limits, interpret=interpret)
        try:
            return worker.channel.receive(timeout_s)
        except WireError as error:
            status = worker.wait_status(0.2)
            return {"failed": f"{error} (wait status {status}); {worker.log_tail()}"[:1000]}
        finally:
            worker.kill()

    def close(self) -> None:
        """End both servers and every worker."""
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
