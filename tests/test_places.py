"""What a candidate may have written, told from packages that lie below the same folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilecast.sandbox.harness.worker import places


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", f"{tmp_path}/extensions")
    monkeypatch.setattr(places, "_INSTALLED", (f"{tmp_path}/venv/",))
    return tmp_path


def test_a_virtual_environment_below_the_private_folder_is_no_candidates(private: Path) -> None:
    """With one below /tmp every library counted as an extension of the candidate's own, and --pure let numpy do the work."""
    assert places.is_private(f"{private}/built/kernel.so")
    assert not places.is_private(f"{private}/venv/lib/numpy/core.so")
    assert places.is_private(f"{private}/venv-of-mine/x.so")
    assert not places.is_private(f"{private}-elsewhere/x.so")
    assert not places.is_private("/usr/lib/libc.so.6") and not places.is_private("")


@pytest.mark.parametrize("place", ["", "/", "/..", "/inner"])
def test_a_package_folder_that_holds_the_private_one_vouches_for_nothing_in_it(
    private: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("TMPDIR", f"{private}/inner")
    monkeypatch.setattr(places, "_INSTALLED", (f"{Path(f'{private}{place}').resolve()}/".replace("//", "/"),))
    assert places.is_private(f"{private}/inner/kernel.so")


def test_extensions_are_built_in_a_folder_of_their_own(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/cache/extensions")
    assert places.is_private("/cache/extensions/mine/mine.so") and places.is_private(f"{private}/x")


def test_packages_of_this_process_are_known() -> None:
    assert any(Path(pytest.__file__).is_relative_to(place) for place in places._INSTALLED)
