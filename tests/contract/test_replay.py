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
from tests.support.recorded_requests import VARIABLE, Exchange, Rows, Table, seen_of

SENDERS = [
    *("tests/unit/payments/test_row_states.py", "tests/unit/test_checkpoints.py"),
    *("tests/unit/test_update_order.py", "tests/unit/test_republish.py"),
    *("tests/contract/test_orders.py", "tests/contract/test_order_refunds.py"),
]
"""The tests whose requests are replayed: those that send every expression of the stores."""
REQUESTS_AT_LEAST = 300


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> list[Exchange]:
    """Each kind of request that these tests send."""
    path = tmp_path_factory.mktemp("recorded") / "requests"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "tests.support.recorded_requests", *SENDERS]
    environment = {**os.environ, VARIABLE: str(path)}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    recorded: list[Exchange] = pickle.loads(path.read_bytes())  # noqa: S301  # These tests have written it.
    assert len(recorded) >= REQUESTS_AT_LEAST
    return recorded


def create(client: Any, name: str, table: Table, types: dict[str, str]) -> None:
    def schema(keys: tuple[str, ...]) -> Any:
        return [{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)]

    def shown(keys: tuple[str, ...], attributes: frozenset[str]) -> Any:
        others = sorted(attributes - {*keys, *table.keys})
        if not attributes:
            return {"ProjectionType": "ALL"}
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": others} if others else {"ProjectionType": "KEYS_ONLY"}

    keys = {*table.keys, *(key for _, of_index, _ in table.indexes for key in of_index)}
    indexes = [
        {"IndexName": index, "KeySchema": schema(of_index), "Projection": shown(of_index, attributes)}
        for index, of_index, attributes in table.indexes
    ]
    client.create_table(
        TableName=name,
        KeySchema=schema(table.keys),
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": types.get(key, "S")} for key in sorted(keys)],
        BillingMode="PAY_PER_REQUEST",
        **({"GlobalSecondaryIndexes": indexes} if indexes else {}),
    )


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
        for item in rows:
            client.delete_item(TableName=name, Key={key: item[key] for key in exchange.tables[name].keys})
    return answer, after


def test_a_request_has_the_same_answer_and_effect(aws: None, moto: Any, exchanges: list[Exchange]) -> None:
    """Every condition, update, page and transaction of the stores: refused or not, and what is stored after it."""
    types = {
        name: next(iter(value))
        for exchange in exchanges
        for rows in (*exchange.before.values(), *exchange.after.values())
        for item in rows
        for name, value in item.items()
    }
    by_table = sorted(exchanges, key=lambda exchange: repr(sorted(exchange.tables.items())))
    for _, group in groupby(by_table, key=lambda exchange: exchange.tables):
        moto[0].reset()
        client = boto3.client("dynamodb")
        of_tables = list(group)
        for name, table in of_tables[0].tables.items():
            create(client, name, table, types)
        for each in of_tables:
            answer, after = replayed(client, each)
            assert comparable(answer) == comparable(each.answer), each
            expected = {name: sorted_rows(rows) for name, rows in each.after.items()}
            assert {name: sorted_rows(rows) for name, rows in after.items()} == expected, each
