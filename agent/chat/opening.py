"""Opens a session as asked: settings, model or the reason why there is none, log, problem; taken up again where it stood."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilecast.agent.budget import METERS, Limits
from tilecast.agent.chat import events as ev
from tilecast.agent.chat.chat import Chat, Permissions, check_price
from tilecast.agent.chat.face import Face
from tilecast.agent.chat.known import system_message
from tilecast.agent.chat.sessions import SessionLog, find, new_path
from tilecast.agent.config import Settings, home, resolve
from tilecast.agent.request import DEFAULT_EVALS, limits_of
from tilecast.agent.toolbox.base import Refusal
from tilecast.sandbox.errors import UsageError
from tilecast.tools.model.base import StreamingChatModel
from tilecast.tools.model.choose import default_model, open_model

NO_KEY = (
    "no OPENAI_API_KEY, and no --model with OPENAI_BASE_URL. The slash commands need none; a key adds an expert "
    "that answers in words, rewrites kernels and uses these tools itself"
)
NOT_A_CHAT = "{name} proposes kernels, but does not talk; name a language model for that"


@dataclass(frozen=True)
class Asked:
    """What the command line asks of a session."""

    problem: str | None
    resume: str | None
    flags: dict[str, Any]
    yes: bool = False
    root: Path = Path()


def open_chat(asked: Asked, face: Face) -> Chat:
    """A session, new or taken up.

    Raises:
        UsageError: for what is named and cannot be used.
        EnvironmentFailure: if it cannot be kept.
    """
    place = home()
    path = new_path(place) if asked.resume is None else find(place, asked.resume)
    log = SessionLog(path, "")
    try:
        settings = _settings(asked, log)
        model, why = _model(settings, place)
        log.set_system(system_message(settings.language or "triton"))
        limits = _limits(asked, settings, log, face)
        if limits.usd is not None:
            _check_dollars(model)
        root = asked.root.resolve()
        log.append(ev.Opened(folder=str(root), limits=limits.as_dict()))
        for name, value in (("model", settings.model), ("device", asked.flags.get("device"))):
            if value is not None and log.state.chosen.get(name) != value:
                log.append(ev.Chosen.model_validate({"what": name, "value": value}))
        chat = Chat(log, face, settings, place, root, model, why, Permissions(yes=asked.yes))
        problem = asked.problem or log.state.chosen.get("problem")
        if problem is not None:
            chat.load_problem(problem)
    except BaseException:
        log.close()
        raise
    return chat


def _settings(asked: Asked, log: SessionLog) -> Settings:
    """As configured; a session that is taken up keeps its model and device unless a flag says otherwise."""
    kept: dict[str, Any] = {n: log.state.chosen[n] for n in ("model", "device") if n in log.state.chosen}
    given = {name: value for name, value in asked.flags.items() if value is not None}
    return resolve({**kept, **given})


def _limits(asked: Asked, settings: Settings, log: SessionLog, face: Face) -> Limits:
    """The session's own limits, with what flags change; a new one without any gets the default."""
    configured = limits_of(settings.budget)
    if asked.resume is not None and log.state.limits.any:
        then = log.state.limits
        return Limits(**{m: _flag(asked, m) or then.of(m) for m in METERS})
    if configured.any:
        return configured
    face.say(f"budget: no limit was given; {DEFAULT_EVALS} evaluations (/budget evals=N, or --max-evals)")
    return Limits(evals=DEFAULT_EVALS)


def _check_dollars(model: StreamingChatModel | None) -> None:
    try:
        check_price(model)
    except Refusal as error:
        raise UsageError(f"--max-usd: {error}") from None


def _flag(asked: Asked, meter: str) -> float | None:
    value: float | None = asked.flags.get(f"max_{meter}")
    return value


def _model(settings: Settings, place: Path) -> tuple[StreamingChatModel | None, str]:
    name = settings.model
    if name is None:
        name = default_model(settings.base_url)
        if name is None:
            return None, NO_KEY
    if name == "builtin" or name.startswith("replay:"):
        return None, NOT_A_CHAT.format(name=name)
    try:
        return open_model(name, settings.models, settings.base_url, place), ""
    except UsageError as error:
        raise UsageError(f"{error} (the slash commands need no model: --model builtin)") from None
