"""Turns what a compiler's child process left behind into a status, a reason of a few words, and one line of advice."""

from __future__ import annotations

import re
import signal
from typing import Any

_REASON_CHARACTERS = 400
_DIAGNOSTIC = re.compile(r"(?:error|Assertion|LLVM ERROR|fatal|UNREACHABLE)\b.*", re.I)
_PTXAS_RESOURCE = re.compile(r"ptxas error\s*:.*(?:too much|exceeds).*", re.I)

_HINTS: tuple[tuple[str, str], ...] = (
    ("shape", "check the shapes of the tiles at that line: operands must broadcast, and dot needs (M, K) x (K, N)"),
    ("power of 2", "block sizes and tl.arange ranges must be powers of two"),
    ("arange", "tl.arange needs constexpr bounds whose difference is a power of two"),
    ("constexpr", "the value must be known at compile time: pass it as tl.constexpr"),
    ("same dtype", "cast the operands to one type, for instance with .to(tl.bfloat16)"),
    (
        "not defined",
        "a name is not visible inside the kernel: pass it as an argument, or make it a tl.constexpr global",
    ),
    ("global variable", "a kernel may read only globals that are tl.constexpr; pass others as arguments"),
    ("has no attribute", "that function does not exist in this version of the language: use one that does"),
    ("Unsupported", "the language does not support that construct in a kernel: write it with tl operations"),
)


def explain(answer: dict[str, Any]) -> dict[str, Any]:
    """Status, reason and advice of a compilation that gave no figures (see :func:`isolate.call`)."""
    log = answer.get("log", "")
    if "timeout" in answer:
        return _result(
            "COMPILE_TIMEOUT",
            f"the compiler was stopped after {answer['timeout']:.1f} s",
            "the configuration is too large for its warps: smaller blocks or more num_warps, less unrolling",
        )
    if "starved" in answer:
        reason = (
            f"the time for this candidate ended {answer['starved']:.1f} s into this compilation: the machine is busy"
        )
        return _result("NOT_COMPILED", reason, "")
    if "died" in answer:
        return _crash(_name_of(answer["died"]), log)
    error = answer.get("error", {})
    message = str(error.get("message", ""))
    if error.get("type") in ("PTXASError", "TileCompilerExecutionError", "TileCompilerError"):
        return _assembler(message)
    if error.get("type") == "RuntimeError" and "PassManager" in message:
        return _crash(message, log)
    if error.get("type") in ("TileCompilerTimeoutError",):
        return explain({"timeout": 0.0})
    return _result("COMPILE_ERROR", _where(error) + _cut(message), _hint(message))


def _result(status: str, reason: str, advice: str) -> dict[str, Any]:
    return {"status": status, "reason": reason, "advice": advice}


def _crash(what: str, log: str) -> dict[str, Any]:
    lines = [found[0].strip() for found in map(_DIAGNOSTIC.search, log.splitlines()) if found]
    detail = ": " + _cut(lines[0]) if lines else ""
    advice = "not an error in the kernel's logic: rewrite the construct, or change num_stages, num_warps or warp specialization"
    return _result("COMPILER_CRASH", f"the compiler failed ({what}){detail}", advice)


def _assembler(message: str) -> dict[str, Any]:
    if found := _PTXAS_RESOURCE.search(message):
        return _result("OUT_OF_RESOURCES", _cut(found[0]), "use smaller blocks or fewer stages")
    if "SIGSEGV" in message or "Internal" in message or "signal" in message.lower():
        return _crash(_cut(message), message)
    first = _DIAGNOSTIC.search(message)
    return _result("COMPILE_ERROR", _cut(first[0] if first else message), _hint(message))


def _name_of(code: int) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return name + (", out of memory?" if name == "SIGKILL" else "")
    return f"exit code {code}"


def _where(error: dict[str, Any]) -> str:
    line, text = error.get("line"), error.get("text")
    if not line:
        return ""
    return f"line {line}: `{text}`: " if text else f"line {line}: "


def _cut(message: str) -> str:
    short = " ".join(message.split())
    return short if len(short) <= _REASON_CHARACTERS else short[: _REASON_CHARACTERS - 1] + "…"


def _hint(message: str) -> str:
    lowered = message.lower()
    return next((hint for mark, hint in _HINTS if mark.lower() in lowered), "fix the line that the compiler names")
