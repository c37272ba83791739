"""What cannot change a kernel, what a candidate reaches, several files as one text; names and messages of strangers made inert."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from ci_parts import Repository
from hypothesis import given
from hypothesis import strategies as st

from tilecast.agent.ci.flatten import one_text
from tilecast.agent.ci.git import Git, Tree
from tilecast.agent.ci.imports import Reach
from tilecast.agent.ci.inert import block, clean, code, log_text, summary_code
from tilecast.agent.ci.normal import c_tokens, python_key, text_key
from tilecast.agent.ci.renaming import NotOneText

KERNEL = '''
"""About it."""
import triton
import triton.language as tl

CONFIG = {"BLOCK": 128}
SOURCE = r"""
#include <torch/extension.h>
// a comment
__global__ void f(float* x) { x[0] = 1; }
"""


@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    """Does it."""
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)


def helper():
    return 1


class ModelNew:
    def forward(self, x):
        kernel[(1,)](x, 3, BLOCK=CONFIG["BLOCK"])
'''
ROOTS = ("ModelNew", "CONFIG")


def tree_of(tmp_path: Path, files: dict[str, str]) -> Tree:
    repository = Repository(tmp_path / "repository")
    sha = repository.commit("files", dict(files))
    return Git(repository.folder).tree(sha)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""About it."""', '"""About something else."""'),
        ('"""Does it."""', ""),
        ("CONFIG =", "# a remark\n\nCONFIG  ="),
        ("// a comment", "/* another\n one */"),
        ("x[0] = 1;", "x[0]   =\n  1;"),
        ("def helper():\n    return 1", "def helper():\n    return 2"),
        ("mask=offsets < n", "mask=(offsets < n)"),
        ("class ModelNew", 'if __name__ == "__main__":\n    print(1)\n\n\nclass ModelNew'),
    ],
)
def test_what_cannot_change_the_kernel_leaves_its_key(old: str, new: str) -> None:
    assert old in KERNEL
    assert python_key(KERNEL.replace(old, new), ROOTS) == python_key(KERNEL, ROOTS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"BLOCK": 128', '"BLOCK": 64'),
        ("x[0] = 1;", "x[0] = 2;"),
        ("offsets < n", "offsets <= n"),
        ("#include <torch/extension.h>", "#include <torch/all.h>"),
        ("1.0", "1"),
        ("import triton.language as tl", "import triton.language.extra as tl"),
        ("def helper():", "@register\ndef helper():"),
    ],
)
def test_what_may_change_the_kernel_changes_its_key(old: str, new: str) -> None:
    assert old in KERNEL
    assert python_key(KERNEL.replace(old, new), ROOTS) != python_key(KERNEL, ROOTS)


def test_cpp_keeps_line_ends_of_directives_and_the_gap_that_makes_a_macro() -> None:
    assert c_tokens("#define A 1\nint a;") == c_tokens("  #define A 1  // one\nint   a ;")
    assert c_tokens("#define F (x)\n") != c_tokens("#define F(x)\n")
    assert c_tokens('char* s = "// no comment";') != c_tokens('char* s = "";')
    assert c_tokens("#define A \\\n 1\nint b;") != c_tokens("#define A\n1 int b;")
    assert text_key("int a; // x", "a.cu") == text_key("int a;", "a.cu")
    assert text_key("int a; // x", "a.txt") != text_key("int a;", "a.txt")


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


HOSTILE = [
    "@everyone",
    "[x](http://evil.example)",
    "`</code><script>alert(1)</script>`",
    "a|b\\|c",
    "a\n\n# heading\n| x |",
    "<!-- tilecast-ci:1 -->",
    "\u202egnp.evil\u2066",
    "::set-output name=x::y",
    "fixes #1 GH-2 acme/x#3 https://evil.example www.evil.example",
    "",
    "``` ~~~ ```",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_strangers_text_is_inert(text: str) -> None:
    span = code(text)
    assert "\n" not in span and (span == "(no name)" or (span[0] == span[-1] == "`" and "`" not in span[1:-1]))
    assert all(span[i - 1] == "\\" for i, sign in enumerate(span) if sign == "|")
    assert "<" not in summary_code(text).removeprefix("<code>").removesuffix("</code>")
    assert not any(
        ord(sign) in range(0x202A, 0x202F) or ord(sign) in range(0x2066, 0x206A) for sign in span + clean(text)
    )
    assert "::" not in log_text(text)


@given(st.text(max_size=300))
def test_no_text_leaves_its_span_or_its_fence(text: str) -> None:
    span = code(text)
    assert span.count("`") in (0, 2) and "\n" not in span and "\r" not in span
    lines = block(text).split("\n")
    assert lines[0] == lines[-1] and set(lines[0]) == {"`"}
    assert not any(line.strip().startswith(lines[0]) for line in lines[1:-1])
