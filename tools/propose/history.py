"""What a run has tried, as a view of a growing log: a place in it costs nothing to keep, and readers take in only what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from tilecast.tools.propose.base import Tried


class History(Sequence["Tried"]):
    """The first ``size`` entries of a log that only grows; an entry is put together when it is looked at.

    Args:
        entry: gives the entry at a place; the same object for every view of one log.
        size: how many entries there are at this place of the log.
    """

    def __init__(self, entry: Callable[[int], Tried], size: int) -> None:
        self.entry, self._size = entry, size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> Tried: ...

    @overload
    def __getitem__(self, place: slice) -> list[Tried]: ...

    def __getitem__(self, place: int | slice) -> Tried | list[Tried]:
        if isinstance(place, slice):
            return [self.entry(i) for i in range(*place.indices(self._size))]
        if not -self._size <= place < self._size:
            raise IndexError(place)
        return self.entry(place % self._size)

    def __iter__(self) -> Iterator[Tried]:
        return map(self.entry, range(self._size))


class Follower:
    """Reads a history that grows from question to question; anything else than a later place of the same log is read anew."""

    def __init__(self) -> None:
        self._entry: object = None
        self._read = 0

    def news(self, tried: Sequence[Tried]) -> tuple[bool, Sequence[Tried]]:
        """Whether all that was read before is void, and the entries that are new."""
        goes_on = isinstance(tried, History) and tried.entry is self._entry and len(tried) >= self._read
        begin = self._read if goes_on else 0
        self._entry = tried.entry if isinstance(tried, History) else None
        self._read = len(tried)
        return not goes_on, tried[begin:]
