"""The API's client, with the Orders table of moto's in this process."""

import pytest

from testing.harness import LambdaContext, Log, Sample
from testing.orders_api import Client


@pytest.fixture
def client(orders_table: str, sample: Sample, lambda_context: LambdaContext, log: Log) -> Client:
    return Client(orders_table, sample, lambda_context, log)
