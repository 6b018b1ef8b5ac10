"""update_order: the order follows its payment, and never moves backwards."""

from typing import Any

import boto3
import pytest
from pydantic import ValidationError

from onecharge.deliveries import Done, reason_of
from onecharge.dynamodb import from_item
from onecharge.events import PaymentOutcomeEvent, RefundOutcomeEvent
from tests.conftest import Log, Sample
from update_order.app import PAYMENT_EVENT, NoSuchOrder, UpdateOrder
from update_order.order_states import MOVES

KINDS = {
    "succeeded": "PAID",
    "declined": "PAYMENT_DECLINED",
    "requires_action": "REQUIRES_ACTION",
    "needs_review": "NEEDS_REVIEW",
    "canceled": "CANCELED",
}


class Order:
    """One order in a table of moto's, and the events that reach it."""

    def __init__(self, table: str, sample: Sample, log: Log) -> None:
        self.dynamodb, self.table, self.sample = boto3.client("dynamodb"), table, sample
        self.update = UpdateOrder(self.dynamodb, table, log.logger, count=lambda name: None)
        self.key = {"order_id": {"S": self.event("succeeded").subject}}
        self.stands("PENDING", attempt=1)

    def stands(self, status: str, *, attempt: int) -> None:
        item = {**self.key, "status": {"S": status}, "attempt": {"N": str(attempt)}, "outcomes": {"M": {}}}
        self.dynamodb.put_item(TableName=self.table, Item=item)

    def event(self, kind: str, *, attempt: int = 1) -> PaymentOutcomeEvent:
        body = self.sample(f"update_order/payment_{kind}")["Records"][0]["body"]
        event = PaymentOutcomeEvent.model_validate_json(body)
        return event.model_copy(update={"data": event.data.model_copy(update={"attempt": attempt})})

    @property
    def outcomes(self) -> dict[str, Any]:
        item = self.dynamodb.get_item(TableName=self.table, Key=self.key)["Item"]
        return dict(from_item({"outcomes": item["outcomes"]})["outcomes"])

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


@pytest.mark.parametrize("late", KINDS)
def test_a_paid_order_stays_paid(order: Order, late: str) -> None:
    """Whatever arrives late or again."""
    order.update(order.event("succeeded"))
    assert order.update(order.event(late)) == Done()
    assert order.status == "PAID"


def test_an_action_that_the_customer_took_is_followed(order: Order) -> None:
    """From REQUIRES_ACTION to PAID."""
    order.update(order.event("requires_action"))
    order.update(order.event("succeeded"))
    assert order.status == "PAID"


def test_each_attempt_s_outcome_is_remembered(order: Order) -> None:
    """With why it was declined, and with the secret that lets the customer act."""
    order.update(order.event("declined"))
    order.stands("PENDING", attempt=2)
    waiting = order.event("requires_action", attempt=2)
    order.update(waiting.model_copy(update={"data": waiting.data.model_copy(update={"client_secret": "pi_1_secret"})}))
    assert order.outcomes == {"2": {"status": "REQUIRES_ACTION", "client_secret": "pi_1_secret"}}
    order.update(order.event("declined", attempt=2))
    assert order.outcomes["2"]["status"] == "PAYMENT_DECLINED"
    assert order.outcomes["2"]["decline_code"]


@pytest.mark.parametrize("late", KINDS)
def test_what_an_earlier_attempt_came_to_does_not_move_the_order(order: Order, late: str) -> None:
    """A decline of the first card that arrives again says nothing of the second."""
    order.stands("PENDING", attempt=2)
    assert order.update(order.event(late, attempt=1)) == Done()
    assert (order.status, order.outcomes) == ("PENDING", {})


@pytest.mark.parametrize("late", KINDS)
def test_a_canceled_order_stays_canceled(order: Order, late: str) -> None:
    """Whatever arrives late."""
    order.stands("CANCELED", attempt=1)
    order.update(order.event(late))
    assert order.status == "CANCELED"


def test_the_client_secret_is_in_no_log(order: Order, log: Log) -> None:
    """It lets whoever has it go on with the payment."""
    waiting = order.event("requires_action")
    order.update(waiting.model_copy(update={"data": waiting.data.model_copy(update={"client_secret": "pi_1_secret"})}))
    assert "order moved" in log.text
    assert "secret" not in log.text


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


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("payment_succeeded", PaymentOutcomeEvent),
        ("payment_canceled", PaymentOutcomeEvent),
        ("refund_succeeded", RefundOutcomeEvent),
        ("refund_failed", RefundOutcomeEvent),
    ],
)
def test_both_kinds_of_outcome_are_understood(sample: Sample, name: str, model: type) -> None:
    """Told apart by the event's type."""
    event = PAYMENT_EVENT.validate_json(sample(f"update_order/{name}")["Records"][0]["body"])
    assert type(event) is model


@pytest.mark.parametrize("type_", ["onecharge.refund.requested", "onecharge.refund.succeeded", "4000056655665556"])
def test_the_data_of_another_kind_is_poison(sample: Sample, type_: str) -> None:
    """And the reason repeats nothing of what it says."""
    body = sample("update_order/payment_succeeded")["Records"][0]["body"]
    with pytest.raises(ValidationError) as invalid:
        PAYMENT_EVENT.validate_json(body.replace("onecharge.payment.succeeded", type_))
    assert "4000056655665556" not in reason_of(invalid.value)
