"""``--strategy agent`` and ``--strategy search`` with the same scripted model, on recorded measurements.

``python benchmarks/agent_and_search.py CORPUS [PROBLEM...]``. The scripted model knows nothing of kernels: it draws recorded
variants in a seeded order. For ``search`` each answer is the next draw; for ``agent`` it lays three draws before the forecaster
and submits the one with the largest forecast. What differs is thus what the tools add. Recorded problems are forecast by models
that have not seen them. Prints a Markdown table.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fake_openai import FakeOpenAI, Reply, tool_call

from tilecast.agent.assembly import assemble
from tilecast.agent.budget import Limits
from tilecast.agent.config import Settings
from tilecast.agent.engine import Engine
from tilecast.agent.request import OptimizeRequest
from tilecast.sandbox.base import Preflight
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.replay import recorded_candidates
from tilecast.sandbox.schema import EvaluationStatus, OptimizeResult
from tilecast.tools.forecast.facts import facts_from_text

EVALS, SEEDS, DRAFTS = 12, 5, 3


class Drawing:
    """The scripted model: draws, and for an agent forecasts before it submits."""

    def __init__(self, sources: list[str], seed: int) -> None:
        self._left = random.Random(seed).sample(sources, len(sources))
        self._drafts: list[str] = []

    def __call__(self, body: dict[str, Any], number: int) -> Reply | str:
        """The next answer."""
        if not body.get("tools"):
            return f"Another one.\n```python\n{self._next()}\n```"
        last = body["messages"][-1]
        if last["role"] != "tool":
            self._drafts = [self._next() for _ in range(DRAFTS)]
            calls = [tool_call("forecast", {"source": s}, f"call_{number}_{i}") for i, s in enumerate(self._drafts)]
            return Reply(tool_calls=calls)
        told = [message["content"] for message in body["messages"][-DRAFTS:]]
        best = max(range(DRAFTS), key=lambda i: _ratio(told[i]))
        return Reply(tool_calls=[tool_call("submit", {"source": self._drafts[best]}, f"call_{number}")])

    def _next(self) -> str:
        return self._left.pop() if self._left else "class ModelNew: pass"


def _ratio(text: str) -> float:
    found = re.search(r"forecast ([\d.]+)x", text)
    return float(found[1]) if found else 0.0


def once(folder: Path, strategy: str, seed: int, home: Path) -> OptimizeResult:
    """One run."""
    problem = load_problem(folder)
    sources = [candidate.source for candidate, _ in recorded_candidates(folder, problem)]
    known = Preflight(status=EvaluationStatus.PASSED, facts=facts_from_text(problem))
    with FakeOpenAI(Drawing(sources, seed)) as server:
        settings = Settings(
            model="scripted", base_url=server.url, device=f"replay:{folder}", strategy=strategy, in_flight=1
        )
        request = OptimizeRequest(problem, None, settings, home, limits=Limits(evals=EVALS), seed=seed)
        return Engine(request, make=lambda asked, _: assemble(asked, known)).run()


def main() -> None:
    """All problems, both strategies."""
    corpus, names = Path(sys.argv[1]), sys.argv[2:]
    folders = [corpus / name for name in names] if names else sorted(p.parent for p in corpus.glob("*/reference.py"))
    os.environ.setdefault("OPENAI_API_KEY", "none")
    print(f"| problem | search | agent | tokens, search | tokens, agent |  <!-- {EVALS} evaluations, {SEEDS} seeds -->")
    print("|---|---|---|---|---|")
    for folder in folders:
        cells: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as place:
            for strategy in ("search", "agent"):
                results = [once(folder, strategy, seed, Path(place)) for seed in range(SEEDS)]
                best = [r.best.speedup.ratio if r.best is not None else 0.0 for r in results]
                cells[strategy] = [statistics.mean(best), statistics.mean(r.ledger.tokens.spent or 0 for r in results)]
        search, agent = cells["search"], cells["agent"]
        print(f"| {folder.name} | {search[0]:.3f}x | {agent[0]:.3f}x | {search[1]:.0f} | {agent[1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
