"""The DynamoDB in memory answers as moto's does: what other tests have sent to the one is sent to the other."""

import os
import pickle
import subprocess
import sys
from itertools import groupby
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.support.harness import PROJECT
from tests.support.recorded_requests import VARIABLE, Exchange, Rows, seen_of

SENDERS = [
    *("tests/contract/test_store.py", "tests/contract/test_orders.py", "tests/contract/test_order_refunds.py"),
    *("tests/unit/test_jobs.py", "tests/unit/test_update_order.py", "tests/unit/test_republish.py"),
]
"""The tests whose requests are replayed: those that send every expression of the stores."""
REQUESTS_AT_LEAST = 100


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> list[Exchange]:
    """Each kind of request that these tests send."""
    path = tmp_path_factory.mktemp("recorded") / "requests"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "tests.support.recorded_requests"]
    environment = {**os.environ, VARIABLE: str(path)}
    done = subprocess.run(
        [*command, *SENDERS], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    recorded: list[Exchange] = pickle.loads(path.read_bytes())  # noqa: S301  # These tests have written it.
    assert len(recorded) >= REQUESTS_AT_LEAST
    return recorded


def sorted_rows(rows: Any) -> Any:
    return sorted(rows, key=repr)


def comparable(answer: Any) -> Any:
    """Without what only one of them tells; the items of a batch have no order."""
    if not isinstance(answer, dict):
        return answer
    told = {
        name: answer[name] for name in ("Item", "Items", "Attributes", "LastEvaluatedKey", "Count") if answer.get(name)
    }
    return told | {name: sorted_rows(rows) for name, rows in answer.get("Responses", {}).items()}


def replayed(client: Any, exchange: Exchange) -> tuple[Any, Rows]:
    """Sends the request when the tables have what they had; returns the answer, and what they have then."""
    for name, rows in exchange.before.items():
        for item in rows:
            client.put_item(TableName=name, Item=item)
    try:
        answer = getattr(client, exchange.method)(**exchange.given)
    except ClientError as error:
        answer = seen_of(error)
    after = {name: client.scan(TableName=name)["Items"] for name in exchange.tables}
    for name, rows in after.items():
        keys = [each["AttributeName"] for each in exchange.tables[name]["KeySchema"]]
        for item in rows:
            client.delete_item(TableName=name, Key={key: item[key] for key in keys})
    return answer, after


def test_a_request_has_the_same_answer_and_effect(aws: None, moto: Any, exchanges: list[Exchange]) -> None:
    """Every condition, update, page and transaction of the stores: refused or not, and what is stored after it."""
    by_table = sorted(exchanges, key=lambda exchange: repr(exchange.tables))
    for _, group in groupby(by_table, key=lambda exchange: exchange.tables):
        moto[0].reset()
        client, of_tables = boto3.client("dynamodb"), list(group)
        for made in of_tables[0].tables.values():
            client.create_table(**made)
        for each in of_tables:
            answer, after = replayed(client, each)
            assert comparable(answer) == comparable(each.answer), each
            expected = {name: sorted_rows(rows) for name, rows in each.after.items()}
            assert {name: sorted_rows(rows) for name, rows in after.items()} == expected, each
