"""The DynamoDB that the contract tests use."""

from typing import Any

import pytest

from tests.shop.dynamodb import MemoryDynamoDB


@pytest.fixture
def dynamodb() -> Any:
    """The DynamoDB in memory; test_replay.py sends to moto's what these tests have sent to it."""
    return MemoryDynamoDB()
