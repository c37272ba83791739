"""Conversations with tools against a real server: typed calls, broken ones told apart, interrupted turns completed."""

from __future__ import annotations

from typing import Any

import pytest
from fake_openai import FakeOpenAI, Reply, tool_call

from tilecast.tools.model.base import ChatAnswer, Delta
from tilecast.tools.model.client import OpenAIChatModel
from tilecast.tools.model.conversation import Conversation, ToolSpec, tool_calls
from tilecast.tools.model.memory import InMemoryJournal
from tilecast.tools.model.settings import ModelSettings

VERIFY = ToolSpec(
    name="verify",
    description="Checks a candidate.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def answer_with(*calls: dict[str, Any], text: str = "") -> ChatAnswer:
    return ChatAnswer(text=text, tool_calls=list(calls))


def test_a_turn_with_a_tool_streamed() -> None:
    replies = [
        Reply(text="Let me check.", tool_calls=[tool_call("verify", {"path": "a.py"})]),
        Reply(text="It **passed**.", reasoning="good"),
    ]
    with FakeOpenAI(replies) as server:
        model = OpenAIChatModel(ModelSettings(name="fake", base_url=server.url), "key")
        talk, journal, shown = Conversation("Be brief."), InMemoryJournal(), list[Delta]()
        talk.say("Is a.py right?")
        answer = model.stream(talk.request("chat:0:0", [VERIFY]), journal, shown.append)
        talk.hear(answer)
        (call,) = tool_calls(answer, ["verify"])
        assert (call.name, call.arguments, call.problem) == ("verify", {"path": "a.py"}, "")
        assert [c["id"] for c in talk.pending] == [call.id]
        talk.result(call.id, "PASSED")
        talk.hear(model.stream(talk.request("chat:0:1", [VERIFY]), journal, shown.append))
    assert [d.kind for d in shown if d.kind == "tool_call"] == ["tool_call"] and not talk.pending
    sent = server.bodies[1]["messages"]
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool"]
    assert sent[3] == {"role": "tool", "tool_call_id": call.id, "content": "PASSED"}
    assert sent[2]["tool_calls"][0]["function"]["name"] == "verify"
    assert server.bodies[0]["tools"][0]["function"]["parameters"]["required"] == ["path"]
    assert talk.dump()[-1] == {"role": "assistant", "content": "It **passed**."}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("fly", "{}", "no tool 'fly'; there are verify"),
        ("verify", "{path: a}", "not JSON"),
        ("verify", "[1]", "must be a JSON object"),
        ("verify", '"a.py"', "must be a JSON object"),
    ],
)
def test_broken_calls_say_what_is_wrong(name: str, arguments: str, words: str) -> None:
    (call,) = tool_calls(answer_with(tool_call(name, arguments)), ["verify"])
    assert words in call.problem and call.arguments == {} and call.id


def test_no_arguments_are_an_empty_object() -> None:
    (call,) = tool_calls(answer_with(tool_call("verify", "")), ["verify"])
    assert not call.problem and call.arguments == {}


def test_an_interrupted_turn_is_completed_before_it_is_sent() -> None:
    talk = Conversation("s")
    talk.say("go")
    talk.hear(answer_with(tool_call("verify", {}, "c1"), tool_call("verify", {}, "c2")))
    talk.result("c1", "PASSED")
    assert [c["id"] for c in talk.pending] == ["c2"]
    assert [(m["role"], m.get("tool_call_id")) for m in talk.messages[-2:]] == [("tool", "c1"), ("tool", "c2")]
    again = Conversation("s", talk.dump())
    assert [c["id"] for c in again.pending] == ["c2"]
    again.say("what happened?")
    assert not again.pending and "interrupted" in again.messages[-2]["content"]


def test_compaction_keeps_whole_turns_and_the_facts() -> None:
    talk = Conversation("s")
    for number in range(5):
        talk.say(f"question {number}")
        talk.hear(answer_with(tool_call("verify", {}, f"c{number}")))
        talk.result(f"c{number}", "x" * 1000)
        talk.hear(ChatAnswer(text=f"answer {number}"))
    before = talk.tokens
    assert talk.compact("Best so far: a.py, 1.2x", keep_turns=2) == 12
    sent = talk.messages
    assert sent[0]["role"] == "system" and "Best so far" in sent[1]["content"] and sent[3]["content"] == "question 3"
    assert talk.tokens < before and not talk.pending
    assert talk.compact("again", keep_turns=9) == 0
    talk.shorten_results(100, keep_last=3)
    lengths = [len(m["content"]) for m in talk.messages if m["role"] == "tool"]
    assert lengths[0] < 200 and lengths[1] == 1000
