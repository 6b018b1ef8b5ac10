"""The DynamoDB and the AWS that the contract tests use."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from local.emulator import CREDENTIALS, running_emulator
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.harness import PROJECT

TOOLS = PROJECT / ".venv" / "opt"


@dataclass(frozen=True)
class Endpoint:
    """An AWS over HTTP, which several processes and threads can use in parallel."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}

    def client(self, service: str = "dynamodb") -> Any:
        return boto3.client(
            service,  # type: ignore[call-overload]  # Typed for each service.
            endpoint_url=self.url,
            region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )


@pytest.fixture(scope="session", params=["endpoint"])
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The emulator of `make local`; the tests' ids name it, so that one process runs them (conftest.py)."""
    python = TOOLS / "emulator/bin/python"
    with running_emulator(python=python, work_dir=tmp_path_factory.mktemp("ministack")) as emulator:
        yield Endpoint(emulator.endpoint_url)


@pytest.fixture
def dynamodb() -> Any:
    """The DynamoDB in memory; test_replay.py sends to moto's what these tests have sent to it."""
    return MemoryDynamoDB()
