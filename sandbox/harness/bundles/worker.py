"""The worker of bundles: does what lies in a folder, one item at a time, and writes results beside it.

``python -m tilecast.sandbox.harness.bundles.worker DIR``, ``tilecast worker DIR``, or the carried file in DIR itself. It needs
torch, triton, numpy and the standard library. Killed at any moment it goes on with the item that it was at.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tilecast.sandbox.errors import EnvironmentFailure, InvalidReference
from tilecast.sandbox.harness import device_lock
from tilecast.sandbox.harness.bundles import confirming, files, layout
from tilecast.sandbox.harness.bundles.carried import harness_version
from tilecast.sandbox.harness.bundles.presence import Presence
from tilecast.sandbox.harness.bundles.queue import Todo, WorkQueue
from tilecast.sandbox.harness.bundles.telling import document, seconds, told
from tilecast.sandbox.harness.wire import Message
from tilecast.sandbox.process import JudgeProcess, default_state_dir

POLL_S = 2.0
TRIES = 2
"""Times that an item is begun before the machine's failure is its result."""
INTERRUPTED = 130

Say = Callable[[str], None]
Tell = Callable[[Message], None]


@dataclass(frozen=True)
class WorkerOptions:
    """How long to go on: ``once`` does what is there; ``wait_s`` without work ends it; nothing is begun after ``for_s``."""

    folder: Path
    device: str = "cuda:0"
    once: bool = False
    wait_s: float | None = None
    for_s: float | None = None
    require_sandbox: bool = False


class Worker:
    """One device's worker."""

    def __init__(self, options: WorkerOptions, say: Say) -> None:
        self._options, self._say = options, say
        self._harness, self._key = harness_version(), files.key_of()
        self._queue = WorkQueue(options.folder, self._harness, self._key, say)
        self._judge = JudgeProcess(options.device, default_state_dir(), require_sandbox=options.require_sandbox)
        self._hello: Message | None = None
        self._best: dict[str, float] = {}
        self.done = 0

    def run(self) -> int:
        """Work until there is nothing more to do; the number of items done.

        Raises:
            EnvironmentFailure: if the device or the folder cannot be used.
            KeyboardInterrupt: on Ctrl-C or SIGTERM; what is done is written, the item under way is not.
        """
        options, began_s, idle_since_s = self._options, time.monotonic(), time.monotonic()
        presence = Presence(options.folder, options.device)
        self._say(f"worker of {options.folder} on {options.device}, harness {self._harness[: layout.SHORT]}")
        try:
            while options.for_s is None or time.monotonic() - began_s < options.for_s:
                todo, others = self._next(presence.elsewhere())
                if todo is not None:
                    self._do(todo, presence)
                if todo is not None or others:
                    # What another worker is at is waited for: it may have been killed, and then it is done here.
                    idle_since_s = time.monotonic()
                    time.sleep(POLL_S if todo is None else 0)
                    continue
                idle_s = time.monotonic() - idle_since_s
                if options.once or (options.wait_s is not None and idle_s >= options.wait_s):
                    break
                presence.tell("waiting for bundles", now=False)
                time.sleep(POLL_S)
        finally:
            presence.tell("ended")
            self._judge.close()
        for name in self._queue.incomplete:
            self._say(f"left alone, for it is not all there yet: {name}")
        return self.done

    @property
    def refused(self) -> Mapping[str, str]:
        """Bundles that it will not work on, with the reason."""
        return self._queue.refused

    @property
    def incomplete(self) -> Collection[str]:
        """Bundles that are not all there yet."""
        return self._queue.incomplete

    def why_no_more(self) -> str:
        """Why a worker that ended has nothing to do."""
        refused, incomplete = self._queue.refused, self._queue.incomplete
        if refused:
            name, reason = next(iter(refused.items()))
            return f"{len(refused)} bundle(s) refused, and their items not done: {name}: {reason}"
        if incomplete:
            return f"{len(incomplete)} bundle(s) not all there yet: run it again when they are"
        return f"there are no bundles in {self._options.folder}" if self._queue.empty else "nothing more to do"

    def _next(self, elsewhere: set[str]) -> tuple[Todo | None, int]:
        """The next item, and how many were passed over because another worker is at them."""
        passed = 0
        for todo in self._queue.open_items():
            if todo.item["id"] not in elsewhere:
                return todo, passed
            passed += 1
        return None, passed

    def _do(self, todo: Todo, presence: Presence) -> None:
        """One item, and right after it the second examination of a candidate that takes the lead."""
        body = self._answer(todo, presence)
        self._write(todo, body)
        again = confirming.confirmation(self._queue, todo, body)
        if again is not None:
            self._write(again, self._answer(again, presence))

    def _answer(self, todo: Todo, presence: Presence) -> Message:
        item, began_s = todo.item, time.time()
        label = f"{item['op']} {item.get('label', '')}".strip() + (" (confirming)" if confirming.confirms(item) else "")
        presence.tell("working", item["id"], label)

        def progress(text: str) -> None:
            presence.tell("working", item["id"], f"{label}: {text}", now=False)

        device = self._greeting()["device"]
        path = device_lock.lock_path(device["kind"], device.get("index"), device.get("uuid", ""))
        with device_lock.held(device_lock.opened(path), self._say):
            outcome = self._judged(item["op"], self._args(todo), progress)
        took_s = time.time() - began_s
        self._say(f"[{self.done + 1}] {label}: {told(outcome)} ({took_s:.1f} s)")
        return {
            "kind": "result",
            "harness": self._harness,
            "bundle": todo.bundle.sha256,
            "item": item["id"],
            **outcome,
            "device": device,
            "sandbox": self._greeting()["sandbox"]["level"],
            "host": platform.node(),
            "started_at": began_s,
            "seconds": took_s,
        }

    def _judged(self, op: str, args: Message, progress: Say) -> Message:
        for attempt in range(1, TRIES + 1):
            try:
                return {"ok": True, "result": self._judge.request(op, args, progress)}
            except InvalidReference as error:
                return {"ok": False, "error": {"kind": "problem", "message": str(error)}}
            except EnvironmentFailure as error:
                self._say(f"{op} failed by the machine ({attempt} of {TRIES}): {error}")
                self._judge.kill()
                failed = {"ok": False, "error": {"kind": "environment", "message": str(error)[:2000]}}
        return failed

    def _args(self, todo: Todo) -> Message:
        """What the judge is asked: with the GPU's data sheet, and the run's baseline where the item says `auto`."""
        body = todo.bundle.body
        args = {"problem": body["problem"], **todo.item["args"]}
        if "candidate" in args:
            args["candidate"] = {**args["candidate"], "name": str(todo.item.get("label", ""))}
        if "options" not in args:
            return args
        options = dict(args["options"])
        sheet = layout.data_sheet(body.get("hardware", []), self._greeting()["device"]["name"])
        if sheet is not None and self._greeting()["device"]["kind"] == "cuda":
            options["hardware"] = sheet
        if todo.item["op"] == "bench" and options.get("baseline") == "auto" and not options.get("baseline_source"):
            options["baseline"] = confirming.fastest_baseline(self._queue, todo) or "auto"
        return {**args, "options": options}

    def _greeting(self) -> Message:
        if self._hello is None:
            self._hello = self._judge.request("hello", {}, lambda _: None)
            self._say(f"device {self._hello['device']['name']}, sandbox {self._hello['sandbox']['level']}")
        return self._hello

    def _write(self, todo: Todo, body: Message) -> None:
        path = layout.result_path(self._options.folder, todo.bundle.sha256, todo.item["id"], files.digest(body))
        try:
            files.write(path, body, self._key)
        except OSError as error:
            raise EnvironmentFailure(f"the result cannot be written to {path}: {error}") from error
        self.done += 1


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM, as a queue sends it at the end of a job, is taken like Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def work(options: WorkerOptions, say: Say, tell: Tell = lambda document: None) -> int:
    """Run a worker; the exit code: 0 done, 1 bundles were refused, 2 wrong usage, 3 the machine cannot, 130 interrupted.

    ``tell`` is given the result as a document, also the result so far of a worker that was interrupted.
    """
    if not options.folder.is_dir():
        print(f"error: {options.folder}: no such folder; give the one named after --device bundle:", file=sys.stderr)
        return 2
    if options.device != "cpu" and not (options.device.startswith("cuda:") and options.device[5:].isdecimal()):
        print(f"error: --device {options.device}: cuda, cuda:N or cpu", file=sys.stderr)
        return 2
    worker = None
    try:
        with terminable():
            worker = Worker(options, say)
            count = worker.run()
    except KeyboardInterrupt:
        say(f"interrupted: {worker.done if worker else 0} item(s) done; run it again to go on")
        tell(_document(options, worker, True))
        return INTERRUPTED
    except EnvironmentFailure as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"error: {options.folder}: {error}", file=sys.stderr)
        return 3
    say(f"{count} item(s) done, {worker.why_no_more()}")
    tell(_document(options, worker, False))
    return 1 if worker.refused else 0


def _document(options: WorkerOptions, worker: Worker | None, interrupted: bool) -> Message:
    done, refused, incomplete = (worker.done, worker.refused, worker.incomplete) if worker else (0, {}, ())
    return document(str(options.folder), options.device, done, refused, incomplete) | {"interrupted": interrupted}


def main(arguments: list[str] | None = None) -> int:
    """The command line of the worker."""
    parser = argparse.ArgumentParser(prog="tilecast worker", description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder after --device bundle:")
    parser.add_argument("--device", default="cuda", help="cuda[:N] or cpu (default cuda)")
    parser.add_argument("--once", action="store_true", help="do what is there, then stop")
    parser.add_argument("--wait", type=seconds, metavar="S", help="stop after S seconds without work (default: never)")
    parser.add_argument("--for", type=seconds, dest="for_s", metavar="S", help="begin nothing after S seconds")
    parser.add_argument("--require-sandbox", action="store_true", help="refuse to run without full isolation")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout at the end, the log on stderr")
    given = parser.parse_args(arguments)
    expected = os.environ.get("TILECAST_WORKER_FROM")
    if expected is not None and not os.path.abspath(__file__).startswith(expected + os.sep):
        print(f"error: another tilecast ({__file__}) is in the way; start it with python3 -I", file=sys.stderr)
        return 3
    missing = [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        told = f"error: this Python ({sys.executable}) has no {' and no '.join(missing)}"
        print(f"{told}; a worker needs torch, triton and numpy", file=sys.stderr)
        return 3
    device = "cuda:0" if given.device == "cuda" else given.device
    folder = given.folder.absolute()
    options = WorkerOptions(folder, device, given.once, given.wait, given.for_s, given.require_sandbox)
    log = sys.stderr if given.json else sys.stdout

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=log, flush=True)

    def tell(document: Message) -> None:
        if given.json:
            print(json.dumps(document, ensure_ascii=False), flush=True)

    return work(options, say, tell)


if __name__ == "__main__":
    sys.exit(main())
