"""``tilecast ci``: is a kernel faster or slower at a change's head than at its base? And the comment that says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.ci_github import Forge, comment_on, post_from, say
from tilecast.agent.cli.shared import JsonOption, RequireSandboxOption, TimeoutOption, print_json

if TYPE_CHECKING:
    from tilecast.agent.ci.event import PullEvent
    from tilecast.agent.ci.run import Asked
    from tilecast.agent.ci.schema import CiReport
    from tilecast.agent.config import Settings
    from tilecast.tools.forecast.base import Forecaster

GITHUB = "On GitHub"


def ci(
    base: Annotated[str | None, typer.Option(help="Commit to compare with (in Actions: the pull request's).")] = None,
    head: Annotated[
        str | None, typer.Option(help="Commit to judge (default: the pull request's head, or HEAD).")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of tilecast.toml in the repository.")] = Path("."),
    output_format: Annotated[str, typer.Option("--format", help="markdown or json.")] = "markdown",
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="auto (a GPU, else none), cuda[:N], cpu, replay:DIR, or none (forecasts only).",
            metavar="DEVICE",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="GPU to forecast for where there is none here.", metavar="GPU")
    ] = None,
    forecaster: Annotated[str | None, typer.Option(help="auto, learned, roofline or none.")] = None,
    evidence: Annotated[
        bool | None,
        typer.Option("--evidence/--no-evidence", help="Compile both versions for the target.", show_default=False),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Relative change below which nothing is said (default 0.03).")
    ] = None,
    fail_on: Annotated[str | None, typer.Option(help="never, incorrect or regression: exit code 1 on it.")] = None,
    suggest: Annotated[
        bool | None, typer.Option("--suggest/--no-suggest", help="Look for a faster version.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model for suggestions (builtin needs no key).")] = None,
    drafts: Annotated[
        bool | None, typer.Option("--drafts/--no-drafts", help="Also drafts.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the document, patches and records (to upload as an artifact).")
    ] = None,
    comment: Annotated[
        bool | None,
        typer.Option(
            "--comment/--no-comment",
            help="Comment on the pull request (default: in Actions, with a token).",
            show_default=False,
            rich_help_panel=GITHUB,
        ),
    ] = None,
    pull_request: Annotated[
        int | None, typer.Option("--pr", help="Number of the pull request.", rich_help_panel=GITHUB)
    ] = None,
    repository: Annotated[str | None, typer.Option(help="owner/name.", rich_help_panel=GITHUB)] = None,
    api_url: Annotated[
        str | None, typer.Option(help="The API's address (default: GITHUB_API_URL).", rich_help_panel=GITHUB)
    ] = None,
    author: Annotated[
        str | None,
        typer.Option(help="Login under which the token writes, if it cannot say so itself.", rich_help_panel=GITHUB),
    ] = None,
    post: Annotated[
        Path | None,
        typer.Option(
            help="Only comment, from the document that another run left here; nothing is compared.",
            metavar="PATH",
            rich_help_panel=GITHUB,
        ),
    ] = None,
    require_sandbox: RequireSandboxOption = True,
    timeout: TimeoutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say whether a change makes kernels faster, slower or wrong; silent unless it is known.

    Exit code 1 only if --fail-on asks for it.

    Example: tilecast ci --base origin/main --head HEAD --device none --target H200
    """
    from tilecast.agent.ci.inert import log_text
    from tilecast.sandbox.errors import TilecastError, UsageError

    if output_format not in ("markdown", "json"):
        raise UsageError(f"--format {output_format}: there are markdown and json")
    flags = {
        "device": device,
        "target": target,
        "forecaster": forecaster,
        "model": model,
        "require_sandbox": require_sandbox,
        "timeout_s": timeout,
        "ci": {
            name: value
            for name, value in (
                ("threshold", threshold),
                ("fail_on", fail_on),
                ("suggest", suggest),
                ("drafts", drafts),
            )
            if value is not None
        },
    }
    forge = Forge(comment, pull_request, repository, api_url, author)
    faces = _Faces(json_output or output_format == "json", output)
    try:
        code = post_from(post, forge) if post else _compare(base, head, folder, flags, evidence, faces, forge)
    except TilecastError as error:
        # It may quote a stranger's text, and GitHub reads commands from logs.
        error.args = (log_text(str(error)),)
        raise
    raise typer.Exit(code)


class _Faces:
    """How the answer is shown and where it is left."""

    def __init__(self, as_json: bool, output: Path | None) -> None:
        self.json, self.output = as_json, output


def _compare(
    base: str | None,
    head: str | None,
    folder: Path,
    flags: dict[str, Any],
    evidence: bool | None,
    faces: _Faces,
    forge: Forge,
) -> int:
    from tilecast.agent.ci.comment import summary
    from tilecast.agent.ci.event import PullEvent, read_event
    from tilecast.agent.ci.handover import hand_over
    from tilecast.agent.ci.run import Outcome, compare, settings_of
    from tilecast.agent.ci.schema import PullRequest, cut

    event = read_event()
    event = event if isinstance(event, PullEvent) else None
    asked = _asked(base, head, folder, event, flags, evidence, faces.output)
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


def _asked(
    base: str | None,
    head: str | None,
    folder: Path,
    event: PullEvent | None,
    flags: dict[str, Any],
    evidence: bool | None,
    output: Path | None,
) -> Asked:
    """Commits and terms of the comparison.

    Raises:
        UsageError: if no base is named and none can be known.
    """
    from tilecast.agent.ci.git import Git
    from tilecast.agent.ci.run import Asked
    from tilecast.agent.config import home
    from tilecast.sandbox.errors import UsageError

    git = Git(folder)
    base = base or (event.base if event is not None else None)
    if base is None:
        raise UsageError("name the commit to compare with, for instance --base origin/main")
    tip = git.commit(base)
    judged = git.commit(head or (event.head if event is not None else "HEAD"))
    meeting = git.merge_base(tip, judged)
    notes = () if meeting else ("no common ancestor is known here (a shallow checkout?): compared with base itself",)
    prefix = folder.resolve().relative_to(git.root.resolve()).as_posix()
    return Asked(
        git=git,
        base=meeting or tip,
        head=judged,
        prefix="" if prefix == "." else f"{prefix}/",
        flags=flags,
        evidence=evidence,
        gpu_allowed=event is None or event.gpu_allowed,
        trusted=event is None or not event.fork,
        folder=output if output is not None else home() / "ci" / judged[:12],
        notes=notes,
    )


def _nothing(asked: Asked, skipped: str) -> CiReport:
    from tilecast.agent.ci.keeping import tilecast_version
    from tilecast.agent.ci.schema import CiReport, cut

    return CiReport(base=asked.base, head=asked.head, skipped=cut(skipped), version=tilecast_version())


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
