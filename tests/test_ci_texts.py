"""What cannot change a kernel, and names and messages of strangers made inert."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.agent.ci.inert import block, clean, code, log_text, summary_code
from tilecast.agent.ci.normal import c_tokens, python_key, text_key

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


@pytest.mark.parametrize("use", ["globals()['help' + 'er']", "getattr(module, name)", "eval(text)"])
def test_where_names_are_made_up_at_run_time_every_definition_matters(use: str) -> None:
    text = KERNEL.replace("class ModelNew:", f"class ModelNew:\n    x = lambda self: {use}\n")
    assert python_key(text.replace("return 1", "return 2"), ROOTS) != python_key(text, ROOTS)


def test_cpp_keeps_line_ends_of_directives_and_the_gap_that_makes_a_macro() -> None:
    assert c_tokens("#define A 1\nint a;") == c_tokens("  #define A 1  // one\nint   a ;")
    assert c_tokens("#define F (x)\n") != c_tokens("#define F(x)\n")
    assert c_tokens('char* s = "// no comment";') != c_tokens('char* s = "";')
    assert c_tokens("#define A \\\n 1\nint b;") != c_tokens("#define A\n1 int b;")
    assert text_key("int a; // x", "a.cu") == text_key("int a;", "a.cu")
    assert text_key("int a; // x", "a.txt") != text_key("int a;", "a.txt")


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
