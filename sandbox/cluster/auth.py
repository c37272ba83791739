"""Ray's token authentication: clusters started here have a token of tilecast's own, and a refusal is told with its reason.

Ray itself makes ``~/.ray/auth_token`` for a cluster that a program starts; from then on every ``ray start`` of the user
asks for tokens, which nobody chose. No token at all would let anything on the machine run programs through the cluster.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.process import default_state_dir

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
FILE = "ray_auth_token"
ANSWER_S = 5.0
REMEDY = (
    f"set {MODE}=token, and have the cluster's token in ~/.ray/auth_token or {TOKEN_PATH} (`ray get-auth-token` on the "
    f"head node prints it); or start the cluster without tokens ({MODE}=disabled ray start ...)"
)


@contextmanager
def own_token(address: str) -> Iterator[None]:
    """Ray takes tilecast's token meanwhile, for a cluster of this machine; where the user has chosen, that holds.

    Runs of one user share it, so that one may join the cluster of another.
    """
    chosen = any(os.environ.get(name) for name in (MODE, TOKEN, TOKEN_PATH))
    if address not in ("", "auto", "local") or chosen or (Path.home() / ".ray" / "auth_token").exists():
        yield
        return
    os.environ[TOKEN_PATH] = str(token_file())
    try:
        yield
    finally:
        # Ray has read them, and put the mode there itself: left behind, they would pass for the user's choice.
        for name in (MODE, TOKEN_PATH):
            os.environ.pop(name, None)


def token_file() -> Path:
    """The file with the token, made at the first use; only its owner can read it.

    Raises:
        EnvironmentFailure: if it cannot be made.
    """
    path = default_state_dir() / FILE
    partial = path.with_name(f".{FILE}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
            # The first of several processes wins: a token that is in use is never replaced.
            with suppress(FileExistsError):
                os.link(partial, path)
            partial.unlink()
    except OSError as error:
        raise EnvironmentFailure(f"{path}: the token for Ray cannot be kept there: {error.strerror}") from error
    return path


def refusal(host: str, port: int) -> str:
    """Ray's words and the remedy, where a head node asks for a token; empty if it does not, or is none.

    Ray's own exception says only that it could not connect, after twenty seconds.
    """
    try:
        import grpc
    except ImportError:
        return ""
    if not port:
        return ""
    try:
        with grpc.insecure_channel(f"{host}:{port}") as channel:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")(b"", timeout=ANSWER_S)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return f"{error.details()}; {REMEDY}"
    return ""
