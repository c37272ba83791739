"""One comment on a pull request, through GitHub's API: found again by its marker and its author, and edited in place.

Whatever GitHub refuses is an answer (:class:`Posted`), never an error: a token that may not write must not redden a build.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from github import Auth, Github, GithubException
from github.GithubException import RateLimitExceededException
from github.GithubRetry import GithubRetry
from github.IssueComment import IssueComment

from tilecast.agent.ci.comment import MARKER, Memory, remembered

DEFAULT_URL = "https://api.github.com"
ACTIONS_BOT = "github-actions[bot]"
LONGEST_WAIT_S = 60.0
"""A rate limit that lasts longer is not waited for."""
_TRIES = 3
_PAGE = 100

Render = Callable[[Memory | None], str | None]
"""Makes the comment, given what the existing one said (None: there is none); None to stay silent."""


@dataclass(frozen=True)
class Posted:
    """What became of a comment, and why where it was refused."""

    outcome: Literal["created", "edited", "silent", "superseded", "refused"]
    why: str = ""
    url: str = ""


class _Patient(GithubRetry):
    """Retries with patience that ends: a longer wait than :data:`LONGEST_WAIT_S` is an error at once."""

    def get_retry_after(self, response: Any) -> float | None:
        wait = super().get_retry_after(response)
        if wait is not None and wait > LONGEST_WAIT_S:
            raise GithubException(
                int(response.status), {"message": f"rate limited for {wait:.0f} s"}, dict(response.headers)
            )
        return wait


class PullRequestComments:
    """The comments of one pull request.

    Args:
        repository: ``owner/name``.
        number: of the pull request.
        token: what may read and, with luck, write.
        base_url: of the API, for GitHub Enterprise and tests.
        author: login under which this token writes; None asks GitHub, and takes the Actions bot where it will not say.
        backoff_s: factor of the wait between tries.
    """

    def __init__(
        self,
        repository: str,
        number: int,
        token: str,
        base_url: str = DEFAULT_URL,
        author: str | None = None,
        backoff_s: float = 1.0,
    ) -> None:
        # A POST that timed out may have been carried out: it is tried again only after looking (see _create).
        retry = _Patient(
            total=_TRIES,
            backoff_factor=backoff_s,
            status_forcelist=[429, *range(500, 600)],
            allowed_methods={"GET", "PATCH"},
            max_rate_limit_wait=LONGEST_WAIT_S,
        )
        self._github = Github(
            auth=Auth.Token(token),
            base_url=base_url,
            retry=retry,
            timeout=20,
            per_page=_PAGE,
            seconds_between_requests=None,
            seconds_between_writes=None,
            lazy=True,
        )
        self._repository, self._number = self._github.get_repo(repository), number
        self._author, self._backoff_s = author, backoff_s

    def close(self) -> None:
        """Close the connections."""
        self._github.close()

    def publish(self, render: Render, head: str, head_repository: str | None = None) -> Posted:
        """Write the comment, unless it has nothing to say or the pull request has moved on.

        Args:
            render: makes the text.
            head: commit that the text is about; another one at the pull request means that a newer push has its own run.
            head_repository: where that commit must come from; None is anywhere.
        """
        try:
            pull = self._repository.get_pull(self._number)
            source = pull.head.repo.full_name if pull.head.repo is not None else ""
            if head_repository is not None and source != head_repository:
                return Posted("refused", f"pull request {self._number} comes from {source!r}, not {head_repository!r}")
            if pull.head.sha != head:
                return Posted("superseded", f"the pull request is at {pull.head.sha[:12]} by now")
            return self._write(render)
        except GithubException as error:
            return Posted("refused", f"GitHub answered {error.status}: {_message(error)}")
        except OSError as error:
            return Posted("refused", f"GitHub cannot be reached: {type(error).__name__}")

    def _write(self, render: Render) -> Posted:
        old = self._own()
        text = render(remembered(old.body) if old is not None else None)
        if text is None:
            return Posted("silent")
        if old is None:
            return self._create(text, render)
        old.edit(text)
        return Posted("edited", url=old.html_url)

    def _create(self, text: str, render: Render) -> Posted:
        issue = self._repository.get_issue(self._number)
        for tried in range(1, _TRIES + 1):
            try:
                return Posted("created", url=issue.create_comment(text).html_url)
            except (GithubException, OSError) as error:
                if tried == _TRIES or not _passing(error):
                    raise
                time.sleep(self._backoff_s * 2 ** (tried - 1))
                if self._own() is not None:
                    return self._write(render)
        raise AssertionError("unreachable")

    def _own(self) -> IssueComment | None:
        """Our comment: it begins with the marker and is written under our own name. The oldest, should there be two."""
        for found in self._repository.get_issue(self._number).get_comments():
            if (found.body or "").startswith(MARKER) and self._is_ours(found):
                return found
        return None

    def _is_ours(self, found: IssueComment) -> bool:
        if self._author is None:
            try:
                self._author = self._github.get_user().login
            except GithubException as error:
                if error.status not in (401, 403, 404):
                    raise
                # Tokens of an installation may not ask who they are; those of a workflow are this bot's.
                self._author = ACTIONS_BOT
        return found.user is not None and found.user.login == self._author


def _passing(error: GithubException | OSError) -> bool:
    if isinstance(error, GithubException):
        return error.status >= 500 or isinstance(error, RateLimitExceededException)
    return True


def _message(error: GithubException) -> str:
    found = error.data.get("message") if isinstance(error.data, dict) else error.data
    return str(found or error.message or "no reason given")[:200]
