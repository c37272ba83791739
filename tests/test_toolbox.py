"""The tools: typed arguments, files that may and may not be touched, one ledger, answers with their facts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from chat_parts import session

from tilecast.agent.toolbox.base import Refusal
from tilecast.agent.toolbox.files import WorkFolder
from tilecast.sandbox.problem import load_problem

TINY = Path(__file__).parent / "data" / "tiny"
GOOD = "import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return 2 * x\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    shutil.copytree(TINY, place)
    return place / "scale"


def test_a_candidate_is_written_edited_and_taken_back(folder: Path) -> None:
    files = WorkFolder(folder, load_problem(folder))
    made = files.write("new/fast.py", GOOD)
    changed = files.edit("new/fast.py", "2 * x", "x * 2")
    assert made.before is None and changed.before == GOOD and "x * 2" in files.read("new/fast.py")
    files.take_back(changed)
    assert files.read("new/fast.py") == GOOD
    files.take_back(made)
    assert not (folder / "new" / "fast.py").exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("reference.py", "reference: it says what is right"),
        ("candidates/../reference.py", "reference: it says what is right"),
        ("linked.py", "reference: it says what is right"),
        ("hard.py", "reference: it says what is right"),
        ("twin.py", "reference: it says what is right"),
        ("../outside.py", "outside of the working folder"),
        ("/tmp/outside.py", "outside of the working folder"),
        ("way_out.py", "outside of the working folder"),
        (".hidden.py", "hidden"),
        ("conftest.py", "means something"),
        ("json.py", "means something"),
        ("torch.py", "means something"),
        ("sitecustomize.py", "means something"),
        ("test_fast.py", "means something"),
        ("measurements.jsonl", "a candidate is a .py file"),
        ("mine.py", "is no candidate"),
    ],
)
def test_what_is_never_written(folder: Path, tmp_path: Path, path: str, words: str) -> None:
    (folder / "linked.py").symlink_to(folder / "reference.py")
    os.link(folder / "reference.py", folder / "hard.py")
    shutil.copy(folder / "reference.py", folder / "twin.py")
    (folder / "way_out.py").symlink_to(tmp_path / "elsewhere.py")
    (folder / "mine.py").write_text("print('my own work')\n")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    files = WorkFolder(folder, load_problem(folder))
    with pytest.raises(Refusal, match=words):
        files.write(path, GOOD)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    assert not (tmp_path / "elsewhere.py").exists() and not (tmp_path / "work" / "outside.py").exists()


def test_the_harness_is_never_written(tmp_path: Path) -> None:
    import tilecast.agent as agent

    root = Path(next(iter(agent.__path__))).resolve().parent
    with pytest.raises(Refusal, match="belongs to tilecast itself"):
        WorkFolder(root).write("sandbox/harness/fast.py", GOOD)


@pytest.mark.parametrize("text", ["def broken(:\n", "x = 1\n", "\0"])
def test_no_text_that_is_no_candidate(folder: Path, text: str) -> None:
    with pytest.raises(Refusal, match="nothing was written"):
        WorkFolder(folder, load_problem(folder)).write("fast.py", text)
    assert not (folder / "fast.py").exists()


@pytest.mark.parametrize("path", ["../../secret.txt", "/etc/passwd", ".env", "id_rsa", "out.txt"])
def test_what_is_never_read(folder: Path, path: str) -> None:
    (folder / ".env").write_text("KEY=1")
    (folder / "id_rsa").write_text("KEY")
    (folder / "out.txt").symlink_to("/etc/passwd")
    files = WorkFolder(folder, load_problem(folder))
    with pytest.raises(Refusal):
        files.read(path)
    assert ".env" not in files.listing() and "kernel.py" in files.listing()


def test_every_tool_has_a_schema_that_a_model_can_fill(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with session(monkeypatch, folder) as (chat, _):
        specs = {spec.name: spec for spec in chat.box.specs}
        assert {"forecast", "verify", "bench", "profile", "tune", "optimize", "show", "why", "device"} <= set(specs)
        for spec in specs.values():
            assert spec.description and spec.parameters["type"] == "object"
            assert spec.parameters["additionalProperties"] is False
        assert specs["bench"].parameters["required"] == ["path"]


def test_measurements_carry_their_interval_and_cost(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with session(monkeypatch, folder) as (chat, _):
        slow = chat.box.call("bench", {"path": "kernel.py"})
        fast = chat.box.call("bench", {"path": "kernel.py", "config": {"block": 256, "warps": 2}})
        assert slow.ok and "slower 0.889x [0.873, 0.905]" in slow.summary and "recorded" in slow.summary
        assert chat.box.best == fast.facts[0] and fast.facts[0].kind == "recorded" and fast.facts[0].ratio == 1.6
        assert fast.charged.evals == 1 and fast.charged.gpu_seconds == 0.5
        assert chat.ledger.spent.evals == 2 and chat.ledger.spent.gpu_seconds == 1.0
        wrong = chat.box.call("verify", {"path": "candidates/wrong.py"})
        assert not wrong.ok and "INCORRECT_NUMERICAL" in wrong.summary
        new = folder / "new.py"
        new.write_text(GOOD.replace("2 * x", "x + x + 0"))
        unknown = chat.box.call("bench", {"path": "new.py"})
        assert "NOT_RECORDED" in unknown.summary and unknown.charged.evals == 0


def test_an_abstaining_forecast_is_no_ground(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with session(monkeypatch, folder) as (chat, _):
        found = chat.box.call("forecast", {"path": "kernel.py"})
        assert found.ok and "abstains" in found.summary and "not a measurement" in found.text
        assert found.facts[0].ratio is None and found.charged.evals == 0


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("bench", {}, "path: Field required"),
        ("bench", {"path": "kernel.py", "fast": True}, "Extra inputs"),
        ("bench", {"path": "nowhere.py"}, "cannot be read"),
        ("bench", {"path": "kernel.py", "config": {"tile": 3}}, "cannot be set"),
        ("tune", {"path": "candidates/other.py"}, "CONFIG"),
        ("show", {"run": "none"}, "no run"),
        ("fly", {}, "there is no tool"),
    ],
)
def test_what_cannot_be_done_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tool: str, arguments: dict[str, Any], words: str
) -> None:
    with session(monkeypatch, folder) as (chat, _):
        result = chat.box.call(tool, arguments)
        assert not result.ok and words in result.text and chat.ledger.spent.evals == 0


def test_a_run_is_charged_to_the_session_and_its_best_is_saved(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with session(monkeypatch, folder, max_evals=6, yes=None) as (chat, face):
        face.answers = ["y"]
        result = chat.box.call("tune", {"path": "kernel.py", "max_evals": 5, "save_to": "tuned.py"})
        assert result.ok and result.change is not None and result.change.path == "tuned.py"
        assert chat.ledger.spent.evals == result.charged.evals == 5 and "83% of the evals left" in face.asked[0]
        shown = chat.box.call("show", {"run": "last", "candidate": "best"})
        assert "best of the run" in shown.text
        face.answers = [""]
        refused = chat.box.call("optimize", {"max_evals": 3, "proposals": "builtin"})
        assert not refused.ok and "budget does not allow" in refused.summary and chat.ledger.spent.evals == 5
