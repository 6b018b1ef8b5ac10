"""`make sam-local`: every function with every sample event through `sam local invoke`, on a container engine.

The command is the one that a person types while `make local` runs. It exits with 0 even if the function failed, so each
payload is compared with the expected response.
"""

import json
import subprocess
import sys
from typing import Any

from rich.console import Console

from local.samples import SAMPLES, in_brief, logical_id_of, open_to_sam_local
from local.stack import PROJECT, running_stack
from local.terminal import run_in_terminal
from local.work_dir import sole_user_of


def engine_is_there() -> bool:
    """Whether a container engine answers, at DOCKER_HOST or where Docker usually is."""
    try:
        return subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def invoke(function: str, sample: str) -> Any:
    """The function's response, or the last lines of SAM's output if that is no JSON."""
    event = f"events/{function}/{sample}.json"
    command = [".venv/opt/sam/bin/sam", "local", "invoke", logical_id_of(function), "-e", event]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    *_, payload = ["", *done.stdout.splitlines()]
    try:
        return json.loads(payload)
    except ValueError:
        return done.stderr[-2000:]


def invoke_all(console: Console) -> int:
    """How many samples got a response that is not the expected one."""
    wrong = 0
    for function, samples in SAMPLES.items():
        for sample, expected in samples.items():
            response = in_brief(invoke(function, sample))
            right = response == expected
            wrong += not right
            mark = "[green]✓[/]" if right else "[bold red]✗[/]"
            console.print(
                f"{mark} {logical_id_of(function)} {function}/{sample}: {json.dumps(response)}", highlight=False
            )
    return wrong


def check_samples(console: Console) -> int:
    """Run a stack, and invoke every sample; returns 0 if each response is the expected one."""
    # samconfig.toml names the folder's files.
    work_dir = PROJECT / ".local"
    with (
        sole_user_of(work_dir),
        running_stack(work_dir=work_dir, on_progress=lambda m: console.print(f"• {m}")) as stack,
        open_to_sam_local(stack, work_dir),
    ):
        wrong = invoke_all(console)
    console.print("every sample got the expected response" if not wrong else f"[bold red]{wrong} wrong[/]")
    return 1 if wrong else 0


def main() -> int:
    if not engine_is_there():
        print("skipped: no container engine answers, and `sam local invoke` runs functions in containers")
        return 0
    return run_in_terminal(check_samples, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
