"""The event that started a workflow, as GitHub wrote it to ``GITHUB_EVENT_PATH``; and when there is nothing to do."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import Document

SKIP_LABEL, GPU_LABEL = "tilecast:skip", "tilecast:gpu"
SKIP_WORDS = "[skip tilecast]"
_RUNS_OF_PULLS = ("pull_request", "pull_request_target")


class PullEvent(Document):
    """A pull request's event."""

    repository: str
    number: int
    action: str = ""
    label: str = ""
    """The label that was just given, if the event is about one."""
    base: str
    head: str
    labels: list[str] = []
    draft: bool = False
    fork: bool = False

    @property
    def gpu_allowed(self) -> bool:
        """Whether this very push may run on a self-hosted GPU.

        For a fork a maintainer must just have given the label: a label that stands since before covers no later push.
        """
        return not self.fork or (self.action == "labeled" and self.label == GPU_LABEL)

    def skipped(self, message: str, drafts: bool) -> str:
        """Why nothing is to be done; empty if something is."""
        if SKIP_LABEL in self.labels:
            return f"the pull request has the label {SKIP_LABEL}"
        if SKIP_WORDS in message:
            return f"the head commit says {SKIP_WORDS}"
        if self.draft and not drafts:
            return "the pull request is a draft (--drafts, or `drafts = true` under [ci])"
        return ""


class RunEvent(Document):
    """The ``workflow_run`` event of a finished run: what GitHub itself vouches for, unlike the run's artifact."""

    repository: str
    head: str
    head_repository: str
    of: str


def read_event(environ: Mapping[str, str] = os.environ) -> PullEvent | RunEvent | None:
    """The event of this workflow run; None outside GitHub Actions, or for an event of another kind.

    Raises:
        UsageError: if the event's file cannot be read.
    """
    path, name = environ.get("GITHUB_EVENT_PATH"), environ.get("GITHUB_EVENT_NAME", "")
    if not path or not (name in _RUNS_OF_PULLS or name == "workflow_run"):
        return None
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        repository = str(found["repository"]["full_name"])
        return _run(found["workflow_run"], repository) if name == "workflow_run" else _pull(found, repository)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"GITHUB_EVENT_PATH={path}: no {name} event can be read from it: {error!r}") from error


def _run(run: Mapping[str, Any], repository: str) -> RunEvent:
    head_repository = str((run.get("head_repository") or {}).get("full_name", ""))
    return RunEvent(repository=repository, head=run["head_sha"], head_repository=head_repository, of=run["event"])


def _pull(event: Mapping[str, Any], repository: str) -> PullEvent:
    pull = event["pull_request"]
    head_repository = (pull["head"].get("repo") or {}).get("full_name")
    return PullEvent(
        repository=repository,
        number=int(pull["number"]),
        action=str(event.get("action", "")),
        label=str((event.get("label") or {}).get("name", "")),
        base=str(pull["base"]["sha"]),
        head=str(pull["head"]["sha"]),
        labels=[str(label["name"]) for label in pull.get("labels", [])],
        draft=bool(pull.get("draft", False)),
        # A fork that was deleted since has no repository any more.
        fork=head_repository != repository,
    )
