"""What `make demo` does first: the editable installation, built as pip builds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_an_editable_installation_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    for name in ("agent", "tools", "prompts", "sandbox"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    code = "from setuptools.build_meta import build_editable; import sys; sys.stderr.write('built ' + build_editable('out'))"
    (tmp_path / "out").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "built tilecast-" in done.stderr
    assert "Editable installation" not in done.stderr and "Warning" not in done.stderr
