"""What a candidate reaches in its repository, and several files as one text that does the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from ci_parts import Repository

from tilecast.agent.ci.flatten import one_text
from tilecast.agent.ci.git import Git, Tree
from tilecast.agent.ci.imports import Reach
from tilecast.agent.ci.renaming import NotOneText


def tree_of(tmp_path: Path, files: dict[str, str]) -> Tree:
    repository = Repository(tmp_path / "repository")
    sha = repository.commit("files", dict(files))
    return Git(repository.folder).tree(sha)


def run(text: str, expression: str) -> str:
    code = f"{text}\nprint(repr({expression}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + text
    return done.stdout.strip()


FILES = {
    "pkg/__init__.py": "",
    "pkg/rows.py": """
from math import floor
SIZE = 4
def scale(x, SIZE=2):
    return [SIZE * v for v in x]
def size():
    return floor(SIZE)
""",
    "pkg/deep/__init__.py": "from ..rows import size as deep_size\n",
    "pkg/deep/more.py": """
SIZE = 7
here = [SIZE for SIZE in range(3)]
class Box:
    SIZE = 1
    def get(self):
        return SIZE
def bump():
    global SIZE
    SIZE = SIZE + 1
    return SIZE
""",
    "pkg/kernel.py": """
import os, pkg.rows
from . import rows as r
from .deep import deep_size
from .deep.more import Box, bump as up, here
SIZE = 9
class ModelNew:
    def forward(self):
        from pkg.rows import scale
        names = (scale([1]), pkg.rows.size(), r.SIZE, deep_size(), Box().get(), up())
        return (*names, SIZE, here, os.sep, Box.SIZE)
""",
}


def test_several_files_become_one_text_that_does_the_same(tmp_path: Path) -> None:
    reach = Reach(tree_of(tmp_path, FILES), "pkg/kernel.py")
    assert reach.paths == {"pkg/kernel.py", "pkg/rows.py", "pkg/deep/__init__.py", "pkg/deep/more.py"}
    text = one_text(reach)
    preamble = f"import sys; sys.path.insert(0, {str(tmp_path / 'repository')!r}); from pkg.kernel import ModelNew"
    expected = run(preamble, "ModelNew().forward()")
    assert run(text, "ModelNew().forward()") == expected == "([2], 4, 4, 4, 7, 8, 9, [0, 1, 2], '/', 1)"


def test_a_candidate_alone_stays_as_it_is(tmp_path: Path) -> None:
    text = "import torch  # kept\n\n\nclass ModelNew: pass\n"
    assert one_text(Reach(tree_of(tmp_path, {"kernel.py": text}), "kernel.py")) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import other\nuse(other)\n", "uses the module other itself"),
        ("import other\nother.a = 1\n", "assigns to a name of another module"),
        ("from other import missing\n", "defines no name 'missing'"),
        ("from loop import a\n", "import each other"),
        ("from broken import a\n", "broken.py cannot be read as Python"),
        ("from other import a\nb = __file__\nprint(b)\n", "uses __file__"),
        ("from other import a\na = 2\n", "binds a to two things"),
        ("try:\n    from other import a\nexcept ImportError:\n    from third import a\n", "binds a to two things"),
        ("import other as m\ndef f():\n    import third as m\n", "binds m to two things"),
    ],
)
def test_what_cannot_be_written_as_one_text_is_refused_with_the_reason(tmp_path: Path, text: str, words: str) -> None:
    files = {
        "other.py": "a = 1\n",
        "loop.py": "import kernel\na = 1\n",
        "broken.py": "a =\n",
        "kernel.py": text,
        "third.py": "a = 3\n",
    }
    with pytest.raises(NotOneText, match=words):
        one_text(Reach(tree_of(tmp_path, files), "kernel.py"))


def test_cuda_files_that_are_read_or_built_are_reached_and_put_in(tmp_path: Path) -> None:
    files = {
        "k/csrc/add.cu": '#include "common.cuh"\n__global__ void add() { SIZE; }\n',
        "k/csrc/common.cuh": "#pragma once\n#define SIZE 4\n",
        "k/csrc/bind.cpp": "void add();\n",
        "k/csrc/read.cu": "__global__ void r() {}\n",
        "k/kernel.py": "from pathlib import Path\nfrom torch.utils.cpp_extension import load\n"
        "HERE = Path(__file__).parent / 'csrc'\nTEXT = (HERE / 'read.cu').read_text()\n"
        "with open(HERE / 'bind.cpp') as f:\n    BIND = f.read()\n"
        "module = load('add', [str(HERE / 'add.cu'), str(HERE / 'bind.cpp')], verbose=False)\n",
    }
    reach = Reach(tree_of(tmp_path, files), "k/kernel.py")
    assert reach.natives == {f"k/csrc/{name}" for name in ("add.cu", "common.cuh", "bind.cpp", "read.cu")}
    text = one_text(reach)
    assert "__file__" not in text and "open(" not in text
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "_load_inline"
    ]
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in calls[0].keywords}
    assert given == {
        "name": "add",
        "verbose": False,
        "cpp_sources": ["void add();\n"],
        "cuda_sources": ["\n#define SIZE 4\n\n__global__ void add() { SIZE; }\n"],
    }
    assert "TEXT = '__global__ void r() {}\\n'" in text and "BIND = 'void add();\\n'" in text


def _split(tree: ast.Module, through_module: bool) -> dict[str, str]:
    """A candidate in two files: its classes, and all else in a library, used by name or through the module."""
    entry = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.Import | ast.ImportFrom)]
    library = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
    names = [node.name for node in library if isinstance(node, ast.FunctionDef)]
    names += [t.id for n in library if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]

    class Through(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Attribute(ast.Name("kk", ast.Load()), node.id, node.ctx) if node.id in names else node

    texts = [ast.unparse(node) for node in entry]
    if through_module:
        head = "import lib.k as kk"
        texts = [ast.unparse(ast.fix_missing_locations(Through().visit(ast.parse(text)))) for text in texts]
    else:
        head = f"from lib.k import {', '.join(names)}" if names else ""
    return {"lib/k.py": "\n".join(map(ast.unparse, library)), "a/kernel.py": "\n".join([head, *texts])}


def _defined(text: str) -> set[str]:
    return {
        ast.dump(node) for node in ast.parse(text).body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)
    }


class InMemory(Tree):
    """Files that are in no repository."""

    def __init__(self, files: dict[str, str]) -> None:
        self.entries = files

    def read(self, path: str) -> str | None:
        return self.entries.get(path)


@pytest.mark.parametrize("through_module", [False, True])
def test_recorded_kernels_split_in_two_come_back_whole(shared_dir: Path, through_module: bool) -> None:
    files = sorted((shared_dir / "corpus").glob("*/candidates/*.py"))[::6]
    assert len(files) > 50
    for file in files:
        source = file.read_text(encoding="utf-8")
        made = one_text(Reach(InMemory(_split(ast.parse(source), through_module)), "a/kernel.py"))
        assert _defined(made) == _defined(source), file
