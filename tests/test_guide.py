"""docs/guide.md: its blocks are read and run as they stand. The whole guide is run again by hand (``acceptance``): minutes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def guide() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("make_guide", DOCS / "make_guide.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_guide"] = module
    spec.loader.exec_module(module)
    return module


def test_commands_of_a_block(guide: ModuleType) -> None:
    body = "$ one --two\nits output\n$ three \\\n> four\nmore\n"
    assert guide.commands_of(body) == ["one --two", "three \\\nfour"]


def test_what_differs_from_run_to_run_is_masked_and_nothing_else(guide: ModuleType) -> None:
    was = "run 20261130-160534-0d23: PASSED in 13.8 s, 1.98x, 0.1037 ms, minutes 0.4"
    now = "run 20261201-070000-beef: PASSED in 9.1 s, 1.98x, 0.1037 ms, minutes 0.9"
    assert guide.masked(was) == guide.masked(now)
    assert guide.masked(was) != guide.masked(now.replace("1.98x", "1.97x"))
    assert guide.masked(was) != guide.masked(now.replace("PASSED", "TIMEOUT"))


def test_output_is_written_below_commands_and_differences_are_found(guide: ModuleType, tmp_path: Path) -> None:
    class Here:
        def write(self, path: str, text: str) -> None:
            (tmp_path / path).write_text(text)

        def run(self, command: str) -> object:
            done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
            return guide.Ran(command, done.stdout, done.returncode)

    text = "a\n```text file=f.txt\nhello\n```\n```console\n$ cat f.txt\n$ false\n(exit code 1)\n```\n"
    fresh, different = guide.replayed(text, Here())
    assert fresh.endswith("```console\n$ cat f.txt\nhello\n$ false\n(exit code 1)\n```\n")
    assert different, "a line that was not there before is a difference"
    assert guide.replayed(fresh, Here()) == (fresh, [])
    broken = fresh.replace("$ false\n(exit code 1)\n", "$ false\n")
    assert guide.replayed(broken, Here())[1], "a command that no longer exits as printed is a difference"


def test_of_measured_blocks_only_commands_and_exit_codes_count(guide: ModuleType) -> None:
    one, other = "$ bench\n1.2x in 3 ms\n", "$ bench\n1.3x in 4 ms\nnote: noisy\n"
    assert guide.comparable(one, measured=True) == guide.comparable(other, measured=True)
    assert guide.comparable(one, measured=False) != guide.comparable(other, measured=False)
    assert guide.comparable(one, measured=True) != guide.comparable(f"{one}(exit code 1)\n", measured=True)


def test_the_guide_names_no_place_of_the_machine_that_wrote_it() -> None:
    text = (DOCS / "guide.md").read_text(encoding="utf-8")
    assert "/tmp/" not in text and "/opt/" not in text and "/root" not in text and "Traceback" not in text


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
def test_every_command_of_the_guide_does_as_printed() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "make_guide.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
