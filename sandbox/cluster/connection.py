"""The one place that imports Ray: joins a cluster or starts one on this machine, quietly, and without the user's keys.

Ray is an optional part (``pip install 'tilecast[ray]'``).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tilecast.sandbox.cluster import auth
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.process import scrubbed_environment

MISSING = "needs Ray, which is not installed; pip install 'tilecast[ray]'"
REACH_S = 5.0
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_TQDM": "0",
    # Of the workers of a cluster that is started here: timings must not wait behind everything else of the machine.
    "RAY_worker_niceness": "0",
    "GRPC_VERBOSITY": "NONE",
}


@dataclass(frozen=True)
class Node:
    """One machine of the cluster that is alive."""

    id: str
    host: str
    gpus: int
    cpus: int


def import_ray(spec: str) -> Any:
    """Ray, with its reports home switched off.

    Raises:
        UsageError: if it is not installed.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"{spec} {MISSING} ({error})") from error
    return ray


class Connection:
    """This process's place in a cluster, joined or started at the first use.

    Args:
        spec: as the user named the device, for messages.
        address: of the cluster; empty joins one that runs on this machine, else starts one.
        dashboard: start Ray's dashboard with a cluster that is started here.
    """

    def __init__(self, spec: str, address: str, dashboard: bool) -> None:
        self._spec, self._address, self._wants_dashboard = spec, address, dashboard
        self.ray = import_ray(f"--device {spec}")
        self._owns = False
        self.dashboard = ""

    def open(self) -> None:
        """Join or start.

        Raises:
            EnvironmentFailure: if the cluster cannot be reached or used from here.
        """
        if self.ray.is_initialized():
            return
        self._check_reachable()
        try:
            with _own_signals(), _without_secrets(), auth.own_token(self._address), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                context = self.ray.init(
                    address=self._address or None,
                    namespace="tilecast",
                    logging_level=logging.CRITICAL,
                    log_to_driver=False,
                    **self._starting(),
                )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            first = auth.refusal(*self._host_and_port()) or first
            raise EnvironmentFailure(f"--device {self._spec}: the Ray cluster cannot be used: {first}") from error
        self._owns = True
        _hush()
        url = str(getattr(context, "dashboard_url", "") or "")
        self.dashboard = url if not url or "://" in url else f"http://{url}"

    def _starting(self) -> dict[str, Any]:
        """Only a cluster that is started here takes these; one that is there refuses them."""
        joins = self._address not in ("", "local") or os.environ.get("RAY_ADDRESS") or _runs_here()
        return {} if joins and self._address != "local" else {"include_dashboard": self._wants_dashboard}

    def _check_reachable(self) -> None:
        """A wrong address is said in seconds: Ray itself would try for a minute."""
        host, port = self._host_and_port()
        if not port:
            if self._address in ("", "auto", "local"):
                return
            raise UsageError(
                f"--device {self._spec}: {self._address!r} is no address of a Ray cluster: "
                "HOST:PORT (6379 on the head node), ray://HOST:10001, auto, or local"
            )
        try:
            socket.create_connection((host.strip("[]"), port), timeout=REACH_S).close()
        except OSError as error:
            raise EnvironmentFailure(
                f"--device {self._spec}: nothing answers at {host}:{port} ({error}); is the head node up?"
            ) from error
        if os.environ.get(auth.MODE, "").lower() != "token" and (why := auth.refusal(host, port)):
            raise EnvironmentFailure(f"--device {self._spec}: the Ray cluster cannot be used: {why}")

    def _host_and_port(self) -> tuple[str, int]:
        """Of an address that names them; the port is 0 in another one."""
        host, _, port = self._address.removeprefix("ray://").rpartition(":")
        return (host, int(port)) if host and port.isdecimal() else ("", 0)

    def nodes(self) -> list[Node]:
        """The machines that are alive."""
        found = []
        for item in self.ray.nodes():
            if item.get("Alive"):
                has = item.get("Resources", {})
                host = str(item.get("NodeManagerHostname") or item.get("NodeManagerAddress"))
                found.append(Node(item["NodeID"], host, int(has.get("GPU", 0)), int(has.get("CPU", 0))))
        return found

    def ask_for(self, count: int, resource: str) -> None:
        """Ask a cluster that scales itself for so many places; 0 takes the request back. Others take no notice."""
        with suppress(Exception):
            from ray.autoscaler.sdk import request_resources

            request_resources(bundles=[{resource: 1}] * count)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._owns and self.ray.is_initialized():
            self._owns = False
            self.ray.shutdown()


def _hush() -> None:
    """Ray prints what happens to its processes on standard output, where a result may be; the run tells it in its own words."""
    with suppress(ImportError):
        import ray._private.worker as internal

        # There is no setting for it: the thread that listens for errors calls this one whatever is asked for.
        if hasattr(internal, "print_to_stdstream"):
            internal.print_to_stdstream = lambda *data, **more: None


def _runs_here() -> bool:
    from ray._private.services import find_gcs_addresses

    return bool(find_gcs_addresses())


@contextmanager
def _without_secrets() -> Iterator[None]:
    """Processes started meanwhile do not see keys and tokens of this one, other than Ray's own for its cluster."""
    kept = dict(os.environ)
    for name in set(kept) - set(scrubbed_environment(kept)) - {auth.TOKEN, auth.TOKEN_PATH}:
        del os.environ[name]
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.setdefault(name, value)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray sets handlers of its own; Ctrl-C stays ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
