"""What the judge says to its host while a request is under way.

One for the judge's whole life, not one a request: benchmarks and baselines are kept from one request to the next, and what they
say belongs to the request that is answered just then. A line with the number of an earlier one would end the conversation.
"""

from __future__ import annotations

from typing import Any

from tilecast.sandbox.harness.wire import Channel, Message

_SHOWN_CHARS = 300


class Telling:
    """Progress and answers of one request after the other; called with a text, it is a progress sink."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._number: Any = None
        self._under_way = False

    def begin(self, number: Any) -> None:
        """From here to :meth:`end` all belongs to the request with this number."""
        self._number, self._under_way = number, True

    def __call__(self, text: str) -> None:
        """A line of progress. Nobody waits for one between two requests: it is dropped then."""
        if self._under_way:
            line = {"id": self._number, "event": "progress", "text": text[:_SHOWN_CHARS]}
            self._channel.send(line, timeout_s=None)

    def end(self, reply: Message) -> None:
        """The answer."""
        self._under_way = False
        self._channel.send({"id": self._number, **reply}, timeout_s=None)
