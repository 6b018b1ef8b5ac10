"""A client of the API; and a stack in one process, for the commands of operators."""

from collections.abc import Iterator

import pytest

from stripe_standin.server import running_standin
from tests.support.harness import LambdaContext, Log, Sample
from tests.support.operated_stack import OperatedStack
from tests.support.orders_api import Client


@pytest.fixture(scope="session")
def stripe_base() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


@pytest.fixture
def operated(aws: None, stripe_base: str) -> OperatedStack:
    made = OperatedStack(stripe_base)
    made.standin.reset()
    return made


@pytest.fixture
def client(orders_table: str, sample: Sample, lambda_context: LambdaContext, log: Log) -> Client:
    """The API's client, with the Orders table of moto's in this process."""
    return Client(orders_table, sample, lambda_context, log)
