"""A local server that speaks the OpenAI chat API over real HTTP, from a script: a queue of replies, or a function.

    with FakeOpenAI([refused("temperature"), "```python\n...\n```"]) as server:
        ...  # base_url = server.url
    server.requests  # every request with its body, when it came and whether its answer was written to the end

As a program (for tests that kill the client): ``python fake_openai.py --script FILE.json --log FILE.jsonl`` prints its
URL; the script is a list of replies (texts, or objects with the fields of :class:`Reply`), repeated from the start.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One scripted reply.

    Attributes:
        text: the message's content; None leaves it out.
        reasoning: sent as ``reasoning_content``.
        tool_calls: calls in the API's form, see :func:`tool_call`.
        finish_reason: ``stop``, ``length``, …; with tool calls ``tool_calls``.
        usage: the usage object; ``auto`` counts four characters a token, None leaves it out.
        status, error, headers: an error answer instead (status other than 200).
        latency_s: wait before the answer begins.
        piece_s: wait between streamed pieces.
        pieces: characters of one streamed piece.
        hang_up: ``before`` closes the connection unanswered, ``midway`` in the middle of a stream.
        raw: a body sent as it is.
    """

    text: str | None = ""
    reasoning: str | None = None
    tool_calls: Sequence[dict[str, Any]] = ()
    finish_reason: str | None = None
    usage: dict[str, Any] | str | None = "auto"
    status: int = 200
    error: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    latency_s: float = 0.0
    piece_s: float = 0.0
    pieces: int = 7
    hang_up: str = ""
    raw: str | None = None


@dataclass
class Logged:
    """One request as the server saw it."""

    number: int
    body: dict[str, Any]
    headers: dict[str, str]
    at_s: float
    status: int = 0
    answered: bool = False

    @property
    def prompt_sha256(self) -> str:
        """Hash of the messages: the same question has the same hash."""
        return hashlib.sha256(json.dumps(self.body.get("messages"), sort_keys=True).encode()).hexdigest()


Script = Callable[[dict[str, Any], int], "Reply | str"]
"""Gives the reply to a request's body; the number counts requests from 0."""


def refused(parameter: str, message: str = "", instead: str = "") -> Reply:
    """A 400 about one parameter, in OpenAI's words unless others are given."""
    text = message or f"Unsupported parameter: '{parameter}' is not supported with this model."
    if instead:
        text += f" Use '{instead}' instead."
    error = {"message": text, "type": "invalid_request_error", "param": parameter, "code": "unsupported_parameter"}
    return Reply(status=400, error=error)


def failed(status: int, message: str = "try later", retry_after: str | None = None, **error: Any) -> Reply:
    """An error answer of any status."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Reply(status=status, error={"message": message, **error}, headers=headers)


def tool_call(name: str, arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    """A tool call; arguments that are no text are sent as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def refusing(parameters: Sequence[str], then: Script) -> Script:
    """A script that refuses parameters for as long as they are sent, in this order."""

    def script(body: dict[str, Any], number: int) -> Reply | str:
        for name in parameters:
            if name in body:
                return refused(name)
        return then(body, number)

    return script


class FakeOpenAI:
    """The server. Use as a context manager; safe to ask from many threads."""

    def __init__(self, script: Script | Iterable[Reply | str], log: Path | None = None, port: int = 0) -> None:
        self._script = script if callable(script) else _queue(list(script))
        self._log, self._port = log, port
        self._lock = threading.Lock()
        self.requests: list[Logged] = []
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The base URL to configure."""
        assert self._server is not None, "the server is not started"
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The requests' bodies, in order."""
        return [item.body for item in self.requests]

    def answered(self) -> list[str]:
        """Hashes of the prompts whose successful answer was written to the end."""
        return [item.prompt_sha256 for item in self.requests if item.answered and item.status == 200]

    def start(self) -> FakeOpenAI:
        """Listen on a free port of this machine."""
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def __enter__(self) -> FakeOpenAI:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def take(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[Logged, Reply]:
        """Log a request and find its reply."""
        with self._lock:
            logged = Logged(len(self.requests), body, headers, time.monotonic())
            self.requests.append(logged)
            reply = self._script(body, logged.number)
            reply = Reply(text=reply) if isinstance(reply, str) else reply
            logged.status = reply.status
        self.note("asked", logged)
        return logged, reply

    def note(self, event: str, logged: Logged) -> None:
        """Append to the log file; written before the answer's last byte leaves."""
        if self._log is not None:
            where = {"number": logged.number, "status": logged.status, "prompt": logged.prompt_sha256}
            line = {"event": event, "wall_s": time.time(), **where}
            with self._lock, self._log.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")


def _queue(replies: list[Reply | str]) -> Script:
    """Replies in order; when they are used up, an error that fails the test."""

    def script(body: dict[str, Any], number: int) -> Reply | str:
        if replies:
            return replies.pop(0)
        return failed(418, f"the script has no reply for request {number}")

    return script


class _Handler(BaseHTTPRequestHandler):
    fake: FakeOpenAI
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        """The list of models."""
        self._json(200, {"object": "list", "data": [{"id": "fake", "object": "model"}]}, {})

    def do_POST(self) -> None:
        """A chat completion."""
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if not self.path.endswith("/chat/completions"):
            self._json(404, {"error": {"message": f"no such path: {self.path}"}}, {})
            return
        logged, reply = self.fake.take(json.loads(raw), {key.lower(): value for key, value in self.headers.items()})
        time.sleep(reply.latency_s)
        try:
            self._answer(logged, reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, logged: Logged, reply: Reply) -> None:
        if reply.hang_up == "before":
            self.close_connection = True
            return
        if reply.raw is not None:
            self._bytes(reply.status, reply.raw.encode(), "text/html", reply.headers)
        elif reply.status != 200:
            body = reply.error if isinstance(reply.error, list | str) else {"error": reply.error}
            self._json(reply.status, body, reply.headers)
        elif logged.body.get("stream"):
            self._stream(logged, reply)
        else:
            self._json(200, _completion(logged.body, reply), reply.headers)
        if reply.hang_up != "midway":
            logged.answered = True
            self.fake.note("answered", logged)

    def _stream(self, logged: Logged, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        chunks = _chunks(logged.body, reply)
        if reply.hang_up == "midway":
            chunks = chunks[: len(chunks) // 2]
        for chunk in chunks:
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
            time.sleep(reply.piece_s)
        if reply.hang_up != "midway":
            self.wfile.write(b"data: [DONE]\n\n")

    def _json(self, status: int, body: Any, headers: dict[str, str]) -> None:
        self._bytes(status, json.dumps(body).encode(), "application/json", headers)

    def _bytes(self, status: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _frame(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": body.get("model", "fake")}


def _usage(body: dict[str, Any], reply: Reply) -> dict[str, Any] | None:
    if isinstance(reply.usage, dict) or reply.usage is None:
        return reply.usage
    prompt = len(json.dumps(body.get("messages"))) // 4
    output = (len(reply.text or "") + len(reply.reasoning or "")) // 4
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def _finish(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _completion(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = list(reply.tool_calls)
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    usage = _usage(body, reply)
    return {**_frame(body, "chat.completion"), "choices": [choice], **({} if usage is None else {"usage": usage})}


def _chunks(body: dict[str, Any], reply: Reply) -> list[dict[str, Any]]:
    """The streamed form: role, reasoning, text and tool calls in pieces, finish reason, then usage if it was asked for."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _cut(reply.reasoning or "", reply.pieces)]
    deltas += [{"content": piece} for piece in _cut(reply.text or "", reply.pieces)]
    for index, call in enumerate(reply.tool_calls):
        function = call["function"]
        head = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        for piece in _cut(function["arguments"], reply.pieces):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    frame = _frame(body, "chat.completion.chunk")
    chunks = [{**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]})
    usage = _usage(body, reply)
    if usage is not None and (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**frame, "choices": [], "usage": usage})
    return chunks


def _cut(text: str, length: int) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--jitter-s", type=float, default=0.0, help="up to this much random latency on top")
    options = parser.parse_args()
    names = {item.name for item in dataclasses.fields(Reply)}
    items = json.loads(options.script.read_text(encoding="utf-8"))
    replies = [
        Reply(text=item) if isinstance(item, str) else Reply(**{k: v for k, v in item.items() if k in names})
        for item in items
    ]

    def script(body: dict[str, Any], number: int) -> Reply:
        reply = replies[number % len(replies)]
        return dataclasses.replace(reply, latency_s=reply.latency_s + random.uniform(0, options.jitter_s))

    with FakeOpenAI(script, options.log, options.port) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    _main()
