"""What providers' errors mean: one parameter named in many dialects, waits, keys; and what is remembered of it."""

from __future__ import annotations

import email.utils
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tilecast.tools.model.faults import Fault, backoff_s, classify, redact, retry_after_s
from tilecast.tools.model.quirks import FILE, Quirks

SENT = ["model", "messages", "temperature", "top_p", "max_tokens", "reasoning_effort", "stream_options", "top_k"]


def wrapped(message: Any, **others: Any) -> dict[str, Any]:
    return {"error": {"message": message, **others}}


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        (
            wrapped("Unsupported value: 'temperature' does not support 0.2 with this model.", param="temperature"),
            "temperature",
        ),
        (wrapped("Unsupported parameter: 'top_p' is not supported.", param=None), "top_p"),
        (wrapped("Unrecognized request argument supplied: reasoning_effort"), "reasoning_effort"),
        (
            {
                "detail": [
                    {"type": "extra_forbidden", "loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}
                ]
            },
            "top_k",
        ),
        (
            {
                "object": "error",
                "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'top_k'), 'msg': 'Extra inputs'}]",
            },
            "top_k",
        ),
        (
            [wrapped('Invalid JSON payload received. Unknown name "max_tokens": Cannot find field.', code=400)],
            "max_tokens",
        ),
        (wrapped("`temperature` and `top_p` cannot both be specified for this model."), "temperature"),
        (wrapped("temperature: Extra inputs are not permitted"), "temperature"),
        (wrapped("property 'reasoning_effort' is unsupported"), "reasoning_effort"),
        (wrapped("The model does not support the parameter temperature now"), "temperature"),
        (wrapped("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens"), "max_tokens"),
        (wrapped("bad", param="generation_config.temperature"), "temperature"),
        (wrapped("Unknown parameter: 'stream_options'."), "stream_options"),
        ("top_p is not permitted here", "top_p"),
    ],
)
def test_exactly_the_named_parameter_is_dropped(body: Any, parameter: str) -> None:
    fault = classify(400, {}, body, SENT)
    assert (fault.action, fault.parameter, fault.status) == ("drop", parameter, 400)


@pytest.mark.parametrize(
    ("status", "body", "action"),
    [
        (400, wrapped("Unsupported: tools", param="tools"), "give_up"),
        (400, wrapped("messages: temperature_like field is not permitted", param="messages"), "give_up"),
        (400, wrapped("Sorry about the temperature here"), "give_up"),
        (
            400,
            wrapped("This model's maximum context length is 8192 tokens", code="context_length_exceeded"),
            "too_long",
        ),
        (413, "Payload too large", "too_long"),
        (400, wrapped("flagged", code="content_filter"), "filtered"),
        (401, wrapped("bad key"), "key"),
        (403, "", "key"),
        (404, wrapped("The model `x` does not exist", code="model_not_found"), "model"),
        (429, wrapped("slow down"), "wait"),
        (429, wrapped("no money", code="insufficient_quota"), "quota"),
        (402, wrapped("no money"), "quota"),
        (500, "<html>", "wait"),
        (529, wrapped("overloaded"), "wait"),
        (418, {}, "give_up"),
        (400, None, "give_up"),
        (400, [], "give_up"),
    ],
)
def test_other_errors(status: int, body: Any, action: str) -> None:
    fault = classify(status, {}, body, [*SENT, "tools"])
    assert fault.action == action and fault.message


def test_a_rename_is_only_one_when_the_server_says_so() -> None:
    told = wrapped("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", param="max_tokens")
    assert classify(400, {}, told, SENT) == Fault(
        "rename", told["error"]["message"], parameter="max_tokens", instead="max_completion_tokens", status=400
    )
    assert classify(400, {}, wrapped("'max_tokens' is unsupported", param="max_tokens"), SENT).action == "drop"


def test_retry_after_in_every_form() -> None:
    assert retry_after_s({"Retry-After": "2.5"}) == 2.5
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after_s({"Retry-After": "-3"}) == 0
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert retry_after_s({"retry-after": date}) == pytest.approx(30, abs=2)
    assert retry_after_s({"retry-after": "soon"}) is None and retry_after_s({}) is None


def test_backoff_grows_with_jitter_and_never_undercuts_the_server() -> None:
    rng = random.Random(0)
    waits = [[backoff_s(attempt, None, rng) for _ in range(50)] for attempt in range(40)]
    assert all(0.25 * 2 ** min(a, 7) * 0.99 <= w <= 60 for a, some in enumerate(waits[:7]) for w in some)
    assert len(set(waits[3])) > 40 and max(map(max, waits)) <= 60
    assert all(5 <= backoff_s(attempt, 5.0, rng) <= 5.5 for attempt in range(40))


def test_redaction() -> None:
    text = "Incorrect API key provided: sk-proj-abcdef. Header Bearer xyz123\nand my-own-secret"
    clean = redact(text, ["my-own-secret"])
    assert clean == "Incorrect API key provided: [key] Header [key] and [key]"
    assert len(redact("x" * 9999)) <= 400


def drop(name: str) -> Fault:
    return Fault("drop", "no", parameter=name)


def test_quirks_are_kept_by_server_and_model(tmp_path: Path) -> None:
    quirks = Quirks("host", "m", tmp_path)
    quirks.learn(drop("temperature"), {"temperature": 0.3})
    quirks.learn(Fault("rename", "no", parameter="max_tokens", instead="max_completion_tokens"), {"max_tokens": 5})
    for again in (quirks, Quirks("host", "m", tmp_path)):
        assert again.apply({"temperature": 0.3, "max_tokens": 9, "top_p": 1}) == {
            "max_completion_tokens": 9,
            "top_p": 1,
        }
        # Another value may be taken: only the refused one is left out.
        assert again.apply({"temperature": 1.0}) == {"temperature": 1.0}
    for other in (Quirks("host", "n", tmp_path), Quirks("other", "m", tmp_path), Quirks("host", "m", None)):
        assert other.apply({"temperature": 0.3}) == {"temperature": 0.3}


def test_a_renamed_parameter_that_is_refused_too_is_dropped_for_good() -> None:
    quirks = Quirks("host", "m", None)
    quirks.learn(Fault("rename", "", parameter="max_tokens", instead="max_completion_tokens"), {"max_tokens": 5})
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
    for _ in range(3):
        for name in list(sent := quirks.apply({"max_tokens": 5})):
            quirks.learn(Fault("rename", "", parameter=name, instead=other[name]), sent)
    assert quirks.apply({"max_tokens": 77}) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host m": 3}', '{"host m": {"dropped": []}}'])
def test_a_broken_memory_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    quirks = Quirks("host", "m", tmp_path)
    assert quirks.apply({"a": 1}) == {"a": 1}
    quirks.learn(drop("a"), {"a": 1})
    assert json.loads((tmp_path / FILE).read_text())["host m"]["dropped"] == {"a": 1}


def test_an_unwritable_home_is_no_obstacle(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    quirks = Quirks("host", "m", blocked / "home")
    quirks.learn(drop("a"), {"a": 1})
    assert quirks.apply({"a": 1}) == {}
