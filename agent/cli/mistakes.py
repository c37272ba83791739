"""What to type instead: the end of the message where an argument is missing, or is one too many."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from typer.core import TyperCommand


class HintingCommand(TyperCommand):
    """A command whose complaint about its arguments ends with what was probably meant."""

    # Typed loosely on purpose: newer versions of typer carry a click of their own, older ones use the real one.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual; what is wrong with the arguments is raised as usual, too, with the hint in its message."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "message") and (hint := self._hint(ctx, error, given)):
                said = str(error.message or "").rstrip(".")
                error.message = f"{said}: {hint}" if said else hint[0].upper() + hint[1:]
            raise

    def _hint(self, ctx: Any, error: Any, given: list[str]) -> str:
        if getattr(getattr(error, "param", None), "name", "") == "candidates":
            return kernel_too(str(self.name), ctx.params.get("problem"))
        if self.name != "optimize" or "unexpected extra argument" not in str(error.message):
            return ""
        extra = self.make_parser(ctx).parse_args(given)[1]
        return f"give the kernel to start from as --kernel {shlex.quote(extra[0])}" if len(extra) == 1 else ""


def kernel_too(command: str, problem: str | None) -> str:
    """The whole command for a problem that was named without a kernel, where one lies beside it; else empty."""
    if not problem:
        return ""
    place = Path(problem)
    folder = place.parent if place.name == "reference.py" else place
    there = sorted(folder.glob("kernel*.py"), key=lambda file: (file.name != "kernel.py", file.name))
    return f"give the kernel too: tilecast {command} {shlex.join([problem, str(there[0])])}" if there else ""
