"""Warm fork server: torch and Triton imported once, a confined child forked for every evaluation.

Started by the judge with a clean environment (nothing secret in ``/proc/self/environ`` or memory), one thread (a child of
a process that ran OpenMP threads hangs), never CUDA. ``TRITON_INTERPRET`` binds at Triton's import, so the interpreter
has a server of its own. Control is JSON lines on an inherited socket; a job's descriptors ride along.

Run as ``python -m tilecast.sandbox.harness.zygote FD``.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from tilecast.sandbox.harness import cgroups, isolation, process_tree, syscalls
from tilecast.sandbox.harness.wire import Channel, WireClosed, WireError

SETUP_FAILED = 97
"""Exit status of a child whose isolation could not be set up."""
_WATCH_S = 0.2
_WORKER_FDS = 3
"""Descriptors that come with a worker: its channel, where its end is told, its log."""
_PRELOADED = (
    "numpy",
    "torch",
    # Imported lazily these would rebind names and set variables after a guard's snapshot, and honest kernels be blamed.
    "torch._dynamo",
    "torch.overrides",
    "torch.testing",
    "torch.utils._python_dispatch",
    "torch.utils.flop_counter",
    "tilecast.sandbox.harness.jobs",
)
_OPTIONAL = (
    *("triton", "triton.language", "triton.testing"),
    "setuptools",  # for what workers import of torch: most of the time that takes
)


def main(control_fd: int) -> int:
    """Serve until the judge closes the control socket."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    abilities = isolation.probe()  # before anything starts a thread
    _preload()
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)  # from now on the closed socket tells, and there may be workers to end
    control = Channel.from_fd(control_fd)
    try:
        control.send({"ready": os.getpid(), "abilities": {**asdict(abilities), "level": abilities.level}})
    except WireClosed:  # the judge ended before anything was asked
        return 0
    _Server(control, abilities).serve()
    return 0


def _preload() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    for name in _OPTIONAL:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


@dataclass
class _Child:
    number: int
    pid: int
    pidfd: int
    scratch: str | None
    most_processes: int = 0
    """Watch it: more descendants than this and it is killed. 0 where the kernel sees to that."""


@dataclass
class _Server:
    control: Channel
    abilities: isolation.Abilities
    children: dict[int, _Child] = field(default_factory=dict)
    """By pidfd."""
    emptying: list[str] = field(default_factory=list)
    """Control groups whose last process was still dying when they were to be removed."""

    def serve(self) -> None:
        """Answer until the judge is gone, then leave nothing behind."""
        try:
            while True:
                waiting: list[Any] = [self.control, *self.children]
                watched = [child for child in self.children.values() if child.most_processes]
                timeout_s = 0.0 if self.control.holds_line() else _WATCH_S if watched else None
                ready = select.select(waiting, [], [], timeout_s)[0]
                for child in watched:
                    if len(process_tree.descendants(child.pid)) > child.most_processes:
                        self._kill(child)
                for item in ready:
                    if isinstance(item, int):
                        self._reap(self.children[item])
                if self.control in ready or self.control.holds_line():
                    self._answer(self.control.receive(5.0))
        except WireError:
            for child in list(self.children.values()):
                self._kill(child)
                self._reap(child, tell=False)

    def _answer(self, message: dict[str, Any]) -> None:
        fds = self.control.take_fds(_WORKER_FDS if message["op"] == "spawn" else 0)
        try:
            if message["op"] == "spawn":
                self._spawn(message, fds)
            elif message["op"] == "warm":
                self._warm()
            elif message["op"] == "kill":
                for child in self.children.values():
                    if child.number == message["id"]:
                        self._kill(child)
            elif message["op"] == "locked":
                for child in self.children.values():
                    if child.number == message["id"]:
                        child.most_processes = 0
        finally:
            for fd in fds:
                os.close(fd)

    def _warm(self) -> None:
        """Initialise the compilers, once, for those who will ask for evidence."""
        from tilecast.sandbox.harness.evidence import job

        try:
            job.prewarm()
        except Exception:  # noqa: BLE001 - then every job does it for itself, or says why it cannot
            sys.excepthook(*sys.exc_info())
        gc.collect()
        gc.freeze()
        self.control.send({"warmed": True})

    def _spawn(self, message: dict[str, Any], fds: list[int]) -> None:
        scratch = None
        if self.abilities.namespaces == "none":
            scratch = tempfile.mkdtemp(prefix="tilecast-")
            os.chmod(scratch, 0o777)
        self.emptying = cgroups.remove(self.emptying)
        pid = os.fork()
        if pid == 0:
            _become_worker(self, message, fds, scratch)
        child = _Child(int(message["id"]), pid, os.pidfd_open(pid), scratch)
        unlimited = os.getuid() == 0 and (message["enclosure"]["cuda"] or self.abilities.namespaces == "user")
        if unlimited and not self.abilities.cgroups:
            child.most_processes = int(message["limits"]["processes"])  # the kernel sets root no such limit
        self.children[child.pidfd] = child
        self.control.send({"spawned": child.number, "pid": pid})

    def _kill(self, child: _Child) -> None:
        """The child is not reaped yet, so its number cannot have been given to another process."""
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _reap(self, child: _Child, *, tell: bool = True) -> None:
        os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        del self.children[child.pidfd]
        groups = cgroups.places(self.abilities.cgroups, os.getpid(), child.pid)
        self.emptying = cgroups.remove([*self.emptying, *groups])
        if child.scratch is not None:
            shutil.rmtree(child.scratch, ignore_errors=True)
        if tell:
            self.control.send({"ended": child.number})


def _become_worker(server: _Server, message: dict[str, Any], fds: list[int], scratch: str | None) -> NoReturn:
    """In the fork: confine, then run the job. Never returns into the server's loop."""
    code = SETUP_FAILED
    try:
        os.setsid()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        control_fd, status_fd, log_fd = fds
        _standard_streams(log_fd)
        for child in server.children.values():
            os.close(child.pidfd)
        os.close(server.control.fileno())
        os.chdir(scratch or "/")
        enclosure = isolation.Enclosure.from_message(message["enclosure"])
        channel = Channel.from_fd(control_fd)
        try:
            limits = isolation.Limits(**message["limits"])
            together = limits.memory_bytes + limits.tmp_bytes
            cgroups.enter(server.abilities.cgroups, os.getppid(), together, limits.processes)
            isolation.enclose(server.abilities, enclosure, limits, status_fd)
        except OSError as error:
            channel.send({"setup_failed": str(error)[:500]})
            os._exit(code)
        _set_environment(scratch or "/tmp", enclosure, confined=server.abilities.namespaces != "none")
        from tilecast.sandbox.harness import jobs

        code = jobs.run(str(message["job"]), message["args"], channel)
    except WireClosed:
        code = 0
    except BaseException:  # noqa: BLE001 - a fork must never fall back into the server's loop, whatever happens
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        os._exit(code)


def _standard_streams(log_fd: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(null)
    os.close(log_fd)


def _set_environment(scratch: str, enclosure: isolation.Enclosure, *, confined: bool) -> None:
    """Private home, temporary folder and compile caches; user ids differ between workers, hence the open umask."""
    cache = scratch
    if enclosure.cache is not None:
        cache = "/cache" if confined else enclosure.cache
    os.umask(0)
    os.environ.update(
        HOME=scratch,
        TMPDIR=scratch,
        TRITON_CACHE_DIR=f"{cache}/triton",
        TORCH_EXTENSIONS_DIR=f"{cache}/extensions",
        TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor",
        CUDA_CACHE_PATH=f"{cache}/cuda",
        CUDA_TILE_CACHE_DIR=f"{cache}/cutile",
    )
    os.makedirs(f"{cache}/extensions", exist_ok=True)
    tempfile.tempdir = None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
