"""Layers of configuration: who wins, and what a mistake says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilecast.agent.config import home, resolve
from tilecast.sandbox.errors import UsageError


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    (tmp_path / "home").mkdir(exist_ok=True)
    return {"TILECAST_HOME": str(tmp_path / "home"), **more}


def test_each_layer_wins_over_the_one_below(tmp_path: Path) -> None:
    env = environ(tmp_path)
    assert resolve({}, tmp_path, env).model is None
    (home(env) / "config.toml").write_text('model = "user"\ndevice = "cpu"\n[budget]\nmax_evals = 7\nmax_usd = 1.0\n')
    assert resolve({}, tmp_path, env).model == "user"
    (tmp_path / "tilecast.toml").write_text('model = "project"\n[budget]\nmax_evals = 8\n')
    assert resolve({}, tmp_path, env).model == "project"
    env["TILECAST_MODEL"] = "environment"
    assert resolve({}, tmp_path, env).model == "environment"
    settings = resolve({"model": "flag", "max_evals": 9}, tmp_path, env)
    assert (settings.model, settings.device, settings.budget.max_evals, settings.budget.max_usd) == (
        "flag",
        "cpu",
        9,
        1.0,
    )
    assert settings.origin["model"] == "command line"


def test_pyproject_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tilecast]\nmodel = "m"\n[tool.other]\nx = 1\n')
    assert resolve({}, tmp_path, environ(tmp_path)).model == "m"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle = 'x'\n", "unknown key 'modle'"),
        ("[budget]\nevals = 3\n", "unknown key 'budget.evals'"),
        ("timeout_s = -1\n", "timeout_s = -1"),
        ("not toml", "tilecast.toml"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "tilecast.toml").write_text(text)
    with pytest.raises(UsageError, match=r"tilecast\.toml") as caught:
        resolve({}, tmp_path, environ(tmp_path))
    assert says in str(caught.value)


def test_two_project_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tilecast.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text("[tool.tilecast]\n")
    with pytest.raises(UsageError, match="keep one"):
        resolve({}, tmp_path, environ(tmp_path))


@pytest.mark.parametrize(
    "text", ['base_url = "http://a"\n', '[models.m]\nbase_url = "http://a"\n', '[models.m]\nkey_env = "AWS_KEY"\n']
)
def test_a_checkout_may_not_say_where_the_key_goes(tmp_path: Path, text: str) -> None:
    env = environ(tmp_path)
    (home(env) / "config.toml").write_text(text)
    resolve({}, tmp_path, env)
    (home(env) / "config.toml").unlink()
    (tmp_path / "tilecast.toml").write_text(text)
    with pytest.raises(UsageError, match="stranger's server"):
        resolve({}, tmp_path, env)


@pytest.mark.parametrize("table", ["temperatur = 1", "temperature = 'hot'", "price = {input = 1}"])
def test_a_models_table_is_checked_whichever_model_is_asked(tmp_path: Path, table: str) -> None:
    (tmp_path / "tilecast.toml").write_text(f'model = "builtin"\n[models."other"]\n{table}\n')
    with pytest.raises(UsageError, match=rf'tilecast.toml: .*models\."other"\.{table.split()[0]}'):
        resolve({}, tmp_path, environ(tmp_path))


def test_an_address_that_is_none_is_told_by_its_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^OPENAI_BASE_URL = 'localhost:8000': must be a URL such as http"):
        resolve({}, tmp_path, environ(tmp_path, OPENAI_BASE_URL="localhost:8000"))
