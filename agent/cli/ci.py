"""``tilecast ci``: is a kernel faster or slower at a change's head than at its base? And the comment that says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from tilecast.agent.cli import ci_options as options
from tilecast.agent.cli.ci_github import Forge, comment_on, post_from, say
from tilecast.agent.cli.shared import JsonOption, RequireSandboxOption, TargetOption, TimeoutOption, print_json

if TYPE_CHECKING:
    from tilecast.agent.ci.event import PullEvent
    from tilecast.agent.ci.run import Asked
    from tilecast.agent.ci.schema import CiReport
    from tilecast.agent.config import Settings
    from tilecast.tools.forecast.base import Forecaster


def ci(
    base: options.Base = None,
    head: options.Head = None,
    folder: options.Folder = Path("."),
    output_format: options.Format = "markdown",
    device: options.Device = None,
    target: TargetOption = None,
    forecaster: options.Forecaster = None,
    evidence: options.Evidence = None,
    threshold: options.Threshold = None,
    fail_on: options.FailOn = None,
    suggest: options.Suggest = None,
    model: options.Model = None,
    drafts: options.Drafts = None,
    output: options.Output = None,
    comment: options.Comment = None,
    pull_request: options.PullNumber = None,
    repository: options.Repository = None,
    api_url: options.ApiUrl = None,
    author: options.Author = None,
    post: options.Post = None,
    require_sandbox: RequireSandboxOption = True,
    timeout: TimeoutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say whether a change makes kernels faster, slower or wrong; silent unless it is known.

    Exit code 1 only if --fail-on asks for it.

    Example: tilecast ci --base origin/main --head HEAD --device none --target H200
    """
    if output_format not in ("markdown", "json"):
        from tilecast.sandbox.errors import UsageError

        raise UsageError(f"--format {output_format}: there are markdown and json")
    given = {"threshold": threshold, "fail_on": fail_on, "suggest": suggest, "drafts": drafts}
    flags = {
        "device": device,
        "target": target,
        "forecaster": forecaster,
        "model": model,
        "require_sandbox": require_sandbox,
        "timeout_s": timeout,
        "ci": {name: value for name, value in given.items() if value is not None},
    }
    question = _Question(base, head, folder, flags, evidence)
    faces = _Faces(json_output or output_format == "json", output)
    forge = Forge(comment, pull_request, repository, api_url, author)
    with _inert_errors():
        code = post_from(post, forge) if post else _compare(question, faces, forge)
    raise typer.Exit(code)


class _Question(NamedTuple):
    """What is compared: commits as they were named, the folder, and the terms as flags."""

    base: str | None
    head: str | None
    folder: Path
    flags: dict[str, Any]
    evidence: bool | None


class _Faces:
    """How the answer is shown and where it is left."""

    def __init__(self, as_json: bool, output: Path | None) -> None:
        self.json, self.output = as_json, output


@contextmanager
def _inert_errors() -> Iterator[None]:
    """A mistake may be told in a stranger's words, and GitHub reads commands from logs: they are made inert."""
    from tilecast.agent.ci.inert import log_text
    from tilecast.sandbox.errors import TilecastError

    try:
        yield
    except TilecastError as error:
        error.args = (log_text(str(error)),)
        raise


def _compare(question: _Question, faces: _Faces, forge: Forge) -> int:
    from tilecast.agent.ci.comment import summary
    from tilecast.agent.ci.event import PullEvent, read_event
    from tilecast.agent.ci.handover import hand_over
    from tilecast.agent.ci.run import Outcome, compare, settings_of
    from tilecast.agent.ci.schema import PullRequest, cut

    event = read_event()
    event = event if isinstance(event, PullEvent) else None
    asked = _asked(question, event, faces.output)
    settings = settings_of(asked)
    skipped = event.skipped(asked.git.message(asked.head), settings.ci.drafts) if event is not None else ""
    outcome = Outcome(_nothing(asked, skipped)) if skipped else compare(asked, settings, _forecaster(settings), say)
    report = outcome.report
    pull = forge.pull(event)
    if pull is not None:
        about = PullRequest(number=pull[1], repository=pull[0], fork=event.fork if event is not None else False)
        report = report.model_copy(update={"pull_request": about})
    if outcome.broken is not None:
        say(f"the machine could not answer: {outcome.broken}")
        report = report.model_copy(update={"notes": [*report.notes, cut(f"could not measure: {outcome.broken}")]})
    if faces.output is not None:
        say(f"written to {hand_over(report, faces.output)}")
    _show(report, faces)
    _append("GITHUB_STEP_SUMMARY", summary(report))
    _append("GITHUB_OUTPUT", f"reported={str(bool(report.reported)).lower()}\nfailed={str(report.failed).lower()}\n")
    if not skipped:
        comment_on(report, forge, event)
    if report.failed:
        return 1
    return 3 if outcome.broken is not None else 0


def _asked(question: _Question, event: PullEvent | None, output: Path | None) -> Asked:
    """Commits and terms of the comparison.

    Raises:
        UsageError: if no base is named and none can be known.
    """
    from tilecast.agent.ci.git import Git
    from tilecast.agent.ci.run import Asked
    from tilecast.agent.config import home
    from tilecast.sandbox.errors import UsageError

    git = Git(question.folder)
    base = question.base or (event.base if event is not None else None)
    if base is None:
        raise UsageError("name the commit to compare with, for instance --base origin/main")
    tip = git.commit(base)
    judged = git.commit(question.head or (event.head if event is not None else "HEAD"))
    meeting = git.merge_base(tip, judged)
    notes = () if meeting else ("no common ancestor is known here (a shallow checkout?): compared with base itself",)
    prefix = question.folder.resolve().relative_to(git.root.resolve()).as_posix()
    return Asked(
        git=git,
        base=meeting or tip,
        head=judged,
        prefix="" if prefix == "." else f"{prefix}/",
        flags=question.flags,
        evidence=question.evidence,
        gpu_allowed=event is None or event.gpu_allowed,
        trusted=event is None or not event.fork,
        folder=output if output is not None else home() / "ci" / judged[:12],
        notes=notes,
    )


def _nothing(asked: Asked, skipped: str) -> CiReport:
    from tilecast.agent.ci.schema import CiReport, cut
    from tilecast.sandbox.installed import own_version

    return CiReport(base=asked.base, head=asked.head, skipped=cut(skipped), version=own_version())


def _forecaster(settings: Settings) -> Forecaster | None:
    from tilecast.sandbox.errors import UsageError
    from tilecast.tools.forecast.factory import make_forecaster

    if settings.forecaster in ("llm", "ensemble"):
        raise UsageError(f"--forecaster {settings.forecaster}: a change is forecast with learned, roofline or none")
    return make_forecaster(settings.forecaster)


def _show(report: CiReport, faces: _Faces) -> None:
    """The answer on stdout; in Actions, GitHub is told first to take nothing in it for a command."""
    from secrets import token_hex

    from tilecast.agent.ci.comment import summary

    if faces.json:
        print_json(report)
        return
    fence = token_hex(16) if os.environ.get("GITHUB_ACTIONS") == "true" else ""
    typer.echo((f"::stop-commands::{fence}\n" if fence else "") + summary(report) + (f"\n::{fence}::" if fence else ""))


def _append(variable: str, text: str) -> None:
    path = os.environ.get(variable)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
