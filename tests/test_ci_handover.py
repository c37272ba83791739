"""From a fork's run to the workflow that may comment: the document is data, and GitHub says which pull request it is about."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ci_parts import REPOSITORY, Ci, GitHub, ci_fixture, serving  # noqa: F401

from tilecast.agent.ci.handover import FILE, hand_over, taken_over
from tilecast.agent.ci.schema import CiReport, KernelReport, PullRequest, Ratio
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import EvaluationStatus

HEAD, BASE = "a" * 40, "b" * 40
FORK = "stranger/kernels"


def report(**changes: Any) -> CiReport:
    kernel = KernelReport(
        name="softmax",
        problem="k/reference.py",
        candidate="k/kernel.py",
        verdict="slower",
        basis="measured",
        reported=True,
        threshold=0.03,
        status=EvaluationStatus.PASSED,
        speedup=Ratio(ratio=0.7, low=0.69, high=0.71),
    )
    about = PullRequest(number=7, repository=REPOSITORY, fork=True)
    values: dict[str, Any] = {"base": BASE, "head": HEAD, "kernels": [kernel], "known": 1, "pull_request": about}
    return CiReport(**{**values, **changes})


def run_event(head: str = HEAD, of: str = "pull_request", source: str = FORK) -> dict[str, Any]:
    run = {"head_sha": head, "event": of, "head_repository": {"full_name": source}}
    return {"repository": {"full_name": REPOSITORY}, "workflow_run": run}


def post(ci: Ci, folder: Path, github: GitHub, event: dict[str, Any] | None = None) -> Any:
    return ci("--post", str(folder), event=event or run_event(), name="workflow_run", github=github)


def test_a_forks_document_becomes_a_comment_marked_as_claims(ci: Ci, tmp_path: Path) -> None:
    hand_over(report(), tmp_path)
    with serving(GitHub(HEAD, head_repository=FORK)) as github:
        assert post(ci, tmp_path, github).code == 0
        body = github.comments[0]["body"]
    assert (
        "its figures are claims" in body and "| `softmax` | **slower** | 0.7× [0.69, 0.71] | yes | measured |" in body
    )


@pytest.mark.parametrize(
    ("document", "event", "words"),
    [
        (report(pull_request=None), run_event(), "another repository or commit"),
        (
            report(pull_request=PullRequest(number=7, repository="other/place", fork=True)),
            run_event(),
            "another repository",
        ),
        (report(head="c" * 40), run_event(), "another repository or commit"),
        (report(), run_event(of="push"), "after a run for a pull_request"),
    ],
)
def test_a_document_about_something_else_than_its_run_is_refused(
    ci: Ci, tmp_path: Path, document: CiReport, event: dict[str, Any], words: str
) -> None:
    hand_over(document, tmp_path)
    with serving(GitHub(HEAD, head_repository=FORK)) as github:
        said = post(ci, tmp_path, github, event)
        assert (said.code, github.requests) == (2, [])
    assert words in said.err


def test_a_document_that_names_another_pull_request_comments_nowhere(ci: Ci, tmp_path: Path) -> None:
    """Its number is the fork's word: it must lead to a pull request at this very commit, from this very fork."""
    hand_over(report(), tmp_path)
    for github, words in (
        (GitHub("d" * 40, head_repository=FORK), "superseded"),
        (GitHub(HEAD, head_repository="another/fork"), "comes from 'another/fork'"),
    ):
        with serving(github):
            said = post(ci, tmp_path, github)
            assert (said.code, github.comments) == (0, [])
            assert words in said.err


def test_a_run_that_looked_at_nothing_asks_nothing(ci: Ci, tmp_path: Path) -> None:
    hand_over(report(kernels=[], skipped="a draft"), tmp_path)
    with serving(GitHub(HEAD, head_repository=FORK)) as github:
        assert (post(ci, tmp_path, github).code, github.requests) == (0, [])


def changed(**changes: Any) -> str:
    document = report().model_dump(mode="json", by_alias=True)
    kernel = document["kernels"][0]
    kernel |= {key: value for key, value in changes.items() if key in kernel}
    document |= {key: value for key, value in changes.items() if key not in kernel}
    return json.dumps(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "not json",
        "{" * 100_000,
        changed(body="<!-- tilecast-ci:1 --> @all"),
        changed(name="x" * 301),
        changed(verdict="@all"),
        changed(speedup={"ratio": -1, "low": 1, "high": 1}),
        changed(speedup={"ratio": "nan", "low": 1, "high": 1}),
        changed(speedup={"ratio": 1e400, "low": 1, "high": 1}),
        changed(base="$(id)"),
        changed(head=HEAD + "\n@all"),
        changed(kernels=[report().kernels[0].model_dump(mode="json")] * 201),
        changed(pull_request={"number": 7, "repository": "../../user", "fork": True}),
        changed(pull_request={"number": 7, "repository": f"{REPOSITORY}\n", "fork": True}),
        changed(schema=2),
        changed(causes=["x"] * 13),
    ],
)
def test_what_is_no_document_is_refused_without_being_quoted(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError) as refused:
        taken_over(tmp_path)
    assert "@all" not in str(refused.value) and len(str(refused.value)) < 400


def test_a_link_a_folder_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(changed())
    os.symlink(secret, tmp_path / FILE)
    with pytest.raises(UsageError, match="not a regular file"):
        taken_over(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        taken_over(tmp_path)
    (tmp_path / FILE).write_text(" " * 1_000_001)
    with pytest.raises(UsageError, match="1000001 bytes"):
        taken_over(tmp_path)
