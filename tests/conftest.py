"""Shared fixtures: a home of its own for every test, no keys in sight, and the folder of recorded kernels where it lies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tilecast.sandbox.harness.judge.zygotes import Zygotes

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's keys, home or model."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TILECAST_MODEL", "TILECAST_RECORD_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILECAST_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder with the recorded corpus and the cheating kernels, beside the checkout; skipped where it is not."""
    folder = ROOT.parent / "shared"
    if not (folder / "corpus").is_dir():
        pytest.skip("the shared corpus is not beside this checkout")
    return folder


@pytest.fixture(scope="module")
def zygotes() -> Iterator[Zygotes]:
    """The fork servers of a judge, one set a file."""
    from tilecast.sandbox.harness.judge.zygotes import Zygotes  # with torch, which few tests need

    servers = Zygotes()
    yield servers
    servers.close()
