"""From the text after ``--model`` to a proposer. What is named and not usable is an error; nothing is replaced silently."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.languages import find_tunables
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.replay import recorded_candidates
from tilecast.sandbox.source import Candidate
from tilecast.tools.model.base import ChatModel
from tilecast.tools.model.choose import default_model, open_model
from tilecast.tools.model.settings import ModelSettings
from tilecast.tools.propose.base import Proposer
from tilecast.tools.propose.builtin import BuiltinProposer
from tilecast.tools.propose.knobs import TunableFinder
from tilecast.tools.propose.llm import LlmProposer
from tilecast.tools.propose.mixed import MixedProposer
from tilecast.tools.propose.recorded import RecordedProposer

BUILTIN, REPLAY = "builtin", "replay:"


@dataclass(frozen=True)
class ProposerSources:
    """What a proposer may be made of.

    Attributes:
        problem: the problem to propose for.
        start: the user's own kernel, if there is one.
        models: the configuration's ``models`` table.
        base_url: the configured server, if any.
        home: folder for what is remembered about models (parameters that a server refuses).
        recorded: folder whose recorded variants are the only ones that can be measured, under replay.
        environ: the process environment; keys are read from it.
        finder: finds tunables in kernels without CONFIG.
    """

    problem: Problem
    start: Candidate | None = None
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    base_url: str | None = None
    home: Path | None = None
    recorded: str | Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    finder: TunableFinder = find_tunables


@dataclass(frozen=True)
class ChosenProposer:
    """A proposer, the line that tells the user which it is, and its model where it has one."""

    proposer: Proposer
    line: str
    model: ChatModel | None = None
    settings: ModelSettings | None = None


def make_proposer(spec: str | None, sources: ProposerSources) -> ChosenProposer:
    """Build the proposer that ``--model`` names: ``builtin``, ``replay:DIR`` or a model's name; None decides by the key.

    Raises:
        UsageError: naming what is missing (a key, a kernel, a record) and the remedy.
    """
    if spec is None:
        return _default(sources)
    if spec == BUILTIN:
        return _builtin(sources, "proposals: builtin, a program that rewrites CONFIG")
    if spec.startswith(REPLAY):
        return _replay(spec, sources)
    return _model(spec, sources)


def _default(sources: ProposerSources) -> ChosenProposer:
    name = default_model(sources.base_url, sources.environ)
    if name is not None:
        return _model(name, sources)
    return _builtin(sources, "proposals: builtin (no OPENAI_API_KEY and no --model): a program that rewrites CONFIG")


def _builtin(sources: ProposerSources, line: str) -> ChosenProposer:
    proposer = _knobs(sources)
    if proposer.trouble:
        raise UsageError(f"builtin has nothing to propose: {proposer.trouble}")
    kind = "recorded variants" if sources.recorded is not None else "points"
    return ChosenProposer(proposer, f"{line}; {proposer.size} {kind}")


def _knobs(sources: ProposerSources) -> BuiltinProposer:
    recorded: Sequence[Candidate] = ()
    if sources.recorded is not None:
        recorded = [candidate for candidate, _ in recorded_candidates(sources.recorded, sources.problem)]
    return BuiltinProposer(start=sources.start, recorded=recorded, finder=sources.finder)


def _replay(spec: str, sources: ProposerSources) -> ChosenProposer:
    folder = spec.removeprefix(REPLAY)
    if not Path(folder).is_dir():
        raise UsageError(f"--model {spec}: {folder!r} is not a folder; give a corpus or a recorded problem")
    candidates = [candidate for candidate, _ in recorded_candidates(folder, sources.problem)]
    proposer = RecordedProposer(candidates, spec)
    return ChosenProposer(proposer, f"proposals: {proposer.size} recorded candidates of {folder}, in seeded order")


def _model(name: str, sources: ProposerSources) -> ChosenProposer:
    model = open_model(name, sources.models, sources.base_url, sources.home, sources.environ)
    settings = model.settings
    llm = LlmProposer(model, settings.room)
    where = settings.base_url or "api.openai.com"
    price = "" if settings.price_known() else "; its price is unknown"
    return ChosenProposer(MixedProposer(llm, _knobs(sources)), f"proposals: {name} at {where}{price}", model, settings)
