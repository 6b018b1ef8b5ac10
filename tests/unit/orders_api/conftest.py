"""A client of the API."""

import pytest

from tests.support.harness import LambdaContext, Log, Sample
from tests.support.orders_api import Client


@pytest.fixture
def client(orders_table: str, sample: Sample, lambda_context: LambdaContext, log: Log) -> Client:
    """The API's client, with the Orders table of moto's in this process."""
    return Client(orders_table, sample, lambda_context, log)
