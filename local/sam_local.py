"""`make sam-local`: every function with every sample event through `sam local invoke`, on a container engine.

The stack runs beside the engine, at the address at which containers reach this machine. `sam local invoke` exits
with 0 even if the function failed, so each payload is held against what the sample has to be answered with.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from local.__main__ import Stopped, sole_user_of, stop_on_signals
from local.deployment import Sam
from local.emulator import CREDENTIALS
from local.processes import DidNotStart
from local.samples import SAMPLES, in_brief, logical_id_of, path_of, write_environment
from local.stack import PROJECT, Stack, running_stack

BRIDGE = "172.17.0.1"
"""Where the containers of Docker's default network find the machine that they run on."""

_OLD_LIBRARY_NAMES = ("librt.so.1", "libdl.so.2", "libutil.so.1")
"""Names that glibc keeps for programs built long ago, as most wheels are, though their content has moved."""


def engine_is_there() -> bool:
    """Whether a container engine answers, at DOCKER_HOST or where Docker usually is."""
    try:
        return subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def lend_system_libraries(build_dir: Path) -> list[str]:
    """Copy into the built layer what the image lacks of glibc's old library names; returns what was lent.

    AWS's image has them. One that was put together by hand, where no registry is reached, may not; the layer's
    lib/ folder is on the loader's path. What is built for a deployment is built elsewhere, and not touched.
    """
    machine_folders = [Path("/lib") / f"{platform.machine()}-linux-gnu", Path("/lib64"), Path("/usr/lib64")]
    lent = []
    for library in _OLD_LIBRARY_NAMES:
        sources = [folder / library for folder in machine_folders if (folder / library).exists()]
        if sources and not _image_has(library):
            (build_dir / "SharedLayer" / "lib").mkdir(exist_ok=True)
            shutil.copy(sources[0], build_dir / "SharedLayer" / "lib" / library)
            lent.append(library)
    return lent


def _image_has(library: str) -> bool:
    probe = f"import ctypes; ctypes.CDLL('{library}')"
    command = ["docker", "run", "--rm", "--entrypoint", "/var/lang/bin/python3.13", _image(), "-c", probe]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _image() -> str:
    return f"public.ecr.aws/lambda/python:3.13-{Sam.architecture_here()}"


def invoke(sam: Sam, stack: Stack, function: str, sample: str, environment: Path) -> Any:
    """What the function answers, or the last lines of what SAM said if that is no JSON."""
    command = [str(sam.program), "local", "invoke", logical_id_of(function)]
    command += ["--template-file", str(sam.build_dir / "template.yaml"), "--event", str(path_of(function, sample))]
    command += ["--env-vars", str(environment), "--skip-pull-image", "--region", CREDENTIALS["AWS_DEFAULT_REGION"]]
    overrides = {
        "Architecture": Sam.architecture_here(),
        "Profile": "local",
        "AwsEndpointUrl": stack.aws_endpoint_url,
        "StripeApiBase": stack.stripe_api_base,
        "StripeSecretArn": stack.stripe_secret_arn,
        "StripeWebhookSecretArn": stack.stripe_webhook_secret_arn,
    }
    command += ["--parameter-overrides", *(f"{name}={value}" for name, value in overrides.items())]
    quiet = {"SAM_CLI_TELEMETRY": "0", "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **CREDENTIALS, **quiet},
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
    """How many samples were answered otherwise than they should be."""
    environment = sam.work_dir / "env.json"
    write_environment(stack, environment)
    wrong = 0
    for function, samples in SAMPLES.items():
        for sample, expected in samples.items():
            answer = in_brief(invoke(sam, stack, function, sample, environment))
            right = answer == expected
            wrong += not right
            mark = "[green]✓[/]" if right else "[bold red]✗[/]"
            console.print(
                f"{mark} {logical_id_of(function)} {function}/{sample}: {json.dumps(answer)}", highlight=False
            )
    return wrong


def main() -> int:
    stop_on_signals()
    console = Console(soft_wrap=True)
    if not engine_is_there():
        console.print("skipped: no container engine answers, and `sam local invoke` runs functions in containers")
        return 0
    work_dir = PROJECT / ".local" / "sam-local"
    try:
        with (
            sole_user_of(work_dir),
            running_stack(work_dir=work_dir, host=BRIDGE, news=lambda m: console.print(f"• {m}")) as stack,
        ):
            sam = Sam(PROJECT / ".venv/opt/sam/bin/sam", Path(sys.executable), PROJECT, work_dir)
            if lent := lend_system_libraries(sam.build_dir):
                console.print(f"• the image lacks {', '.join(lent)}, which AWS's has: lent to it for this run")
            wrong = invoke_all(stack, sam, console)
    except Stopped:
        return 130
    except (DidNotStart, OSError) as reason:
        console.print(f"[bold red]not started:[/] {reason}")
        return 1
    console.print("every sample was answered as it should be" if not wrong else f"[bold red]{wrong} wrong[/]")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
