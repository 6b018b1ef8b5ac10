"""What the contract tests hold our fakes against: DynamoDB Local, which is AWS's own.

The simulation's DynamoDB, in memory, is tested beside AWS's.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from local.emulator import CREDENTIALS, running_emulator
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.dynamodb_local import NotInstalled, dynamodb_client, running_dynamodb_local
from tests.support.harness import PROJECT, create_table

TOOLS = PROJECT / ".venv" / "opt"


@dataclass(frozen=True)
class Endpoint:
    """A DynamoDB over HTTP, for tests with several processes."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}

    def client(self) -> Any:
        return dynamodb_client(self.url)


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    python = TOOLS / "emulator/bin/python"
    with running_emulator(python=python, work_dir=tmp_path_factory.mktemp("ministack")) as emulator:
        yield Endpoint(emulator.endpoint_url)


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    try:
        with running_dynamodb_local(tmp_path_factory.mktemp("dynamodb-local")) as url:
            yield Endpoint(url)
    except NotInstalled as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(params=["dynamodb_local"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """The DynamoDB that several processes and threads can use in parallel."""
    endpoint: Endpoint = request.getfixturevalue(request.param)
    return endpoint


@pytest.fixture(params=["memory", "dynamodb_local"])
def dynamodb(request: pytest.FixtureRequest) -> Any:
    """A client of each DynamoDB."""
    if request.param == "memory":
        return MemoryDynamoDB()
    endpoint: Endpoint = request.getfixturevalue(request.param)
    return endpoint.client()


@pytest.fixture
def payments(dynamodb: Any) -> str:
    """An empty Payments table, as template.yaml declares it."""
    return create_table(dynamodb, f"payments-{uuid4()}", "PaymentsTable")
