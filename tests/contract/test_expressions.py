"""Expressions, indexes and transactions give the same result on DynamoDB Local and in the simulation."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from onecharge.runtime.dynamodb import from_item, to_item

INDEX = "by_due_at"
KEY = {"order_id": {"S": "ord_1"}}
ITEM: dict[str, Any] = {
    "order_id": "ord_1",
    "state": "PENDING",
    "revision": 3,
    "lease_expires_at": 100,
    "attempt": {"number": 2, "payment_method": "pm_1"},
    "charges": ["ch_1", "ch_2"],
}


@pytest.fixture
def table(dynamodb: Any, request: pytest.FixtureRequest) -> str:
    """A table with a partition key, and a sparse index of the items that have a due time."""
    name = f"payments-{abs(hash(request.node.name))}"
    attributes = {"order_id": "S", "due_shard": "S", "due_at": "N"}
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": type_} for each, type_ in attributes.items()],
        KeySchema=[{"AttributeName": "order_id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": [
                    {"AttributeName": "due_shard", "KeyType": "HASH"},
                    {"AttributeName": "due_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    return name


def put(dynamodb: Any, table: str, **changes: Any) -> None:
    dynamodb.put_item(TableName=table, Item=to_item({**ITEM, **changes}))


def read(dynamodb: Any, table: str) -> dict[str, Any]:
    return from_item(dynamodb.get_item(TableName=table, Key=KEY, ConsistentRead=True)["Item"])


def values(**given: Any) -> dict[str, Any]:
    return {f":{name}": value for name, value in to_item(given).items()}


UPDATES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SET revision = revision + :one", {"one": 1}, {"revision": 4}),
    ("SET revision = if_not_exists(revision, :zero) + :one", {"zero": 0, "one": 1}, {"revision": 4}),
    ("SET generation = if_not_exists(generation, :zero) + :one", {"zero": 0, "one": 1}, {"generation": 1}),
    ("SET attempt.#number = attempt.#number + :one", {"one": 1}, {"attempt": {"number": 3, "payment_method": "pm_1"}}),
    ("SET attempt.code = :code", {"code": "x"}, {"attempt": {"number": 2, "payment_method": "pm_1", "code": "x"}}),
    ("SET attempt = :new", {"new": {"number": 3}}, {"attempt": {"number": 3}}),
    ("SET lease_expires_at = revision, revision = :zero", {"zero": 0}, {"lease_expires_at": 3, "revision": 0}),
    ("SET revision = :zero REMOVE lease_expires_at", {"zero": 0}, {"revision": 0, "lease_expires_at": None}),
    ("REMOVE nothing", {}, {}),
]


def test_an_update_expression_changes_the_item(dynamodb: Any, table: str) -> None:
    """Other attributes stay; each value is computed from the item before the update."""
    for expression, given, changes in UPDATES:
        put(dynamodb, table)
        dynamodb.update_item(TableName=table, Key=KEY, **_update(expression, given))
        expected = {name: value for name, value in {**ITEM, **changes}.items() if value is not None}
        assert read(dynamodb, table) == expected, expression


def _update(expression: str, given: dict[str, Any]) -> dict[str, Any]:
    names = {"#number": "number"} if "#number" in expression else None
    return {
        "UpdateExpression": expression,
        **({"ExpressionAttributeValues": values(**given)} if given else {}),
        **({"ExpressionAttributeNames": names} if names else {}),
    }


INVALID: list[tuple[str, dict[str, Any]]] = [
    ("SET revision = generation + :one", {"one": 1}),
    ("SET missing.code = :code", {"code": "x"}),
    ("SET order_id = :other", {"other": "ord_2"}),
    ("SET revision = :one", {"one": 1, "unused": 1}),
    ("SET revision = :undefined", {"one": 1}),
]


def test_an_invalid_update_expression_is_refused(dynamodb: Any, table: str) -> None:
    """ValidationException, and the item does not change."""
    put(dynamodb, table)
    for expression, given in INVALID:
        with pytest.raises(ClientError) as refused:
            dynamodb.update_item(TableName=table, Key=KEY, **_update(expression, given))
        assert refused.value.response["Error"]["Code"] == "ValidationException", expression
        assert read(dynamodb, table) == ITEM, expression


CONDITIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("attribute_exists(revision) AND attribute_not_exists(generation)", {}, True),
    ("attribute_exists(attempt.payment_method)", {}, True),
    ("attribute_not_exists(attempt.code)", {}, True),
    ("NOT revision = :three", {"three": 3}, False),
    ("NOT (revision = :three AND lease_expires_at <= :now)", {"three": 3, "now": 99}, True),
    ("revision = :one OR revision = :three AND lease_expires_at > :now", {"one": 1, "three": 3, "now": 99}, True),
    ("(revision = :three OR revision = :one) AND lease_expires_at > :now", {"one": 1, "three": 3, "now": 100}, False),
    ("revision IN (:one, :three)", {"one": 1, "three": 3}, True),
    ("revision <> :one", {"one": 1}, True),
    ("generation <> :one", {"one": 1}, True),
    ("generation < :one", {"one": 1}, False),
    ("revision < lease_expires_at", {}, True),
    ("attempt.#number >= :two", {"two": 2}, True),
    ("contains(charges, :second)", {"second": "ch_2"}, True),
    ("contains(charges, :part)", {"part": "ch"}, False),
]


def test_a_condition_expression_is_evaluated(dynamodb: Any, table: str) -> None:
    """If it is false, nothing is written, and ALL_OLD returns the item."""
    for condition, given, holds in CONDITIONS:
        put(dynamodb, table)
        names = {"#number": "number"} if "#number" in condition else {}
        update = {
            "UpdateExpression": "SET seen = :seen",
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values(seen=1, **given),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **({"ExpressionAttributeNames": names} if names else {}),
        }
        try:
            dynamodb.update_item(TableName=table, Key=KEY, **update)
            found = True
        except dynamodb.exceptions.ConditionalCheckFailedException as refused:
            found = False
            shown = from_item(refused.response["Item"])
            assert shown == ITEM, condition
        assert (found, read(dynamodb, table)) == (holds, {**ITEM, "seen": 1} if holds else ITEM), condition


def test_all_old_of_a_missing_item_is_empty(dynamodb: Any, table: str) -> None:
    """A failed condition on a missing item returns no `Item`."""
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException) as refused:
        dynamodb.update_item(
            TableName=table,
            Key=KEY,
            UpdateExpression="SET revision = :one",
            ConditionExpression="attribute_exists(order_id)",
            ExpressionAttributeValues=values(one=1),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert not refused.value.response.get("Item")


def test_an_update_returns_the_item_before_or_after_it(dynamodb: Any, table: str) -> None:
    """ALL_OLD or ALL_NEW."""
    for wanted, revision, number in (("ALL_OLD", 3, 2), ("ALL_NEW", 4, 1)):
        put(dynamodb, table)
        update = _update("SET revision = revision + :one, attempt.#number = :one", {"one": 1})
        answer = dynamodb.update_item(TableName=table, Key=KEY, ReturnValues=wanted, **update)
        returned = from_item(answer["Attributes"])
        assert (returned["revision"], returned["attempt"]["number"]) == (revision, number)


# ---------------------------------------------------------------- a sparse index


@pytest.fixture
def due(dynamodb: Any, table: str) -> str:
    """Items that are due at 5, 10, 15, 100 and 100, one of another shard, and one without a due time."""
    for number, due_at in enumerate((5, 100, 10, 15, 100)):
        dynamodb.put_item(
            TableName=table, Item=to_item({"order_id": f"ord_{number}", "due_shard": "due", "due_at": due_at})
        )
    dynamodb.put_item(TableName=table, Item=to_item({"order_id": "ord_8", "due_shard": "other", "due_at": 1}))
    dynamodb.put_item(TableName=table, Item=to_item({"order_id": "ord_9", "due_shard": "due"}))
    return table


def query(dynamodb: Any, table: str, condition: str, given: dict[str, Any], **how: Any) -> list[int]:
    """The due times of all pages."""
    found: list[int] = []
    start: dict[str, Any] = {}
    for _ in range(10):
        page = dynamodb.query(
            TableName=table,
            IndexName=INDEX,
            KeyConditionExpression=f"due_shard = :shard{condition}",
            ExpressionAttributeValues=values(shard="due", **given),
            **how,
            **start,
        )
        assert len(page["Items"]) <= how.get("Limit", 100)
        found += [from_item(item)["due_at"] for item in page["Items"]]
        if "LastEvaluatedKey" not in page:
            return found
        assert page["LastEvaluatedKey"].keys() == {"order_id", "due_shard", "due_at"}
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    raise AssertionError("the pages do not end")


def test_an_index_is_sorted_by_its_sort_key(dynamodb: Any, due: str) -> None:
    """Numerically, page by page, in both directions; each item once, also with equal sort keys."""
    for limit in (1, 2, 100):
        assert query(dynamodb, due, "", {}, Limit=limit) == [5, 10, 15, 100, 100]
        assert query(dynamodb, due, "", {}, Limit=limit, ScanIndexForward=False) == [100, 100, 15, 10, 5]


RANGES: list[tuple[str, dict[str, Any], list[int]]] = [
    (" AND due_at <= :now", {"now": 15}, [5, 10, 15]),
    (" AND due_at < :now", {"now": 15}, [5, 10]),
    (" AND due_at >= :now", {"now": 15}, [15, 100, 100]),
    (" AND due_at = :now", {"now": 100}, [100, 100]),
]


def test_a_sort_key_condition_limits_a_query(dynamodb: Any, due: str) -> None:
    """Bounds are inclusive or exclusive as written."""
    for condition, given, expected in RANGES:
        assert query(dynamodb, due, condition, given) == expected, condition


def test_an_item_without_the_attribute_leaves_the_sparse_index(dynamodb: Any, due: str) -> None:
    """After REMOVE due_at a query does not return it."""
    dynamodb.update_item(TableName=due, Key=to_item({"order_id": "ord_0"}), UpdateExpression="REMOVE due_at")
    assert query(dynamodb, due, " AND due_at <= :now", {"now": 15}) == [10, 15]


# ---------------------------------------------------------------- transactions


def transact(dynamodb: Any, table: str, condition: str) -> None:
    """Updates of two items, the first of them with a condition."""
    dynamodb.transact_write_items(
        TransactItems=[
            {
                "Update": {
                    "TableName": table,
                    "Key": KEY,
                    "UpdateExpression": "SET seen = :seen",
                    "ConditionExpression": condition,
                    "ExpressionAttributeValues": values(revision=3, seen=1),
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
            },
            {
                "Update": {
                    "TableName": table,
                    "Key": {"order_id": {"S": "ord_2"}},
                    "UpdateExpression": "SET revision = :one",
                    "ExpressionAttributeValues": values(one=1),
                }
            },
        ]
    )


def revision_of_the_other(dynamodb: Any, table: str) -> int | None:
    item = dynamodb.get_item(TableName=table, Key={"order_id": {"S": "ord_2"}}, ConsistentRead=True).get("Item")
    return from_item(item)["revision"] if item else None


def test_a_transaction_is_all_or_nothing(dynamodb: Any, table: str) -> None:
    """CancellationReasons name the failed condition, with the item."""
    put(dynamodb, table)
    with pytest.raises(dynamodb.exceptions.TransactionCanceledException) as refused:
        transact(dynamodb, table, "revision > :revision")
    reasons = refused.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["ConditionalCheckFailed", "None"]
    assert from_item(reasons[0]["Item"]) == ITEM
    assert revision_of_the_other(dynamodb, table) is None
    transact(dynamodb, table, "revision = :revision")
    assert revision_of_the_other(dynamodb, table) == 1
