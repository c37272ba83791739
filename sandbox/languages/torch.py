"""PyTorch: no kernels of its own, ``torch.compile`` included."""

from __future__ import annotations

from tilecast.sandbox.languages.base import ParsedSource, Tunables
from tilecast.sandbox.source import Candidate


class PyTorch:
    """Host half of plain PyTorch."""

    name = "torch"
    title = "PyTorch"

    def recognises(self, parsed: ParsedSource) -> bool:
        """Whether the text imports torch; asked last, for every candidate does."""
        return parsed.imports_from("torch")

    def tunables(self, candidate: Candidate, parsed: ParsedSource) -> Tunables | None:
        """None: what PyTorch tunes it tunes itself."""
        return None
