"""A session without a terminal: a model that errs, loops or oversteps; limits; compaction; the log and its fold."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chat_parts import session
from fake_openai import FakeOpenAI, Reply, tool_call

from tilecast.agent.chat import events as ev
from tilecast.agent.chat.commands import COMMANDS, run_command
from tilecast.agent.chat.graph import run_turn
from tilecast.agent.chat.paragraphs import Paragraphs
from tilecast.agent.chat.sessions import SessionLog, listing
from tilecast.sandbox.errors import EnvironmentFailure, UsageError

TESTS = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    shutil.copytree(TESTS / "data" / "tiny", place)
    return place / "scale"


def call(name: str, arguments: object, number: int = 0) -> Reply:
    return Reply(tool_calls=[tool_call(name, arguments, f"call_{name}_{number}")])


def test_a_model_that_goes_for_the_reference_is_refused_and_told_why(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    before = (folder / "reference.py").read_bytes()
    edit = call("edit_file", {"path": "reference.py", "old": "x * 2", "new": "x"})
    with FakeOpenAI([edit, "I may not."]) as server, session(monkeypatch, folder, server.url) as (chat, face):
        assert run_turn(chat, "make the reference slower") == ""
        assert (folder / "reference.py").read_bytes() == before
        assert "is a reference: it says what is right" in server.bodies[1]["messages"][-1]["content"]
        assert "is never changed" in face.shown and "I may not." in face.shown


def test_a_loop_of_tool_calls_is_bounded(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def loop(body: object, number: int) -> Reply:
        return call("bench", {"path": "kernel.py"}, number)

    (folder / "tilecast.toml").write_text("[chat]\nrounds = 6\n")
    monkeypatch.chdir(folder)
    with FakeOpenAI(loop) as server, session(monkeypatch, folder, server.url) as (chat, face):
        assert "stopped after 6 questions" in run_turn(chat, "go")
        assert len(server.requests) == 6 and chat.ledger.spent.evals == 2
        assert "was called with these arguments before" in face.shown
        assert not chat.log.state.turn_open and chat.log.state.talk.pending == []


@pytest.mark.parametrize(
    "broken",
    [
        call("bench", "{path: kernel"),
        call("bench", {"file": "kernel.py"}),
        call("fly", {}),
        Reply(text=""),
    ],
)
def test_one_repair_turn_then_a_readable_message(monkeypatch: pytest.MonkeyPatch, folder: Path, broken: Reply) -> None:
    replies = [broken, "I am back.", broken, broken, "Still here."]
    with FakeOpenAI(replies) as server, session(monkeypatch, folder, server.url) as (chat, face):
        assert run_turn(chat, "go") == "" and "I am back." in face.shown
        asked_again = server.bodies[1]["messages"][-1]
        assert asked_again["role"] == "user" and "Your last" in asked_again["content"]
        assert "second attempt" in run_turn(chat, "once more")
        assert len(server.requests) == 4
        assert run_turn(chat, "are you there?") == "" and "Still here." in face.shown
        roles = [message["role"] for message in server.bodies[-1]["messages"]]
        assert roles[0] == "system" and roles[-1] == "user"


def test_a_limit_pauses_and_asks(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with (
        FakeOpenAI(["Yes."]) as server,
        session(monkeypatch, folder, server.url, max_tokens=100, answers=["1000000"]) as (chat, face),
    ):
        assert run_turn(chat, "are you there?") == "" and "Yes." in face.shown
        assert "new limit for tokens (now 100)" in face.asked[0] and chat.log.state.limits.tokens == 1_000_000
        run_command(chat, "/budget tokens=10")
        face.answers = [""]
        assert "budget does not allow another question" in run_turn(chat, "and now?")
        assert len(server.requests) == 1
        run_command(chat, "/budget usd=2")
        assert "price of fake is unknown" in face.shown and chat.ledger.limits.usd is None
        assert chat.ledger.spent.tokens == chat.log.state.spent.tokens > 0
        assert "turn: " in chat.money_line() and "tokens" in chat.money_line()


def test_long_conversations_keep_their_facts(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "tilecast.toml").write_text("[chat]\ncompact_tokens = 6000\nkeep_turns = 1\n")
    monkeypatch.chdir(folder)
    story = "word " * 2500
    replies = [
        call("bench", {"path": "candidates/wrong.py"}),
        story,
        call("bench", {"path": "kernel.py"}),
        story,
        story,
        "Ok.",
    ]
    with FakeOpenAI(replies) as server, session(monkeypatch, folder, server.url) as (chat, _):
        for text in ("the very first wish", "then", "and then", "at last"):
            assert run_turn(chat, text) == ""
        told = json.dumps(server.bodies[-1]["messages"], ensure_ascii=False)
        assert len(told) // 4 < len(json.dumps(server.bodies[-2]["messages"])) // 4
        for fact in ("0.889x", "INCORRECT_NUMERICAL", "relative L2 error 0.5", "the very first wish", "best so far"):
            assert fact in told, fact
        session_id, messages = chat.log.id, chat.log.state.talk.dump()
        facts, spent = chat.box.facts, chat.ledger.spent
        with pytest.raises(UsageError, match="open in another process"):
            SessionLog(chat.log.path, "")
    monkeypatch.chdir(folder.parent)
    with session(monkeypatch, folder, None, resume=session_id) as (again, _):
        assert again.log.state.talk.dump()[:2] == messages[:2] and again.box.facts == facts
        assert again.ledger.spent == spent and again.work.problem.name == "scale"


def test_a_line_cut_off_by_a_kill_is_dropped_and_a_damaged_one_is_named(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    with session(monkeypatch, folder) as (chat, _):
        run_command(chat, "/bench kernel.py")
        path, facts = chat.log.path, list(chat.log.state.facts)
    with path.open("ab") as file:
        file.write(b'{"kind": "user", "te')
    log = SessionLog(path, "")
    log.append(ev.UserSaid(text="hello"))
    log.close()
    again = SessionLog(path, "")
    assert again.state.facts == facts and again.state.title == "hello" and again.state.turn_open
    again.close()
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    with pytest.raises(EnvironmentFailure, match="damaged"):
        SessionLog(path, "")


def test_a_step_in_flight_at_a_kill_is_charged_as_reserved(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with session(monkeypatch, folder) as (chat, _):
        chat.log.append(ev.StepStarted(call_id=None, tool="bench", arguments={"path": "kernel.py"}))
        chat.log.append(ev.StepReserved(evals=1, gpu_seconds=0.5))
        session_id = chat.log.id
        assert listing(chat.home) == []
    with session(monkeypatch, folder, resume=session_id) as (again, face):
        assert again.ledger.spent.evals == 1 and again.ledger.spent.gpu_seconds == 0.5
        assert "charged as set aside" in face.shown and again.log.state.open_step is not None
    with session(monkeypatch, folder, resume=session_id) as (third, _):
        assert third.ledger.spent.evals == 1


def test_every_command_has_help_and_an_example(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    asked = "help problem open optimize forecast verify bench tune profile why diff undo budget model device history"
    assert set((asked + " save export resume clear quit").split()) <= set(COMMANDS)
    with session(monkeypatch, folder) as (chat, face):
        for name, command in COMMANDS.items():
            run_command(chat, f"/help {name}")
            assert command.example in face.shown and command.example.startswith(f"/{name}")


def test_commands_without_a_model(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with session(monkeypatch, folder) as (chat, face):
        for line in ("/bench kernel.py block=256 warps=2", "/save fast.py", "/diff kernel.py fast.py", "/why", "/more"):
            run_command(chat, line)
        assert "'block': 256" in (folder / "fast.py").read_text()
        (folder / "fast.py").write_text("# mine now\n")
        run_command(chat, "/undo")
        assert "changed since by something else" in face.shown and (folder / "fast.py").exists()
        for line, words in (
            ("/budget usd=-1", "above 0"),
            ("/budget cats=3", "no meter"),
            ("/open nowhere.py", "cannot be read"),
            ("/device moon", "not known"),
            ("/problem nowhere", "no such file"),
            ('/open "', "No closing quotation"),
            ("/export ../out.md", "working folder"),
            ("/resume nothing", "is not there"),
        ):
            run_command(chat, line)
            assert words in face.shown, line
        run_command(chat, "/export out.md")
        assert "1.6x [1.57, 1.63]" in (folder / "out.md").read_text()
        assert run_command(chat, "/quit") == "quit"


def test_piped_and_as_one_question(folder: Path, tmp_path: Path) -> None:
    def tilecast(url: str, *more: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        import os

        environ = {**os.environ, "OPENAI_BASE_URL": url, "TILECAST_HOME": str(tmp_path / "home")}
        command = [sys.executable, str(TESTS / "loop_parts.py"), "chat", str(folder), "--model", "fake", *more]
        return subprocess.run(command, input=stdin, env=environ, cwd=folder, capture_output=True, text=True, timeout=60)

    with FakeOpenAI(["It is **4x** faster.", "Second."]) as server:
        one = tilecast(server.url, "-p", "how fast?")
        assert one.returncode == 0 and one.stdout.startswith("It is **4x")
        assert "[not in the record]" in one.stdout and "\x1b" not in one.stdout + one.stderr
        piped = tilecast(server.url, "--print", stdin="two lines\nof a message\n/bench kernel.py\n")
        assert piped.stdout.startswith("Second.") and "0.889x" in piped.stderr
        assert server.bodies[1]["messages"][-1]["content"].endswith("two lines\nof a message")
        unanswered = tilecast(server.url, "-p", "and now?")
        assert unanswered.returncode == 1 and "418" in unanswered.stderr and "Traceback" not in unanswered.stderr
    with FakeOpenAI(["kernel.py is 4x faster."]) as server:
        document = json.loads(tilecast(server.url, "-p", "how fast?", "--json").stdout)
        assert document["schema"] == 1 and document["answer"] == "kernel.py is 4x faster."
        assert document["claims"] == [{"text": "4x", "grounded": False, "trouble": "unknown"}]
        assert document["ledger"]["tokens"]["spent"] > 0


def test_paragraphs_keep_fences_whole() -> None:
    text = "First.\n\n```python\na = 1\n\nb = 2\n```\n\n````\n```\n\n````\n\nlast"
    for size in (1, 3, 1000):
        cut = Paragraphs()
        found = [p for i in range(0, len(text), size) for p in cut.add(text[i : i + size])]
        assert [*found, cut.rest()] == ["First.", "```python\na = 1\n\nb = 2\n```", "````\n```\n\n````", "last"]


def test_nothing_reaches_the_terminals_controls(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    evil = "a\x1b]52;c;ZXZpbA==\x07b\x1b[2Jc\x9bd\u202ee"
    with FakeOpenAI([evil]) as server, session(monkeypatch, folder, server.url) as (chat, face):
        run_turn(chat, "hello")
        chat.face.say(evil)
        chat.face.warn(evil)
        assert not set(face.shown) & {"\x1b", "\x07", "\x9b", "\u202e"} and "b" in face.shown


def test_the_guide_is_that_of_the_kernels_language(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    kernel = folder / "kernel.py"
    kernel.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\n" + kernel.read_text()
    )
    with session(monkeypatch, folder) as (chat, _):
        assert "triton" in chat.log.state.talk.messages[0]["content"].lower()
    kernel.unlink()
    with session(monkeypatch, folder, device="cpu") as (chat, _):
        from tilecast import prompts

        assert prompts.guide("cpp")[:200] in chat.log.state.talk.messages[0]["content"]
