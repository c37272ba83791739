"""Measures every point of the examples' SPACEs and writes what `--device replay:examples/NAME` reads.

    python benchmarks/record_examples.py --device cuda:0 --examples matmul,attention --stop-after 540 --out "$OUT"
    python benchmarks/record_examples.py --merge "$OUT"/home-cuda-0 --out .

One run of the loop a kernel file (``kernel.py``, ``kernel_cutile.py``, ``candidates/*.py``): `builtin` over its whole SPACE, no
forecaster. Runs are kept in ``OUT/home-DEVICE``, and what is measured is written to ``OUT/examples/NAME`` every few seconds; a
process that is killed loses the candidate at hand, and the next one goes on with the points that are missing. ``--merge`` writes
the files again from such folders, without a device. Two GPUs: one process each, with different examples.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, parser
from _kept_device import Device

from tilecast.agent.budget import Limits
from tilecast.agent.config import resolve
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import BaselineKnown, Finished, Progress, Said
from tilecast.agent.record.store import RunLog
from tilecast.agent.report.corpus import INFO, MEASUREMENTS, write_corpus
from tilecast.agent.request import OptimizeRequest
from tilecast.agent.result import write_text
from tilecast.sandbox.errors import TilecastError, UsageError
from tilecast.sandbox.languages import language_of
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.source import Candidate, load_candidate

EXAMPLES = ROOT / "examples"
WRITTEN_EVERY_S = 10.0
UNFINISHED = {None, "minutes", "interrupted"}


@dataclass(frozen=True)
class Recording:
    """Where runs are kept, where their measurements go, and until when to go on."""

    home: Path
    out: Path
    device: str
    deadline: float
    source: Path = EXAMPLES
    lanes: int = 1
    timeout_s: float = 240.0

    def request(self, folder: Path, kernel: Path) -> OptimizeRequest:
        """The run over all points of one kernel file.

        Raises:
            UsageError: if the file has no SPACE.
        """
        start = load_candidate(kernel)
        if not start.space:
            raise UsageError(f"{kernel}: has no SPACE to record")
        points = prod(len(values) for values in start.space.values())
        return OptimizeRequest(
            problem=load_problem(folder),
            start=start,
            settings=resolve(
                {
                    "device": self.device,
                    "model": "builtin",
                    "forecaster": "none",
                    "lanes": self.lanes,
                    "timeout_s": self.timeout_s,
                },
                environ={},
            ),
            home=self.home,
            limits=Limits(evals=points + 1, minutes=max(0.05, (self.deadline - time.monotonic()) / 60)),
            confirm=False,
        )


def kernels_of(folder: Path, languages: Sequence[str]) -> list[Path]:
    """Kernel files of an example in the languages asked for: plain ones first."""
    files = [*sorted(folder.glob("kernel*.py")), *sorted((folder / "candidates").glob("*.py"))]
    return [file for file in files if not languages or language_of(file.read_text(encoding="utf-8")) in languages]


def unfinished(recording: Recording, request: OptimizeRequest) -> tuple[str | None, bool]:
    """The run to take up again, if one began with this very kernel and problem; and whether one is complete."""
    if not (recording.home / "record.sqlite").is_file():
        return None, False
    record = open_record(None, recording.home)
    try:
        for summary in record.runs(problem=request.problem.name):
            log = record.open(summary.run, time.monotonic)
            same = (log.header.start_sha256, log.header.problem_sha256, log.header.device_spec)
            assert request.start is not None
            if same != (request.start.sha256, request.problem.sha256, recording.device):
                continue
            stopped = log.state.stopped
            if stopped is None or stopped.stopped_by in UNFINISHED:
                return log.run_id, False
            return None, True
    finally:
        record.close()
    return None, False


def recorded(recording: Recording, name: str, kernel: Path) -> bool:
    """Whether every point of a kernel file's SPACE is in a record written before."""
    file = load_candidate(kernel)
    points = {
        file.with_config(dict(zip(file.space, values, strict=True))).sha256 for values in product(*file.space.values())
    }
    for place in (recording.source / name, recording.out / "examples" / name):
        if (place / MEASUREMENTS).is_file():
            points -= {row.get("source_sha256") for row in read_rows(place).values()}
    return not points


def record_kernel(recording: Recording, device: Device, folder: Path, kernel: Path) -> None:
    """Measure all points of a kernel file that are not measured yet, as far as time allows."""
    try:
        request = recording.request(folder, kernel)
    except UsageError as error:
        say(f"left out: {error}")
        return
    resume, done = unfinished(recording, request)
    if done or recorded(recording, folder.name, kernel):
        say(f"{folder.name}/{kernel.name}: complete")
        return
    written = [time.monotonic()]

    def heard(event: Progress) -> None:
        if isinstance(event, Said | BaselineKnown):
            say(f"{folder.name}: {event.text if isinstance(event, Said) else event.baselines.times_ms}")
        if isinstance(event, Finished):
            result = event.candidate.result
            ms = result.latency_ms.candidate if result is not None and result.latency_ms is not None else None
            say(f"{folder.name}/{kernel.stem} {event.candidate.index}: {ms} ms {result and result.status}")
            if time.monotonic() - written[0] > WRITTEN_EVERY_S:
                written[0] = time.monotonic()
                write_example(recording, folder.name)

    try:
        engine = Engine(request, [heard], resume, device.make)
        before = signal.signal(signal.SIGINT, lambda *_: engine.interrupt())
        try:
            engine.run()
        finally:
            signal.signal(signal.SIGINT, before)
    except TilecastError as error:
        say(f"{folder.name}/{kernel.name}: {error}")
        device.drop()
    write_example(recording, folder.name)


def write_example(recording: Recording, name: str) -> Path | None:
    """All rows of an example that this record holds, joined with those written before; None if there are none."""
    source, folder = recording.source / name, recording.out / "examples" / name
    files = {file.stem: load_candidate(file) for file in kernels_of(source, [])}
    own = {candidate.sha256: stem for stem, candidate in files.items()}
    problem = load_problem(source)
    rows: dict[str, dict[str, Any]] = {}
    info = ""
    for place in dict.fromkeys([source, folder]):
        if (place / MEASUREMENTS).is_file():
            rows |= {key: row for key, row in read_rows(place).items() if is_of(files, row)}
            info = (place / INFO).read_text(encoding="utf-8") if (place / INFO).is_file() else info
    record, found = open_record(None, recording.home), False
    try:
        for summary in reversed(record.runs(problem=problem.name)):
            log = record.open(summary.run, time.monotonic)
            stem = own.get(log.header.start_sha256 or "")
            if stem is None or log.header.problem_sha256 != problem.sha256:
                continue
            new, told = exported(log, files[stem], stem, recording.lanes)
            rows, info, found = rows | new, told or info, found or bool(new)
    finally:
        record.close()
    if not found:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    ordered = sorted(rows.values(), key=lambda row: (row["status"] != "BASELINE", row["candidate"], str(row["config"])))
    write_text(folder / INFO, info)
    return write_text(folder / MEASUREMENTS, "".join(json.dumps(row, sort_keys=True) + "\n" for row in ordered))


def exported(log: RunLog, kernel: Candidate, stem: str, lanes: int) -> tuple[dict[str, dict[str, Any]], str]:
    """Rows of one run under the kernel's own name, by key, and what is told of the machine; nothing if it measured nothing."""
    with tempfile.TemporaryDirectory() as temporary:
        try:
            write_corpus(log, Path(temporary))
        except UsageError:
            return {}, ""
        rows = list(read_rows(Path(temporary)).values())
        info = (Path(temporary) / INFO).read_text(encoding="utf-8")
    kept = {}
    for row in rows:
        if row["status"] != "BASELINE":
            if row["candidate"] != "kernel":
                continue
            row |= {"candidate": stem, "source_sha256": kernel.with_config(row["config"]).sha256}
        kept[key_of(row)] = row
    return kept, told_of(info, lanes)


def told_of(info: str, lanes: int) -> str:
    """What is told of the machine, without what is about one run of several; how many judges there were belongs to the timing."""
    lines = [line for line in info.splitlines() if not line.startswith(("run =", "tilecast ="))]
    if lanes > 1:
        beside = f"; up to {lanes} candidates were verified at once, one was timed alone"
        lines = [f'{line[:-1]}{beside}"' if line.startswith("timing =") else line for line in lines]
    return "".join(f"{line}\n" for line in lines)


def read_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Rows of a ``measurements.jsonl`` by key."""
    lines = (folder / MEASUREMENTS).read_text(encoding="utf-8").splitlines()
    return {key_of(row): row for row in map(json.loads, filter(str.strip, lines))}


def key_of(row: dict[str, Any]) -> str:
    """What a row is about: file and configuration."""
    return f"{row['candidate']} {json.dumps(row['config'], sort_keys=True)}"


def is_of(files: dict[str, Candidate], row: dict[str, Any]) -> bool:
    """Whether a row of an earlier record is still about a file of the example as it stands."""
    if row["status"] == "BASELINE":
        return True
    file = files.get(row["candidate"])
    return file is not None and row.get("source_sha256") == file.with_config(row["config"]).sha256


def say(text: str) -> None:
    """One line on stderr with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def taught(source: Path) -> list[str]:
    """Examples with kernels in both languages, which is what is recorded if none are named."""
    return sorted(file.parent.name for file in source.glob("*/kernel_cutile.py"))


def each(names: Sequence[str], work: Callable[[str], object]) -> None:
    """Do it for all, and say at the end what is written."""
    for name in names:
        work(name)


def main(given: Sequence[str] | None = None) -> None:
    """Measure, or write again what was measured."""
    arguments = parser(__doc__)
    arguments.add_argument("--examples", default="", help="names with commas; all with two languages by default")
    arguments.add_argument("--languages", default="", help="triton, cutile, ... with commas; all by default")
    arguments.add_argument("--kernels", default="", help="file names without .py, with commas; all by default")
    arguments.add_argument("--source", type=Path, default=EXAMPLES, help="folder of the examples")
    arguments.add_argument("--lanes", type=int, default=1, help="judges on the GPU; one of them times")
    arguments.add_argument("--timeout", type=float, default=240.0, help="of one point; cuTile compiles for long")
    arguments.add_argument("--stop-after", type=float, default=540.0, help="seconds in all")
    arguments.add_argument("--merge", type=Path, nargs="*", help="record folders to write again from; measures nothing")
    options = arguments.parse_args(given)
    names = options.examples.split(",") if options.examples else taught(options.source)
    if options.merge is not None:
        for home in options.merge:
            merged = Recording(home, options.out, "", 0.0, options.source, options.lanes)
            each(names, lambda name, merged=merged: say(f"{name}: {write_example(merged, name) or 'nothing'}"))
        return
    spec = device_name(options.device)
    home = options.out / f"home-{spec.replace(':', '-')}"
    deadline = time.monotonic() + options.stop_after
    recording, device = (
        Recording(home, options.out, spec, deadline, options.source, options.lanes, options.timeout),
        Device(),
    )
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        for name in names:
            for kernel in kernels_of(options.source / name, options.languages.split(",") if options.languages else []):
                if options.kernels and kernel.stem not in options.kernels.split(","):
                    continue
                if time.monotonic() < deadline - 10:
                    record_kernel(recording, device, options.source / name, kernel)
    finally:
        device.drop()
        shutil.rmtree(home / "cache", ignore_errors=True)


if __name__ == "__main__":
    main()
