"""An iterator advanced by a thread of its own, never further ahead than a number of bytes allows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import torch

from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.room import keep_little

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """What a candidate will be asked is drawn while it is busy with something else.

    The iterator runs in the thread alone, and so does whatever it uses: nobody else may use that until :meth:`close`.
    """

    def __init__(
        self,
        items: Iterator[Item],
        size_bytes: Callable[[Item], int],
        most_bytes: int,
        device: torch.device,
        quiet: Quiet | None = None,
    ) -> None:
        self._items, self._size_bytes, self._most_bytes, self._device = items, size_bytes, most_bytes, device
        self._quiet = quiet or Quiet()
        self._ready: deque[tuple[Item, int]] = deque()
        self._held_bytes = 0
        self._error: BaseException | None = None
        self._over = self._stopped = False
        self._turn = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="drawing ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        """The next item, waited for; what the iterator raised is raised here, after the items before it."""
        with self._turn:
            self._turn.wait_for(lambda: self._ready or self._over)
            if self._ready:
                item, size = self._ready.popleft()
                self._held_bytes -= size
                self._turn.notify_all()
                return item
            if self._error is not None:
                raise self._error
            raise StopIteration

    def close(self) -> None:
        """Stop drawing, once the item in hand is done; what was drawn and not taken is dropped."""
        with self._turn:
            self._stopped = True
            self._turn.notify_all()
        self._thread.join()
        self._ready.clear()

    def _run(self) -> None:
        # Both are settings of a thread, not of the process.
        torch.set_grad_enabled(False)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        try:
            while self._room():
                with self._quiet.shared():
                    item = next(self._items)
                    keep_little(self._device, self._quiet.sharers)
                size = self._size_bytes(item)
                with self._turn:
                    self._ready.append((item, size))
                    self._held_bytes += size
                    self._turn.notify_all()
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever takes the items
            self._error = error
        finally:
            with self._turn:
                self._over = True
                self._turn.notify_all()

    def _room(self) -> bool:
        """Wait until another item may be drawn; False if none is wanted any more."""
        with self._turn:
            self._turn.wait_for(lambda: self._stopped or not self._ready or self._held_bytes < self._most_bytes)
            return not self._stopped
