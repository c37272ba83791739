"""Every example loads, its kernels are right, and each point of their SPACE compiles for an H200 that is not here."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.sandbox.evidence_schema import EvidenceStatus
from tilecast.sandbox.languages import language_of
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate, load_candidate, read_literal

EXAMPLES = Path(__file__).parents[1] / "examples"
TAUGHT = sorted(file.parent for file in EXAMPLES.glob("*/kernel_cutile.py"))
"""Examples with a kernel in Triton and one in cuTile."""
KERNELS = [folder / name for folder in TAUGHT for name in ("kernel.py", "kernel_cutile.py")]
QUICK = {"vector_add/kernel.py", "matmul/kernel.py"}
"""Triton kernels that are checked with every run of the tests; the interpreter takes its time with the others."""
OTHERS = [file for folder in TAUGHT for file in sorted((folder / "candidates").glob("*.py"))]
POINTS_MOST = {"softmax/kernel.py": 60}
BAD_MOST = 0.35
"""Share of a space that may spill: a bad point teaches a forecaster something, a bad space nobody."""
COMPILES = {EvidenceStatus.OK, EvidenceStatus.SPILLS}
has_cutile = importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.tile") is not None


def named(file: Path) -> str:
    return file.relative_to(EXAMPLES).as_posix()


def points(candidate: Candidate) -> list[Candidate]:
    """The candidate at every point of its SPACE."""
    space = candidate.space
    assert space
    combinations = itertools.product(*space.values())
    return [candidate.with_config(dict(zip(space, values, strict=True))) for values in combinations]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSandbox]:
    """One judge for all of them."""
    made = LocalSandbox("cpu", state_dir=tmp_path_factory.mktemp("state"))
    yield made
    made.close()


def test_readme_tells_of_each_example() -> None:
    text = (EXAMPLES / "README.md").read_text()
    folders = {file.parent.name for file in EXAMPLES.glob("*/reference.py")}
    assert [name for name in sorted(folders) if f"`{name}`" not in text] == []


def test_readme_counts_the_points() -> None:
    text = (EXAMPLES / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d–]+, [\d–]+, [\d–]+) \|$", text, re.MULTILINE)
    assert {name for name, _ in rows} == {file.parent.name for file in EXAMPLES.glob("*/kernel_cutile.py")}
    for name, told in rows:
        files = [[EXAMPLES / name / "kernel.py"], [EXAMPLES / name / "kernel_cutile.py"]]
        files.append(sorted((EXAMPLES / name / "candidates").glob("*.py")))
        counts = [sum(len(points(load_candidate(file))) for file in some) for some in files]
        assert told == ", ".join(str(count or "–") for count in counts), name


@pytest.mark.parametrize("folder", TAUGHT, ids=named)
def test_edges_are_among_the_small_workloads(folder: Path) -> None:
    workloads = read_literal(load_problem(folder).source, "WORKLOADS")
    assert workloads is not None
    small = [sizes for name, sizes in workloads.items() if name.startswith("small")]
    assert len(small) >= 2 and "other" in workloads
    # Sizes that no tile divides are where kernels go wrong.
    assert any(size % 8 for sizes in small for size in sizes.values())


@pytest.mark.parametrize("file", KERNELS, ids=named)
def test_a_space_of_a_size_that_can_be_measured(file: Path) -> None:
    kernel = load_candidate(file)
    config, space = kernel.config, kernel.space
    assert config is not None and space is not None and config.keys() == space.keys()
    assert all(config[name] in values for name, values in space.items())
    assert 12 <= math.prod(map(len, space.values())) <= POINTS_MOST.get(named(file), 30)
    assert language_of(kernel.source) == ("cutile" if file.stem == "kernel_cutile" else "triton")


@pytest.mark.parametrize("file", OTHERS, ids=named)
def test_other_structures_have_few_points(file: Path) -> None:
    other = load_candidate(file)
    space = other.space
    assert space is not None and other.config is not None
    assert all(other.config[name] in values for name, values in space.items())
    assert math.prod(map(len, space.values())) <= 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=[] if named(file) in QUICK or file.stem == "kernel_cutile" else pytest.mark.acceptance)
        for file in [*KERNELS, *OTHERS]
    ],
    ids=named,
)
def test_right_on_the_cpu(file: Path, sandbox: LocalSandbox) -> None:
    folder = next(folder for folder in TAUGHT if folder in file.parents)
    answer = sandbox.verify(load_problem(folder), load_candidate(file), EvaluationOptions(), lambda _: None)
    assert answer.status is EvaluationStatus.PASSED, answer.reason


@pytest.mark.acceptance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", [*KERNELS, *OTHERS], ids=named)
def test_each_point_compiles_for_hopper(file: Path, tmp_path: Path) -> None:
    kernel = load_candidate(file)
    if language_of(kernel.source) == "cutile" and not has_cutile:
        pytest.skip("cuTile is not installed")
    folder = next(folder for folder in TAUGHT if folder in file.parents)
    with EvidenceCollector(tmp_path) as collector:
        found = collector.collect_many(load_problem(folder), points(kernel), "h200")
    assert [
        f"{made.config}: {made_of.reason}"
        for made, made_of in zip(points(kernel), found, strict=True)
        if made_of.status not in COMPILES
    ] == []
    spilling = sum(e.status is EvidenceStatus.SPILLS for e in found)
    assert spilling <= math.ceil(BAD_MOST * len(found))


@pytest.mark.acceptance
@pytest.mark.timeout(300)
@pytest.mark.parametrize("folder", TAUGHT, ids=named)
def test_a_wrong_kernel_would_be_caught(folder: Path, sandbox: LocalSandbox) -> None:
    answer = sandbox.lint(load_problem(folder), lambda _: None)
    assert [m["name"] for m in answer["mutations"] if m["would_pass"]] == [] and answer["mutations"], answer["advice"]
