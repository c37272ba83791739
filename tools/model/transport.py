"""The only module that touches the ``openai`` package: one request out, JSON back, every failure as one of two exceptions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tilecast.tools.model.answers import BadAnswer
from tilecast.tools.model.settings import ModelSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
CONNECT_TIMEOUT_S = 15.0
BEFORE_SENDING = (
    "ConnectError",
    "ConnectTimeout",
    "PoolTimeout",
    "UnsupportedProtocol",
    "LocalProtocolError",
    "ProxyError",
)
"""Causes after which the server cannot have begun to answer."""


class HttpFailure(Exception):
    """The server answered with an error status."""

    def __init__(self, status: int, headers: dict[str, str], body: Any) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.headers, self.body = status, headers, body


class Unreachable(Exception):
    """No answer: the connection failed or broke. ``sent`` tells whether the server may have started to work."""

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Transport:
    """One server and key; made on first use, because importing ``openai`` takes more than half a second."""

    def __init__(self, settings: ModelSettings, key: str) -> None:
        self._settings, self._key = settings, key
        self._client: AsyncOpenAI | None = None

    @property
    def server(self) -> str:
        """Host and port, without credentials that the URL may hold."""
        parts = urlsplit(self._settings.base_url or OPENAI_URL)
        return (parts.hostname or "") + (f":{parts.port}" if parts.port else "")

    async def whole(self, body: dict[str, Any]) -> Any:
        """Ask for a whole answer; gives the decoded JSON.

        Raises:
            HttpFailure, Unreachable: as they say.
            BadAnswer: if what came back is not JSON.
        """
        import openai

        try:
            raw: Any = await self._connected().chat.completions.with_raw_response.create(**_arguments(body))
        except openai.OpenAIError as error:
            raise _translated(error) from None
        try:
            return raw.http_response.json()
        except ValueError:
            kind = raw.http_response.headers.get("content-type", "no content type")
            raise BadAnswer(f"the answer is not JSON ({kind})") from None

    async def pieces(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Ask for a streamed answer; gives one decoded chunk after the other.

        Raises:
            HttpFailure, Unreachable: as they say, also in the middle of the stream.
        """
        import httpx2
        import openai

        try:
            stream: Any = await self._connected().chat.completions.create(**_arguments(body))
            async with stream:
                async for chunk in stream:
                    # Loosely built: what is no object has no fields to dump.
                    if hasattr(chunk, "model_dump"):
                        yield chunk.model_dump()
        except openai.OpenAIError as error:
            raise _translated(error) from None
        except httpx2.HTTPError as error:
            raise Unreachable(f"the connection broke: {type(error).__name__}", sent=True) from None
        except ValueError as error:
            raise Unreachable(f"the stream is not JSON: {error}", sent=True) from None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()

    def _connected(self) -> AsyncOpenAI:
        if self._client is None:
            import openai

            self._client = openai.AsyncOpenAI(
                api_key=self._key,
                base_url=self._settings.base_url or OPENAI_URL,
                max_retries=0,
                timeout=openai.Timeout(self._settings.timeout_s, connect=CONNECT_TIMEOUT_S),
            )
        return self._client


def _arguments(body: dict[str, Any]) -> dict[str, Any]:
    """What the client knows by name, and everything else as it is."""
    named: dict[str, Any] = {key: body[key] for key in ("model", "messages", "stream", "tools") if key in body}
    return {**named, "extra_body": {key: value for key, value in body.items() if key not in named}}


def _translated(error: Exception) -> HttpFailure | Unreachable:
    import openai

    if isinstance(error, openai.APIStatusError):
        return HttpFailure(error.status_code, dict(error.response.headers), _body(error))
    cause = type(error.__cause__).__name__
    if isinstance(error, openai.APIConnectionError):
        kind = "timed out" if isinstance(error, openai.APITimeoutError) else f"failed ({cause})"
        return Unreachable(f"the connection {kind}", sent=cause not in BEFORE_SENDING)
    if isinstance(error, openai.APIError) and isinstance(error.body, dict):
        # An error event in the middle of a stream.
        code = error.body.get("code")
        return HttpFailure(code if isinstance(code, int) and code >= 400 else 500, {}, error.body)
    return Unreachable(f"{type(error).__name__}: {error}", sent=True)


def _body(error: Any) -> Any:
    """The decoded body whole; the client itself keeps only what is under ``error``."""
    try:
        return error.response.json()
    except ValueError:
        return error.response.text[:2000]
