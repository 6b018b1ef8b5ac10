"""Each DynamoDB for the contract tests: the simulation's in memory, moto, ministack, DynamoDB Local."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import BotoCoreError

from local.emulator import CREDENTIALS, running_emulator
from local.processes import free_port, running
from onecharge.payments.charges.store import UNFINISHED
from testing.harness import PROJECT, create_table
from testing.java import JAVA_VERSION_MIN, java_version
from testing.simulation.dynamodb import MemoryDynamoDB

TOOLS = PROJECT / ".venv" / "opt"
_START_SECONDS = 60


@dataclass(frozen=True)
class Endpoint:
    """A DynamoDB over HTTP, for tests with several processes."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}

    def client(self) -> Any:
        return boto3.client(
            "dynamodb",
            endpoint_url=self.url,
            region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    python = TOOLS / "emulator/bin/python"
    with running_emulator(python=python, work_dir=tmp_path_factory.mktemp("ministack")) as emulator:
        yield Endpoint(emulator.endpoint_url)


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    jars = list((TOOLS / "dynamodb-local").rglob("DynamoDBLocal.jar"))
    if not jars or java_version() < JAVA_VERSION_MIN:
        reason = "DynamoDB Local needs npm and Java 17 or later, and this machine lacks one of them"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    port = free_port("127.0.0.1")
    folder = tmp_path_factory.mktemp("dynamodb-local")
    command = [
        "java",
        f"-Djava.library.path={jars[0].parent / 'DynamoDBLocal_lib'}",
        *("-jar", str(jars[0]), "-inMemory", "-disableTelemetry", "-port", str(port)),
    ]
    with running(command, env=os.environ, log=folder / "log", cwd=folder):
        endpoint = Endpoint(f"http://127.0.0.1:{port}")
        _wait_for(endpoint, folder / "log")
        yield endpoint


def _wait_for(endpoint: Endpoint, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            endpoint.client().list_tables()
            return
        except BotoCoreError:
            if time.monotonic() > deadline:
                pytest.fail(log.read_text())
            time.sleep(0.2)


@pytest.fixture(params=["ministack", "dynamodb_local"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """Each DynamoDB that several processes can use at once."""
    endpoint: Endpoint = request.getfixturevalue(request.param)
    return endpoint


@pytest.fixture(params=["memory", "moto", "ministack", "dynamodb_local"])
def dynamodb(request: pytest.FixtureRequest) -> Any:
    """A client of each DynamoDB. The simulation's, in memory, creates a table on its first use."""
    if request.param == "memory":
        return MemoryDynamoDB(keys=defaultdict(lambda: ("order_id", "attempt")))
    if request.param == "moto":
        request.getfixturevalue("aws")
        return boto3.client("dynamodb")
    endpoint: Endpoint = request.getfixturevalue(request.param)
    return endpoint.client()


@pytest.fixture
def payments(dynamodb: Any) -> str:
    """An empty Payments table, as template.yaml declares it."""
    name = f"payments-{uuid4()}"
    if isinstance(dynamodb, MemoryDynamoDB):
        dynamodb.keys = {name: ("order_id",)}
        dynamodb.indexes = {name: {UNFINISHED: ("unfinished_shard", "unfinished_claimed_at")}}
        return name
    return create_table(dynamodb, name, "PaymentsTable")


@pytest.fixture(params=["moto", "ministack", "dynamodb_local"])
def order_dynamodb(request: pytest.FixtureRequest) -> Any:
    """A client of each DynamoDB in turn. The simulation's is not among them: it has neither maps nor lists."""
    if request.param == "moto":
        request.getfixturevalue("aws")
        return boto3.client("dynamodb")
    endpoint: Endpoint = request.getfixturevalue(request.param)
    return endpoint.client()
