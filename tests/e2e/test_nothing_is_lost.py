"""On the deployed stack: what the streams never told, or were the only ones to tell, still comes to its end, once."""

import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from local.stack import Stack
from tests.e2e.test_orders import Shop, eventually


@pytest.fixture
def shop(stack: Stack) -> Shop:
    return Shop(stack)


def an_hour_ago() -> str:
    """When an order is due again whatever the run before has published: one of the times at which it becomes so."""
    return datetime.fromtimestamp(time.time() - 3600, UTC).isoformat()


def republish(stack: Stack) -> None:
    answer = stack.aws.client("lambda").invoke(FunctionName=stack.republish_orders_function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def becomes_pending(stack: Stack, order_id: str) -> None:
    """The order is PENDING since an hour, by a change that the stream's filter leaves out."""
    stack.aws.client("dynamodb").update_item(
        TableName=stack.orders_table,
        Key={"order_id": {"S": order_id}},
        UpdateExpression="SET #status = :pending, placed_at = :an_hour_ago",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":pending": {"S": "PENDING"}, ":an_hour_ago": {"S": an_hour_ago()}},
    )


def test_an_order_that_was_never_published_is_charged(shop: Shop, stack: Stack) -> None:
    """Its stream record came to nothing; it is found by its status, published, and charged once."""
    order_id = f"ord_{uuid4().hex}"
    item: dict[str, Any] = {
        "order_id": {"S": order_id},
        "status": {"S": "IN_REVIEW"},  # Of which nothing is published.
        "attempt": {"N": "1"},
        "customer_id": {"S": "cus_e2e"},
        "amount_minor": {"N": "2500"},
        "currency": {"S": "EUR"},
        "payment_method": {"S": "pm_card_visa"},
        "fingerprint": {"S": "0" * 64},
        "placed_at": {"S": an_hour_ago()},
        "correlation_id": {"S": "never-published"},
    }
    stack.aws.client("dynamodb").put_item(TableName=stack.orders_table, Item=item)
    becomes_pending(stack, order_id)
    time.sleep(5)
    assert (shop.charges(order_id), shop.get(order_id).json()["status"]) == ([], "PENDING")
    republish(stack)
    assert shop.settled_status(order_id) == "PAID"
    republish(stack)
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [2500]


def test_an_outcome_that_was_never_published_moves_the_order(shop: Shop, stack: Stack) -> None:
    """The order was charged an hour ago and does not know: it asks again, is answered again, and is charged no more."""
    order_id = shop.order().json()["order_id"]
    assert shop.settled_status(order_id) == "PAID"
    stack.aws.client("dynamodb").update_item(
        TableName=stack.charges_table,
        Key={"order_id": {"S": order_id}, "attempt": {"N": "1"}},
        UpdateExpression="SET settled_at = settled_at - :an_hour",
        ExpressionAttributeValues={":an_hour": {"N": "3600"}},
    )
    # That change of ours was published as well: it must be over before the order forgets.
    unmoved = f'"order_id":"{order_id}"'
    assert eventually(lambda: lines(shop, "order stands where it stood", unmoved), bool)
    becomes_pending(stack, order_id)
    time.sleep(5)
    assert shop.get(order_id).json()["status"] == "PENDING"
    republish(stack)
    assert shop.settled_status(order_id) == "PAID"
    assert len(shop.charges(order_id)) == 1


def lines(shop: Shop, *parts: str) -> list[str]:
    """The lines of the functions' logs that hold all of these."""
    return [line for line in shop.log().splitlines() if all(part in line for part in parts)]
