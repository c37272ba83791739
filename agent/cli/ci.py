"""``tilecast ci``: is a kernel faster or slower at a change's head than at its base? And the comment that says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.agent.cli.shared import JsonOption, RequireSandboxOption, TimeoutOption, log_line, print_json

if TYPE_CHECKING:
    from tilecast.agent.ci.event import PullEvent
    from tilecast.agent.ci.posting import Posted
    from tilecast.agent.ci.run import Asked
    from tilecast.agent.ci.schema import CiReport
    from tilecast.agent.config import Settings
    from tilecast.sandbox.base import ProgressSink
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
            help="auto (a GPU, else none), cuda[:N], cpu, replay:DIR, or none (forecasts only).", metavar="DEVICE"
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
    from tilecast.sandbox.errors import UsageError

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
    forge = _Forge(comment, pull_request, repository, api_url, author)
    if post is not None:
        raise typer.Exit(_post(post, forge))
    faces = _Faces(json_output or output_format == "json", output)
    raise typer.Exit(_compare(base, head, folder, flags, evidence, faces, forge))


class _Faces:
    """How the answer is shown and where it is left."""

    def __init__(self, as_json: bool, output: Path | None) -> None:
        self.json, self.output = as_json, output


class _Forge:
    """Where to comment; the token leaves the environment, where nothing that is started needs it."""

    def __init__(
        self, wanted: bool | None, number: int | None, repository: str | None, url: str | None, author: str | None
    ) -> None:
        self.wanted, self.number, self.author = wanted, number, author
        self.repository = repository or os.environ.get("GITHUB_REPOSITORY")
        self.url = url or os.environ.get("GITHUB_API_URL")
        self.token = os.environ.pop("GITHUB_TOKEN", "")

    def pull(self, event: PullEvent | None) -> tuple[str, int] | None:
        """Repository and number of the pull request; None if there is none."""
        number = self.number or (event.number if event is not None else None)
        repository = event.repository if event is not None else self.repository
        return (repository, number) if repository and number else None


def _compare(
    base: str | None,
    head: str | None,
    folder: Path,
    flags: dict[str, Any],
    evidence: bool | None,
    faces: _Faces,
    forge: _Forge,
) -> int:
    from tilecast.agent.ci.comment import summary
    from tilecast.agent.ci.event import PullEvent, read_event
    from tilecast.agent.ci.handover import hand_over
    from tilecast.agent.ci.inert import log_text
    from tilecast.agent.ci.run import Outcome, compare, settings_of
    from tilecast.agent.ci.schema import PullRequest, cut

    def say(text: str) -> None:
        log_line(f"tilecast ci: {log_text(text)}")

    event = read_event()
    event = event if isinstance(event, PullEvent) else None
    asked = _asked(base, head, folder, event, flags, evidence, faces.output)
    settings = settings_of(asked)
    skipped = event.skipped(asked.git.message(asked.head), settings.ci.drafts) if event is not None else ""
    outcome = (
        Outcome(_nothing(asked, skipped)) if skipped else compare(asked, settings, _forecaster(settings, say), say)
    )
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
        _comment(report, forge, event, say)
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


def _forecaster(settings: Settings, say: ProgressSink) -> Forecaster | None:
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


def _comment(report: CiReport, forge: _Forge, event: PullEvent | None, say: ProgressSink) -> None:
    """Comment where that is wanted and possible; what GitHub refuses is said, and is in the summary anyway."""
    from tilecast.sandbox.errors import UsageError

    if forge.wanted is False or (forge.wanted is None and (event is None or not forge.token)):
        return
    if event is not None and event.fork:
        say("a fork's run may not comment: the answer is in the job's summary, and a second workflow can post it")
        return
    if report.pull_request is None:
        raise UsageError("--comment needs a pull request: --pr NUMBER and --repository OWNER/NAME")
    if not forge.token:
        raise UsageError("--comment needs a token in GITHUB_TOKEN")
    _tell(_publish(report, forge, untrusted=False), say)


def _publish(report: CiReport, forge: _Forge, untrusted: bool, head_repository: str | None = None) -> Posted:
    from tilecast.agent.ci.comment import comment
    from tilecast.sandbox.errors import UsageError

    try:
        from tilecast.agent.ci.posting import DEFAULT_URL, PullRequestComments
    except ImportError:
        raise UsageError("commenting needs PyGithub: pip install 'tilecast[ci]'") from None
    about = report.pull_request
    assert about is not None
    comments = PullRequestComments(about.repository, about.number, forge.token, forge.url or DEFAULT_URL, forge.author)
    try:
        return comments.publish(lambda before: comment(report, before, untrusted), report.head, head_repository)
    finally:
        comments.close()


def _tell(posted: Posted, say: ProgressSink) -> None:
    from tilecast.agent.ci.inert import log_text

    say(f"comment: {posted.outcome}" + (f" ({posted.why})" if posted.why else ""))
    if posted.outcome == "refused" and os.environ.get("GITHUB_ACTIONS") == "true":
        log_line(f"::warning title=tilecast::no comment could be written: {log_text(posted.why)}")


def _post(path: Path, forge: _Forge) -> int:
    """Comment from another run's document. Which pull request it is about is taken on GitHub's word, not on the document's.

    Raises:
        UsageError: for a document that is none, or that is about something else than the finished run.
    """
    from tilecast.agent.ci.event import RunEvent, read_event
    from tilecast.agent.ci.handover import taken_over
    from tilecast.agent.ci.inert import log_text
    from tilecast.sandbox.errors import UsageError

    def say(text: str) -> None:
        log_line(f"tilecast ci: {log_text(text)}")

    event = read_event()
    if not isinstance(event, RunEvent) or event.of != "pull_request":
        raise UsageError("--post works in a `workflow_run` workflow, after a run for a pull_request")
    report = taken_over(path)
    if report.skipped:
        say("that run looked at nothing")
        return 0
    about = report.pull_request
    if about is None or about.repository != event.repository or report.head != event.head:
        raise UsageError(f"{path}: is about another repository or commit than the run that left it")
    if not forge.token:
        raise UsageError("--post needs a token in GITHUB_TOKEN")
    fork = event.head_repository != event.repository
    _tell(_publish(report, forge, untrusted=fork, head_repository=event.head_repository), say)
    return 0
