"""Numbers about speed in a text, held against the facts of the record. Pure; what has no ground there is marked.

A figure is grounded if a measurement of the session (or of a run that it looked at) rounds to it. One that only a forecast
gives must be called a forecast; one that belongs to another candidate than the sentence names, or to an earlier text of
it, is not grounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilecast.agent.toolbox.base import Fact
from tilecast.sandbox.errors import CandidateError
from tilecast.sandbox.source import Candidate

RELATIVE, COARSEST = 0.005, 0.05
"""A figure may be off by half of its last digit, but by no more than 5 %, and always by 0.5 %."""

NUMBER = r"(?P<number>\d[\d,]*(?:\.\d+)?)"
WORDS = {
    "twice": 2.0,
    "double": 2.0,
    "doubles": 2.0,
    "doubled": 2.0,
    "two": 2.0,
    "three": 3.0,
    "triple": 3.0,
    "tripled": 3.0,
}
WORDS |= {"triples": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "eight": 8.0, "ten": 10.0, "thrice": 3.0, "halves": 2.0}
WORDS |= {"halved": 2.0, "quadruple": 4.0, "quadruples": 4.0, "half": 2.0, "hundred": 100.0, "magnitude": 10.0}
FASTER = r"(?:faster|slower|quicker)"
GAIN = rf"(?:{FASTER}|speed-?up|improvement|reduction|less\s+time|gain|better)"
GAINS = rf"(?:{FASTER}|speed-?up|speeds?\s+up|improve\w*|reduc\w*|gain\w*)"
LIGHT = r"(?:speed\s+of\s+light|peak|roofline|bandwidth)"
OF_SPEED = rf"(?:as\s+fast|{FASTER}|the\s+(?:\w+\s+)?(?:speed|time|throughput|performance|latency|runtime))"
PERCENT = r"(?:%|percent|per\s+cent)"
FEW_WORDS = r"\W+(?:\w+\W+){0,3}?"
BY = r"\s+(?:\w+\s+){0,2}?(?:by|of)\s+(?:about\s+|roughly\s+|~)?"
ALONE = rf"(?<![\w.]){NUMBER}\s*"
PATTERNS: tuple[tuple[str, str], ...] = (
    ("ratio", rf"{ALONE}(?:[x×](?![\w])|-?fold\b|times\b(?=\s+{OF_SPEED}))"),
    ("percent", rf"{ALONE}{PERCENT}(?={FEW_WORDS}{GAIN})"),
    ("percent", rf"{GAINS}{BY}{NUMBER}\s*{PERCENT}"),
    ("light", rf"{ALONE}{PERCENT}(?={FEW_WORDS}{LIGHT})"),
    ("time", rf"{ALONE}(?P<unit>ms|µs|μs|us|ns|milliseconds?|microseconds?|nanoseconds?)\b"),
    ("rate", rf"{ALONE}(?P<unit>[GT]i?B\s*/\s*s|[GTP]FLOPS?(?:/s)?)\b"),
    ("word", rf"\b(?P<word>{'|'.join(WORDS)})(?=(?:\s+times)?\s+{OF_SPEED})"),
    ("word", r"\border\s+of\s+(?P<word>magnitude)(?=\s+(?:faster|slower|quicker))"),
)
COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in PATTERNS)
UNITS_MS = {"ms": 1.0, "mi": 1e-3, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ns": 1e-6, "na": 1e-6}
FORECAST = re.compile(r"forecast|predict|estimat|expect|project", re.IGNORECASE)
SLOWER = re.compile(r"slow", re.IGNORECASE)
FENCE = re.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)\s*$|\Z)", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n")
MARK = "[not in the record]"
MARKS = {
    "unknown": MARK,
    "forecast": "[a forecast, not measured]",
    "stale": "[measured on another version of the file]",
    "undecided": "[the record does not call it faster]",
}


@dataclass(frozen=True)
class Claim:
    """One figure about speed: where it stands, and what is wrong with it (empty if it is in the record)."""

    text: str
    start: int
    end: int
    trouble: str = ""


@dataclass(frozen=True)
class Ground:
    """What claims are held against.

    Attributes:
        facts: what the record has.
        sources: text of each candidate's file as it is now.
        peaks: rates of the device that may be named, in GB/s and GFLOP/s.
    """

    facts: Sequence[Fact]
    sources: Mapping[str, str]
    peaks: Sequence[float] = ()


def find_claims(text: str, ground: Ground) -> list[Claim]:
    """All figures about speed in a text, in order; code blocks are left out."""
    prose = FENCE.sub(lambda found: "\0" * len(found.group()), text)
    found: dict[tuple[int, int], Claim] = {}
    for begin, sentence in _sentences(prose):
        for kind, pattern in COMPILED:
            for match in pattern.finditer(sentence):
                place = (begin + match.start(), begin + match.end())
                if not any(place[0] < end and start < place[1] for start, end in found):
                    trouble = _trouble(kind, match, sentence, ground)
                    found[place] = Claim(match.group().strip(), *place, trouble)
    return [found[place] for place in sorted(found)]


def marked(text: str, ground: Ground) -> str:
    """The text with a mark behind every figure that the record does not have."""
    parts, at = [], 0
    for claim in find_claims(text, ground):
        if claim.trouble:
            parts += [text[at : claim.end], f" {MARKS[claim.trouble]}"]
            at = claim.end
    return "".join([*parts, text[at:]])


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for gap in SENTENCE.finditer(text):
        yield at, text[at : gap.start()]
        at = gap.end()
    yield at, text[at:]


def _trouble(kind: str, match: re.Match[str], sentence: str, ground: Ground) -> str:
    if kind == "word":
        value, digits = WORDS[match["word"].lower()], 0
    else:
        number = match["number"].replace(",", "")
        value, digits = float(number), len(number.partition(".")[2])
    about = _about(sentence, ground.facts)
    slower = SLOWER.search(sentence[match.start() : match.end() + 40]) is not None
    if kind == "rate":
        return "" if any(_close(value * _giga(match["unit"]), peak, 0, 1) for peak in ground.peaks) else "unknown"
    grounded = [fact for fact in about if _matches(kind, match, value, digits, _shown(fact, sentence), slower)]
    times = [fact for fact in grounded if fact.is_time]
    if not times:
        if not grounded:
            return "unknown"
        return "" if FORECAST.search(sentence) else "forecast"
    fresh = [fact for fact in times if _is_fresh(fact, ground.sources.get(fact.candidate))]
    if not fresh:
        return "stale"
    says_faster = kind != "time" and not slower and re.search(r"faster|speed-?up|quicker", sentence, re.IGNORECASE)
    if says_faster and all(fact.verdict != "faster" for fact in fresh):
        return "undecided"
    return ""


def _shown(fact: Fact, sentence: str) -> Fact:
    """The ends of an interval are figures only beside the ratio or beside each other: the upper one alone says too much."""
    if fact.ratio is None or fact.low is None or fact.high is None:
        return fact
    numbers = [float(text) for text in re.findall(r"\d+(?:\.\d+)?", sentence)]
    ratio, low, high = (any(_close(n, value, 2, 1) for n in numbers) for value in (fact.ratio, fact.low, fact.high))
    return fact if ratio or (low and high) else fact.model_copy(update={"low": None, "high": None})


def _is_fresh(fact: Fact, text: str | None) -> bool:
    """Whether a fact is about the candidate's file as it is; one without a file (of a run) is what it was."""
    if text is None:
        return True
    try:
        return Candidate(name=fact.candidate, source=text).with_config(fact.config).sha256 == fact.source_sha256
    except CandidateError:
        return False


def _about(sentence: str, facts: Sequence[Fact]) -> list[Fact]:
    """Facts of the candidates that the sentence names; all of them where it names none."""
    named = {f.candidate for f in facts if re.search(rf"(?<![\w/]){re.escape(f.candidate)}(?!\w)", sentence)}
    return [fact for fact in facts if not named or fact.candidate in named]


def _matches(kind: str, match: re.Match[str], value: float, digits: int, fact: Fact, slower: bool) -> bool:
    if kind == "light":
        return fact.light is not None and _close(value, fact.light * 100, digits, 1)
    if kind == "time":
        scale = UNITS_MS[match["unit"].lower()[:2]]
        times = [fact.ms, fact.ms_low, fact.ms_high, fact.baseline_ms]
        return any(_close(value, time / scale, digits, 1) for time in times if time is not None)
    ratios = [ratio for ratio in (fact.ratio, fact.low, fact.high) if ratio]
    if slower:
        # "2x slower" is 0.5 times the speed, and "0.5x, slower" as well.
        ratios = [said for ratio in ratios if ratio < 1 for said in (ratio, 1 / ratio)]
    if kind == "percent":
        # "20 % faster" is 1.2 times the speed, and "20 % less time" 1.25 times; both are said of both.
        shown: list[Callable[[float], float]] = [lambda r: (r - 1) * 100, lambda r: (1 - 1 / r) * 100]
        return any(_close(value, abs(show(ratio)), digits, 0.5) for ratio in ratios for show in shown)
    return any(_close(value, ratio, digits, 1) for ratio in ratios)


def _close(said: float, known: float, digits: int, least_step: float) -> bool:
    """Whether a known value rounds to the one that was said."""
    half_digit = 0.5 * least_step * 10.0**-digits
    allowed = max(RELATIVE * abs(known), min(half_digit, COARSEST * abs(known)))
    return abs(said - known) <= allowed * (1 + 1e-9)


def _giga(unit: str) -> float:
    return {"G": 1.0, "T": 1e3, "P": 1e6}[unit[0].upper()]
