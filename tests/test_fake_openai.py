"""The scripted server as a program: its log tells asked from answered, also when the client is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilecast.tools.model.base import ChatRequest
from tilecast.tools.model.client import OpenAIChatModel
from tilecast.tools.model.memory import InMemoryJournal
from tilecast.tools.model.settings import ModelSettings

SERVER = Path(__file__).parent / "fake_openai.py"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text(json.dumps(["one", {"status": 429, "error": {"message": "slow down"}}, {"text": "two"}]))
    command = [sys.executable, str(SERVER), "--script", str(script), "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), log
        process.kill()


def test_log(served: tuple[str, Path]) -> None:
    url, log = served
    model = OpenAIChatModel(ModelSettings(name="fake", base_url=url), "key")
    for index, text in enumerate(["one", "two", "one"]):
        request = ChatRequest(key=str(index), purpose="propose", messages=[{"role": "user", "content": str(index)}])
        assert model.complete(request, InMemoryJournal()).text == text
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["event"], line["status"]) for line in lines] == [
        ("asked", 200),
        ("answered", 200),
        ("asked", 429),
        ("answered", 429),
        ("asked", 200),
        ("answered", 200),
        ("asked", 200),
        ("answered", 200),
    ]
    assert lines[2]["prompt"] == lines[4]["prompt"] != lines[0]["prompt"]
