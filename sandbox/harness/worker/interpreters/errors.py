"""What an interpreted kernel can fail with, and a record of it that a candidate's own ``except`` cannot erase."""

from __future__ import annotations


class Unsupported(Exception):
    """The interpreter cannot run this; the kernel may well be right.

    ``feature`` names what is missing in a user's words, for instance ``inline asm 'wgmma.fence'``.
    """

    def __init__(self, feature: str) -> None:
        super().__init__(f"the interpreter cannot run {feature}; check this kernel on a GPU")
        self.feature = feature
        _unsupported.append(feature)


class OutOfBounds(Exception):
    """A kernel read or wrote memory outside every tensor of its launch."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        _out_of_bounds.append(message)


class LaunchError(Exception):
    """The launch itself is refused, as the driver would refuse it: a grid out of range, an unknown keyword."""


_unsupported: list[str] = []
_out_of_bounds: list[str] = []


def unsupported_features() -> list[str]:
    """Features that were asked for and missing, also those whose exception the candidate swallowed."""
    return list(_unsupported)


def out_of_bounds_accesses() -> list[str]:
    """Every access outside the tensors of its launch so far, also those whose exception was swallowed."""
    return list(_out_of_bounds)
