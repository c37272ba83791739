"""Compilation announced to the judge: while a kernel is compiled the device is idle, and others may have it to themselves.

Triton and cuTile compile in the middle of a candidate's first call. Around it the worker says so, and waits for leave before it
goes on to the launch. What it says is a claim, as everything else; it can only make the judge let others have the device, which
a candidate's own threads could disturb anyway.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tilecast.sandbox.harness.wire import COMPILED, COMPILING, Message

_CUTILE = "cuda.tile"


class Conversation(Protocol):
    """The worker's end: says something within the request at hand, and hears the answer."""

    def say(self, event: str) -> None: ...

    def hear(self) -> Message: ...


class Announcer:
    """Announces what compilers do in this process. Only the thread that answers the judge can: others compile unannounced."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._thread = threading.get_ident()
        self._depth = 0
        self.enabled = False
        """Set while a request is answered during which the judge wants to hear of it."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """Inside, something is compiled and nothing launched."""
        if not self.enabled or self._depth or threading.get_ident() != self._thread:
            yield
            return
        self._depth = 1
        self._conversation.say(COMPILING)
        try:
            yield
        finally:
            self._conversation.say(COMPILED)
            self._conversation.hear()
            self._depth = 0

    def install(self, source: str) -> None:
        """Wrap the compilers that are there, before the candidate is imported."""
        if "triton" in sys.modules:
            from triton.runtime.jit import JITFunction

            self._wrap(JITFunction, "_do_compile")
        if _CUTILE in source:
            try:
                import cuda.tile._compile as cutile
            except ImportError:
                return
            self._wrap(cutile, "compile_tile")

    def _wrap(self, owner: Any, name: str) -> None:
        """In another version of the library there may be no such function: then nothing is announced."""
        original: Callable[..., Any] | None = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def announced(*args: Any, **kwargs: Any) -> Any:
            with self.step():
                return original(*args, **kwargs)

        setattr(owner, name, announced)
