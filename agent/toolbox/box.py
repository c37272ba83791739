"""The toolbox: every tool once, by name, with its schema; arguments are checked, every failure is an answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tilecast.agent.toolbox import arguments as args
from tilecast.agent.toolbox import measuring, runs
from tilecast.agent.toolbox.base import Charged, Fact, FileChange, Refusal, Stopped, ToolResult
from tilecast.agent.toolbox.workbench import Workbench
from tilecast.sandbox.errors import TilecastError
from tilecast.tools.model.conversation import ToolSpec

READ_CHARACTERS = 24_000


@dataclass(frozen=True)
class Tool:
    """One tool: its name, the model of its arguments, and what it does."""

    name: str
    arguments: type[args.Arguments]
    work: Callable[[Workbench, Any], ToolResult]

    @property
    def spec(self) -> ToolSpec:
        """As a model is told of it."""
        schema = self.arguments.model_json_schema()
        schema.pop("description", None)
        schema.pop("title", None)
        return ToolSpec(name=self.name, description=inspect.getdoc(self.arguments) or "", parameters=schema)


def _load(work: Workbench, asked: args.LoadProblem) -> ToolResult:
    if not (work.files.root / asked.path).resolve().is_relative_to(work.files.root):
        raise Refusal(f"{asked.path}: outside of the working folder; the user can load it")
    problem = work.load(asked.path)
    path = str((work.files.root / asked.path).resolve())
    kernel = f"; kernel to start from: {work.files.name_of(problem.kernel)}" if problem.kernel else ""
    return ToolResult(
        tool="load_problem", ok=True, summary=f"problem {problem.name} is loaded{kernel}", document={"path": path}
    )


def _list(work: Workbench, asked: args.ListFiles) -> ToolResult:
    found = work.files.listing(asked.folder)
    return ToolResult(
        tool="list_files", ok=True, summary=f"{len(found)} files in {asked.folder}", text="\n".join(found)
    )


def _read(work: Workbench, asked: args.ReadFile) -> ToolResult:
    lines = work.files.read(asked.path).splitlines()
    first, last = asked.first_line, min(len(lines), asked.first_line - 1 + asked.lines)
    text = "\n".join(lines[first - 1 : last])[:READ_CHARACTERS]
    more = f" of {len(lines)}" if last < len(lines) or first > 1 else ""
    return ToolResult(tool="read_file", ok=True, summary=f"read {asked.path}, lines {first} to {last}{more}", text=text)


def _write(work: Workbench, asked: args.WriteFile) -> ToolResult:
    return _changed("write_file", work.files.write(asked.path, asked.text))


def _edit(work: Workbench, asked: args.EditFile) -> ToolResult:
    return _changed("edit_file", work.files.edit(asked.path, asked.old, asked.new))


def _changed(tool: str, change: FileChange) -> ToolResult:
    before, after = len((change.before or "").splitlines()), len(change.after.splitlines())
    verb = "wrote" if change.before is None else "changed"
    lines = f"{after} lines" if change.before is None else f"{before} to {after} lines"
    return ToolResult(tool=tool, ok=True, summary=f"{verb} {change.path} ({lines}); /undo takes it back", change=change)


def _profile(work: Workbench, asked: args.Profile) -> ToolResult:
    return measuring.bench(work, asked, profile=True)


TOOLS: tuple[Tool, ...] = (
    Tool("load_problem", args.LoadProblem, _load),
    Tool("list_files", args.ListFiles, _list),
    Tool("read_file", args.ReadFile, _read),
    Tool("write_file", args.WriteFile, _write),
    Tool("edit_file", args.EditFile, _edit),
    Tool("forecast", args.Forecast, measuring.forecast),
    Tool("verify", args.Verify, measuring.verify),
    Tool("bench", args.Bench, measuring.bench),
    Tool("profile", args.Profile, _profile),
    Tool("tune", args.Tune, runs.tune),
    Tool("optimize", args.Optimize, runs.optimize),
    Tool("show", args.Show, runs.show),
    Tool("device", args.Device, measuring.device_facts),
)


class Toolbox:
    """The tools on one workbench, with what they found out so far.

    Args:
        work: the workbench.
        facts: what earlier steps of the session found out.
    """

    def __init__(self, work: Workbench, facts: list[Fact] | None = None) -> None:
        self.work = work
        self.facts: list[Fact] = list(facts or [])
        why = Tool("why", args.Why, lambda _, asked: self._why(asked))
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in (*TOOLS, why)}

    @property
    def specs(self) -> list[ToolSpec]:
        """All tools as a model is told of them."""
        return [tool.spec for tool in self.tools.values()]

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Do it. Whatever goes wrong is a result that says what and why; nothing is raised but the unexpected."""
        tool = self.tools.get(name)
        if tool is None:
            return _no(name, f"there is no tool {name!r}; there are {', '.join(self.tools)}")
        try:
            asked = tool.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            return _no(name, f"{name}: {_first(error)}")
        before = self.work.ledger.spent
        try:
            result = tool.work(self.work, asked)
        except Stopped:
            result = ToolResult(
                tool=name, ok=False, summary=f"{name}: stopped by the user, no result", interrupted=True
            )
        except (Refusal, TilecastError) as error:
            result = _no(name, str(error) if str(error).startswith(name) else f"{name}: {error}")
        after = self.work.ledger.spent
        charged = Charged(
            evals=after.evals - before.evals,
            gpu_seconds=after.gpu_seconds - before.gpu_seconds,
            tokens=after.tokens - before.tokens,
            usd=None if after.usd is None or before.usd is None else after.usd - before.usd,
        )
        self.facts += result.facts
        return result.model_copy(update={"charged": charged})

    def argument_trouble(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What is wrong with the arguments of a call, or nothing."""
        try:
            self.tools[name].arguments.model_validate(dict(arguments))
        except ValidationError as error:
            return f"{name}: {_first(error)}"
        return ""

    @property
    def best(self) -> Fact | None:
        """The fastest candidate of the loaded problem that passed and was timed."""
        loaded = self.work.loaded
        times = [f for f in self.facts if f.is_time and f.ratio and (loaded is None or f.problem == loaded.name)]
        return max(times, key=lambda fact: fact.ratio or 0.0, default=None)

    def _why(self, asked: args.Why) -> ToolResult:
        name = None if asked.path is None else self.work.files.name_of(asked.path)
        found = [fact for fact in self.facts if name is None or fact.candidate == name]
        if not found:
            about = "anything" if name is None else name
            return ToolResult(tool="why", ok=True, summary=f"nothing was found out about {about} in this session yet")
        lines = [line for fact in found for line in fact_lines(fact)]
        best = self.best
        if best is not None:
            lines.append(f"best so far: {best.candidate}, because no other one that passed was measured to be faster")
        return ToolResult(tool="why", ok=True, summary=f"{len(found)} findings", text="\n".join(lines))


def fact_lines(fact: Fact) -> list[str]:
    """A fact in words, its interval and its reason with it."""
    from tilecast.agent.report import wording

    head = f"{fact.candidate} [{fact.source_sha256[:8]}] {fact.where}:"
    if fact.ratio is None or fact.low is None or fact.high is None:
        lines = [f"{head} {fact.status}"]
    else:
        word = {"forecast": "forecast, not measured:", "recorded": "recorded:", "measured": "measured:"}[fact.kind]
        time = "" if fact.ms is None else f" {wording.milliseconds(fact.ms)}"
        ratio = f"{wording.ratio(fact.ratio)} [{fact.low:.3g}, {fact.high:.3g}]"
        lines = [f"{head} {word} {fact.verdict} {ratio}{time} against {fact.baseline}".replace("  ", " ")]
    return [*lines, *(f"    {line}" for line in fact.reason.splitlines()[:12])]


def _no(tool: str, why: str) -> ToolResult:
    return ToolResult(tool=tool, ok=False, summary=why.splitlines()[0], text=why)


def _first(error: ValidationError) -> str:
    """Every argument that is wrong, in words."""
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in error.errors())
