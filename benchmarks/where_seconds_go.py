"""Where a candidate's seconds go: turns between judge and worker, waiting for questions, judging, and what the device did.

    python benchmarks/where_seconds_go.py --corpus ../shared/corpus --device cuda:0
    python benchmarks/where_seconds_go.py --corpus ../shared/corpus --device cuda:0 --beside 3 --doing verify

A judge inside this process verifies recorded kernels of a few problems, and then times them. Of each: requests to the workers by
operation (how many, seconds in all, median milliseconds), seconds waited for questions to be drawn, seconds of judging, and what a
comparison is made of. On a GPU another candidate is verified under torch's profiler: kernels and copies of the judge's process, and
how long they took. And, before all: what a turn between two processes costs on the device when both use it, and when only the
other one does. With ``--beside`` so many other judges have the device too: ``--doing nothing`` shows what their mere presence
costs (each has verified a candidate, and waits), ``--doing verify`` what their work does, between which one judge alone times.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeClient, candidate_of, problem_of
from throughput import choose, lanes_on, source_of

TURNS = 300
ELEMENTS = 4096
OPTIONS = {"timeout_s": 120.0, "baseline": "eager", "max_seconds": 2.0}


def turn_costs(judge: Any) -> dict[str, float]:
    """Milliseconds of a call of a tiny function in a worker, as the judge's clock sees it, by what the judge does between two.

    ``idle``: nothing; ``device``: a kernel and a wait for it, as a comparison there needs; ``copy``: the input is copied from
    and to the host, nothing is computed on the device.
    """
    import torch

    from tilecast.sandbox.harness.judge.session import Session, SessionOptions
    from tilecast.sandbox.harness.tensors import TensorSpec

    source = "import torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    found: dict[str, float] = {}
    with Session.open(judge.zygotes, SessionOptions(judge.device, timeout_s=300.0)) as session:
        session.load(source)
        session.construct("ModelNew", [], seed=0)
        value = torch.randn(ELEMENTS, device=judge.device)
        on_host = value.cpu()
        prepared = session.prepare([value], [TensorSpec.dense((ELEMENTS,), torch.float32)])

        def compare_on_device() -> None:
            for _ in range(10):
                bool((value * 2 == value).all())

        between: dict[str, Callable[[], object]] = {
            "idle": lambda: None,
            "device": compare_on_device,
            "copy": lambda: [
                session.memory.copy_out(prepared.regions[0], prepared.specs[0]).cpu(),
                on_host.to(judge.device),
            ],
        }
        for name, work in between.items():
            walls = []
            for _ in range(TURNS):
                work()
                start = time.perf_counter()
                session.call(prepared, watch=False)
                walls.append((time.perf_counter() - start) * 1e3)
            found[name] = round(median(walls), 4)
            start = time.perf_counter()
            for _ in range(TURNS):
                work()
            found[f"{name}: the work itself"] = round((time.perf_counter() - start) * 1e3 / TURNS, 4)
    return found


class Clocks:
    """Seconds by what was done, in the main thread of the judge."""

    def __init__(self) -> None:
        self.spans: dict[str, list[float]] = defaultdict(list)

    def around(self, owner: Any, name: str, label: Callable[[tuple[Any, ...]], str]) -> Callable[[], None]:
        """Time every call of a method from here on; returns what undoes it."""
        real = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return real(*args, **named)
            finally:
                self.spans[label(args)].append(time.perf_counter() - start)

        setattr(owner, name, timed)
        return lambda: setattr(owner, name, real)

    def summary(self) -> dict[str, dict[str, float]]:
        """By label: how often, seconds in all, median milliseconds."""
        return {
            label: {
                "count": len(spans),
                "seconds": round(sum(spans), 4),
                "median_ms": round(median(spans) * 1e3, 4),
            }
            for label, spans in sorted(self.spans.items(), key=lambda item: -sum(item[1]))
        }


Watched = tuple[Any, str, Callable[[tuple[Any, ...]], str]]
"""Owner, name of its method, and the label of a call by its arguments."""


def parts_of_verification() -> list[Watched]:
    """What verification is made of."""
    from tilecast.sandbox.harness.judge import checker, link, questions
    from tilecast.sandbox.harness.judge.shared_memory import SharedMemory

    return [
        (link.WorkerLink, "_request", lambda args: f"request to {args[0].options.whose}: {args[1].get('op')}"),
        (questions.Ahead, "__next__", lambda args: "waiting for a question"),
        (checker.Checker, "_judge", lambda args: "judging a call"),
        (checker, "compare_values", lambda args: "of that: comparing values"),
        (SharedMemory, "settle", lambda args: "waiting for the device before a request"),
        (SharedMemory, "prepare", lambda args: "inputs into shared memory"),
        (SharedMemory, "inputs_now", lambda args: "of judging: reading inputs back"),
    ]


def parts_of_timing() -> list[Watched]:
    """What a comparison is made of; some lie within others."""
    from tilecast.sandbox.harness.judge.session import Session
    from tilecast.sandbox.harness.judge.shared_memory import SharedMemory
    from tilecast.sandbox.harness.judge.timing import bench, paired, sampling
    from tilecast.sandbox.harness.judge.timing.contents import CaseContents
    from tilecast.sandbox.harness.judge.timing.window import Window
    from tilecast.sandbox.harness.judge.timing.workers import TimedWorker

    return [
        (bench.Benchmark, "measure", lambda args: "all of timing"),
        (bench.Benchmark, "_add_warm", lambda args: "legs with a warm cache"),
        (sampling.Sampler, "warm_up", lambda args: "warm-up"),
        (sampling.Sampler, "block", lambda args: "blocks"),
        (paired.PairedLegs, "leg", lambda args: f"legs of the {args[1]}"),
        (paired.PairedLegs, "measure_empty", lambda args: "empty legs"),
        (CaseContents, "draw", lambda args: "drawing contents"),
        (TimedWorker, "_fill", lambda args: "contents into shared memory"),
        (SharedMemory, "poison_outputs", lambda args: "output buffers written over"),
        (Session, "timed", lambda args: "timed requests"),
        (SharedMemory, "read_output", lambda args: "outputs read"),
        (paired, "all_plainly_close", lambda args: "outputs compared"),
        (Window, "discard_reason", lambda args: "looks at the window"),
    ]


@contextmanager
def watched(parts: list[Watched]) -> Iterator[Clocks]:
    """Timers around these."""
    clocks = Clocks()
    undo = [clocks.around(*part) for part in parts]
    try:
        yield clocks
    finally:
        for restore in undo:
            restore()


@contextmanager
def beside(device: str, folder: Path, count: int, quiet: str, *, work: bool) -> Iterator[None]:
    """So many other judges, which verify recorded kernels of a problem all the time, or have done so once."""
    over = threading.Event()

    def keep_verifying(client: JudgeClient, first: int) -> None:
        for row in itertools.islice(itertools.cycle(rows), first, None):
            candidate = candidate_of(row["candidate"], source_of(folder, row))
            client.ask("verify", {"problem": problem_of(folder), "options": OPTIONS, "candidate": candidate})
            if over.is_set() or not work:
                return

    rows = choose(folder, 12)
    with lanes_on(device, count, quiet, count + 1) as clients:
        threads = [
            threading.Thread(target=keep_verifying, args=(client, 3 * index), daemon=True)
            for index, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads if not work else ():
            thread.join()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


def device_work(run: Callable[[], object]) -> dict[str, Any]:
    """What this process's kernels and copies took while ``run`` ran, by torch's profiler; milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
    rows = [(e.key, e.count, getattr(e, "self_device_time_total", 0.0) / 1e3) for e in profiler.key_averages()]
    rows = sorted((row for row in rows if row[2] > 0), key=lambda row: -row[2])
    return {
        "launches": sum(row[1] for row in rows),
        "busy_ms": round(sum(row[2] for row in rows), 3),
        "most": [{"name": name[:80], "count": count, "ms": round(ms, 3)} for name, count, ms in rows[:12]],
    }


def ask(judge: Any, op: str, problem: dict[str, Any], folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    """One candidate through an operation of the judge: its status, and seconds."""
    request = {
        "problem": problem,
        "options": OPTIONS,
        "candidate": candidate_of(row["candidate"], source_of(folder, row)),
    }
    start = time.perf_counter()
    answer = judge.answer({"op": op, "args": request}, lambda text: None)
    result = answer.get("result", answer)
    return {"status": result.get("status", str(result)[:200]), "seconds": round(time.perf_counter() - start, 3)}


def study(judge: Any, folder: Path, count: int) -> dict[str, Any]:
    """Candidates of one problem; the first one pays for the problem's study and its baseline, and is not counted."""
    rows = choose(folder, count + 2)
    problem = problem_of(folder)
    first = ask(judge, "bench", problem, folder, rows[0])
    found = []
    for row in rows[1 : count + 1]:
        with watched(parts_of_verification()) as clocks:
            done = ask(judge, "verify", problem, folder, row)
        with watched(parts_of_timing()) as timing:
            timed = ask(judge, "bench", problem, folder, row)
        parts = {"parts": clocks.summary(), "with_timing": {**timed, "parts": timing.summary()}}
        found.append({"candidate": row["candidate"], **done, **parts})
    profiled = None
    if judge.device.type == "cuda":
        profiled = device_work(lambda: ask(judge, "verify", problem, folder, rows[-1]))
    return {"first": first, "candidates": found, "device_work": profiled}


def main() -> None:
    """Run all; written as where_seconds_go.json."""
    arguments = parser(__doc__)
    arguments.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    arguments.add_argument("--problems", default="vector_add,softmax,layernorm")
    arguments.add_argument("--per-problem", type=int, default=2)
    arguments.add_argument("--beside", type=int, default=0, help="how many other judges have the device too")
    arguments.add_argument("--doing", choices=["nothing", "verify"], default="verify", help="what those do")
    options = arguments.parse_args()
    import torch

    from tilecast.sandbox.harness.judge.__main__ import Judge
    from tilecast.sandbox.harness.judge.quiet import Quiet
    from tilecast.sandbox.harness.judge.zygotes import Zygotes

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    device = torch.device(device_name(options.device))
    names = options.problems.split(",")
    with ExitStack() as stack:
        quiet = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tilecast-quiet-"))) / "quiet")
        judge = Judge(device, None, False, Zygotes(Quiet(quiet if options.beside else None, options.beside + 1)))
        stack.callback(judge.close)
        judge.zygotes.start()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        document = {**header("where_seconds_go"), "beside": options.beside, "doing": options.doing}
        if options.beside:
            folder, work = options.corpus / names[0], options.doing == "verify"
            stack.enter_context(beside(str(device), folder, options.beside, quiet, work=work))
        else:
            document["turn_ms"] = turn_costs(judge)
        document["problems"] = {name: study(judge, options.corpus / name, options.per_problem) for name in names}
    write(options.out, "where_seconds_go", document)


if __name__ == "__main__":
    main()
