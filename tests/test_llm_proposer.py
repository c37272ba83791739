"""Proposals by a model over real HTTP: at most three requests for the first, one for the second; repairs; what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Reply, failed, refusing
from test_builtin import context, kernel, tried_of

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.source import Candidate
from tilecast.tools.model.base import BudgetRefused
from tilecast.tools.model.client import OpenAIChatModel
from tilecast.tools.model.memory import InMemoryJournal
from tilecast.tools.model.settings import ModelSettings, Price
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest
from tilecast.tools.propose.builtin import BuiltinProposer
from tilecast.tools.propose.llm import LlmProposer
from tilecast.tools.propose.mixed import MixedProposer, promising

GOOD = "import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
EVIL = GOOD.replace("x + 1", "x + 666")


def fence(source: str) -> str:
    return f"```python\n{source}```\n"


def proposer_at(server: FakeOpenAI, home: Path | None = None, **settings: Any) -> LlmProposer:
    chosen = ModelSettings(
        name="fake", base_url=server.url, price=Price(input=1, output=1), **{"retries": 0, **settings}
    )
    return LlmProposer(OpenAIChatModel(chosen, "key", home), chosen.max_tokens)


def ask(
    proposer: LlmProposer | MixedProposer,
    index: int = 0,
    parent: Candidate | None = None,
    journal: InMemoryJournal | None = None,
    known: ProposalContext | None = None,
) -> Proposal:
    request = ProposalRequest(index=index, seed=0, parent=parent)
    return proposer.propose(request, known or context(), journal or InMemoryJournal())


def test_refusals_and_a_thinking_model(tmp_path: Path) -> None:
    answer = f"<think>\n{fence(EVIL)}</think>\nThe kernel.\n{fence('import torch' + chr(10))}\n{fence(GOOD)}"
    with FakeOpenAI(refusing(["temperature", "max_tokens"], lambda body, number: answer)) as server:
        proposer = proposer_at(server, tmp_path, temperature=0.7, max_tokens=2000)
        first = ask(proposer, 0)
        assert len(server.requests) == 3
        second = ask(proposer, 1)
        assert len(server.requests) == 4
    assert first.candidate is not None and second.candidate is not None
    assert first.candidate.source == second.candidate.source == GOOD
    assert "666" not in first.reply and first.note == "The kernel."


@pytest.mark.parametrize(
    "useless",
    [
        Reply(text=""),
        Reply(text=None, reasoning=fence(EVIL)),
        Reply(text=f"<think>{fence(EVIL)}</think>"),
        Reply(
            text=f"```python\n{GOOD[:-9]}",
            finish_reason="length",
            usage={"prompt_tokens": 9, "completion_tokens": 20_000},
        ),
    ],
)
def test_an_answer_without_a_file_is_asked_once_more_with_more_room(useless: Reply) -> None:
    with FakeOpenAI([useless, fence(GOOD)]) as server:
        proposal = ask(proposer_at(server))
        assert proposal.candidate is not None and proposal.candidate.source == GOOD
        assert "max_tokens" not in server.bodies[0]
        assert server.bodies[1]["max_tokens"] == (40_000 if useless.finish_reason == "length" else 16_384)
    with FakeOpenAI([useless, useless]) as server:
        proposal = ask(proposer_at(server, max_tokens=500))
        assert len(server.requests) == 2 and server.bodies[1]["max_tokens"] >= 1000
    assert proposal.candidate is None and "no usable file" in proposal.reason and "(2 answers)" in proposal.reason
    assert not proposal.exhausted and proposal.cost.tokens > 0


def test_a_syntax_error_costs_one_repair_turn() -> None:
    with FakeOpenAI([fence(GOOD.replace("x + 1", "x +")), fence(GOOD)]) as server:
        proposal = ask(proposer_at(server))
    assert proposal.candidate is not None and proposal.candidate.source == GOOD
    roles = [message["role"] for message in server.bodies[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"] and "line 6" in server.bodies[1]["messages"][-1]["content"]


def test_edits_are_applied_or_cost_one_repair_turn() -> None:
    edit = "<<<<<<< SEARCH\n{}\n=======\n        return x + 2\n>>>>>>> REPLACE\n"
    parent = Candidate(name="parent", source=GOOD)
    with FakeOpenAI([edit.format("        return x + 1")]) as server:
        proposal = ask(proposer_at(server), parent=parent)
    assert proposal.candidate is not None and "x + 2" in proposal.candidate.source
    assert proposal.parent_sha256 == parent.sha256 and GOOD.strip() in server.bodies[0]["messages"][1]["content"]
    with FakeOpenAI([edit.format("return y"), fence(EVIL)]) as server:
        proposal = ask(proposer_at(server), parent=parent)
    assert proposal.candidate is not None and len(server.requests) == 2
    assert "does not occur" in server.bodies[1]["messages"][-1]["content"]
    with FakeOpenAI([edit.format("return y"), edit.format("return z")]) as server:
        assert ask(proposer_at(server), parent=parent).candidate is None
    assert len(server.requests) == 2


def test_a_resumed_proposal_asks_only_what_was_not_answered() -> None:
    journal = InMemoryJournal()
    with FakeOpenAI([fence("x ="), failed(500), fence(GOOD)]) as server:
        with pytest.raises(Exception, match="HTTP 500"):
            ask(proposer_at(server), 3, journal=journal)
        proposal = ask(proposer_at(server), 3, journal=journal)
        again = ask(proposer_at(server), 3, journal=journal)
    assert len(server.requests) == 3 and proposal == again
    assert proposal.candidate is not None and proposal.cost.tokens == journal.spent.tokens


def test_the_budget_and_a_hopeless_question() -> None:
    with FakeOpenAI([]) as server, pytest.raises(BudgetRefused):
        ask(proposer_at(server), journal=InMemoryJournal(max_usd=1e-6))
    with FakeOpenAI([failed(400, "maximum context length is 10", code="context_length_exceeded")]) as server:
        proposal = ask(proposer_at(server))
    assert proposal.candidate is None and "longer than" in proposal.reason and len(server.requests) == 1


def test_an_unknown_price_stays_unknown() -> None:
    with FakeOpenAI([fence(GOOD)]) as server:
        proposer = LlmProposer(OpenAIChatModel(ModelSettings(name="fake", base_url=server.url), "key"))
        assert ask(proposer).cost.usd is None


def test_a_language_without_a_guide_is_named() -> None:
    with FakeOpenAI([]) as server, pytest.raises(UsageError, match=r"cobol.*triton"):
        ask(proposer_at(server), known=context().model_copy(update={"language": "cobol"}))


def test_mixed_turns_knobs_of_what_was_measured_well_without_tokens() -> None:
    tuned = kernel({"B": 4, "w": 2}, {"B": [1, 2, 4, 8], "w": [1, 2, 4]}, body="x = 1")
    slow = kernel({"B": 4}, {"B": [4, 8]}, body="y = 1")
    plain = Candidate(name="plain", source=GOOD)
    tried = [tried_of(plain, 1.05), tried_of(tuned, 1.0), tried_of(slow, 9.0)]
    with FakeOpenAI(lambda body, number: fence(GOOD)) as server:
        mixed = MixedProposer(proposer_at(server), BuiltinProposer(plain))
        asked = [ask(mixed, index, known=context(tried)) for index in range(4)]
    assert [p.origin for p in asked] == ["fake", "builtin", "fake", "builtin"] and len(server.requests) == 2
    turned = [p.candidate for p in asked[1::2]]
    assert turned[0] != turned[1]
    assert all(c is not None and "x = 1" in c.source and c.config != tuned.config for c in turned)
    assert mixed.costs_money and mixed.name == "fake"


def test_mixed_leaves_knobs_alone_when_they_stop_helping_or_nothing_was_measured() -> None:
    tuned = kernel({"B": 1}, {"B": list(range(1, 20))})
    better = [tried_of(tuned.with_config({"B": b}), 10.0 - b) for b in range(1, 8)]
    worse = [tried_of(tuned.with_config({"B": b}), 20.0) for b in range(8, 13)]
    family = BuiltinProposer(tuned).family
    assert promising(context(better), family) and not promising(context(better + worse), family)
    with FakeOpenAI(lambda body, number: fence(GOOD)) as server:
        mixed = MixedProposer(proposer_at(server), BuiltinProposer(tuned))
        assert ask(mixed, 1).origin == "fake"
        assert ask(mixed, 1, known=context(better + worse)).origin == "fake"


LITERALS = """
import torch.nn as nn, triton, triton.language as tl
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)
class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape)
        copy[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def test_mixed_turns_literals_of_a_kernel_without_config_and_knows_its_variants() -> None:
    written = Candidate(name="written", source=LITERALS)
    tried = [tried_of(written, 1.0)]
    with FakeOpenAI(lambda body, number: fence(GOOD)) as server:
        mixed = MixedProposer(proposer_at(server), BuiltinProposer())
        for index in range(1, 40, 2):
            proposal = ask(mixed, index, known=context(tried))
            if proposal.origin == "fake":
                break
            assert proposal.candidate is not None and proposal.candidate not in [t.candidate for t in tried]
            tried.append(tried_of(proposal.candidate, 2.0))
    # It stops by itself after a few turns that did not help.
    assert 5 <= len(tried) <= 7
    assert {"num_warps=" in t.candidate.source for t in tried[1:]} == {True, False}
