"""A session as Markdown: what was said and done, what was found out, what it cost; unfounded figures are marked."""

from __future__ import annotations

from tilecast import prompts
from tilecast.agent.chat.chat import Chat
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
