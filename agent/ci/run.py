"""One comparison from two commits to a document: what changed, what is expected, what is measured, what it amounts to."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tilecast.agent.ci.cause import likely_causes
from tilecast.agent.ci.changes import Compared, KernelChange, find_changes
from tilecast.agent.ci.configured import settings_at
from tilecast.agent.ci.expecting import Collect, Expectation, Expecting, collector
from tilecast.agent.ci.git import Git
from tilecast.agent.ci.keeping import Keeping
from tilecast.agent.ci.measuring import Measured, Measuring
from tilecast.agent.ci.places import Place, Places
from tilecast.agent.ci.schema import CiReport, ForecastNote, KernelReport, Suggestion, Verdict, cut
from tilecast.agent.ci.verdict import fails, is_reported, of_forecast
from tilecast.agent.config import Settings, home
from tilecast.sandbox.base import EvaluationOptions, ProgressSink
from tilecast.sandbox.errors import EnvironmentFailure, TilecastError, UsageError
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.sandbox.hardware import Hardware, find_hardware, require_hardware
from tilecast.sandbox.installed import own_version
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.tools.forecast.base import Forecaster

MOST_KERNELS = 50
"""Kernels that are looked at for one change; the rest is named as left out."""


@dataclass(frozen=True)
class Asked:
    """What is to be compared, and how.

    Attributes:
        git: the repository.
        base, head: full names of the commits; base is where head branched off.
        prefix: folder of the configuration below the root, with a slash, or empty.
        flags: settings given on the command line.
        evidence: whether to compile both versions; None is unless times are recorded.
        gpu_allowed: whether the code may run on a GPU of this machine.
        trusted: whether money may be spent on it (suggestions).
        folder: where patches and records go.
        notes: lines for the document.
    """

    git: Git
    base: str
    head: str
    prefix: str = ""
    flags: dict[str, object] = field(default_factory=dict)
    evidence: bool | None = None
    gpu_allowed: bool = True
    trusted: bool = True
    folder: Path = Path("tilecast-ci")
    notes: tuple[str, ...] = ()


@dataclass
class Outcome:
    """The document, and what kept the machine from answering (the last failure, if any)."""

    report: CiReport
    broken: EnvironmentFailure | None = None


def settings_of(asked: Asked) -> Settings:
    """Settings as of the base commit, else of head where base configures nothing.

    Raises:
        UsageError: for a configuration that cannot be used.
    """
    return settings_at([asked.git.tree(asked.base), asked.git.tree(asked.head)], asked.prefix, asked.flags)


def compare(asked: Asked, settings: Settings, forecaster: Forecaster | None, say: ProgressSink) -> Outcome:
    """Do it. Kernels that the change does not reach cost nothing.

    Raises:
        UsageError: for what cannot be used as asked.
    """
    found = find_changes(asked.git, asked.base, asked.head, asked.prefix)
    say(f"{found.files} changed file(s) reach {len(found.kernels)} of {found.known} kernel(s)")
    if not found.kernels:
        return Outcome(_document(asked, settings, found, [], Places.nowhere()))
    with Places(settings, asked.gpu_allowed) as places, ExitStack() as stack:
        one = _Comparison(asked, settings, places, forecaster, stack, say)
        kernels = [one.kernel(change) for change in found.kernels[:MOST_KERNELS]]
        if not places.device and not one.target:
            places.notes.append("there is no GPU here, and none is named to forecast for: name one with --target")
        report = _document(asked, settings, found, kernels, places)
        return Outcome(report.model_copy(update={"target": one.target}), one.broken)


class _Comparison:
    """Compares the kernels of one change, one after the other."""

    def __init__(
        self,
        asked: Asked,
        settings: Settings,
        places: Places,
        forecaster: Forecaster | None,
        stack: ExitStack,
        say: ProgressSink,
    ) -> None:
        self._asked, self._settings, self._places, self._say = asked, settings, places, say
        self._stack, self._forecaster = stack, forecaster
        self._keeping = Keeping(home() / "cache" / "ci")
        self._expecting: dict[str, Expecting] = {}
        self._measuring: dict[int, Measuring] = {}
        self.target = ""
        self.broken: EnvironmentFailure | None = None

    def kernel(self, change: KernelChange) -> KernelReport:
        """One kernel, whatever happens to it."""
        nothing = Expectation(ForecastNote(abstains=True))
        if change.kind in ("removed", "beyond") or change.head is None:
            verdict: Verdict = "removed" if change.head is None else "not_compared"
            why = "" if change.head is None else "files named by `paths` changed, but the text that runs is the same"
            return self._report(change, nothing, Measured(verdict=verdict, reason=why), None)
        if change.head.refused:
            return self._report(change, nothing, Measured(verdict="not_compared", reason=change.head.refused), None)
        place = None
        try:
            place = self._places.of(change.head.problem)
            expected = self._expect(change, place)
            measured = self._measure(change, expected, place)
            suggestion = self._suggest(change, measured, place)
        except EnvironmentFailure as error:
            self.broken = error
            measured, expected, suggestion = Measured(verdict="not_compared", reason=str(error)), nothing, None
        except UsageError as error:
            measured, expected, suggestion = Measured(verdict="not_compared", reason=str(error)), nothing, None
        report = self._report(change, expected, measured, place)
        return report.model_copy(update={"suggestion": suggestion})

    def _expect(self, change: KernelChange, place: Place | None) -> Expectation:
        hardware = self._hardware(place)
        key = hardware.key if hardware is not None else ""
        if key not in self._expecting:
            self._expecting[key] = Expecting(self._forecaster, hardware, self._collect(hardware, place), self._say)
            self.target = self.target or self._expecting[key].target
        return self._expecting[key].expect(change)

    def _hardware(self, place: Place | None) -> Hardware | None:
        if self._settings.target is not None:
            return require_hardware(self._settings.target)
        return find_hardware(place.device) if place is not None and place.device else None

    def _collect(self, hardware: Hardware | None, place: Place | None) -> Collect:
        wanted = self._asked.evidence if self._asked.evidence is not None else not (place and place.recorded)
        if hardware is None or not wanted:
            return lambda problem, candidate: None
        cache = home() / "cache" / "evidence"
        made = EvidenceCollector(cache, require_sandbox=self._settings.require_sandbox)
        return collector(self._stack.enter_context(made), hardware)

    def _measure(self, change: KernelChange, expected: Expectation, place: Place | None) -> Measured | None:
        """What the device says; None where there is none, or nothing is left to ask."""
        if place is None:
            return None
        key = id(place.sandbox)
        if key not in self._measuring:
            options = EvaluationOptions(
                timeout_s=self._settings.timeout_s,
                pure=self._settings.pure,
                require_sandbox=self._settings.require_sandbox,
            )
            self._measuring[key] = Measuring(place.sandbox, options, self._keeping, self._say)
        # What is sure to be as fast is not timed; its answers are still worth a look.
        unchanged = expected.unchanged(self._threshold(change))
        timed = change.kind == "changed" and not unchanged and not place.checks_only
        assert change.head is not None
        limit_s = change.head.spec.settings.limits().max_gpu_seconds
        return self._measuring[key].pair(change, self._threshold(change), limit_s, timed)

    def _suggest(self, change: KernelChange, measured: Measured | None, place: Place | None) -> Suggestion | None:
        wanted = self._settings.ci.suggest and self._asked.trusted and change.head is not None
        if not wanted or place is None or place.checks_only or measured is None:
            return None
        if measured.status is not EvaluationStatus.PASSED:
            return None
        assert change.head is not None
        from tilecast.agent.ci.suggesting import Suggesting

        try:
            suggesting = Suggesting(self._settings, self._asked.folder, self._say)
            return suggesting.suggest(change.head, self._threshold(change), place.spec)
        except TilecastError as error:
            self._say(f"{change.name}: no suggestion: {error}")
            return None

    def _threshold(self, change: KernelChange) -> float:
        """Base's own, so that a change cannot loosen its own judgement."""
        version = change.base or change.head
        own = version.spec.settings.threshold if version is not None else None
        return own if own is not None else self._settings.ci.threshold

    def _report(
        self, change: KernelChange, expected: Expectation, measured: Measured | None, place: Place | None
    ) -> KernelReport:
        verdict, basis, why = _amounts_to(change, expected, measured, self._threshold(change), place)
        version = change.head or change.base
        assert version is not None
        base, head = expected.base, expected.head
        if measured is not None and measured.kernels and not (base and head):
            base, head = measured.kernels["base"], measured.kernels["head"]
        causes = likely_causes(base, head, verdict != "faster", _configs(change)) if change.kind == "changed" else []
        used = place if measured is not None and measured.status is not None else None
        return KernelReport(
            name=cut(change.name),
            problem=cut(version.spec.problem),
            candidate=cut(version.spec.candidate),
            verdict=verdict,
            basis=basis,  # type: ignore[arg-type]
            reported=is_reported(verdict),
            threshold=self._threshold(change),
            status=measured.status if measured is not None else None,
            base_status=measured.base_status if measured is not None else None,
            speedup=measured.speedup if measured is not None else None,
            latency_ms=measured.latency_ms if measured is not None else None,
            forecast=expected.note if expected.note.target else None,
            causes=causes,
            limits=cut(measured.limits) if measured is not None else "",
            why=why[:4000],
            samples=measured.samples if measured is not None else None,
            device=cut(used.device) if used is not None else "",
            versions=used.versions if used is not None else {},
            sandbox=cut(measured.sandbox_level) if measured is not None else "",
            cached=measured.cached if measured is not None else False,
            seconds=measured.seconds if measured is not None else 0.0,
            files=[cut(path) for path in change.files[:20]],
        )


def _amounts_to(
    change: KernelChange, expected: Expectation, measured: Measured | None, threshold: float, place: Place | None
) -> tuple[Verdict, str, str]:
    """Verdict, where it comes from, and why."""
    if measured is not None:
        if measured.status is None or measured.verdict == "not_compared":
            return measured.verdict, "none", measured.reason
        basis = "recorded" if measured.recorded else "measured"
        if measured.verdict == "same" and measured.speedup is None:
            unchanged = expected.unchanged(threshold)
            if place is not None and place.checks_only and change.kind == "changed" and not unchanged:
                return _expected(expected, threshold)
            return "same", basis, f"not timed: {unchanged or 'the candidate is the same'}; its answers were checked"
        return measured.verdict, basis, measured.reason
    if change.kind == "added":
        return "added", "none", "there is no device here to check it on"
    if change.base is not None and change.base.candidate is None:
        return "not_compared", "none", f"base cannot be run: {change.base.refused}"
    if change.kind == "problem":
        return "not_compared", "none", "what it is checked against changed, and there is no device here to check it on"
    return _expected(expected, threshold)


def _expected(expected: Expectation, threshold: float) -> tuple[Verdict, str, str]:
    if not expected.note.target:
        return "undecided", "none", "there is no GPU here, and none is named to forecast for (--target)"
    if expected.refused:
        return "incorrect", "forecast", expected.refused
    unchanged = expected.unchanged(threshold)
    if unchanged:
        return "same", "forecast", unchanged
    return of_forecast(expected.note, threshold), "forecast", ""


def _configs(change: KernelChange) -> tuple[dict[str, object] | None, dict[str, object] | None]:
    versions = (change.base, change.head)
    base, head = (v.candidate.config if v is not None and v.candidate is not None else None for v in versions)
    return base, head


def _document(
    asked: Asked, settings: Settings, found: Compared, kernels: list[KernelReport], places: Places
) -> CiReport:
    left_out = [change.name for change in found.kernels[MOST_KERNELS:]]
    notes = [*asked.notes, *places.notes]
    if left_out:
        notes.append(f"{len(left_out)} more kernels are affected and were not looked at: {', '.join(left_out)[:300]}")
    return CiReport(
        base=asked.base,
        head=asked.head,
        kernels=kernels,
        known=found.known,
        files=found.files,
        device=cut(places.device),
        notes=notes,
        fail_on=settings.ci.fail_on,
        failed=fails(kernels, settings.ci.fail_on),
        version=own_version(),
    )
