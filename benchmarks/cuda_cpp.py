"""CUDA C++ candidates of the softmax example, from text to a verified answer and to a measured time, on this machine's GPU.

For each file: a judge with nothing built verifies it (first result), verifies it again (the build is kept), and benches it.
The seconds of the first call of the kernel alone are those of a plain process.

python benchmarks/cuda_cpp.py --device cuda
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _bootstrap import ROOT, device_name, header, parser, write
from _judge import JudgeSaid, candidate_of, judge, options_for, problem_of

FILES = ("cuda_nvrtc.py", "cuda_inline.py", "kernel.py")
_FIRST_CALL = """
import json, os, sys, tempfile, time
os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp()
import torch
torch.cuda.set_device(sys.argv[2])  # a kernel launched by hand goes to the current device
torch.zeros(1, device=sys.argv[2])
x = torch.randn(16384, 4096, device=sys.argv[2])
space = {"__name__": "candidate", "__file__": sys.argv[1]}
times = {}
def lap(name, start):
    torch.cuda.synchronize()
    times[name] = round(time.perf_counter() - start, 4)
start = time.perf_counter()
import importlib.util
found = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
lap("import_s", start)
start = time.perf_counter()
y = module.ModelNew()(x)
lap("first_call_s", start)
start = time.perf_counter()
module.ModelNew()(x)
lap("second_call_s", start)
times["largest_error"] = float((y - torch.softmax(x, -1)).abs().max())
print(json.dumps(times))
"""


def main() -> None:
    """Every file on an empty judge of its own."""
    arguments = parser(__doc__)
    arguments.add_argument("--max-seconds", type=float, default=4.0, help="of timing for each file")
    options = arguments.parse_args()
    device = device_name(options.device)
    folder = ROOT / "examples" / "softmax"
    results = {name: measured(folder, name, device, options.max_seconds) for name in FILES}
    write(options.out, "cuda_cpp", header("cuda_cpp") | {"device": device, "results": results})


def measured(folder: Path, name: str, device: str, max_seconds: float) -> dict[str, Any]:
    """One file: seconds of each step, status, time and ratio to eager."""
    found: dict[str, Any] = {"plain_process": first_call(folder / name, device)}
    candidate = candidate_of(name, (folder / name).read_text(encoding="utf-8"))
    problem = problem_of(folder)
    try:
        with judge(device) as client:
            chosen = options_for(client, baseline="eager", max_seconds=max_seconds)
            client.ask("preflight", {"problem": problem, "options": chosen})
            for step, op in (("verify_first", "verify"), ("verify_again", "verify"), ("bench", "bench")):
                start = time.perf_counter()
                answer = client.ask(op, {"problem": problem, "candidate": candidate, "options": chosen})
                found[step] = {"seconds": round(time.perf_counter() - start, 3), "status": answer["status"]}
                if answer["reason"]:
                    found[step]["reason"] = answer["reason"]
                if op == "bench" and answer["status"] == "PASSED":
                    found[step] |= {
                        key: answer.get(key) for key in ("verdict", "speedup", "latency_ms", "speed_of_light")
                    }
    except JudgeSaid as refusal:
        found["refused"] = str(refusal)
    return found


def first_call(file: Path, device: str) -> dict[str, Any]:
    """Import, first and second call in a fresh process that holds torch and a context, outside of any sandbox."""
    command = [sys.executable, "-c", _FIRST_CALL, str(file), device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        return {"failed": done.stderr.strip()[-600:]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
