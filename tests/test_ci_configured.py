"""Whose configuration counts, what in it is refused, and how long a large repository takes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from ci_parts import Ci, Repository, ci_fixture, kernel_files  # noqa: F401

from tilecast.agent.ci import run
from tilecast.agent.ci.changes import find_changes
from tilecast.agent.ci.configured import kernels_at, settings_at
from tilecast.agent.ci.git import Git
from tilecast.sandbox.errors import UsageError


def test_the_bases_configuration_counts_and_heads_new_kernels_are_taken(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    strict = '[ci]\nfail_on = "regression"\nthreshold = 0.02\n[[kernel]]\nproblem = "a"\nthreshold = 0.01\n'
    base = repository.commit("a", {**kernel_files("a"), "tilecast.toml": strict})
    loose = (
        '[ci]\nfail_on = "never"\n[[kernel]]\nproblem = "a"\nthreshold = 0.9\n[[kernel]]\nproblem = "b"\nbudget = 5\n'
    )
    changed = {**kernel_files("b"), "a/kernel.py": "class ModelNew: x = 1\n", "tilecast.toml": loose}
    head = repository.commit("b", changed)
    git = Git(repository.folder)
    asked = run.Asked(git, base, head, flags={"device": "none"})
    settings = run.settings_of(asked)
    assert (settings.ci.fail_on, settings.ci.threshold) == ("regression", 0.02)
    report = run.compare(asked, settings, None, lambda text: None).report
    assert {kernel.name: (kernel.verdict, kernel.threshold) for kernel in report.kernels} == {
        "a": ("undecided", 0.01),
        "b": ("added", 0.02),
    }


def test_configuration_below_the_root_and_in_pyproject(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    text = '[tool.tilecast]\n[[tool.tilecast.kernel]]\nproblem = "k/problem.py"\n'
    text += 'candidate = "../shared/fast.py"\npaths = ["tables/**"]\n'
    problem = kernel_files("x")["x/reference.py"]
    files = {
        "app/pyproject.toml": text,
        "app/k/problem.py": problem,
        "shared/fast.py": "class ModelNew: pass\n",
        "app/tables/t.csv": "1",
    }
    base = repository.commit("a", files)
    git = Git(repository.folder)
    spec = kernels_at(git.tree(base), "app/")[0]
    assert (spec.name, spec.problem, spec.candidate) == ("problem/fast", "app/k/problem.py", "shared/fast.py")
    head = repository.commit("b", {"app/tables/t.csv": "2", "app/tables/readme": "x"})
    found = find_changes(git, base, head, "app/")
    assert [(change.kind, change.files) for change in found.kernels] == [
        ("beyond", ["app/tables/readme", "app/tables/t.csv"])
    ]
    assert find_changes(git, base, head).known == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[ci]\nthreshhold = 1\n", "unknown key 'ci.threshhold'"),
        ("[[kernel]]\nproblem = 'a'\ncolour = 1\n", "unknown key 'kernel.0.colour'"),
        ("[[kernel]]\nproblem = '../../etc'\n", "leads out of the repository"),
        ("[[kernel]]\nproblem = 'a'\n[[kernel]]\nproblem = 'a'\n", "two kernels are called 'a'"),
        ("[models.x]\nbase_url = 'http://evil'\n", "may not stand in a project's file"),
        ("[ci]\nfail_on = 'always'\n", "fail_on"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(tmp_path: Path, text: str, words: str) -> None:
    repository = Repository(tmp_path / "r")
    tree = Git(repository.folder).tree(repository.commit("a", {"tilecast.toml": text}))

    def both() -> None:
        settings_at([tree], "", {})
        kernels_at(tree, "")

    with pytest.raises(UsageError, match=words):
        both()


def test_an_error_about_a_strangers_text_is_no_command_for_github(ci: Ci, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    repository.commit("a", {"tilecast.toml": '[[kernel]]\nproblem = "a"\nname = """x\n::error::y"""\n' * 2})
    said = ci("--folder", str(repository.folder), "--base", "HEAD", "--device", "none")
    assert said.code == 2 and said.err.count("\n") == 1 and "::" not in said.err


def test_names_that_are_no_unicode_are_shown_with_question_marks(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    folder = "k\udcff\n|x"
    base = repository.commit("a", kernel_files(folder))
    head = repository.commit("b", {f"{folder}/kernel.py": "class ModelNew: x = 1\n"})
    asked = run.Asked(Git(repository.folder), base, head, flags={"device": "none"})
    report = run.compare(asked, run.settings_of(asked), None, lambda text: None).report
    assert [(kernel.name, kernel.verdict) for kernel in report.kernels] == [("k? |x", "undecided")]
    assert report.model_dump_json()


def test_two_thousand_changed_files_of_ten_thousand_take_seconds(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    script = ["commit refs/heads/main\ncommitter a <a> 0 +0000\ndata 1\na\n"]
    texts = {f"lib/m{n // 100}/f{n}.py": f"def f{n}():\n    return {n}\n" for n in range(10_000)}
    for n in range(20):
        texts |= kernel_files(f"kernels/k{n}", f"from lib.m0.f{n} import f{n}\nclass ModelNew: pass\nx = f{n}()\n")
    script += [f"M 644 inline {path}\ndata {len(text)}\n{text}\n" for path, text in texts.items()]
    script.append("commit refs/heads/main\ncommitter a <a> 1 +0000\ndata 1\nb\n")
    for n in range(0, 10_000, 5):
        text = f"def f{n}():\n    return {n} + 1\n"
        script.append(f"M 644 inline lib/m{n // 100}/f{n}.py\ndata {len(text)}\n{text}\n")
    command = ["git", "-C", str(repository.folder), "fast-import", "--quiet"]
    subprocess.run(command, input="".join(script), text=True, check=True)
    git = Git(repository.folder)
    began = time.process_time(), time.monotonic()
    found = find_changes(git, git.commit("main~1"), git.commit("main"))
    took_s = time.process_time() - began[0]
    assert (found.files, found.known) == (2_000, 20)
    assert [change.name for change in found.kernels] == ["k0", "k10", "k15", "k5"]
    assert took_s < 3
