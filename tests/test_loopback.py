"""A profiler's own connections: within its network namespace, to nowhere else; and no other worker has any."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tilecast.sandbox.harness.judge.zygotes import Zygotes

# Stands where ncu does: it starts a program, which connects back to it, as its users' programs do.
TOOL = """
import json, socket, subprocess, sys
found = {}


def attempt(name, work):
    try:
        found[name] = work()
    except OSError as error:
        found[name] = type(error).__name__


def talk():
    server = socket.create_server(("127.0.0.1", 0))
    code = "import socket, sys; socket.create_connection(('localhost', int(sys.argv[1])), 5).sendall(b'here')"
    child = subprocess.Popen([sys.executable, "-c", code, str(server.getsockname()[1])])
    server.settimeout(20)
    heard = server.accept()[0].recv(9).decode()
    child.wait(20)
    return heard


def outside():
    return socket.create_connection(("192.0.2.1", 80), 3).getpeername()


def name_a_thread():
    code = "open('/proc/self/task/%d/comm' % __import__('os').getpid(), 'w').write('named')"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode


attempt("talk", talk)
attempt("name", name_a_thread)
attempt("order", lambda: open("/proc/sys/kernel/hostname", "w").write("other"))
attempt("outside", outside)
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).fileno())
json.dump(found, open(sys.argv[1], "w"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the tool writes, as anybody."""
    tmp_path.chmod(0o777)
    return tmp_path


def report(zygotes: Zygotes, folder: Path, *, loopback: bool, device: str = "cpu") -> dict[str, Any]:
    """What the program found out."""
    arguments = {"device": device, "program": [sys.executable, "-c", TOOL, "{cache}/report.txt"]}
    worker = zygotes.spawn_job("tool", arguments, cache=str(folder), loopback=loopback)
    try:
        assert worker.wait_status(60.0) is not None
        assert (folder / "report.txt").is_file(), worker.log_tail()
    finally:
        worker.kill()
    return dict(json.loads((folder / "report.txt").read_text()))


NOTHING = {"talk": "PermissionError", "outside": "PermissionError", "netlink": "PermissionError"}
TO_ITSELF = {"talk": "here", "outside": "OSError", "netlink": "PermissionError"}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_tool_may_talk_to_what_it_starts_and_to_nobody_else(zygotes: Zygotes, folder: Path, device: str) -> None:
    if zygotes.abilities()["namespaces"] == "none":
        pytest.skip("this machine gives a worker no network of its own")
    found = report(zygotes, folder, loopback=True, device=device)
    assert found.items() >= TO_ITSELF.items()
    assert found["order"] in ("OSError", "PermissionError"), "it gave orders to the whole machine"
    # CUDA names its threads, and does not start in a program that cannot.
    assert (found["name"] == 0) == (device != "cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_other_workers_have_no_connections_at_all(zygotes: Zygotes, folder: Path, device: str) -> None:
    assert report(zygotes, folder, loopback=False, device=device).items() >= NOTHING.items()
