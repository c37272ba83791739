"""Layered configuration: flags > environment > ``tilecast.toml`` or ``[tool.tilecast]`` > the user's ``config.toml`` > defaults.

Optional layers come in, one resolved :class:`Settings` comes out, with where each value came from. Unknown keys are errors.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tilecast.sandbox.cluster.options import ClusterOptions
from tilecast.sandbox.errors import UsageError

ENVIRONMENT = {"OPENAI_BASE_URL": "base_url", "TILECAST_MODEL": "model", "TILECAST_RECORD_URL": "database_url"}
"""Variables that set a value; ``OPENAI_API_KEY`` is read where it is used and never stored, ``TILECAST_HOME`` by :func:`home`."""

COMMAND_LINE, SURROUNDINGS = "command line", "environment"


class Strict(BaseModel):
    """Frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BudgetSettings(Strict):
    """Limits of a run; None is no limit."""

    max_evals: int | None = Field(default=None, gt=0)
    max_gpu_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, gt=0)
    max_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class KernelSettings(Strict):
    """One ``[[kernel]]``: a kernel that ``tilecast ci`` looks after. Paths are relative to the configuration file."""

    problem: str
    candidate: str | None = None
    """Default: the problem folder's ``kernel.py``."""
    name: str | None = None
    threshold: float | None = Field(default=None, gt=0, lt=1)
    budget: float | BudgetSettings | None = None
    """Limits of what is spent on it for one change; a plain number is device seconds."""
    paths: list[str] = []
    """Patterns of files that belong to it beyond those that the candidate reaches through imports."""

    def limits(self) -> BudgetSettings:
        """The budget, whichever way it is written."""
        if isinstance(self.budget, BudgetSettings):
            return self.budget
        return BudgetSettings(max_gpu_seconds=self.budget)


class CiSettings(Strict):
    """``[ci]``: how ``tilecast ci`` judges a change and when it speaks."""

    threshold: float = Field(default=0.03, gt=0, lt=1)
    """Relative change of speed below which nothing is said."""
    fail_on: Literal["never", "incorrect", "regression"] = "never"
    suggest: bool = False
    drafts: bool = False
    check_on_cpu: bool = False
    """Where there is no GPU, check correctness on the CPU, in the sandbox."""
    suggest_evals: int = Field(default=12, ge=3, le=1000)
    """Evaluations of a suggestion's run where the kernel's budget names none."""


class ChatSettings(Strict):
    """``[chat]``: the interactive session."""

    ask_share: float = Field(default=0.25, gt=0, le=1)
    """A step that takes more than this share of what is left of a limit is asked about first."""
    rounds: int = Field(default=24, ge=1, le=500)
    """Most questions to the model in one turn, tool calls among them."""
    compact_tokens: int = Field(default=60_000, ge=2_000)
    """Size of the conversation at which its older part is replaced by the facts."""
    keep_turns: int = Field(default=4, ge=1, le=100)
    """Turns that are kept word for word when the conversation is compacted."""


class Settings(Strict):
    """Everything configurable, resolved. A flag of the same name (dashes for underscores) wins over every file."""

    model: str | None = None
    base_url: str | None = None
    device: str = "auto"
    forecaster: str = "auto"
    evidence: Literal["auto", "always", "never"] = "auto"
    """Compile candidates for the target before a forecast: on a GPU (a second against several), or also under replay."""
    target: str | None = None
    language: str | None = None
    strategy: str = "search"
    pure: bool = False
    require_sandbox: bool = False
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    in_flight: int = Field(default=4, ge=1, le=64)
    lanes: int = Field(default=1, ge=1, le=8)
    """Judges on one GPU: candidates are compiled and verified side by side, and one at a time is timed, alone."""
    database_url: str | None = None
    budget: BudgetSettings = BudgetSettings()
    models: dict[str, dict[str, Any]] = {}
    """Per model: sampling parameters, extra request parameters, prices; checked where the model is built."""
    kernel: list[KernelSettings] = []
    ci: CiSettings = CiSettings()
    chat: ChatSettings = ChatSettings()
    ray: ClusterOptions = ClusterOptions()
    origin: dict[str, str] = Field(default={}, exclude=True)
    """Where each value that is not a default came from."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        from tilecast.tools.model.settings import checked_url

        return None if value is None else checked_url(value)

    @property
    def cluster(self) -> ClusterOptions:
        """The table ``[ray]``, bound to the GPU model of ``target``."""
        return self.ray.model_copy(update={"target": self.target or self.ray.target})


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's tilecast folder: ``TILECAST_HOME``, else ``~/.tilecast``. Runs, caches and ``config.toml`` live there."""
    given = environ.get("TILECAST_HOME")
    return Path(given).expanduser() if given else Path.home() / ".tilecast"


def resolve(
    flags: Mapping[str, Any] | None = None, cwd: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Settings:
    """Put the layers together.

    Args:
        flags: values given on the command line; None values are not given. ``budget`` keys may stand at the top level.
        cwd: the working folder, where ``tilecast.toml`` or ``pyproject.toml`` is looked for.
        environ: the process environment.

    Raises:
        UsageError: for an unreadable file, an unknown key or a bad value, naming file and key.
    """
    folder = cwd or Path.cwd()
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    layers = [*_files(folder, environ), (SURROUNDINGS, _environment(environ)), (COMMAND_LINE, _nested(flags or {}))]
    for name, values in layers:
        _validate(values, name)
        for key, value in values.items():
            if isinstance(value, dict) and isinstance(merged.get(key), dict):
                merged[key] = {**merged[key], **value}
            else:
                merged[key] = value
            origin[key] = name
    return _validate(merged, "configuration").model_copy(update={"origin": origin})


def _validate(values: Mapping[str, Any], where: str) -> Settings:
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        # Where a value may be one of several kinds, each kind complains: the unknown key says most.
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{where}: {_unknown(first['loc'])}") from None
        said = first["msg"].removeprefix("Value error, ")
        if where == COMMAND_LINE:
            raise UsageError(f"{_flag(str(first['loc'][-1]))} {first['input']}: {said}") from None
        variable = next((name for name, value in ENVIRONMENT.items() if where == SURROUNDINGS and value == key), "")
        raise UsageError(f"{variable or f'{where}: {key}'} = {first['input']!r}: {said}") from None
    if settings.models:
        _check_models(settings, where)
    return settings


def _check_models(settings: Settings, where: str) -> None:
    """Every model's table, also of one that is not asked this time: a misspelt key is told before it matters.

    Raises:
        UsageError: naming file and key.
    """
    from tilecast.tools.model.settings import model_settings

    for name in settings.models:
        try:
            model_settings(name, settings.models, None)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None


def _flag(key: str) -> str:
    """The flag that sets a value: named as the value is, but for its unit."""
    return f"--{key.removesuffix('_s').replace('_', '-')}"


TABLES: dict[str, type[Strict]] = {
    "budget": BudgetSettings,
    "kernel": KernelSettings,
    "ci": CiSettings,
    "chat": ChatSettings,
}


def _unknown(place: tuple[int | str, ...]) -> str:
    """What is wrong with a key that nobody knows: the table it stands in, the keys of that table, and the nearest."""
    tables = [part for part in place[:-1] if part in TABLES]
    table = str(tables[-1]) if tables else ""
    fields = (TABLES[table] if table else Settings).model_fields
    known = [name for name in fields if name != "origin"]
    key = str(place[-1])
    name = f"[[{table}]]" if table == "kernel" else f"[{table}]"
    close = difflib.get_close_matches(key, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    dotted = ".".join(str(part) for part in place)
    return f"unknown key {dotted!r}{f' in {name}' if table else ''}; known are {', '.join(known)}{hint}"


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    return {key: environ[name] for name, key in ENVIRONMENT.items() if environ.get(name)}


def _nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in flags.items() if value is not None}
    budget = {key: given.pop(key) for key in list(given) if key in BudgetSettings.model_fields}
    return {**given, **({"budget": budget} if budget else {})}


def _files(folder: Path, environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """User file first, then the project's (``tilecast.toml`` wins over ``[tool.tilecast]``; both at once is an error)."""
    layers = []
    user = home(environ) / "config.toml"
    if user.is_file():
        layers.append((str(user), _read(user)))
    project, pyproject = folder / "tilecast.toml", folder / "pyproject.toml"
    tool = _read(pyproject).get("tool", {}).get("tilecast") if pyproject.is_file() else None
    if project.is_file() and tool is not None:
        raise UsageError(f"{project} and [tool.tilecast] in {pyproject} both exist; keep one")
    if project.is_file():
        layers.append(_untrusted(str(project), _read(project)))
    elif tool is not None:
        layers.append(_untrusted(f"{pyproject} [tool.tilecast]", dict(tool)))
    return layers


def _untrusted(name: str, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A project's file comes with a checkout: it may not say where the user's key is sent.

    Raises:
        UsageError: if it names a server or the variable that holds a key.
    """
    models = values.get("models")
    tables = [table for table in models.values() if isinstance(table, dict)] if isinstance(models, dict) else []
    for key in ("base_url", "key_env", "database_url"):
        if key in values or any(key in table for table in tables):
            raise UsageError(
                f"{name}: {key!r} may not stand in a project's file, which could send your key or runs to a stranger's server; "
                "set OPENAI_BASE_URL (TILECAST_RECORD_URL for the record), or put it into config.toml in your tilecast folder"
            )
    return name, values


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: {error}") from error
