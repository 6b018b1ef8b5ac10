"""Fixtures of every suite: an AWS of moto's in this process, and the sample events by their names."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from aws_lambda_powertools import Logger
from moto import mock_aws

from local.stack import Stack, running_stack

PROJECT = Path(__file__).resolve().parent.parent

Sample = Callable[[str], dict[str, Any]]


@pytest.fixture
def sample() -> Sample:
    """Reads a sample event: `sample("charge_order/poison")`."""
    return lambda name: json.loads((PROJECT / "events" / f"{name}.json").read_text())


@dataclass(frozen=True)
class LambdaContext:
    """What the functions read of Lambda's context object."""

    function_name: str = "function-under-test"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:function-under-test"
    aws_request_id: str = "00000000-0000-4000-8000-000000000000"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


class Log:
    """A Powertools logger of this test's own, and the lines that it wrote."""

    def __init__(self) -> None:
        self.stream = StringIO()
        self.logger = Logger(service=f"test-{uuid.uuid4()}", stream=self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def lambda_context() -> LambdaContext:
    return LambdaContext()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty AWS in this process; nothing leaves the machine, whatever the environment holds."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "onecharge")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "test")
    with mock_aws():
        yield


def load_template() -> dict[str, Any]:
    """template.yaml, with CloudFormation's short forms (`!Ref x`) read as plain text."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, suffix, node: f"{suffix} {node.value}")
    return yaml.load((PROJECT / "template.yaml").read_text(), Loader)  # noqa: S506  # A SafeLoader's child.


def create_table(dynamodb: Any, name: str, logical_id: str) -> str:
    """Create the table that template.yaml declares under the logical id, keys, indexes and all."""
    properties = load_template()["Resources"][logical_id]["Properties"]
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=properties["AttributeDefinitions"],
        KeySchema=properties["KeySchema"],
        BillingMode="PAY_PER_REQUEST",
        **{name: properties[name] for name in ("GlobalSecondaryIndexes",) if name in properties},
    )
    return name


@pytest.fixture(scope="session")
def stack_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the deployed stack was built, and where its logs are."""
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="session")
def stack(stack_dir: Path) -> Iterator[Stack]:
    """The real template, built and deployed to an emulator, once for all tests that want it."""
    with running_stack(work_dir=stack_dir) as stack:
        yield stack


@pytest.fixture
def orders_table(aws: None) -> str:
    return create_table(boto3.client("dynamodb"), "orders", "OrdersTable")


@pytest.fixture
def payments_table(aws: None) -> str:
    return create_table(boto3.client("dynamodb"), "payments", "PaymentsTable")
