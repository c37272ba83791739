"""The comment of ``tilecast ci`` on a server that plays GitHub: one a pull request, edited in place, or none, and always inert."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ci_parts import BOT, SOFTMAX, Ci, Fault, GitHub, History, ci_fixture, history_fixture, pull_event, serving, slower  # noqa: F401

from tilecast.agent.ci import posting
from tilecast.agent.ci.comment import MARKER, Memory, remembered


def test_five_pushes_make_one_comment_that_is_edited_four_times(ci: Ci, history: History) -> None:
    texts = [history.text("softmax", name) for name in ("tr_05", "tr_02", "tr_06", "tr_04", "tr_07")]
    history.repository.git("checkout", "-q", "--detach", history.base)
    with serving(GitHub("")) as github:
        for number, text in enumerate(texts):
            github.head = head = history.repository.commit(f"push {number}", {SOFTMAX: text, "n": str(number)})
            said = ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
            assert said.code == 0
        assert len(github.comments) == 1
        assert github.comments[0]["edits"] == 4
        assert (github.count("POST"), github.count("PATCH")) == (1, 4)


def test_when_a_regression_is_fixed_the_comment_says_so_and_otherwise_nothing_is_said(ci: Ci, history: History) -> None:
    base = history.change("fast", {SOFTMAX: history.text("softmax", "tr_01")})
    bad = history.repository.commit("bad", {SOFTMAX: history.text("softmax", "tr_02")})
    good = history.repository.commit("good", {SOFTMAX: history.text("softmax", "tr_01"), "docs.md": "x"})
    with serving(GitHub(good)) as github:
        arguments = [*history.arguments(good), "--base", base]
        ci(*arguments, event=pull_event(base, good), github=github)
        assert github.comments == []
        github.head = bad
        ci(*history.arguments(bad), "--base", base, event=pull_event(base, bad), github=github)
        assert "1 kernel slower" in github.comments[0]["body"]
        github.head = good
        ci(*arguments, event=pull_event(base, good), github=github)
        body = github.comments[0]["body"]
        assert "### tilecast: fixed" in body and "Fixed: `softmax`, which an earlier push made slower." in body
        assert remembered(body) == Memory({}, {"softmax": "slower"})
        assert len(github.comments) == 1


def test_a_token_that_may_not_write_gives_a_summary_and_a_green_build(ci: Ci, history: History, tmp_path: Path) -> None:
    head = slower(history)
    with serving(GitHub(head)) as github:
        github.may_write = False
        said = ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
        assert said.code == 0 and "comment: refused (GitHub answered 403" in said.err
    assert "| `softmax` | **slower** |" in (tmp_path / "summary.md").read_text()
    assert github.count("POST") == 1 and github.comments == []


def test_a_forks_run_writes_a_summary_and_asks_github_nothing(ci: Ci, history: History, tmp_path: Path) -> None:
    head = slower(history)
    with serving(GitHub(head)) as github:
        said = ci(
            *history.arguments(head),
            "--output",
            str(tmp_path / "out"),
            event=pull_event(history.base, head, fork=True),
            github=github,
        )
    assert (said.code, github.requests) == (0, [])
    assert "| `softmax` |" in (tmp_path / "summary.md").read_text()
    assert json.loads((tmp_path / "out" / "tilecast-ci.json").read_text())["pull_request"]["fork"] is True


@pytest.mark.parametrize("how", ["label", "message", "draft"])
def test_what_is_to_be_skipped_makes_no_call(ci: Ci, history: History, how: str) -> None:
    message = "tune [skip tilecast]" if how == "message" else "tune"
    head = history.change(message, {SOFTMAX: history.text("softmax", "tr_05")})
    labels = ["tilecast:skip"] if how == "label" else []
    event = pull_event(history.base, head, labels=labels, draft=how == "draft")
    with serving(GitHub(head)) as github:
        said = ci(*history.arguments(head), event=event, github=github)
        assert (said.code, github.requests, said.report["kernels"]) == (0, [], [])
        assert said.report["skipped"]
        if how == "draft":
            assert ci(*history.arguments(head), "--drafts", event=event, github=github).report["kernels"]


def test_a_hundred_comments_of_others_are_paged_through(ci: Ci, history: History) -> None:
    head = slower(history)
    with serving(GitHub(head)) as github:
        for number in range(100):
            github.add(f"remark {number}", f"user{number}")
        mine = github.add(f"{MARKER}\nold", BOT)
        github.add("later", "someone")
        ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
        assert mine["edits"] == 1 and len(github.comments) == 102
        assert github.count("GET", "/comments") == 2


@pytest.mark.parametrize("login", [None, "robot"])
def test_a_comment_by_another_with_our_marker_is_left_alone(ci: Ci, history: History, login: str | None) -> None:
    head = slower(history)
    with serving(GitHub(head, login)) as github:
        theirs = github.add(f"{MARKER}\nI am tilecast", "mallory")
        quoted = github.add(f"> {MARKER}\nquoted", login or BOT)
        ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
        assert (theirs["edits"], quoted["edits"], len(github.comments)) == (0, 0, 3)
        assert github.comments[-1]["user"]["login"] == (login or BOT)
        ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
        assert (len(github.comments), github.comments[-1]["edits"]) == (3, 1)


def test_a_newer_push_is_not_overwritten(ci: Ci, history: History) -> None:
    head = slower(history)
    with serving(GitHub("f" * 40)) as github:
        said = ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
        assert "comment: superseded" in said.err and github.comments == []


@pytest.mark.parametrize(
    ("fault", "comments", "words"),
    [
        (Fault("GET", "/comments", 502), 1, "comment: created"),
        (Fault("POST", "/comments", 502), 1, "comment: created"),
        (Fault("POST", "/comments", 504, after=True), 1, "comment: edited"),
        (
            Fault("GET", "/pulls", 403, "API rate limit exceeded for x", {"X-RateLimit-Reset": "99999999999"}),
            0,
            "refused",
        ),
        (Fault("GET", "/pulls", 429, "slow down", {"Retry-After": "9999"}), 0, "rate limited for 9999 s"),
        (Fault("GET", "/pulls", 429, "slow down", {"Retry-After": "0"}), 1, "comment: created"),
        (Fault("GET", "/pulls", 401, "Bad credentials", times=9), 0, "GitHub answered 401: Bad credentials"),
        (Fault("GET", "/pulls", 500, "oops", times=99), 0, "refused"),
    ],
)
def test_faults_of_github_are_retried_or_said_and_never_redden(
    ci: Ci, history: History, monkeypatch: pytest.MonkeyPatch, fault: Fault, comments: int, words: str
) -> None:
    monkeypatch.setattr(posting.PullRequestComments, "__init__", _hasty(posting.PullRequestComments.__init__))
    head = slower(history)
    with serving(GitHub(head)) as github:
        github.faults.append(fault)
        said = ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
        assert (said.code, len(github.comments)) == (0, comments)
        assert words in said.err


def _hasty(made: Any) -> Any:
    return lambda self, *arguments: made(self, *arguments, backoff_s=0.01)


def test_a_server_that_is_not_there_is_said(ci: Ci, history: History) -> None:
    head = slower(history)
    github = GitHub(head)
    github.url = "http://127.0.0.1:9"
    posting_made = posting.PullRequestComments.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posting.PullRequestComments, "__init__", _hasty(posting_made))
        said = ci(*history.arguments(head), event=pull_event(history.base, head), github=github)
    assert said.code == 0 and "GitHub cannot be reached" in said.err


HOSTILE = "@all [x](http:evil) <img src=x> <!-- tilecast-ci:1 --> fixes #1"


def test_hostile_titles_branches_and_file_names_are_inert(ci: Ci, history: History, tmp_path: Path) -> None:
    folder = f"kernels/{HOSTILE.replace('/', '')} `a|b` ::warning::x"
    files = {f"{folder}/reference.py": (history.records / "softmax" / "reference.py").read_text()}
    before = history.change("hostile", {**files, f"{folder}/kernel.py": history.text("softmax", "tr_01")})
    after = history.repository.commit(HOSTILE, {f"{folder}/kernel.py": history.text("softmax", "tr_02")})
    # The record goes by the problem's name, which is the folder's.
    shutil.copytree(history.records / "softmax", history.records / Path(folder).name)
    event = pull_event(before, after, title=HOSTILE, ref=f"x/{HOSTILE}")
    with serving(GitHub(after)) as github:
        said = ci(*history.arguments(after), "--base", before, event=event, github=github)
        body = github.comments[0]["body"]
    assert list(said.verdicts.values()) == ["slower"]
    outside = _outside_code(body)
    assert not any(word in outside for word in ("@all", "evil", "<img", "#1", "fixes"))
    assert body.count(MARKER) == body.count("<!-- tilecast-ci:1") and outside.count(MARKER) == 1
    rows = [line for line in body.splitlines() if line.startswith("| `")]
    assert len(rows) == 1 and len(rows[0].replace("\\|", "").strip("|").split("|")) == 5
    assert not any("::" in line.split("tilecast ci:", 1)[-1] for line in said.err.splitlines())


def _outside_code(body: str) -> str:
    """The comment without code spans, ``<code>`` elements and fences."""
    return re.sub(r"```.*?```|`[^`\n]*`|<code>.*?</code>", "", body, flags=re.S)
