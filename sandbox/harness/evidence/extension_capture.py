"""Placeholder replaced below."""
from __future__ import annotations
from typing import Any
class ExtensionCapture:
    def __init__(self, log: Any, deadline: float, limit: float) -> None: self.log = log
    def install(self) -> None: ...
    def aim(self, arch: str, hardware: Any) -> None: ...
