"""Candidates as text: CONFIG read, written and hashed; found again whatever the comments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.sandbox.errors import CandidateError
from tilecast.sandbox.source import (
    Candidate,
    canonical_key,
    load_candidate,
    read_literal,
    source_sha256,
    space_notes,
    with_config,
)

TEXT = """# größer
CONFIG = {"BLOCK": 128,
          "num_warps": 4}  # tuned
SPACE = {"BLOCK": [64, 128]}


class ModelNew: ...
"""


def test_config_is_replaced_and_nothing_else() -> None:
    changed = with_config(TEXT, {"BLOCK": 64})
    assert read_literal(changed, "CONFIG") == {"BLOCK": 64, "num_warps": 4}
    before, after = TEXT.split("CONFIG = ")[0], TEXT.split("}  # tuned")[1]
    assert changed.startswith(before)
    assert changed.endswith("  # tuned" + after)


def test_an_unchanged_config_leaves_the_text_and_its_hash() -> None:
    assert with_config(TEXT, {"BLOCK": 128}) == TEXT
    assert Candidate(name="c", source=TEXT).sha256 == source_sha256(TEXT)


@given(st.dictionaries(st.sampled_from(["BLOCK", "num_warps", "é"]), st.integers() | st.text() | st.booleans()))
def test_whatever_is_written_is_read_back(overrides: dict[str, object]) -> None:
    merged = {"BLOCK": 128, "num_warps": 4, **overrides}
    assert read_literal(with_config(TEXT, overrides), "CONFIG") == merged


def test_no_config_to_change() -> None:
    with pytest.raises(CandidateError, match="CONFIG"):
        with_config("x = 1\n", {"BLOCK": 1})
    assert with_config("x = 1\n", {}) == "x = 1\n"


@pytest.mark.parametrize(
    "text", ["CONFIG = dict(a=1)", "CONFIG = [1]", "CONFIG = {1: 2}", "CONFIG = {", "def f():\n CONFIG = {}"]
)
def test_what_is_no_module_level_literal_is_no_config(text: str) -> None:
    assert read_literal(text, "CONFIG") is None


def test_key_ignores_comments_space_and_key_order_but_not_values() -> None:
    other = TEXT.replace("# tuned", "").replace(
        '"BLOCK": 128,\n          "num_warps": 4', '"num_warps": 4, "BLOCK": 128'
    )
    assert canonical_key(other) == canonical_key(TEXT)
    assert canonical_key(with_config(TEXT, {"BLOCK": 64})) != canonical_key(TEXT)
    assert canonical_key(TEXT + "\nx = 1\n") != canonical_key(TEXT)
    assert canonical_key("not python (") != canonical_key("not python )")


def test_a_missing_file_names_itself(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"gone\.py"):
        load_candidate(tmp_path / "gone.py")


@pytest.mark.parametrize(
    ("config", "space", "said"),
    [
        ({"BLOCK": 64, "num_warps": 4}, {"BLOCK": [64, 128], "num_warps": [4]}, []),
        ({"BLOCK": 96}, {"BLOCK": [64, 128]}, ["CONFIG has BLOCK=96, which is not among SPACE's 64, 128"]),
        ({"num_warps": 4}, {"num_wraps": [1, 2]}, ["SPACE names 'num_wraps'", "did you mean 'num_warps'?"]),
        ({"BLOCK": 64}, None, []),
        (None, {"BLOCK": [64]}, ["which CONFIG does not have"]),
    ],
)
def test_config_and_space_that_do_not_fit_are_told(
    config: dict[str, int] | None, space: dict[str, list[int]] | None, said: list[str]
) -> None:
    text = "".join(
        f"{name} = {value!r}\n" for name, value in (("CONFIG", config), ("SPACE", space)) if value is not None
    )
    told = " ".join(space_notes(Candidate(name="k", source=text)))
    assert bool(told) is bool(said) and all(part in told for part in said)
