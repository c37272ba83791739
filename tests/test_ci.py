"""``tilecast ci`` on a git history made for it, with speeds recorded on an H200: kernels reached, and the verdicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ci_parts import SOFTMAX, Ci, History, ci_fixture, history_fixture, slower  # noqa: F401

from tilecast.agent.ci.changes import find_changes
from tilecast.agent.ci.comment import comment, summary
from tilecast.agent.ci.git import Git
from tilecast.agent.ci.schema import CiReport

HELPER = "import triton\n\n\ndef ceiling(n):\n    return triton.cdiv(n, 1)\n"


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
    # Fewer registers make nothing slower.
    assert not any("registers" in cause for cause in kernel["causes"])
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


def test_aa_and_docs_only_replays_never_comment(history: History) -> None:
    """100 recorded variants against themselves, measured all the same, and 100 changes that reach nothing."""
    from tilecast.agent.ci.keeping import Keeping
    from tilecast.agent.ci.measuring import Measuring
    from tilecast.agent.ci.verdict import is_reported
    from tilecast.sandbox.base import EvaluationOptions
    from tilecast.sandbox.replay import ReplaySandbox

    sandbox = ReplaySandbox(history.records, lambda problem, progress: pytest.fail("no preflight is needed"))
    measuring = Measuring(sandbox, EvaluationOptions(), Keeping(None), lambda text: None)
    git = history.repository.git
    found = find_changes(Git(history.repository.folder), history.base, slower(history))
    change, tried = found.kernels[0], 0
    assert change.head is not None
    for record in history.variants.values():
        for row in record.rows:
            if row.status != "PASSED" or tried == 100:
                continue
            same = record.variant(row)
            version = replace(change.head, candidate=same, problem=record.problem)
            measured = measuring.pair(replace(change, base=version, head=version), 0.03, None, timed=True)
            assert measured.speedup is not None and not is_reported(measured.verdict), row
            tried += 1
    assert tried == 100
    git("checkout", "-q", "--detach", history.base)
    text = history.text("softmax", "tr_01")
    for number in range(100):
        files: dict[str, str | None] = {f"docs/{number}.md": "x", SOFTMAX: f"# Remark {number}.\n{text}"}
        head = history.repository.commit(f"docs {number}", files)
        compared = find_changes(Git(history.repository.folder), history.base, head)
        report = CiReport(base=history.base, head=head, known=compared.known, files=compared.files)
        assert (compared.kernels, comment(report, None)) == ([], None)
        assert (compared.known, compared.files) == (2, number + 2)
