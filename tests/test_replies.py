"""Reading answers: the right fence of several, never code from reasoning, edits applied or refused with the place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.tools.model.reasoning import ReasoningSplitter, split_reasoning
from tilecast.tools.propose.replies import Edit, EditMiss, apply_edits, code_blocks, read_edits, read_reply

GOOD = "import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
OTHER = "x = 1\n"


def fence(source: str, language: str = "python") -> str:
    return f"```{language}\n{source}```\n"


@pytest.mark.parametrize(
    "text",
    [
        f"I fuse.\n{fence(GOOD)}",
        GOOD,
        f"{fence(OTHER)}text\n{fence(GOOD)}",
        f"{fence(GOOD)}and how to use it:\n{fence('m = ModelNew()' + chr(10))}",
        f"<think>{fence(GOOD.replace('1', '2'))}</think>\n{fence(OTHER)}{fence(GOOD)}",
        f"thinking {fence(GOOD.replace('1', '2'))}</think>\n{fence(GOOD)}",
        f"~~~python\n{GOOD}~~~",
        f"````python\n{GOOD}````",
        f"first try {fence(GOOD.replace('1', '2'))} better {fence(GOOD)}",
        f"no closing fence ```\n```python\n{GOOD}",
        f"1. item\n   ```python\n{''.join('   ' + line + chr(10) for line in GOOD.splitlines())}   ```",
    ],
)
def test_the_file_that_defines_the_class_wins(text: str) -> None:
    assert read_reply(text, "stop", None).source == GOOD


def test_a_docstring_with_a_shorter_fence_inside_a_longer_one() -> None:
    source = GOOD.replace("import", '"""Use:\n```\nModelNew()\n```\n"""\nimport', 1)
    assert read_reply(f"````python\n{source}````", "stop", None).source == source


@pytest.mark.parametrize(
    ("text", "finish", "trouble"),
    [
        ("", "stop", "empty"),
        ("   \n", "length", "truncated"),
        ("I cannot do that.", "stop", "empty"),
        (f"<think>{fence(GOOD)}</think>", "stop", "empty"),
        (f"<think>{fence(GOOD)}", "length", "truncated"),
        (f"```python\n{GOOD[:-12]}", "length", "truncated"),
        (f"```python\n{GOOD}", "length", "truncated"),
        (fence("class ModelNew(:\n    pass\n"), "stop", "syntax"),
        (fence("class Model:\n    pass\n"), "stop", "no_class"),
        (fence("if True:\n    class ModelNew: pass\n"), "stop", "no_class"),
    ],
)
def test_what_is_wrong_is_told_apart(text: str, finish: str, trouble: str) -> None:
    reply = read_reply(text, finish, None)
    assert reply.source is None and reply.trouble == trouble and reply.detail


def test_a_syntax_error_shows_its_place() -> None:
    reply = read_reply(fence(GOOD.replace("x + 1", "x + ")), "stop", None)
    assert reply.repairable and "line 6" in reply.detail and "return x +" in reply.snippet


def edit(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize("wrap", ["{}", "```python\n{}```", "kernel.py\n```\n{}```"])
def test_edits_apply_to_the_parent(wrap: str) -> None:
    reply = read_reply("Adds two.\n" + wrap.format(edit("        return x + 1", "        return x + 2")), "stop", GOOD)
    assert reply.source == GOOD.replace("x + 1", "x + 2")


def test_edits_forgive_blanks_and_a_common_indentation() -> None:
    assert apply_edits(GOOD, [Edit("        return x + 1   ", "        return x + 2")]) == GOOD.replace("+ 1", "+ 2")
    shifted = apply_edits(
        GOOD, [Edit("def forward(self, x):\n    return x + 1", "def forward(self, x):\n    return x - 1")]
    )
    assert shifted == GOOD.replace("x + 1", "x - 1")
    deep = apply_edits(GOOD, [Edit("            return x + 1", "            y = x\n            return y")])
    assert deep == GOOD.replace("return x + 1", "y = x\n        return y")


def test_an_empty_replacement_deletes() -> None:
    assert (
        apply_edits("a = 1\nb = 2\nc = 3\n", read_edits(edit("b = 2", "").replace("=======\n\n", "=======\n")))
        == "a = 1\nc = 3\n"
    )


@pytest.mark.parametrize(
    ("search", "words"), [("return y", "does not occur"), ("x = 1", "occurs 2 times"), ("  ", "empty SEARCH")]
)
def test_an_edit_that_misses_costs_a_repair(search: str, words: str) -> None:
    parent = f"{GOOD}x = 1\ny = 2\nx = 1\n"
    reply = read_reply(edit(search, "z"), "stop", parent)
    assert reply.trouble == "edit" and reply.repairable and words in reply.detail
    with pytest.raises(EditMiss):
        apply_edits(parent, [Edit(search, "z")])


def test_edits_need_a_parent_and_must_leave_a_whole_file() -> None:
    assert read_reply(edit("a", "b"), "stop", None).trouble == "edit"
    assert read_reply(edit("class ModelNew(nn.Module):", "class Other(nn.Module):"), "stop", GOOD).trouble == "no_class"
    assert read_reply(edit("class ModelNew(nn.Module):", "class ModelNew("), "stop", GOOD).trouble == "syntax"


def test_an_unfinished_edit_is_no_edit() -> None:
    assert read_reply("<<<<<<< SEARCH\nreturn x\n=======\nreturn", "length", GOOD).trouble == "truncated"


def test_the_first_line_of_prose_is_the_note() -> None:
    assert read_reply(f"**Fuses the passes**\n\n{fence(GOOD)}more", "stop", None).note == "Fuses the passes"
    assert read_reply(fence(GOOD), "stop", None).note == ""


@given(st.text(alphabet="`~ab \n<>=SEARCHRPL/thinkclass:ModelNew", max_size=200), st.sampled_from(["stop", "length"]))
def test_any_text_is_read_without_an_exception(text: str, finish: str) -> None:
    reply = read_reply(text, finish, GOOD)
    assert (reply.source is None) == bool(reply.trouble)
    code_blocks(text)


@given(
    st.lists(
        st.sampled_from(
            ["<think>", "</think>", "a", "\n", "```", "<", "thi", "nk>", "~~~\n", " ", "<Thinking>", "</thinking>"]
        ),
        max_size=25,
    )
)
def test_a_stream_splits_as_the_whole_does(pieces: list[str]) -> None:
    whole, piecewise = ReasoningSplitter(), ReasoningSplitter()
    text = "".join(pieces)
    at_once = whole.feed(text) + whole.finish()
    by_letter = [found for letter in text for found in piecewise.feed(letter)] + piecewise.finish()
    for kind in ("text", "reasoning"):
        joined = ["".join(t for k, t in found if k == kind) for found in (at_once, by_letter)]
        assert joined[0] == joined[1]


def test_reasoning_split_keeps_tags_inside_code() -> None:
    text = f"<think>a <think>b</think> c</think>\n{fence('x = ' + repr('<think>') + chr(10))}"
    visible, hidden = split_reasoning(text)
    assert visible.startswith("```python\nx = '<think>'") and hidden == "a b c"
