"""A client of the API."""

import pytest

from tests.support.harness import Log, Sample
from tests.support.orders_api import Client


@pytest.fixture
def client(aws: None, sample: Sample, log: Log) -> Client:
    return Client(sample, log)
