"""The builtin proposer: no duplicates, ends when used up, stays inside SPACE, finds the best of a smooth landscape."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.problem import Problem, ProblemFacts
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate, canonical_key
from tilecast.tools.model.memory import InMemoryJournal
from tilecast.tools.propose.base import PoolProposer, Proposal, ProposalContext, ProposalRequest, Tried
from tilecast.tools.propose.builtin import BuiltinProposer
from tilecast.tools.propose.grid import skeleton_key

JOURNAL = InMemoryJournal()


def kernel(config: dict[str, Any], space: dict[str, list[Any]] | None, body: str = "pass") -> Candidate:
    lines = [f"CONFIG = {config!r}"] + ([] if space is None else [f"SPACE = {space!r}"])
    return Candidate(name="kernel", source="\n".join([*lines, "class ModelNew:", f"    {body}", ""]))


def context(tried: list[Tried] | None = None, **others: Any) -> ProposalContext:
    return ProposalContext(
        problem=Problem(name="p", path="p.py", source="", sha256="0"),
        facts=ProblemFacts(workloads=[], tolerance=None, domain="open"),
        device=DeviceFacts(kind="cuda", name="NVIDIA H200"),
        language="triton",
        baseline_name="eager",
        baseline_ms=1.0,
        floor_ms=None,
        start=None,
        tried=tried or [],
        **others,
    )


def ask(
    proposer: BuiltinProposer, index: int, tried: list[Tried], parent: Candidate | None = None, seed: int = 0
) -> Proposal:
    return proposer.propose(ProposalRequest(index=index, seed=seed, parent=parent), context(tried), JOURNAL)


def tried_of(candidate: Candidate, ms: float | None) -> Tried:
    status = EvaluationStatus.PASSED if ms is not None else EvaluationStatus.COMPILE_ERROR
    return Tried(candidate=candidate, status=status, latency_ms=ms)


spaces = st.dictionaries(
    st.sampled_from(["BM", "BN", "num_warps", "WS", "MODE"]),
    st.one_of(
        st.lists(st.integers(1, 512), min_size=1, max_size=4),
        st.lists(st.booleans(), min_size=1, max_size=2),
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(space=spaces, seed=st.integers(0, 99), fails=st.integers(1, 5))
def test_every_point_once_then_exhausted(space: dict[str, list[Any]], seed: int, fails: int) -> None:
    start = kernel({name: values[-1] for name, values in space.items()}, space)
    size = len({canonical_key(start.with_config(c).source) for c in product(space)})
    proposer, tried, seen = BuiltinProposer(start), [], set()
    for index in range(size):
        proposal = ask(proposer, index, tried, seed=seed)
        assert proposal.candidate is not None and not proposal.exhausted
        config = proposal.candidate.config
        assert config is not None and all(config[name] in values for name, values in space.items())
        seen.add(canonical_key(proposal.candidate.source))
        tried.append(tried_of(proposal.candidate, None if index % fails == 0 else 1.0 + index))
    assert len(seen) == size
    last = ask(proposer, size, tried, seed=seed)
    assert last.candidate is None and last.exhausted and str(size) in last.reason


def product(space: dict[str, list[Any]]) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = [{}]
    for name, values in space.items():
        configs = [{**config, name: value} for config in configs for value in values]
    return configs


def test_a_resumed_proposer_continues_as_the_undisturbed_one() -> None:
    space = {"BM": [16, 32, 64, 128], "BN": [16, 32, 64, 128], "num_warps": [1, 2, 4, 8]}
    start = kernel({"BM": 64, "BN": 64, "num_warps": 4}, space)

    def play(restarts_at: set[int]) -> list[str]:
        proposer, tried = BuiltinProposer(start), []
        for index in range(40):
            if index in restarts_at:
                proposer = BuiltinProposer(start)
            proposal = ask(proposer, index, tried, seed=7)
            assert proposal.candidate is not None
            tried.append(tried_of(proposal.candidate, 1.0 + index % 7))
        return [item.candidate.source for item in tried]

    assert play(set()) == play({1, 5, 17, 33})


def test_the_users_own_values_come_first() -> None:
    start = kernel({"B": 32, "other": "kept"}, {"B": [16, 32, 64]})
    proposal = ask(BuiltinProposer(start), 0, [])
    assert proposal.candidate is not None and proposal.candidate.config == start.config


def test_a_smooth_landscape_is_climbed_sooner_than_by_chance() -> None:
    space = {"BM": [16, 32, 64, 128, 256], "BN": [16, 32, 64, 128, 256], "w": [1, 2, 4, 8], "s": [1, 2, 3, 4, 5]}
    start = kernel({"BM": 16, "BN": 16, "w": 1, "s": 1}, space)

    def cost(config: dict[str, Any]) -> float | None:
        if config["BM"] * config["BN"] * config["s"] > 256 * 128 * 3:
            return None
        places = [space[name].index(config[name]) for name in space]
        return 1.0 + sum((place - goal) ** 2 for place, goal in zip(places, (3, 4, 3, 2), strict=True))

    needed = []
    for seed in range(10):
        proposer, tried = BuiltinProposer(start), []
        for index in range(500):
            proposal = ask(proposer, index, tried, seed=seed)
            assert proposal.candidate is not None
            ms = cost(proposal.candidate.config or {})
            tried.append(tried_of(proposal.candidate, ms))
            if ms == 1.0:
                break
        needed.append(len(tried))
    # By chance the best of 500 points takes 250 proposals on average.
    assert sum(needed) / len(needed) < 60


def test_a_million_points_are_not_enumerated() -> None:
    space = {f"k{i}": list(range(10)) for i in range(6)}
    start = kernel(dict.fromkeys(space, 0), space)
    proposer, tried = BuiltinProposer(start), []
    assert proposer.size == 10**6
    began = time.monotonic()
    for index in range(30):
        proposal = ask(proposer, index, tried)
        assert proposal.candidate is not None
        tried.append(tried_of(proposal.candidate, 1.0))
    pool = proposer.pool(ProposalRequest(index=30, seed=0, parent=None), context(tried), 200)
    assert len({c.source for c in pool}) == 200
    assert time.monotonic() - began < 5


def test_recorded_variants_only() -> None:
    space = {"B": [1, 2, 4, 8, 16], "w": [1, 2, 4]}
    start = kernel({"B": 4, "w": 2}, space)
    recorded = [start.with_config(c) for c in ({"B": 4, "w": 2}, {"B": 8, "w": 2}, {"B": 16, "w": 4}, {"B": 1, "w": 1})]
    foreign = kernel({"B": 4}, {"B": [4]}, body="x = 1")
    proposer, tried = BuiltinProposer(start, recorded=[*recorded, foreign]), []
    while (proposal := ask(proposer, len(tried), tried)).candidate is not None:
        tried.append(tried_of(proposal.candidate, 1.0))
    assert proposal.exhausted
    assert {canonical_key(t.candidate.source) for t in tried} == {canonical_key(c.source) for c in recorded}


def test_without_a_kernel_the_whole_record_is_drawn_from() -> None:
    one, two = kernel({"B": 4}, {"B": [4, 8]}), kernel({"T": 1}, {"T": [1, 2]}, body="x = 1")
    plain = Candidate(name="plain", source="class ModelNew:\n    pass\n")
    recorded = [one, one.with_config({"B": 8}), two, plain]
    proposer, tried = BuiltinProposer(recorded=recorded), []
    while (proposal := ask(proposer, len(tried), tried)).candidate is not None:
        tried.append(tried_of(proposal.candidate, 1.0))
    assert len(tried) == 4 and {skeleton_key(t.candidate.source) for t in tried[:3]} == {
        skeleton_key(c.source) for c in (one, two, plain)
    }


def test_allowed_restricts() -> None:
    start = kernel({"B": 4, "w": 1}, {"B": [1, 2, 4, 8], "w": [1, 2, 4]})
    proposer = BuiltinProposer(start, allowed=lambda c: (c.config or {})["w"] != 2)
    tried: list[Tried] = []
    while (proposal := ask(proposer, len(tried), tried)).candidate is not None:
        tried.append(tried_of(proposal.candidate, 1.0))
    assert len(tried) == 8 and all((t.candidate.config or {})["w"] != 2 for t in tried)


def test_pool_and_claim() -> None:
    start = kernel({"B": 4, "w": 1}, {"B": [1, 2, 4, 8], "w": [1, 2, 4]})
    proposer = BuiltinProposer(start)
    assert isinstance(proposer, PoolProposer)
    request = ProposalRequest(index=0, seed=0, parent=start)
    pool = proposer.pool(request, context(), 100)
    assert len({c.source for c in pool}) == 12
    proposal = proposer.claim(pool[5], request, context())
    assert proposal.candidate == pool[5] and proposal.parent_sha256 == start.sha256
    assert pool[5] not in proposer.pool(request, context(), 100)
    assert pool[3] not in proposer.pool(request, context(pending=[pool[3]]), 100)
    with pytest.raises(ValueError, match="not a point"):
        proposer.claim(kernel({"B": 999, "w": 1}, {"B": [1]}), request, context())
    around = proposer.neighbours(start, context(), 10)
    assert around and all(sum((c.config or {})[k] != (start.config or {})[k] for k in ("B", "w")) <= 2 for c in around)


def test_a_parent_of_another_structure_gets_its_own_grid() -> None:
    start = kernel({"B": 4}, {"B": [4]})
    other = kernel({"T": 1}, {"T": [1, 2, 3]}, body="x = 1")
    proposer = BuiltinProposer(start)
    tried = [tried_of(start, 2.0), tried_of(other, 1.0)]
    proposal = ask(proposer, 2, tried, parent=other)
    assert proposal.candidate is not None and skeleton_key(proposal.candidate.source) == skeleton_key(other.source)
    assert (proposal.candidate.config or {})["T"] in (2, 3)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("SPACE = {'B': [1]}\nclass ModelNew: pass", "CONFIG"),
        ("CONFIG = {'B': 3}\nclass ModelNew: pass", "SPACE is missing"),
        ("CONFIG = {'B': 3}\nSPACE = {'B': []}\nclass ModelNew: pass", "SPACE['B']"),
        ("class ModelNew: pass", "--kernel"),
    ],
)
def test_nothing_to_turn_says_why(source: str, words: str) -> None:
    start = None if words == "--kernel" else Candidate(name="k", source=source)
    proposer = BuiltinProposer(start)
    proposal = ask(proposer, 0, [])
    assert proposal.candidate is None and proposal.exhausted and words in proposal.reason


def test_config_without_space_gets_powers_of_two() -> None:
    start = Candidate(name="k", source="CONFIG = {'BLOCK': 128, 'num_warps': 4, 'eps': 0.5}\nclass ModelNew: pass\n")
    proposer = BuiltinProposer(start)
    values = {
        (c.config or {})["BLOCK"] for c in proposer.pool(ProposalRequest(index=0, seed=0, parent=None), context(), 99)
    }
    assert values == {32, 64, 128, 256, 512} and proposer.size == 25


def test_literals_of_a_kernel_without_config() -> None:
    source = (
        "import triton, triton.language as tl\n@triton.jit\ndef k(x, BLOCK: tl.constexpr):\n    pass\n"
        "class ModelNew:\n    def forward(self, x):\n        k[(8,)](x, BLOCK=128, num_warps=4)\n"
    )
    proposer, tried = BuiltinProposer(Candidate(name="k", source=source)), list[Tried]()
    while (proposal := ask(proposer, len(tried), tried)).candidate is not None:
        tried.append(tried_of(proposal.candidate, float(len(tried) + 1)))
    assert tried[0].candidate.source == source and len({t.candidate.source for t in tried}) == proposer.size == 25
    assert any("BLOCK=512, num_warps=16" in t.candidate.source for t in tried)


def test_threads_get_different_points() -> None:
    space = {"a": list(range(8)), "b": list(range(8))}
    proposer = BuiltinProposer(kernel({"a": 0, "b": 0}, space))
    found: list[str] = []

    def work(index: int) -> None:
        proposal = ask(proposer, index, [])
        assert proposal.candidate is not None
        found.append(proposal.candidate.source)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 32
