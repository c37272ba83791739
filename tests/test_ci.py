"""``tilecast ci`` on a git history made for it, with speeds recorded on an H200, against a server that plays GitHub."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ci_parts import BOT, Fault, GitHub, Repository, pull_event, serving

from tilecast.agent.ci import posting
from tilecast.agent.ci.changes import find_changes
from tilecast.agent.ci.comment import MARKER, Memory, comment, remembered, summary
from tilecast.agent.ci.git import Git
from tilecast.agent.ci.schema import CiReport
from tilecast.sandbox.corpus import load_recorded

HELPER = "import triton\n\n\ndef ceiling(n):\n    return triton.cdiv(n, 1)\n"


@dataclass
class Said:
    """What the command answered."""

    code: int
    out: str
    err: str
    report: dict[str, Any]

    @property
    def verdicts(self) -> dict[str, str]:
        """Kernel -> verdict."""
        return {kernel["name"]: kernel["verdict"] for kernel in self.report["kernels"]}


Ci = Callable[..., Said]


@pytest.fixture
def ci(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ci:
    """Run the command; ``event`` makes it a workflow's run, on ``github`` if one is given."""
    from tilecast.agent.cli.app import main

    for name in ("GITHUB_EVENT_PATH", "GITHUB_EVENT_NAME", "GITHUB_TOKEN", "GITHUB_ACTIONS", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(posting, "LONGEST_WAIT_S", 2.0)
    summaries = tmp_path / "summary.md"

    def run(
        *arguments: str, event: dict[str, Any] | None = None, name: str = "pull_request", github: GitHub | None = None
    ) -> Said:
        if event is not None:
            (tmp_path / "event.json").write_text(json.dumps(event))
            monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
            monkeypatch.setenv("GITHUB_EVENT_NAME", name)
            monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summaries))
        if github is not None:
            monkeypatch.setenv("GITHUB_TOKEN", "secret-token")
            monkeypatch.setenv("GITHUB_API_URL", github.url)
        monkeypatch.setattr(sys, "argv", ["tilecast", "ci", *arguments])
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        document = json.loads(captured.out) if captured.out.startswith("{") else {}
        return Said(code, captured.out, captured.err, document)

    return run


class History:
    """A repository with recorded kernels: each method returns the commit that makes one kind of change."""

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.repository = Repository(folder / "repository")
        self.records = folder / "records"
        self.variants = {name: load_recorded(corpus / name) for name in ("softmax", "row_sum")}
        for name in self.variants:
            (self.records / name).mkdir(parents=True)
            for part in ("reference.py", "measurements.jsonl"):
                shutil.copy(corpus / name / part, self.records / name / part)
            shutil.copytree(corpus / name / "candidates", self.records / name / "candidates")
        shutil.copy(corpus / "corpus.toml", self.records / "corpus.toml")
        references = {name: (corpus / name / "reference.py").read_text() for name in self.variants}
        self.base = self.repository.commit(
            "kernels",
            {
                "README.md": "# Kernels\n",
                "tests/test_kernels.py": "def test(): pass\n",
                **{f"kernels/{name}/reference.py": text for name, text in references.items()},
                "kernels/softmax/kernel.py": self.text("softmax", "tr_01"),
                "kernels/row_sum/kernel.py": self.text("row_sum", "tr_02"),
            },
        )

    def text(self, problem: str, candidate: str, **config: Any) -> str:
        """The source of a recorded variant."""
        return self.variants[problem].sources[candidate].with_config(config).source

    def change(self, message: str, files: dict[str, str | None]) -> str:
        """A commit on top of the base."""
        self.repository.git("checkout", "-q", "--detach", self.base)
        return self.repository.commit(message, files)

    def arguments(self, head: str) -> list[str]:
        """The command's."""
        place = ["--folder", str(self.repository.folder), "--base", self.base, "--head", head]
        return [*place, "--device", f"replay:{self.records}", "--forecaster", "none", "--format", "json"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, shared_dir: Path) -> History:
    return History(tmp_path_factory.mktemp("history"), shared_dir / "corpus")


SOFTMAX = "kernels/softmax/kernel.py"


def slower(history: History) -> str:
    return history.change("smaller", {SOFTMAX: history.text("softmax", "tr_05")})


def test_docs_tests_comments_and_formatting_are_silent_and_free(ci: Ci, history: History) -> None:
    text = history.text("softmax", "tr_01")
    commits = {
        "docs": {"README.md": "# Faster kernels\n", "docs/x.md": "x"},
        "tests": {"tests/test_kernels.py": "def test(): assert True\n"},
        "comment": {SOFTMAX: "# A remark.\n" + text + "\n\n# The end.\n"},
        "formatting": {SOFTMAX: text.replace("\n\n\n", "\n\n\n\n")},
    }
    for message, files in commits.items():
        said = ci(*history.arguments(history.change(message, dict(files))))
        assert (said.code, said.report["kernels"]) == (0, []), message
        assert summary(CiReport.model_validate(said.report)).startswith("### tilecast: no kernel is affected")


def test_a_regression_is_measured_and_its_cause_named(ci: Ci, history: History) -> None:
    config = {"CTAS_PER_SM": 8, "num_stages": 4, "num_warps": 4}
    before = history.change("fast", {SOFTMAX: history.text("softmax", "tr_04", **config)})
    after = history.repository.commit("slow", {SOFTMAX: history.text("softmax", "tr_04")})
    said = ci(*history.arguments(after), "--base", before)
    kernel = said.report["kernels"][0]
    assert (kernel["verdict"], kernel["basis"], kernel["status"], said.code) == ("slower", "recorded", "PASSED", 0)
    assert kernel["speedup"]["ratio"] == pytest.approx(0.11843 / 0.19037, rel=1e-4)
    assert kernel["speedup"]["low"] < kernel["speedup"]["ratio"] < kernel["speedup"]["high"] < 1 / 1.03
    assert any("CTAS_PER_SM: 8 → " in cause for cause in kernel["causes"])
    assert any("registers a thread 89 → 63" in cause for cause in kernel["causes"])
    assert ci(*history.arguments(after), "--base", before, "--fail-on", "regression").code == 1
    assert ci(*history.arguments(after), "--base", before, "--fail-on", "incorrect").code == 0


def test_a_halved_tile_and_its_revert(ci: Ci, history: History) -> None:
    whole = history.change("whole", {SOFTMAX: history.text("softmax", "tr_03")})
    half = history.repository.commit("half", {SOFTMAX: history.text("softmax", "tr_03", BLOCK=512, num_warps=4)})
    said = ci(*history.arguments(half), "--base", whole)
    assert said.verdicts == {"softmax": "slower"}
    assert any(
        cause.startswith("CONFIG BLOCK:") and cause.endswith("→ 512") for cause in said.report["kernels"][0]["causes"]
    )
    back = history.repository.commit("back", {SOFTMAX: history.text("softmax", "tr_03")})
    assert ci(*history.arguments(back), "--base", whole).report["kernels"] == []


def test_an_improvement_and_an_incorrect_kernel(ci: Ci, history: History) -> None:
    before = history.change("slow", {SOFTMAX: history.text("softmax", "tr_04")})
    head = history.repository.commit(
        "both",
        {
            SOFTMAX: history.text("softmax", "tr_01"),
            "kernels/row_sum/kernel.py": history.text("row_sum", "tr_15"),
        },
    )
    said = ci(*history.arguments(head), "--base", before, "--fail-on", "incorrect")
    assert said.verdicts == {"softmax": "faster", "row_sum": "incorrect"}
    assert said.code == 1 and said.report["failed"]
    wrong = next(kernel for kernel in said.report["kernels"] if kernel["name"] == "row_sum")
    assert (wrong["status"], wrong["base_status"], wrong["speedup"]) == ("INCORRECT_NUMERICAL", "PASSED", None)


def test_a_renamed_file_is_the_same_kernel(ci: Ci, history: History) -> None:
    git = history.repository.git
    git("checkout", "-q", "--detach", history.base)
    git("mv", "kernels/softmax", "kernels/soft_max")
    moved = history.repository.commit("moved", {})
    assert ci(*history.arguments(moved)).report["kernels"] == []
    changed = history.repository.commit("and changed", {"kernels/soft_max/kernel.py": history.text("softmax", "tr_05")})
    found = find_changes(Git(history.repository.folder), history.base, changed)
    assert [(c.name, c.kind, c.base is not None) for c in found.kernels] == [("soft_max", "changed", True)]


def test_a_deleted_and_a_new_kernel(ci: Ci, history: History) -> None:
    gone = history.change("gone", {SOFTMAX: None})
    said = ci(*history.arguments(gone))
    assert (said.verdicts, said.report["kernels"][0]["reported"]) == ({"softmax": "removed"}, False)
    back = history.repository.commit("back", {SOFTMAX: history.text("softmax", "tr_01")})
    said = ci(*history.arguments(back), "--base", gone)
    assert (said.verdicts, said.report["kernels"][0]["status"]) == ({"softmax": "added"}, "PASSED")


def test_what_main_did_meanwhile_is_not_laid_at_the_changes_door(ci: Ci, history: History) -> None:
    git = history.repository.git
    main = history.change("main goes on", {SOFTMAX: history.text("softmax", "tr_05")})
    git("checkout", "-q", "--detach", history.base)
    topic = history.repository.commit("docs", {"README.md": "# Other\n"})
    assert ci(*history.arguments(topic), "--base", main).report["kernels"] == []
    git("merge", "-q", "--no-edit", main)
    merged = git("rev-parse", "HEAD")
    assert len(Git(history.repository.folder).parents(merged)) == 2
    assert ci(*history.arguments(merged), "--base", main).report["kernels"] == []
    wrong = history.repository.commit("wrong", {"kernels/row_sum/kernel.py": history.text("row_sum", "tr_15")})
    assert ci(*history.arguments(wrong), "--base", main).verdicts == {"row_sum": "incorrect"}


def test_a_kernel_is_reached_through_its_imports(ci: Ci, history: History) -> None:
    """The kernel's functions live in a module of their own; only the parts that it uses reach it."""
    whole, half = (history.text("softmax", "tr_03", **c) for c in ({}, {"BLOCK": 512, "num_warps": 4}))
    entry = "from ..shared import rows\nfrom ..shared.rows import ModelNew\n"
    files = {
        SOFTMAX: entry,
        "kernels/__init__.py": "",
        "kernels/shared/__init__.py": "",
        "kernels/shared/rows.py": whole,
        "kernels/shared/unused.py": HELPER,
    }
    before = history.change("split", dict(files))
    _record(history, before, "whole", {})
    after = history.repository.commit("half", {"kernels/shared/rows.py": half})
    _record(history, after, "half", {"BLOCK": 512, "num_warps": 4})
    said = ci(*history.arguments(after), "--base", before)
    assert said.verdicts == {"softmax": "slower"}
    assert said.report["kernels"][0]["files"] == ["kernels/shared/rows.py"]
    extra = history.repository.commit(
        "a helper", {"kernels/shared/rows.py": half + "\n\ndef unused():\n    return 1\n"}
    )
    assert ci(*history.arguments(extra), "--base", after).report["kernels"] == []
    other = history.repository.commit("elsewhere", {"kernels/shared/unused.py": HELPER.replace("1)", "2)")})
    assert ci(*history.arguments(other), "--base", extra).report["kernels"] == []


def _record(history: History, commit: str, name: str, config: dict[str, Any]) -> None:
    """Enter the one text of the kernel at a commit into the record, with the times measured for the same kernel."""
    found = find_changes(Git(history.repository.folder), history.base, commit)
    version = next(change.head for change in found.kernels if change.name == "softmax")
    assert version is not None and version.candidate is not None
    (history.records / "softmax" / "candidates" / f"{name}.py").write_text(version.candidate.source)
    rows = history.variants["softmax"].rows
    row = next(r for r in rows if r.candidate == "tr_03" and r.config == config)
    with (history.records / "softmax" / "measurements.jsonl").open("a") as file:
        file.write(row.model_copy(update={"candidate": name, "config": {}}).model_dump_json() + "\n")


def test_a_kernel_nobody_measured_is_not_compared(ci: Ci, history: History) -> None:
    text = history.text("softmax", "tr_04").replace("0.0", "0.5")
    said = ci(*history.arguments(history.change("new", {SOFTMAX: text + "\nFRESH = 1\n"})))
    kernel = said.report["kernels"][0]
    assert (kernel["verdict"], kernel["reported"], said.code) == ("not_compared", False, 0)


def test_a_pair_is_measured_once(ci: Ci, history: History) -> None:
    head = slower(history)
    first, second = (ci(*history.arguments(head)).report["kernels"][0] for _ in range(2))
    assert (first["cached"], second["cached"]) in ((False, True), (True, True))
    assert first["speedup"] == second["speedup"]


def test_aa_and_docs_only_replays_never_comment(ci: Ci, history: History) -> None:
    """100 recorded variants against themselves, measured all the same, and 100 changes that reach nothing."""
    from tilecast.agent.ci.keeping import Keeping
    from tilecast.agent.ci.measuring import Measuring
    from tilecast.agent.ci.verdict import is_reported
    from tilecast.sandbox.base import EvaluationOptions
    from tilecast.sandbox.replay import ReplaySandbox

    sandbox = ReplaySandbox(history.records, lambda problem, progress: pytest.fail("no preflight is needed"))
    measuring = Measuring(sandbox, EvaluationOptions(), Keeping(None), lambda text: None)
    git = Git(history.repository.folder)
    found = find_changes(git, history.base, slower(history))
    change, tried = found.kernels[0], 0
    assert change.head is not None
    for record in history.variants.values():
        for row in record.rows:
            if row.status != "PASSED" or tried == 100:
                continue
            same = record.variant(row)
            version = type(change.head)(**{**change.head.__dict__, "candidate": same, "problem": record.problem})
            pair = type(change)(**{**change.__dict__, "base": version, "head": version})
            measured = measuring.pair(pair, 0.03, None, timed=True)
            assert measured.speedup is not None and not is_reported(measured.verdict), row
            tried += 1
    assert tried == 100
    for number in range(100):
        report = CiReport(base=history.base, head=history.base, known=2, files=number)
        assert comment(report, None) is None
    blob = history.change("docs", {f"docs/{number}.md": "x" for number in range(100)})
    assert find_changes(git, history.base, blob).kernels == []


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
    import re

    return re.sub(r"```.*?```|`[^`\n]*`|<code>.*?</code>", "", body, flags=re.S)
