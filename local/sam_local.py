"""`make sam-local`: every function with every sample event through `sam local invoke`, on a container engine.

The stack runs beside the engine, at the address at which containers reach this machine. `sam local invoke` exits
with 0 even if the function failed, so each payload is compared with the expected response.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from local.deployment import Sam
from local.emulator import CREDENTIALS
from local.samples import SAMPLES, in_brief, logical_id_of, path_of, write_environment
from local.stack import PROJECT, Stack, running_stack
from local.terminal import run_in_terminal
from local.work_dir import sole_user_of

BRIDGE = "172.17.0.1"
"""Where the containers of Docker's default network find the machine that they run on."""


def engine_is_there() -> bool:
    """Whether a container engine answers, at DOCKER_HOST or where Docker usually is."""
    try:
        return subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def invoke(sam: Sam, function: str, sample: str, environment: Path) -> Any:
    """The function's response, or the last lines of SAM's output if that is no JSON."""
    command = [str(sam.program), "local", "invoke", logical_id_of(function)]
    command += ["--template-file", str(sam.build_dir / "deployed.yaml"), "--event", str(path_of(function, sample))]
    command += ["--env-vars", str(environment), "--skip-pull-image", "--region", CREDENTIALS["AWS_DEFAULT_REGION"]]
    offline = {"SAM_CLI_TELEMETRY": "0", "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **CREDENTIALS, **offline},
        cwd=sam.work_dir,
        capture_output=True,
        text=True,
        check=False,
    )
    payload = done.stdout.strip().splitlines()[-1:] or ["null"]
    try:
        return json.loads(payload[0]) if done.returncode == 0 else done.stderr[-2000:]
    except ValueError:
        return done.stderr[-2000:]


def invoke_all(stack: Stack, sam: Sam, console: Console) -> int:
    """How many samples got a response that is not the expected one."""
    environment = sam.work_dir / "env.json"
    write_environment(stack, environment)
    wrong = 0
    for function, samples in SAMPLES.items():
        for sample, expected in samples.items():
            response = in_brief(invoke(sam, function, sample, environment))
            right = response == expected
            wrong += not right
            mark = "[green]✓[/]" if right else "[bold red]✗[/]"
            console.print(
                f"{mark} {logical_id_of(function)} {function}/{sample}: {json.dumps(response)}", highlight=False
            )
    return wrong


def check_samples(console: Console) -> int:
    """Run a stack beside the engine, and invoke every sample; returns 0 if each response is the expected one."""
    work_dir = PROJECT / ".local" / "sam-local"
    with (
        sole_user_of(work_dir),
        running_stack(work_dir=work_dir, host=BRIDGE, on_progress=lambda m: console.print(f"• {m}")) as stack,
    ):
        sam = Sam(PROJECT / ".venv/opt/sam/bin/sam", Path(sys.executable), PROJECT, work_dir)
        wrong = invoke_all(stack, sam, console)
    console.print("every sample got the expected response" if not wrong else f"[bold red]{wrong} wrong[/]")
    return 1 if wrong else 0


def main() -> int:
    if not engine_is_there():
        print("skipped: no container engine answers, and `sam local invoke` runs functions in containers")
        return 0
    return run_in_terminal(check_samples, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
