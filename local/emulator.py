"""The local AWS: ministack, in an environment of its own, since Lambdas run in its interpreter."""

import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from local.processes import StartupError, free_port, running, tail

REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION}
_HOST = "127.0.0.1"
_START_SECONDS = 60
_ENFORCING_EMULATOR = Path(__file__).with_name("enforcing_emulator.py")
PERMISSIONS_LOG = "permissions.jsonl"
"""In the run's folder: each decision about a request of a function's; see enforcing_emulator.py."""


@dataclass(frozen=True)
class Emulator:
    """A running emulator, and where it is."""

    endpoint_url: str
    log: Path

    def client(self, service: str) -> Any:
        """boto3's client of one of its services."""
        return boto3.client(  # type: ignore[call-overload]  # The service is not known before run time.
            service,
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            # Nothing on this machine is reached through a proxy, whatever the environment says.
            config=Config(connect_timeout=5, read_timeout=70, max_pool_connections=50, proxies={}),
        )

    def physical_id(self, stack_name: str, logical_id: str) -> str:
        """The physical id of a resource of a stack."""
        answer = self.client("cloudformation").describe_stack_resource(
            StackName=stack_name, LogicalResourceId=logical_id
        )
        return str(answer["StackResourceDetail"]["PhysicalResourceId"])


@contextmanager
def running_emulator(*, python: Path, work_dir: Path) -> Iterator[Emulator]:
    """An empty AWS on a free port of this machine, for as long as the block lasts; `python` has ministack installed.

    Raises:
        StartupError: it ended, or did not answer within a minute; says what its log says.
    """
    port = free_port(_HOST)
    log, scratch, permissions_log = work_dir / "aws.log", work_dir / "tmp", work_dir / PERMISSIONS_LOG
    endpoint_url = f"http://{_HOST}:{port}"
    # Only what it needs: its Lambdas inherit it, and must not find this development environment.
    environment = {
        "PATH": os.defpath,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "BIND_HOST": _HOST,
        "MINISTACK_HOST": _HOST,
        "GATEWAY_PORT": str(port),
        "AWS_ENDPOINT_URL": endpoint_url,
        # IAM is enforced, and each function gets the credentials of its own role.
        "AUTH": "true",
        "PERMISSIONS_LOG": str(permissions_log),
        # By default it opens a fixed port for MQTT, and clears up containers that it takes for its own.
        "IOT_MTLS_ENABLED": "0",
        "DOCKER_HOST": "unix:///nonexistent",
    }
    permissions_log.write_text("")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    # -P: the modules beside the script are not the emulator's to import.
    command = [str(python), "-P", str(_ENFORCING_EMULATOR)]
    try:
        with running(command, env=environment, log=log, cwd=work_dir) as process:
            deadline = time.monotonic() + _START_SECONDS
            while not _is_healthy(endpoint_url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise StartupError(f"{tail(log)}\nthe AWS emulator did not start; its log, {log}, ends as above")
                time.sleep(0.1)
            yield Emulator(endpoint_url, log)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _is_healthy(endpoint_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint_url}/_ministack/health", timeout=2) as response:  # noqa: S310  # http.
            return bool(response.status == 200)
    except OSError:
        return False
