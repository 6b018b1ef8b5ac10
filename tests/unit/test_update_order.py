"""update_order: the order follows its payment, and never moves backwards."""

from typing import Any

import boto3
import pytest

from onecharge.deliveries import Done
from onecharge.events import PaymentOutcomeEvent
from tests.conftest import Log, Sample
from update_order.app import NoSuchOrder, UpdateOrder
from update_order.order_states import MOVES

KINDS = {
    "succeeded": "PAID",
    "declined": "PAYMENT_DECLINED",
    "action_required": "ACTION_REQUIRED",
    "review_needed": "IN_REVIEW",
}


class Order:
    """One order in a table of moto's, and the events that reach it."""

    def __init__(self, table: str, sample: Sample, log: Log) -> None:
        self.dynamodb, self.table, self.sample = boto3.client("dynamodb"), table, sample
        self.update = UpdateOrder(self.dynamodb, table, log.logger, count=lambda name: None)
        self.key = {"order_id": {"S": self.event("succeeded").subject}}
        self.dynamodb.put_item(TableName=table, Item={**self.key, "status": {"S": "PENDING"}})

    def event(self, kind: str) -> PaymentOutcomeEvent:
        body = self.sample(f"update_order/payment_{kind}")["Records"][0]["body"]
        return PaymentOutcomeEvent.model_validate_json(body)

    @property
    def status(self) -> Any:
        return self.dynamodb.get_item(TableName=self.table, Key=self.key)["Item"]["status"]["S"]


@pytest.fixture
def order(orders_table: str, sample: Sample, log: Log) -> Order:
    return Order(orders_table, sample, log)


@pytest.mark.parametrize(("kind", "status"), KINDS.items())
def test_each_outcome_moves_the_order(order: Order, kind: str, status: str) -> None:
    """To the status that the customer sees."""
    assert order.update(order.event(kind)) == Done()
    assert order.status == status


@pytest.mark.parametrize("late", ["succeeded", "declined", "action_required", "review_needed"])
def test_a_paid_order_stays_paid(order: Order, late: str) -> None:
    """Whatever arrives late or again."""
    order.update(order.event("succeeded"))
    assert order.update(order.event(late)) == Done()
    assert order.status == "PAID"


def test_an_action_that_the_customer_took_is_followed(order: Order) -> None:
    """From ACTION_REQUIRED to PAID."""
    order.update(order.event("action_required"))
    order.update(order.event("succeeded"))
    assert order.status == "PAID"


def test_no_move_leads_back_to_where_an_order_came_from() -> None:
    """The moves make no cycle, so an order comes to rest."""
    edges = {(origin, target) for target, origins in MOVES.values() for origin in origins}
    reachable = edges
    for _ in edges:
        reachable = reachable | {(a, d) for a, b in reachable for c, d in edges if b == c}
    cycles = {origin for origin, target in reachable if origin == target}
    assert cycles == set()


def test_an_order_that_is_not_there_is_an_error(order: Order) -> None:
    """The message is tried again, and ends in the DLQ where somebody sees it."""
    order.dynamodb.delete_item(TableName=order.table, Key=order.key)
    with pytest.raises(NoSuchOrder):
        order.update(order.event("succeeded"))
