"""What a provider's error means, and what to do about it: pure functions of status, headers and body."""

from __future__ import annotations

import email.utils
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

ESSENTIAL = ("model", "messages", "tools", "stream")
"""Never dropped: without them it would be another question."""
ROOM = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Names under which servers take the limit of an answer's length."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
MESSAGE_LIMIT = 400

_REFUSAL = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|not permitted|not allowed|unexpected|invalid|extra|only the default"
    r"|deprecated|cannot|can't|no longer|must be|not available|too (?:large|high|big|small|low)|exceed|maximum|range|cannot find",
    re.IGNORECASE,
)
_INSTEAD = re.compile(r"[Uu]se\s+['\"`]?([A-Za-z_]\w*)['\"`]?\s+instead")
_TOO_LONG = re.compile(r"context[ _]length|context window|too many (?:input )?tokens|prompt is too long", re.IGNORECASE)
_SECRET = re.compile(r"\b(?:sk|pk|rk|gsk|xai)-[A-Za-z0-9_\-*.]{4,}|\bBearer\s+\S+")

Action = Literal["drop", "rename", "wait", "too_long", "filtered", "key", "model", "quota", "give_up"]


@dataclass(frozen=True)
class Fault:
    """One refused request: what to do, which parameter it is about, how long the server asks to wait, its words."""

    action: Action
    message: str
    parameter: str = ""
    instead: str = ""
    retry_after_s: float | None = None
    status: int = 0


def classify(status: int, headers: Mapping[str, str], body: Any, sent: Iterable[str]) -> Fault:
    """What to do about an HTTP error.

    Args:
        status: HTTP status.
        headers: response headers.
        body: the decoded body, of any shape.
        sent: names of the request's parameters.
    """
    return replace(_classify(status, headers, body, sent), status=status)


def _classify(status: int, headers: Mapping[str, str], body: Any, sent: Iterable[str]) -> Fault:
    error = _error_of(body)
    message = _message(error, body) or f"HTTP {status}"
    code = f"{error.get('code') or ''} {error.get('type') or ''}"
    if status in (401, 403):
        return Fault("key", message)
    if "insufficient_quota" in code or status == 402:
        return Fault("quota", message)
    if status in (408, 409, 425, 429) or status >= 500:
        return Fault("wait", message, retry_after_s=retry_after_s(headers))
    if "content_filter" in code or "content_policy" in code:
        return Fault("filtered", message)
    if status in (400, 422):
        return _bad_request(error, message, code, [name for name in sent if name not in ESSENTIAL])
    if status == 404:
        return Fault("model", message)
    return Fault("too_long" if status == 413 else "give_up", message)


def _bad_request(error: Mapping[str, Any], message: str, code: str, optional: list[str]) -> Fault:
    named = named_parameter(error, message, optional)
    if named is not None:
        told = _INSTEAD.search(message)
        instead = told[1] if told is not None and told[1] != named else ""
        return Fault("rename" if instead else "drop", message, parameter=named, instead=instead)
    if "context_length" in code or _TOO_LONG.search(message):
        return Fault("too_long", message)
    return Fault("model" if "model_not_found" in code else "give_up", message)


def named_parameter(error: Mapping[str, Any], message: str, optional: list[str]) -> str | None:
    """The one optional parameter that an error is about: its ``param`` field, else the first one its message names."""
    param = error.get("param")
    if isinstance(param, str):
        for part in re.split(r"[.\[\]/]", param):
            if part in optional:
                return part
    if not _REFUSAL.search(message):
        return None
    places = []
    for name in optional:
        match = re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", message)
        if match is not None:
            places.append((match.start(), name))
    return min(places)[1] if places else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: ``retry-after-ms``, or ``retry-after`` as seconds or as an HTTP date."""
    lower = {key.lower(): value for key, value in headers.items()}
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(lower[name]) * scale)
        except (KeyError, ValueError):
            continue
    parsed = email.utils.parsedate_tz(lower.get("retry-after", ""))
    return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())


def backoff_s(attempt: int, asked_s: float | None, rng: random.Random) -> float:
    """Exponential back-off with full jitter (never shorter than the server asks for)."""
    wait = rng.uniform(0.5, 1.0) * min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempt, 16))
    return wait if asked_s is None else asked_s + min(wait, FIRST_WAIT_S)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """A provider's words without keys, on one line, cut to what a person reads."""
    for secret in secrets:
        if len(secret) > 5:
            text = text.replace(secret, "[key]")
    line = " ".join(_SECRET.sub("[key]", text).split())
    return line if len(line) <= MESSAGE_LIMIT else line[: MESSAGE_LIMIT - 1] + "…"


def _error_of(body: Any) -> dict[str, Any]:
    """The error object, wherever a provider puts it: under ``error``, in a list, or at the top."""
    if isinstance(body, list) and body:
        return _error_of(body[0])
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, dict) else body


def _message(error: Mapping[str, Any], body: Any) -> str:
    for key in ("message", "detail", "error", "msg"):
        value = error.get(key)
        if value:
            return value if isinstance(value, str) else str(value)
    return body if isinstance(body, str) else ""
