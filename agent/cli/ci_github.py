"""Where ``tilecast ci`` comments, with what rights, and what is said when it may not."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tilecast.agent.cli.shared import log_line

if TYPE_CHECKING:
    from pathlib import Path

    from tilecast.agent.ci.event import PullEvent
    from tilecast.agent.ci.posting import Posted
    from tilecast.agent.ci.schema import CiReport


class Forge:
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


def comment_on(report: CiReport, forge: Forge, event: PullEvent | None) -> None:
    """Comment where that is wanted and possible; what GitHub refuses is said, and is in the summary anyway."""
    from tilecast.sandbox.errors import UsageError

    if forge.wanted is False or (forge.wanted is None and (event is None or not forge.token)):
        return
    if forge.wanted is None and find_spec("github") is None:
        say("no comment: PyGithub is not installed (pip install 'tilecast[ci]')")
        return
    if event is not None and event.fork:
        say("a fork's run may not comment: the answer is in the job's summary, and a second workflow can post it")
        return
    if report.pull_request is None:
        raise UsageError("--comment needs a pull request: --pr NUMBER and --repository OWNER/NAME")
    if not forge.token:
        raise UsageError("--comment needs a token in GITHUB_TOKEN")
    _tell(_publish(report, forge, untrusted=False))


def _publish(report: CiReport, forge: Forge, untrusted: bool, head_repository: str | None = None) -> Posted:
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


def say(text: str) -> None:
    """One line on stderr, of which GitHub takes nothing for a command."""
    from tilecast.agent.ci.inert import log_text

    log_line(f"tilecast ci: {log_text(text)}")


def _tell(posted: Posted) -> None:
    from tilecast.agent.ci.inert import log_text

    say(f"comment: {posted.outcome}" + (f" ({posted.why})" if posted.why else ""))
    if posted.outcome == "refused" and os.environ.get("GITHUB_ACTIONS") == "true":
        log_line(f"::warning title=tilecast::no comment could be written: {log_text(posted.why)}")


def post_from(path: Path, forge: Forge) -> int:
    """Comment from another run's document. Which pull request it is about is taken on GitHub's word, not on the document's.

    Raises:
        UsageError: for a document that is none, or that is about something else than the finished run.
    """
    from tilecast.agent.ci.event import RunEvent, read_event
    from tilecast.agent.ci.handover import taken_over
    from tilecast.sandbox.errors import UsageError

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
    _tell(_publish(report, forge, untrusted=fork, head_repository=event.head_repository))
    return 0
