"""A cluster that has no GPU yet, none that ever comes, or one that asks for a token: what the user is told, and the remedy."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tilecast.sandbox.cluster import auth
from tilecast.sandbox.cluster.connection import Connection, Node, _without_secrets
from tilecast.sandbox.cluster.fleet import Fleet
from tilecast.sandbox.cluster.options import ClusterOptions
from tilecast.sandbox.errors import EnvironmentFailure

pytest.importorskip("ray")
NAMES = (auth.MODE, auth.TOKEN, auth.TOKEN_PATH)


class HeadOnly:
    """A cluster that scales itself, before any GPU node is there."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def open(self) -> None:
        """Nothing to join."""

    def nodes(self) -> list[Node]:
        return [Node("1", "head", gpus=0, cpus=0)]

    def ask_for(self, count: int, resource: str) -> None:
        self.asked.append((count, resource))


def fleet(**options: Any) -> tuple[Fleet, HeadOnly]:
    head = HeadOnly()
    return Fleet(head, ClusterOptions(**options), False), head  # type: ignore[arg-type]


def test_without_gpus_the_request_for_them_is_named_before_cpus() -> None:
    found, _ = fleet()
    with pytest.raises(EnvironmentFailure, match=r"has no GPU .*\[ray\] workers = N .*\[ray\] evaluators = \"cpu\""):
        found.start()


def test_the_wait_for_gpus_is_told_once_and_its_end_names_the_limit() -> None:
    found, head = fleet(workers=4, join_s=0.6)
    told: list[str] = []
    found.on_waiting = told.append
    found.start()
    try:
        with pytest.raises(EnvironmentFailure, match=r"^no GPU came within join_s = 0.6 s \(\[ray\] workers = 4 asked"):
            found.settle(1.0)
    finally:
        found._ending.set()
    assert head.asked == [(4, "GPU")]
    assert len(told) == 1 and "4 asked for, 0 there" in told[0] and "join_s = 0.6 s" in told[0]


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without a token of Ray's."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TILECAST_HOME", str(tmp_path / "tilecast"))
    return tmp_path


@pytest.mark.parametrize("address", ["", "auto", "local"])
def test_a_cluster_of_this_machine_gets_a_token_that_only_its_owner_reads(nobody: Path, address: str) -> None:
    with _without_secrets(), auth.own_token(address):
        path = Path(os.environ[auth.TOKEN_PATH])
        os.environ[auth.MODE] = "token"  # as Ray does
    assert path.is_relative_to(nobody / "tilecast") and len(path.read_text()) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(name in os.environ for name in NAMES), "nothing passes for the user's choice afterwards"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_all_runs_of_a_user_have_one_token(nobody: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert len({pool.submit(lambda: auth.token_file().read_text()).result() for _ in range(3)}) == 1


def test_the_users_own_choice_holds_and_reaches_ray(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with auth.own_token("10.0.0.5:6379"):
        assert auth.TOKEN_PATH not in os.environ
    monkeypatch.setenv(auth.TOKEN, "x" * 64)
    with _without_secrets(), auth.own_token(""):
        assert os.environ[auth.TOKEN] == "x" * 64 and auth.TOKEN_PATH not in os.environ
    monkeypatch.delenv(auth.TOKEN)
    (nobody / ".ray").mkdir()
    (nobody / ".ray" / "auth_token").write_text("y" * 64)
    with auth.own_token(""):
        assert auth.TOKEN_PATH not in os.environ


def test_a_head_node_that_asks_for_a_token_is_told_with_rays_reason_and_the_remedy(nobody: Path) -> None:
    grpc = pytest.importorskip("grpc")

    def refuse(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken: Authentication token is missing or incorrect")
        return b""

    handler = grpc.method_handlers_generic_handler(
        "ray.rpc.NodeInfoGcsService", {"GetClusterId": grpc.unary_unary_rpc_method_handler(refuse)}
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(EnvironmentFailure, match=r"InvalidAuthToken: .*set RAY_AUTH_MODE=token"):
            Connection(f"ray:127.0.0.1:{port}", f"127.0.0.1:{port}", False).open()
    finally:
        server.stop(None).wait()
