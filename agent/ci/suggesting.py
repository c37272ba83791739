"""A bounded ``optimize`` run on a kernel that the change touches; what it finds is offered as a patch and never pushed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from tilecast.agent.budget import Limits
from tilecast.agent.ci.changes import Version
from tilecast.agent.ci.schema import Ratio, Suggestion
from tilecast.agent.ci.verdict import of_interval
from tilecast.agent.config import Settings, home
from tilecast.agent.engine import Engine
from tilecast.agent.report.wording import ledger
from tilecast.agent.request import OptimizeRequest, limits_of
from tilecast.agent.result import write_text
from tilecast.sandbox.base import EvaluationOptions, ProgressSink
from tilecast.sandbox.errors import NothingMeasured

HEAD = "head"
_SHOWN_CHARACTERS = 8_000


@dataclass(frozen=True)
class Suggesting:
    """How suggestions are looked for.

    Attributes:
        settings: model, device and the rest, as ``optimize`` takes them.
        folder: where patches and records are put.
        say: progress, one line each.
    """

    settings: Settings
    folder: Path
    say: ProgressSink

    def suggest(self, version: Version, threshold: float, device: str) -> Suggestion | None:
        """A version that is faster than head by the threshold, verified and measured against it; None if none was found.

        Raises:
            TilecastError: if the run cannot be made at all.
        """
        assert version.candidate is not None and version.problem is not None
        head = version.candidate
        settings = self.settings.model_copy(update={"device": device})
        request = OptimizeRequest(
            problem=version.problem,
            start=head,
            settings=settings,
            home=home(),
            options=EvaluationOptions(
                timeout_s=settings.timeout_s,
                pure=settings.pure,
                require_sandbox=settings.require_sandbox,
                baseline=HEAD,
                baseline_source=head.source,
            ),
            limits=self._limits(version),
            run_dir=self.folder / "runs",
        )
        self.say(f"{version.spec.name}: looking for a faster version within {_told(request.limits)}")
        engine = Engine(request)
        try:
            result = engine.run()
        except NothingMeasured:
            return None
        finally:
            engine.close()
        best = result.best
        if best is None or best.source_sha256 == head.sha256:
            return None
        speedup = Ratio(ratio=best.speedup.ratio, low=best.speedup.low, high=best.speedup.high)
        if of_interval(speedup, threshold) != "faster":
            return None
        patch = patch_of(version, Path(best.path).read_text(encoding="utf-8"))
        name = f"suggestion-{''.join(c if c.isalnum() else '-' for c in version.spec.name)[:60]}.patch"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / name, patch)
        return Suggestion(
            speedup=speedup,
            recorded=best.recorded,
            file=name,
            patch=patch if len(patch) <= _SHOWN_CHARACTERS else "",
            run=result.run,
            spent=ledger(result.ledger)[:300],
            model=(settings.model or engine.parts.model)[:300],
        )

    def _limits(self, version: Version) -> Limits:
        """The kernel's own budget; what it leaves open comes from the configuration's, and there is always a limit."""
        own, general = version.spec.settings.limits(), self.settings.budget
        merged = general.model_copy(update=own.model_dump(exclude_none=True))
        if merged.max_evals is None:
            merged = merged.model_copy(update={"max_evals": self.settings.ci.suggest_evals})
        return limits_of(merged)


def patch_of(version: Version, text: str) -> str:
    """A patch for ``git apply`` that makes the candidate's file the text.

    A candidate of several files was put together from them, and so is the text: then it is against that one text, for reading.
    """
    assert version.candidate is not None
    path = version.spec.candidate
    before, after = version.candidate.source.splitlines(keepends=True), text.splitlines(keepends=True)
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    made = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    if version.parts > 1:
        return f"# against one text put together from {version.parts} files; does not apply as it is\n{made}"
    return made


def _told(limits: Limits) -> str:
    given = [f"{name} {value:g}" for name, value in limits.as_dict().items() if value is not None]
    return ", ".join(given)
