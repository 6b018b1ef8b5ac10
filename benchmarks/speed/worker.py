"""One Lambda function in a process of its own: `python -I worker.py MODULE FOLDER…`, with the folders on its path.

`--once` instead handles the one event on standard input and ends: a cold start, from the start of the interpreter on.

It imports nothing but Python's standard library besides the function, so that CPU and memory are the function's own. It
reads requests as lines of JSON, and answers each with one:

    (at first)                     ─► {"ready_cpu": …}: seconds of CPU from the start of the interpreter on
    {"invoke": [event, …]}         each event handled: seconds of wall and of CPU, and what was reported as failed
    {"profile": [event, …]}        the same under cProfile, as text
    ─► {"wall": […], "cpu": […], "failed": 0, "peak_kb": …, "now_kb": …}
    ─► {"error": "…"} if the handler raises

CPU is the process' own, of all its threads (getrusage, which time.process_time reads at a higher resolution). What the
function prints is written, but to /dev/null.
"""

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


class Context:
    """The attributes of Lambda's context object (AWS Lambda Developer Guide, "Using the Lambda context object")."""

    function_name = "function-under-test"
    function_version = "1"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:function-under-test"
    aws_request_id = "00000000-0000-4000-8000-000000000000"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 30_000


def invoke(handler: Any, events: list[Any]) -> dict[str, Any]:
    """Handle each event, as the module says."""
    wall, cpu, failed = [], [], 0
    for event in events:
        started, worked = time.perf_counter(), time.process_time()
        answer = handler(event, Context())
        cpu.append(time.process_time() - worked)
        wall.append(time.perf_counter() - started)
        # A durable function answers Lambda with its own answer as text.
        failed += len((json.loads(answer["Result"]) if "Status" in answer else answer)["batchItemFailures"])
    return {"wall": wall, "cpu": cpu, "failed": failed, "peak_kb": memory("VmHWM"), "now_kb": memory("VmRSS")}


def memory(name: str) -> int:
    """KB, of this program alone: getrusage's peak begins with that of the process that started it (proc(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name)]
    return int(line.split()[1])


def profile(handler: Any, events: list[Any]) -> dict[str, Any]:
    """The functions that take the most time by themselves, and with what they call."""
    import cProfile
    import io
    import pstats

    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    for event in events:
        handler(event, Context())
    profiler.disable()
    text = io.StringIO()
    statistics = pstats.Stats(profiler, stream=text).strip_dirs()
    statistics.sort_stats("tottime").print_stats(45)
    statistics.sort_stats("cumulative").print_stats(60)
    return {"profile": text.getvalue()}


def main() -> None:
    """Answer each line of standard input."""
    once = sys.argv[1] == "--once"
    module, *folders = sys.argv[1 + once :]
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    sys.path[:0] = folders
    handler = importlib.import_module(module).handler
    if once:
        handler(json.load(sys.stdin), Context())
        return
    print(json.dumps({"ready_cpu": time.process_time()}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            [(kind, events)] = request.items()
            answer = {"invoke": invoke, "profile": profile}[kind](handler, events)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
