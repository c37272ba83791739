"""Launch modules: built once from their text without being loaded, and copied into each new compile cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilecast.sandbox.harness.judge.stubs import LaunchStubs
from tilecast.sandbox.harness.judge.zygotes import Zygotes

pytest.importorskip("triton")
LAUNCHER = "#include <Python.h>\nPyMODINIT_FUNC PyInit___triton_launcher(void) { return NULL; } /* %s */\n"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a libcuda.so.1 that holds nothing: enough to link against."""
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(
        ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(folder / "libcuda.so.1")], check=True, timeout=60
    )
    return str(folder)


@pytest.fixture(scope="module")
def zygotes(driver: str) -> Iterator[Zygotes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", driver)
        started = Zygotes()
        started.start()
        yield started
        started.close()


@pytest.fixture
def stubs(zygotes: Zygotes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaunchStubs]:
    made = LaunchStubs(zygotes, "cuda")
    made.seed(str(tmp_path_factory.mktemp("first")))
    yield made
    made.close()


def offer(stubs: LaunchStubs, source: str) -> None:
    """Offer one, and wait until its builder is done."""
    stubs.offer([{"name": "__triton_launcher", "source": source}])
    end = time.monotonic() + 60
    while stubs._building is not None and not stubs._building.channel.pending() and time.monotonic() < end:
        time.sleep(0.02)


def modules(folder: Path) -> list[str]:
    return sorted(file.name.split(".")[0] for file in folder.rglob("*.so"))


def test_the_helpers_are_in_every_new_cache(stubs: LaunchStubs, tmp_path: Path) -> None:
    stubs.seed(str(tmp_path))
    assert not stubs.why_not
    assert modules(tmp_path) == ["cuda_utils"]
    assert all(place.stat().st_mode & 0o777 == 0o777 for place in tmp_path.rglob("*") if place.is_dir())


def test_what_one_worker_asked_for_waits_for_the_next(stubs: LaunchStubs, tmp_path: Path) -> None:
    offer(stubs, LAUNCHER % "one")
    stubs.offer([{"name": "__triton_launcher", "source": LAUNCHER % "one"}])
    stubs.seed(str(tmp_path))
    assert modules(tmp_path) == ["__triton_launcher", "cuda_utils"]


def test_triton_finds_it_by_its_text(stubs: LaunchStubs, tmp_path: Path, driver: str) -> None:
    offer(stubs, LAUNCHER % "found")
    stubs.seed(str(tmp_path))
    program = (
        "import sys\nfrom triton.runtime import build\n"
        "build._build = lambda *a, **k: sys.exit('built again')\n"
        "build._load_module_from_path = lambda name, path: print(path)\n"
        "build.compile_module_from_src(src=sys.argv[1], name='__triton_launcher')\n"
    )
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    done = subprocess.run(
        [sys.executable, "-c", program, LAUNCHER % "found"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "__triton_launcher" in done.stdout, done.stderr


def test_a_module_is_not_loaded_where_it_is_built(stubs: LaunchStubs, tmp_path: Path) -> None:
    mark = "__attribute__((constructor)) static void run(void) { *(volatile int *)0 = 1; }"
    offer(stubs, LAUNCHER % "x" + mark)
    stubs.seed(str(tmp_path))
    assert modules(tmp_path) == ["__triton_launcher", "cuda_utils"]


@pytest.mark.parametrize(
    "offered",
    [
        None,
        "text",
        [1],
        [{"name": "cuda_utils", "source": LAUNCHER}],
        [{"name": "../../x", "source": LAUNCHER}],
        [{"name": "__triton_launcher", "source": "x" * (1 << 18)}],
        [{"name": "__triton_launcher", "source": 3}],
    ],
)
def test_what_is_malformed_is_ignored(stubs: LaunchStubs, tmp_path: Path, offered: object) -> None:
    stubs.offer(offered)
    stubs.seed(str(tmp_path))
    assert modules(tmp_path) == ["cuda_utils"]


def test_a_text_that_does_not_compile_harms_nobody_else(stubs: LaunchStubs, tmp_path: Path) -> None:
    offer(stubs, "this is no C")
    offer(stubs, LAUNCHER % "after")
    stubs.seed(str(tmp_path))
    assert modules(tmp_path) == ["__triton_launcher", "cuda_utils"]


def test_without_a_gpu_nothing_is_built(zygotes: Zygotes, tmp_path: Path) -> None:
    stubs = LaunchStubs(zygotes, "cpu")
    stubs.seed(str(tmp_path))
    offer(stubs, LAUNCHER % "cpu")
    assert modules(tmp_path) == []
