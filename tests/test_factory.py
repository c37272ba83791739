"""From --model to a proposer: every answer in one line, every refusal with the name and the remedy."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_builtin import JOURNAL, context, kernel

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.source import canonical_key
from tilecast.tools.model.settings import ModelSettings, list_price, model_settings
from tilecast.tools.propose.base import PoolProposer, ProposalRequest, Tried
from tilecast.tools.propose.factory import ProposerSources, make_proposer
from tilecast.tools.propose.recorded import RecordedProposer

PROBLEM = Problem(name="p", path="p.py", source="", sha256="0")
START = kernel({"B": 4}, {"B": [2, 4, 8]})


def sources(**others: Any) -> ProposerSources:
    return ProposerSources(**{"problem": PROBLEM, "start": START, "environ": {}, **others})


def test_no_key_and_no_model_is_builtin_and_says_so() -> None:
    chosen = make_proposer(None, sources())
    assert chosen.proposer.name == "builtin" and "no OPENAI_API_KEY" in chosen.line and "3 points" in chosen.line


def test_a_key_means_a_model_and_a_model_a_key() -> None:
    chosen = make_proposer(None, sources(environ={"OPENAI_API_KEY": "k"}))
    assert chosen.model is not None and chosen.proposer.costs_money and "api.openai.com" in chosen.line
    with pytest.raises(UsageError, match=r"gpt-x.*OPENAI_API_KEY is not set.*builtin"):
        make_proposer("gpt-x", sources())
    with pytest.raises(UsageError, match="OPENAI_API_KEY is no key"):
        make_proposer("gpt-x", sources(environ={"OPENAI_API_KEY": "sk-1\nsk-2"}))
    with pytest.raises(UsageError, match="MY_KEY is not set"):
        make_proposer("gpt-x", sources(models={"gpt-x": {"key_env": "MY_KEY"}}, environ={"OPENAI_API_KEY": "k"}))


def test_a_server_of_ones_own_needs_no_key_but_a_name() -> None:
    local = "http://127.0.0.1:8000/v1"
    chosen = make_proposer("llama", sources(base_url=local))
    assert local in chosen.line and "price is unknown" in chosen.line
    with pytest.raises(UsageError, match="--model NAME"):
        make_proposer(None, sources(base_url=local))


def test_builtin_without_a_kernel_or_tunables_says_why() -> None:
    with pytest.raises(UsageError, match="--kernel"):
        make_proposer("builtin", sources(start=None))
    with pytest.raises(UsageError, match="CONFIG"):
        make_proposer("builtin", sources(start=START.model_copy(update={"source": "class ModelNew: pass"})))


def test_replay_of_what_is_not_there() -> None:
    with pytest.raises(UsageError, match="not a folder"):
        make_proposer("replay:/no/such", sources())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"temprature": 1}, 'models."m".temprature'),
        ({"temperature": -1}, "temperature = -1"),
        ({"price": {"input": 1}}, "price.output"),
        ({"retries": "many"}, "retries"),
        ({"base_url": "localhost:8000/v1"}, "must be a URL"),
    ],
)
def test_bad_settings_are_named(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as failure:
        model_settings("m", {"m": table}, None)
    assert words in str(failure.value)


def test_settings_and_prices() -> None:
    mine = model_settings(
        "m", {"m": {"base_url": "http://host:1/v1", "price": {"input": 1, "output": 2}}}, "http://other/v1"
    )
    assert mine.host == "host" and mine.price_known() is not None
    assert model_settings("m", {}, "http://other/v1").host == "other"
    assert list_price("api.openai.com", "gpt-4o-mini-2024-07-18") == list_price("api.openai.com", "gpt-4o-mini")
    assert list_price("api.openai.com", "gpt-4o-2024-05-13") != list_price("api.openai.com", "gpt-4o")
    # The same name on another server may cost anything.
    assert ModelSettings(name="gpt-4o", base_url="http://localhost/v1").price_known() is None
    assert ModelSettings(name="never-heard-of").price_known() is None


def test_recorded_candidates_come_once_each_in_a_seeded_order(shared_dir: Path) -> None:
    folder = shared_dir / "corpus" / "softmax"
    problem = load_problem(folder)
    chosen = make_proposer(f"replay:{folder}", sources(problem=problem))
    assert make_proposer(f"replay:{folder.parent}", sources(problem=problem)).line.split()[1] == chosen.line.split()[1]
    assert isinstance(chosen.proposer, RecordedProposer) and isinstance(chosen.proposer, PoolProposer)
    count = chosen.proposer.size

    def order(seed: int) -> list[str]:
        proposer = make_proposer(f"replay:{folder}", sources(problem=problem)).proposer
        found = [
            proposer.propose(ProposalRequest(index=i, seed=seed, parent=None), context(), JOURNAL)
            for i in range(count + 1)
        ]
        assert found[-1].exhausted and found[-1].candidate is None
        return [canonical_key(p.candidate.source) for p in found if p.candidate is not None]

    first = order(1)
    assert len(set(first)) == count and first == order(1) and first != order(2) and set(first) == set(order(2))


def test_what_was_tried_is_not_proposed_again() -> None:
    candidates = [kernel({"B": b}, None) for b in range(6)]
    proposer = RecordedProposer(candidates, "replay:x")
    random.Random(3).shuffle(candidates)
    request = ProposalRequest(index=0, seed=3, parent=None)
    tried = [Tried(candidate=candidates[0], status=None)]
    proposal = proposer.propose(request, context(tried, pending=[candidates[1]]), JOURNAL)
    assert proposal.candidate is not None and proposal.candidate.source == candidates[2].source
    pool = proposer.pool(request, context(tried), 10)
    assert [c.source for c in pool] == [c.source for c in [candidates[1], *candidates[3:]]]
    assert proposer.claim(pool[0], request, context()).candidate == pool[0]


def test_builtin_under_replay_draws_from_the_record(shared_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "softmax"
    shutil.copytree(shared_dir / "corpus" / "softmax", folder)
    problem = load_problem(folder)
    chosen = make_proposer("builtin", sources(problem=problem, start=None, recorded=folder))
    replay = make_proposer(f"replay:{folder}", sources(problem=problem))
    assert isinstance(replay.proposer, RecordedProposer)
    assert f"{replay.proposer.size} recorded variants" in chosen.line
    with pytest.raises(UsageError, match="recorded"):
        make_proposer("builtin", sources(problem=problem, recorded=folder))
