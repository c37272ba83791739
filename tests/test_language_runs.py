"""`--language`: the model is asked with that language's guide; a run that holds several compares them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fake_openai import FakeOpenAI
from loop_parts import KNOWN, TINY, Scripted, make_request, making, variant

from tilecast.agent import devices
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.report.build import build_report
from tilecast.agent.report.markdown import markdown
from tilecast.prompts import guide, languages
from tilecast.sandbox.languages import LANGUAGES, language_of
from tilecast.sandbox.source import Candidate, load_candidate

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = {
    "triton": EXAMPLES / "softmax" / "kernel.py",
    "cuda": EXAMPLES / "softmax" / "cuda_nvrtc.py",
    "cpp": EXAMPLES / "softmax_cpp" / "kernel.py",
}


def test_every_language_has_a_guide_and_no_guide_is_without_one() -> None:
    assert sorted(languages()) == sorted(LANGUAGES)


@pytest.mark.parametrize(
    ("file", "language"),
    [
        ("softmax/kernel.py", "triton"),
        ("softmax/cuda_nvrtc.py", "cuda"),
        ("softmax/cuda_inline.py", "cuda"),
        ("softmax_cpp/kernel.py", "cpp"),
        ("softmax_cpp/naive.py", "cpp"),
    ],
)
def test_languages_of_the_examples(file: str, language: str) -> None:
    assert language_of((EXAMPLES / file).read_text()) == language


@pytest.mark.parametrize("language", ["cpp", "cuda", "triton"])
def test_the_model_is_asked_for_the_language(
    language: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from tilecast.agent.cli.app import main

    source = FILES[language].read_text()
    monkeypatch.setattr(devices, "_preflight_on_cpu", lambda known: lambda problem, progress: KNOWN)
    monkeypatch.setattr(devices, "gpus", lambda: ())
    monkeypatch.chdir(tmp_path)
    with FakeOpenAI(lambda body, number: f"```python\n{source}```\n") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        wanted = f"--model fake --language {language} --max-evals 3 --max-minutes 1 --patience 2 --in-flight 1 --strategy search"
        asked = [*wanted.split(), "--device", f"replay:{TINY}", "--forecaster", "none", "--yes"]
        monkeypatch.setattr(sys, "argv", ["tilecast", "optimize", str(TINY), *asked, "--json"])
        with pytest.raises(SystemExit):
            main()
        text = json.dumps([request.body for request in server.requests])
    said = capsys.readouterr()
    assert said.out, said.err
    run = json.loads(said.out)["run"]
    opening = json.dumps(guide(language)[:150])[1:-1]
    assert opening in text
    others = [name for name in languages() if name != language]
    assert not any(json.dumps(guide(name)[:150])[1:-1] in text for name in others)
    record = open_record(None, make_request().home)
    proposed = [c for c in build_report(record.open(run, lambda: 0.0)).candidates if c.language == language]
    assert proposed


def test_a_language_that_builtin_cannot_write_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tilecast.agent.cli.app import main

    asked = ["--model", "builtin", "--language", "cutile", "--device", f"replay:{TINY}", "--yes"]
    monkeypatch.setattr(sys, "argv", ["tilecast", "optimize", str(TINY), *asked])
    with pytest.raises(SystemExit) as ended:
        main()
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2 and "--language cutile: builtin rewrites CONFIG" in said and "which is torch" in said


def test_a_run_in_several_languages_compares_them() -> None:
    script: list[Candidate | str] = [variant(64, 1), *(load_candidate(file) for file in FILES.values())]
    result = Engine(make_request(), make=making(Scripted(script))).run()
    report = build_report(open_record(None, make_request().home).open(result.run, lambda: 0.0))
    assert {(item.language, item.proposed) for item in report.languages} == {
        ("torch", 1),
        ("triton", 1),
        ("cuda", 1),
        ("cpp", 1),
    }
    text = markdown(report)
    assert all(any(line.startswith(f"| {name} ") for line in text.splitlines()) for name in ("triton", "cuda", "cpp"))
