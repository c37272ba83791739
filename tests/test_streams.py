"""What a command does when nobody reads its output any more, when there is no room for it, and when it is told to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from test_cli import REFERENCE, RIGHT, WRONG

PROGRAM = "import sys; sys.argv[0] = 'tilecast'; from tilecast.agent.cli.app import main; main()"
STUCK = "import time\nwhile True:\n    time.sleep(1)\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    texts = {"reference": REFERENCE.replace("{tail}", ""), "right": RIGHT, "wrong": WRONG, "stuck": STUCK}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def begun(*arguments: object, **streams: Any) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, text=True, preexec_fn=_heeding, **streams)


def _heeding() -> None:
    """What runs the tests may have been started with signals ignored, as ``nohup`` and a shell's ``&`` do; that is inherited."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def unread() -> IO[bytes]:
    """The writing end of a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "wb")


@pytest.mark.parametrize("arguments", [["--help"], ["runs"], ["doctor", "--json"]])
def test_who_has_read_enough_is_no_failure(arguments: list[str]) -> None:
    with unread() as pipe:
        process = begun(*arguments, stdout=pipe)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "")


def test_the_answer_stays_in_the_exit_code_where_its_text_is_not_read(problem: Path) -> None:
    with unread() as pipe:
        process = begun("verify", problem, problem / "right.py", problem / "wrong.py", "--device", "cpu", stdout=pipe)
        process.communicate(timeout=110)
    assert process.returncode == 1


def test_who_closes_the_log_ends_the_command(problem: Path) -> None:
    with unread() as pipe:
        process = begun("verify", problem, problem / "right.py", "--device", "cpu", stderr=pipe)
        process.communicate(timeout=110)
    assert process.returncode == 130


@pytest.mark.parametrize("arguments", [["runs"], ["runs", "--json"], ["doctor", "--json"]])
def test_a_full_disk_is_the_machines_lack(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        process = begun(*arguments, stdout=full)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 3
    assert told.startswith("error: standard output cannot be written (No space left on device)")
    assert len(told.splitlines()) == 1


def test_a_command_without_standard_output_does_its_work() -> None:
    shell = f'exec "{sys.executable}" -c "{PROGRAM}" doctor --json >&-'
    process = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_judged_before_an_interrupt_is_printed(problem: Path, number: signal.Signals) -> None:
    candidates = [problem / "right.py", problem / "stuck.py"]
    process = begun("verify", problem, *candidates, "--device", "cpu", "--json")
    assert process.stderr is not None
    while "verifying stuck" not in (line := process.stderr.readline()):
        assert line, "it ended too early"
    process.send_signal(number)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [item["status"] for item in json.loads(printed)] == ["PASSED"]
    assert "1 of 2 candidate(s) were judged" in told and "Traceback" not in told


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_name_that_the_encoding_lacks_is_no_traceback(problem: Path, form: list[str]) -> None:
    kernel = problem / "größe 核.py"
    kernel.write_text(RIGHT)
    process = begun(
        "verify", problem, kernel, "--device", "cpu", *form, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    printed, told = process.communicate(timeout=110)
    assert process.returncode == 0, told
    assert json.loads(printed)["candidate"] == "größe 核" if form else "PASSED" in printed


def test_ctrl_c_while_the_libraries_are_loaded_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(9)\n")
    code = "import sys; sys.argv[0] = 'tilecast'; from tilecast.agent.cli.start import main; main()"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=_heeding, env=env)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_the_command_begins_there_and_hears_ctrl_c_again_afterwards() -> None:
    code = (
        "import signal, sys; sys.argv[0] = 'tilecast'; import tilecast.agent.cli.app as app\n"
        "from tilecast.agent.cli.start import main\n"
        "app.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, preexec_fn=_heeding)
    assert done.stdout == "True\n", done.stderr
