"""The chat model against a real local server: parameters repaired, retries, cancellation, usage, streams, secrets."""

from __future__ import annotations

import json
import logging
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Reply, failed, refused, refusing, tool_call

from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.tools.model.base import BudgetRefused, ChatRequest, Delta, RequestCancelled
from tilecast.tools.model.client import OpenAIChatModel
from tilecast.tools.model.memory import InMemoryJournal
from tilecast.tools.model.settings import ModelSettings, Price

KEY = "sk-secret-0123456789abcdef"


def model_at(server: FakeOpenAI, home: Path | None = None, **settings: Any) -> OpenAIChatModel:
    return OpenAIChatModel(ModelSettings(name="fake", base_url=server.url, **{"retries": 3, **settings}), KEY, home)


def question(key: str = "k", text: str = "hello", **others: Any) -> ChatRequest:
    return ChatRequest(key=key, purpose="propose", messages=[{"role": "user", "content": text}], **others)


def test_nothing_optional_is_sent_unless_configured() -> None:
    with FakeOpenAI(["hi"]) as server:
        journal = InMemoryJournal()
        answer = model_at(server).complete(question(), journal)
    assert answer.text == "hi" and answer.finish_reason == "stop"
    assert set(server.bodies[0]) == {"model", "messages"}
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert journal.spent == answer.usage.model_copy(update={"usd": None}) and journal.in_flight == 0


def test_configured_parameters_are_sent_as_they_are() -> None:
    with FakeOpenAI(["hi"]) as server:
        model_at(server, temperature=0.0, extra={"reasoning_effort": "low", "top_k": 5}).complete(
            question(), InMemoryJournal()
        )
    sent = server.bodies[0]
    assert (sent["temperature"], sent["reasoning_effort"], sent["top_k"]) == (0.0, "low", 5)


def test_refused_parameters_are_dropped_one_by_one_remembered_and_charged_once(tmp_path: Path) -> None:
    script = refusing(["temperature", "max_tokens"], lambda body, number: "answer")
    with FakeOpenAI(script) as server:
        model = model_at(server, tmp_path, temperature=0.3, max_tokens=500, top_p=0.9)
        journal = InMemoryJournal()
        first = model.complete(question("1"), journal)
        assert len(server.requests) == 3
        model.complete(question("2"), journal)
        assert len(server.requests) == 4
        # Another process remembers.
        model_at(server, tmp_path, temperature=0.3, max_tokens=500, top_p=0.9).complete(question("3"), journal)
        assert len(server.requests) == 5
    assert [sorted(set(body) - {"model", "messages"}) for body in server.bodies[:3]] == [
        ["max_tokens", "temperature", "top_p"],
        ["max_tokens", "top_p"],
        ["top_p"],
    ]
    assert journal.spent.tokens == 3 * first.usage.tokens
    assert len(model.notes) == 2 and "temperature" in model.notes[0]
    assert "temperature" in (tmp_path / "models.json").read_text()


def test_a_renamed_parameter_keeps_its_value(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Reply | str:
        return refused("max_tokens", instead="max_completion_tokens") if "max_tokens" in body else "ok"

    with FakeOpenAI(script) as server:
        model = model_at(server, tmp_path, max_tokens=500)
        model.complete(question("1"), InMemoryJournal())
        model.complete(question("2", max_output_tokens=900), InMemoryJournal())
    assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 500, 900]


def test_room_under_the_servers_own_name() -> None:
    with FakeOpenAI(["a", "b"]) as server:
        model = model_at(server, extra={"max_completion_tokens": 700})
        assert model.estimate(question()).output_tokens == 700
        model.complete(question("1"), InMemoryJournal())
        model.complete(question("2", max_output_tokens=900), InMemoryJournal())
    assert [body["max_completion_tokens"] for body in server.bodies] == [700, 900]
    assert all("max_tokens" not in body for body in server.bodies)


def test_eight_at_once_learn_from_the_first() -> None:
    def script(body: dict[str, Any], number: int) -> Reply | str:
        return refused("temperature") if "temperature" in body else Reply(text="ok", latency_s=0.05)

    with FakeOpenAI(script) as server:
        model, journal = model_at(server, temperature=0.3), InMemoryJournal()
        threads = [threading.Thread(target=model.complete, args=(question(str(i)), journal)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert len(server.requests) == 9


def test_a_slow_first_answer_holds_up_nobody() -> None:
    def script(body: dict[str, Any], number: int) -> Reply | str:
        return Reply(text="slow", latency_s=6) if number == 0 else "fast"

    with FakeOpenAI(script) as server:
        model, journal = model_at(server, temperature=0.3), InMemoryJournal()
        threading.Thread(target=lambda: _quiet(model, journal), daemon=True).start()
        while not server.requests:
            time.sleep(0.01)
        began = time.monotonic()
        assert model.complete(question("2"), journal).text == "fast"
        assert time.monotonic() - began < 4
        model.close()


def _quiet(model: OpenAIChatModel, journal: InMemoryJournal) -> None:
    try:
        model.complete(question("slow"), journal)
    except RequestCancelled:
        return


def test_an_answered_key_is_not_asked_again() -> None:
    with FakeOpenAI(["one"]) as server:
        model, journal = model_at(server), InMemoryJournal()
        assert model.complete(question(), journal) == model.complete(question(), journal)
    assert len(server.requests) == 1


def test_rate_limits_and_server_errors_are_waited_out() -> None:
    with FakeOpenAI([failed(429, retry_after="0.4"), failed(500), Reply(raw="<html>", status=503), "fine"]) as server:
        began = time.monotonic()
        assert model_at(server).complete(question(), InMemoryJournal()).text == "fine"
    assert time.monotonic() - began > 0.4 and len(server.requests) == 4
    assert server.requests[1].at_s - server.requests[0].at_s >= 0.4


def test_retries_end_with_the_servers_words() -> None:
    with FakeOpenAI([failed(503, "overloaded")] * 2) as server:
        journal = InMemoryJournal()
        with pytest.raises(EnvironmentFailure, match=r"fake.*HTTP 503: overloaded.*2 requests"):
            model_at(server, retries=1).complete(question(), journal)
    assert journal.in_flight == 0 and journal.spent.tokens == 0


def test_a_wait_that_does_not_fit_is_refused_at_once() -> None:
    with FakeOpenAI([failed(429, retry_after="3600")] * 2) as server:
        model = model_at(server)
        with pytest.raises(EnvironmentFailure, match="patience_s"):
            model.complete(question("1"), InMemoryJournal())
        with pytest.raises(BudgetRefused) as refusal:
            model_at(server, patience_s=9999).complete(question("2", deadline_s=5), InMemoryJournal())
    assert refusal.value.meter == "minutes"


def test_the_deadline_stops_a_slow_answer_and_charges_it() -> None:
    with FakeOpenAI([Reply(text="late", latency_s=5)]) as server:
        journal = InMemoryJournal()
        with pytest.raises(BudgetRefused):
            model_at(server, max_tokens=100).complete(question(deadline_s=0.3), journal)
    assert journal.spent.output_tokens == 100


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_the_variable_and_hides_the_key(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeOpenAI([failed(status, f"Incorrect API key provided: {KEY}")]) as server:
        journal = InMemoryJournal()
        with pytest.raises(EnvironmentFailure, match="MY_KEY") as failure:
            model_at(server, key_env="MY_KEY").complete(question(), journal)
    assert KEY not in str(failure.value) and KEY not in str(journal.failures) and KEY not in caplog.text


def test_an_unknown_model_and_a_wrong_url_say_so() -> None:
    with FakeOpenAI([failed(404, "no such model"), Reply(raw="<html>welcome</html>")]) as server:
        model = model_at(server)
        with pytest.raises(EnvironmentFailure, match="check --model"):
            model.complete(question("1"), InMemoryJournal())
        with pytest.raises(EnvironmentFailure, match="/v1"):
            model.complete(question("2"), InMemoryJournal())


def test_nobody_listens() -> None:
    settings = ModelSettings(name="fake", base_url="http://127.0.0.1:9/v1", retries=1)
    journal = InMemoryJournal()
    with pytest.raises(EnvironmentFailure, match=r"127\.0\.0\.1:9"):
        OpenAIChatModel(settings, KEY).complete(question(), journal)
    assert journal.spent.tokens == 0


def test_a_lost_attempt_is_charged_and_reserved_anew() -> None:
    with FakeOpenAI([Reply(hang_up="before"), "second"]) as server:
        journal = InMemoryJournal()
        answer = model_at(server, max_tokens=100).complete(question(), journal)
    assert answer.text == "second"
    assert journal.spent.output_tokens == 100 + answer.usage.output_tokens
    with FakeOpenAI([Reply(hang_up="before"), "second"]) as server:
        tight = InMemoryJournal(max_tokens=150)
        with pytest.raises(BudgetRefused):
            model_at(server, max_tokens=100).complete(question(), tight)
    assert len(server.requests) == 1


def test_silence_ends_at_the_timeout() -> None:
    with FakeOpenAI([Reply(text="late", latency_s=3)]) as server, pytest.raises(EnvironmentFailure, match="timed out"):
        model_at(server, timeout_s=0.3, retries=0).complete(question(), InMemoryJournal())


@pytest.mark.parametrize("streaming", [False, True])
def test_cancelled_from_another_thread(streaming: bool) -> None:
    replies = [Reply(text="x" * 4000, latency_s=0 if streaming else 20, piece_s=0.05), "again"]
    with FakeOpenAI(replies) as server:
        model, journal = model_at(server, max_tokens=100), InMemoryJournal()
        threading.Timer(0.5, model.interrupt).start()
        began = time.monotonic()
        ask = partial(model.stream, on_delta=lambda piece: None) if streaming else model.complete
        with pytest.raises(RequestCancelled):
            ask(question(), journal)
        assert time.monotonic() - began < 10 and journal.in_flight == 0  # the whole answer takes 20 s or more
        assert (0 < journal.spent.output_tokens < 100) if streaming else journal.spent.output_tokens == 100
        assert model.complete(question("next"), journal).text == "again"


def test_the_budget_is_asked_before_the_server() -> None:
    with FakeOpenAI([]) as server, pytest.raises(BudgetRefused):
        model_at(server).complete(question(), InMemoryJournal(max_tokens=10))
    assert not server.requests


def test_usage_is_priced_and_estimated_where_missing() -> None:
    price = Price(input=1.0, output=10.0, cached_input=0.1)
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 500}}
    with FakeOpenAI([Reply(text="a", usage=usage), Reply(text="b" * 40, usage=None)]) as server:
        model = model_at(server, price=price)
        first = model.complete(question("1"), InMemoryJournal())
        second = model.complete(question("2"), InMemoryJournal())
    assert first.usage.usd == pytest.approx((500 * 1.0 + 500 * 0.1 + 100 * 10.0) / 1e6) and not first.usage.estimated
    assert second.usage.estimated and second.usage.output_tokens == 10


def test_an_unknown_price_stays_unknown_and_refuses_a_dollar_limit() -> None:
    with FakeOpenAI(["a"]) as server:
        journal = InMemoryJournal()
        assert model_at(server).complete(question(), journal).usage.usd is None
        assert journal.spent.usd is None
        with pytest.raises(BudgetRefused) as refusal:
            model_at(server).complete(question(), InMemoryJournal(max_usd=1.0))
    assert refusal.value.meter == "usd"


def test_reasoning_never_reaches_the_text() -> None:
    replies = [
        Reply(text="<think>maybe ```python\nbad\n```</think>\ngood", reasoning=None),
        Reply(text="good", reasoning="hidden"),
        Reply(text="was open before\n</think>\ngood"),
        Reply(text="<think>never closed ```python\nbad\n```", finish_reason="length"),
        Reply(text=None, reasoning="all of it"),
    ]
    with FakeOpenAI(replies) as server:
        model = model_at(server)
        answers = [model.complete(question(str(i)), InMemoryJournal()) for i in range(5)]
    assert [a.text for a in answers] == ["good", "good", "good", "", ""]
    assert all(a.reasoning for a in answers) and answers[3].finish_reason == "length"


def test_a_question_that_is_too_long_is_an_answer_not_an_outage() -> None:
    words = "This model's maximum context length is 8192 tokens."
    with FakeOpenAI([failed(400, words, param="messages", code="context_length_exceeded")]) as server:
        answer = model_at(server).complete(question(), InMemoryJournal())
    assert answer.finish_reason == "context_length" and answer.text == ""


def test_streaming_gives_the_same_answer_in_pieces() -> None:
    reply = Reply(text="<think>hm</think>Hello **world**\n```python\nx = '<think>'\n```\n", reasoning="first", pieces=3)
    with FakeOpenAI([reply, reply]) as server:
        model, pieces = model_at(server), []
        streamed = model.stream(question("1"), InMemoryJournal(), pieces.append)
        whole = model.complete(question("2"), InMemoryJournal())
    assert streamed.text == whole.text and streamed.usage == whole.usage
    assert "".join(p.text for p in pieces if p.kind == "text").strip("\n") == streamed.text
    assert "".join(p.text for p in pieces if p.kind == "reasoning") == "firsthm"
    assert "x = '<think>'" in streamed.text and "hm" not in streamed.text
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


def test_streamed_tool_calls_are_put_together() -> None:
    calls = [tool_call("verify", {"path": "a.py"}), tool_call("bench", {"n": 3}, "call_2")]
    with FakeOpenAI([Reply(text="I will check.", tool_calls=calls, pieces=4)] * 2) as server:
        model, pieces = model_at(server), []
        tools = [{"type": "function", "function": {"name": "verify", "parameters": {"type": "object"}}}]
        streamed = model.stream(question("1", tools=tools), InMemoryJournal(), pieces.append)
        whole = model.complete(question("2", tools=tools), InMemoryJournal())
    assert streamed.tool_calls == whole.tool_calls == calls and streamed.finish_reason == "tool_calls"
    assert json.loads(streamed.tool_calls[1]["function"]["arguments"]) == {"n": 3}
    assert [p.text for p in pieces if p.kind == "tool_call"] == ["verify", "bench"]
    assert server.bodies[0]["tools"] == tools


def test_a_server_without_stream_options_and_a_broken_stream() -> None:
    replies = [refused("stream_options"), "fine", Reply(text="half of this is lost", hang_up="midway")]
    with FakeOpenAI(replies) as server:
        model, pieces = model_at(server), []
        assert model.stream(question("1"), InMemoryJournal(), lambda p: None).usage.estimated
        broken = model.stream(question("2"), InMemoryJournal(), pieces.append)
    assert broken.finish_reason == "lost" and broken.text and broken.text == "".join(p.text for p in pieces)


def test_an_exception_from_the_reader_cancels_the_stream() -> None:
    def stop(piece: Delta) -> None:
        raise KeyboardInterrupt

    with FakeOpenAI([Reply(text="y" * 999, piece_s=0.05)]) as server:
        journal = InMemoryJournal()
        with pytest.raises(KeyboardInterrupt):
            model_at(server).stream(question(), journal, stop)
    assert journal.in_flight == 0 and len(journal.failures) == 1
