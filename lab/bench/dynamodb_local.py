"""DynamoDB Local as a process: AWS's own DynamoDB for one machine, with its real conditional writes."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError

from local.emulator import CREDENTIALS
from local.processes import StartupError, free_port, running, tail
from tests.support.harness import PROJECT

_HOST = "127.0.0.1"
_START_SECONDS = 60


def dynamodb_client(url: str) -> Any:
    """boto3's client of a DynamoDB on this machine."""
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


@contextmanager
def running_dynamodb_local(work_dir: Path) -> Iterator[str]:
    """Run it with an empty memory until the block ends; yields its address.

    Raises:
        StartupError: it was not installed, there is no Java that runs it, or it did not start.
    """
    jars = list((PROJECT / ".venv/opt/dynamodb-local").rglob("DynamoDBLocal.jar"))
    if not jars or not shutil.which("java"):
        raise StartupError("DynamoDB Local needs npm and Java 17 or later, and this machine lacks one of them")
    port = free_port(_HOST)
    command = [
        "java",
        f"-Djava.library.path={jars[0].parent / 'DynamoDBLocal_lib'}",
        *("-jar", str(jars[0]), "-inMemory", "-disableTelemetry", "-port", str(port)),
    ]
    log = work_dir / "dynamodb.log"
    with running(command, env=os.environ, log=log, cwd=work_dir) as process:
        url = f"http://{_HOST}:{port}"
        _wait_for(url, log, process)
        yield url


def _wait_for(url: str, log: Path, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            dynamodb_client(url).list_tables()
            return
        except BotoCoreError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartupError(f"{tail(log)}\nDynamoDB Local did not start") from None
            time.sleep(0.2)
