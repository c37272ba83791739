"""Order of the programs (blocks) of a launch: one after another, unless one waits for another that has not run yet.

A program that polls memory for what another program will write would wait for ever, so after many reads of one address
with one value a pending program runs first. Programs on a GPU may run in any order, so this is always allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from .errors import Unsupported

Index = tuple[int, int, int]

_POLLS_BEFORE_YIELD = 64
_NESTED_PROGRAMS = 16
"""Each nested program adds to Python's stack."""
_REFUSALS = 1000
"""A scalar that is read again and again need not be a wait; this often, it is."""


class Scheduler:
    """Runs every program of a grid exactly once."""

    def __init__(self, grid: Index, run_one: Callable[[Index], None]) -> None:
        self._run_one = run_one
        self._pending: Iterator[Index] = ((x, y, z) for z, y, x in product(*(range(n) for n in reversed(grid))))
        self._depth = 0
        self._last: tuple[int, int] = (0, 0)
        self._polls = 0
        self._refused = 0
        self.program: Index = (0, 0, 0)

    def run_all(self) -> None:
        """Run what is pending, in order."""
        while self.run_next():
            pass

    def run_next(self) -> bool:
        """Run one pending program to its end; False where there is none.

        Raises:
            Unsupported: where programs wait for each other in a chain that is too long.
        """
        if self._depth >= _NESTED_PROGRAMS:
            return self._stuck()
        program = next(self._pending, None)
        if program is None:
            return False
        outer, self.program = self.program, program
        self._depth += 1
        try:
            self._run_one(program)
        finally:
            self._depth -= 1
            if self._depth:
                self.program = outer
        return True

    def _stuck(self) -> bool:
        self._refused += 1
        if self._refused > _REFUSALS:
            raise Unsupported(f"more than {_NESTED_PROGRAMS} programs that wait for each other")
        return False

    def polled(self, address: int, value: bytes) -> bool:
        """Note a scalar read. True if another program ran because of it."""
        seen = (address, hash(value))
        if seen != self._last:
            self._last, self._polls = seen, 0
            return False
        self._polls += 1
        if self._polls < _POLLS_BEFORE_YIELD:
            return False
        self._polls = 0
        return self.run_next()
