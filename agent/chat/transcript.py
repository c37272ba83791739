"""A session as Markdown: what was said and done, what was found out, what it cost; unfounded figures are marked."""

from __future__ import annotations

from typing import Any

from tilecast import prompts
from tilecast.agent.chat.chat import Chat
from tilecast.agent.chat.claims import find_claims
from tilecast.agent.chat.known import ground_of
from tilecast.agent.report import wording
from tilecast.agent.toolbox.box import fact_lines


def transcript(chat: Chat) -> str:
    """The whole session."""
    parts = [f"# tilecast session {chat.log.id}", f"Spent: {wording.ledger(chat.ledger.document())}."]
    for who, text in chat.log.state.said:
        if who == "you":
            parts.append(f"## You\n\n{text}")
        elif who == "tilecast":
            parts.append(f"## tilecast\n\n{chat.mark(text)}")
        else:
            parts.append(f"- `{who}`: {prompts.inline(text)}")
    facts = [line for fact in chat.box.facts for line in fact_lines(fact)]
    if facts:
        parts.append("## Findings\n\n" + prompts.fenced("\n".join(facts)))
    return "\n\n".join(parts) + "\n"


def summary(chat: Chat) -> dict[str, Any]:
    """The session as one JSON document: the last answer, which of its figures are in the record, findings, spend."""
    answer = next((text for who, text in reversed(chat.log.state.said) if who == "tilecast"), "")
    claims = find_claims(answer, ground_of(chat.box))
    return {
        "schema": 1,
        "session": chat.log.id,
        "answer": answer,
        "claims": [{"text": claim.text, "grounded": not claim.trouble, "trouble": claim.trouble} for claim in claims],
        "facts": [fact.model_dump(mode="json") for fact in chat.box.facts],
        "ledger": chat.ledger.document().model_dump(mode="json"),
    }
