"""The host's end of the judge: a process group of its own, requests with progress, an interrupt from any thread, a log.

The host never imports torch; the judge does, and starts everything that runs user code. A judge that dies is an
:class:`~tilecast.sandbox.errors.EnvironmentFailure` with its last words, and is started again for the next request.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import EnvironmentFailure, InvalidReference, TilecastError
from tilecast.sandbox.harness.wire import Channel, WireError, WireTimeout

START_TIMEOUT_S = 300.0
SILENCE_TIMEOUT_S = 1800.0
"""A judge that says nothing for so long is taken for dead: its own limits should have ended the work long before."""
_LOG_LINES = 200
_SECRET_MARKS = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "OPENAI_",
    "ANTHROPIC_",
    "AWS_",
    "GITHUB_",
)


def default_state_dir() -> Path:
    """Where locks and known hangs are kept: ``state`` under ``TILECAST_HOME`` (default ``~/.tilecast``)."""
    home = os.environ.get("TILECAST_HOME")
    return (Path(home) if home else Path.home() / ".tilecast") / "state"


class Interrupted(EnvironmentFailure):
    """The work was stopped on request, from another thread."""


def scrubbed_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment without anything that looks like a secret."""
    return {name: value for name, value in environ.items() if not any(mark in name.upper() for mark in _SECRET_MARKS)}


class JudgeProcess:
    """One judge for one device, started at the first request. Requests are made one at a time (a lock sees to it)."""

    def __init__(
        self,
        device: str,
        state_dir: Path,
        *,
        require_sandbox: bool = False,
        quiet: Path | None = None,
        sharers: int = 1,
    ) -> None:
        config: dict[str, Any] = {"device": device, "state_dir": str(state_dir), "require_sandbox": require_sandbox}
        if quiet is not None:
            config |= {"quiet": str(quiet), "sharers": sharers}
        self._config, self.device = json.dumps(config), device
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._requests = threading.Lock()
        self._state = threading.Lock()
        self._interrupted = False
        self._number = 0

    def request(self, op: str, args: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
        """One operation of the judge.

        Raises:
            InvalidReference: if the problem is refused.
            Interrupted: if :meth:`interrupt` was called meanwhile.
            EnvironmentFailure: if the judge reports a broken machine, or dies.
        """
        with self._requests:
            channel = self._started()
            self._number += 1
            try:
                channel.send({"id": self._number, "op": op, "args": args}, timeout_s=60.0)
                while True:
                    reply = channel.receive(SILENCE_TIMEOUT_S)
                    if reply.get("id") != self._number:
                        raise self._dead(f"the judge answered another request than {op}")
                    if reply.get("event") != "progress":
                        return self._result(op, reply)
                    progress(str(reply.get("text", "")))
            except WireTimeout as error:
                raise self._dead(f"the judge was silent for {SILENCE_TIMEOUT_S:g} s during {op}") from error
            except WireError as error:
                raise self._dead(f"the judge died during {op}") from error
            except TilecastError:
                raise
            except BaseException:
                self.kill()  # left in the middle of an answer (Ctrl-C, a failing progress sink): of no further use
                raise

    def _result(self, op: str, reply: dict[str, Any]) -> dict[str, Any]:
        if reply.get("ok") is True and isinstance(reply.get("result"), dict):
            return dict(reply["result"])
        error = reply.get("error") or {}
        message = str(error.get("message", f"the judge gave no result for {op}"))
        if error.get("kind") == "problem":
            raise InvalidReference(message)
        if error.get("kind") == "environment":
            raise EnvironmentFailure(message)
        raise EnvironmentFailure(f"the judge failed at {op}: {message}{self._last_words()}")

    def _started(self) -> Channel:
        with self._state:
            self._interrupted = False
            if self._channel is not None and self._process is not None and self._process.poll() is None:
                return self._channel
            self._stop()
            channel, theirs = Channel.pair()
            command = [
                sys.executable,
                "-m",
                "tilecast.sandbox.harness.judge.tethered",
                str(theirs.fileno()),
                self._config,
            ]
            self._process = subprocess.Popen(
                command,
                env=scrubbed_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            theirs.close()
            self._channel = channel
            threading.Thread(target=self._keep_log, args=(self._process,), daemon=True).start()
        try:
            first = channel.receive(START_TIMEOUT_S)
        except WireError as error:
            raise self._dead("the judge did not start") from error
        if "fatal" in first:
            self.kill()
            raise EnvironmentFailure(f"{self.device}: {first['fatal']}")
        return channel

    def _keep_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._log.append(line.decode("utf-8", "replace").rstrip()[:500])

    @property
    def last_lines(self) -> list[str]:
        """The last lines of the judge's output."""
        return [line for line in list(self._log) if line]

    def _last_words(self) -> str:
        lines = [line for line in self._log if line][-8:]
        return "; its last output:\n" + "\n".join(lines) if lines else ""

    def _dead(self, what: str) -> EnvironmentFailure:
        interrupted = self._interrupted
        self.kill()
        if interrupted:
            return Interrupted(f"interrupted: {what}")
        return EnvironmentFailure(f"{what}{self._last_words()}")

    def interrupt(self) -> None:
        """End the judge's process group now; a request under way raises :class:`Interrupted` soon after."""
        with self._state:
            self._interrupted = True
            if self._process is not None and self._process.poll() is None:
                self._kill_group(self._process)

    def kill(self) -> None:
        """End the judge and everything it started."""
        with self._state:
            self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._kill_group(self._process)
            self._process.wait()
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @staticmethod
    def _kill_group(process: subprocess.Popen[bytes]) -> None:
        """The fork servers lead sessions of their own: they see the judge's end and take their workers with them."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """End the judge politely: it ends its workers itself; by force after a few seconds."""
        with self._state:
            if self._process is not None and self._channel is not None:
                self._channel.close()
                self._channel = None
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(10.0)
            self._stop()
