"""Problems as files: what is found, and what a bad one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilecast.sandbox.errors import ProblemError
from tilecast.sandbox.problem import load_problem

GOOD = "class Model: ...\ndef get_inputs(): ...\nget_init_inputs = list\n"


def test_folder_with_kernel_and_record(tmp_path: Path) -> None:
    folder = tmp_path / "softmax"
    folder.mkdir()
    (folder / "reference.py").write_text(GOOD)
    bare = load_problem(folder)
    assert (bare.name, bare.kernel, bare.recorded) == ("softmax", None, None)
    (folder / "kernel.py").write_text("")
    (folder / "measurements.jsonl").write_text("")
    full = load_problem(folder / "reference.py")
    assert full.kernel == str(folder / "kernel.py")
    assert full.recorded == str(folder)


def test_a_single_file_is_named_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "19_ReLU.py"
    file.write_text(GOOD)
    assert load_problem(file).name == "19_ReLU"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(:\n", r"reference\.py:1: "),
        ("x = 1\n\nclass Model: ...\ndef get_inputs(: ...\n", r"reference\.py:4: "),
        ("class Model: ...\ndef get_inputs(): ...\n", "`get_init_inputs` is not defined"),
    ],
)
def test_bad_files_say_where(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "reference.py").write_text(text)
    with pytest.raises(ProblemError, match=says):
        load_problem(tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"needs a reference\.py"):
        load_problem(tmp_path)
    with pytest.raises(ProblemError, match="no such file"):
        load_problem(tmp_path / "nothing.py")


def test_extras_win_and_typos_do_not_pass(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(GOOD)
    (tmp_path / "problem.toml").write_text('TOLERANCE = 0.01\nDOMAIN = "declared"\n[WORKLOADS.small]\nm = 3\n')
    payload = load_problem(tmp_path).payload()
    assert (payload["tolerance"], payload["domain"], payload["workloads"]) == (0.01, "declared", {"small": {"m": 3}})
    (tmp_path / "problem.toml").write_text("TOLERANCES = 0.01\n")
    with pytest.raises(ProblemError, match="TOLERANCES"):
        load_problem(tmp_path)
