"""From the text after ``--model`` to a proposer. What is named and not usable is an error; nothing is replaced silently."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.languages import find_tunables
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.replay import recorded_candidates
from tilecast.sandbox.source import Candidate
from tilecast.tools.model.settings import ModelSettings, model_settings
from tilecast.tools.propose.base import Proposer
from tilecast.tools.propose.builtin import BuiltinProposer
from tilecast.tools.propose.knobs import TunableFinder
from tilecast.tools.propose.recorded import RecordedProposer

if TYPE_CHECKING:
    from tilecast.tools.model.base import ChatModel

BUILTIN, REPLAY = "builtin", "replay:"
DEFAULT_MODEL = "gpt-5"
"""Asked when a key is set and no model is named."""


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


def make_model(name: str, sources: ProposerSources) -> tuple[ChatModel, ModelSettings]:
    """The chat model of a name, checked for its key; no request is made.

    Raises:
        UsageError: for a bad setting or a missing key.
    """
    from tilecast.tools.model.client import OpenAIChatModel

    settings = model_settings(name, sources.models, sources.base_url)
    return OpenAIChatModel(settings, settings.key(sources.environ), sources.home), settings


def _default(sources: ProposerSources) -> ChosenProposer:
    if sources.environ.get("OPENAI_API_KEY", "").strip() and sources.base_url is None:
        return _model(DEFAULT_MODEL, sources)
    if sources.base_url is not None:
        raise UsageError(
            f"OPENAI_BASE_URL is {sources.base_url} but no model is named: "
            "give --model NAME (or TILECAST_MODEL), or --model builtin to work without one"
        )
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
    from tilecast.tools.propose.llm import LlmProposer
    from tilecast.tools.propose.mixed import MixedProposer

    model, settings = make_model(name, sources)
    llm = LlmProposer(model, settings.room)
    where = settings.base_url or "api.openai.com"
    price = "" if settings.price_known() else "; its price is unknown"
    return ChosenProposer(MixedProposer(llm, _knobs(sources)), f"proposals: {name} at {where}{price}", model, settings)
