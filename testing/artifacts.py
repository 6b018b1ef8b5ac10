"""What `sam build` has made: where each function's parts are, and a process that sees nothing else."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from local.emulator import CREDENTIALS
from local.samples import SAMPLES, deployed_environment, logical_id_of, path_of
from local.stack import Stack

# Reads events from stdin, one a line, and answers each with what the handler returned; last, what it had imported.
_HOST = """
import importlib, json, os, sys
sys.path += sys.argv[2:]
out, sys.stdout = sys.stdout, sys.stderr
handler = importlib.import_module(sys.argv[1] + ".app").handler
class Context:
    function_name = memory_limit_in_mb = invoked_function_arn = aws_request_id = "artifact"
    get_remaining_time_in_millis = lambda self: 30000
for line in sys.stdin:
    print(json.dumps(handler(json.loads(line), Context())), file=out, flush=True)
print(json.dumps(sorted({m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)})), file=out)
"""


@dataclass(frozen=True)
class Run:
    """A built function that was fed all of its sample events."""

    roots: tuple[Path, ...]
    """Where its modules are: the function, then each of its layers."""
    answers: list[Any]
    modules: list[str]
    """The file of each module that it had imported in the end."""
    log: str


def interpreter() -> Path:
    """Python without the packages of this environment."""
    return Path(sys.base_prefix) / "bin" / "python3.13"


@cache
def fed_with_its_samples(function: str, stack: Stack, build: Path) -> Run:
    """Feed a built function its sample events, in the environment that the stack gave it.

    Raises:
        AssertionError: it did not return.
    """
    logical_id = logical_id_of(function)
    functions = stack.aws.client("lambda").list_functions()["Functions"]
    [deployed] = [each for each in functions if f"-{logical_id}-" in each["FunctionName"]]
    layers = [each["Arn"].split(":")[6] for each in deployed["Layers"]]
    roots = (build / logical_id, *(build / layer / "python" for layer in layers))
    events = [json.loads(path_of(function, name).read_text()) for name in SAMPLES[function]]
    done = subprocess.run(
        [str(interpreter()), "-I", "-S", "-c", _HOST, function, *map(str, roots)],
        env={
            **CREDENTIALS,
            **deployed_environment(functions, logical_id),
            "AWS_ENDPOINT_URL": stack.aws_endpoint_url,
        },
        input="\n".join(map(json.dumps, events)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *answers, modules = [json.loads(line) for line in done.stdout.splitlines()]
    return Run(roots, answers, modules, done.stderr)
