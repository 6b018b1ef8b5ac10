"""What to do with a message about a refund; and a redriven refund is made once, whatever was lost."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from local.stripe_standin.server import running_standin
from onecharge.contract.refunds import (
    RefundEventType,
    RefundOutcome,
    RefundOutcomeEvent,
    RefundOutcomeType,
    RefundRequestedEvent,
    RefundState,
    RefundStatus,
)
from onecharge.contract.states import PaymentState
from onecharge.orders.refunds import StoredRefund
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import FrozenRefund, Refund
from onecharge.payments.refunds.store import RefundStore
from onecharge.runtime.dynamodb import to_item
from ops.dead_letters.advice import Action
from ops.dead_letters.refund_advice import advise_refund_outcome, advise_refund_requested
from refund_charge.refund import refund_charge
from testing.builders import ORDER_ID, T0, payment
from testing.dlq_stack import DlqStack
from testing.tools import refund_tools

REFUND_ID = "rfd_" + "b" * 32
PAID = payment(state=PaymentState.SUCCEEDED)


def stored(status: RefundStatus = RefundStatus.PENDING, **changes: Any) -> StoredRefund:
    values = {
        "order_id": ORDER_ID,
        "refund_id": REFUND_ID,
        "attempt": 1,
        "amount_minor": 500,
        "currency": "EUR",
        "asked_for": "500",
        "requested_at": datetime.fromtimestamp(T0, UTC).isoformat(),
        "correlation_id": "c",
        "status": status,
    }
    return StoredRefund.model_validate({**values, **changes})


def row(state: RefundState) -> Refund:
    return Refund(request=FrozenRefund.of(stored().requested_event().data, "pi_1"), state=state)


REQUESTED: dict[str, tuple[RefundRequestedEvent, StoredRefund | None, Refund | None, Payment | None, Action]] = {
    "waits": (stored().requested_event(), stored(), None, PAID, Action.REDRIVE),
    "made, and the order does not know": (
        *(stored().requested_event(), stored(), row(RefundState.SUCCEEDED), PAID),
        Action.REDRIVE,
    ),
    "made": (stored().requested_event(), stored(RefundStatus.SUCCEEDED), None, PAID, Action.DISCARD),
    "failed": (stored().requested_event(), stored(RefundStatus.FAILED), None, PAID, Action.DISCARD),
    "under review": (stored().requested_event(), stored(RefundStatus.NEEDS_REVIEW), None, PAID, Action.KEEP),
    "nobody asked for it": (stored().requested_event(), None, None, PAID, Action.KEEP),
    "forged": (stored(amount_minor=2500).requested_event(), stored(), None, PAID, Action.KEEP),
    "not paid": (stored().requested_event(), stored(), None, payment(), Action.KEEP),
    "the payment's row is lost": (stored().requested_event(), stored(), None, None, Action.KEEP),
}


@pytest.mark.parametrize(("event", "found", "refund", "paid", "action"), REQUESTED.values(), ids=REQUESTED)
def test_a_message_to_refund(
    event: RefundRequestedEvent,
    found: StoredRefund | None,
    refund: Refund | None,
    paid: Payment | None,
    action: Action,
) -> None:
    """It is sent back only if the refund waits for it."""
    assert advise_refund_requested(event, found, refund, paid).action is action


@pytest.mark.parametrize(
    ("event_type", "status", "action"),
    [
        (RefundEventType.SUCCEEDED, RefundStatus.PENDING, Action.REDRIVE),
        (RefundEventType.SUCCEEDED, RefundStatus.SUCCEEDED, Action.DISCARD),
        (RefundEventType.FAILED, RefundStatus.SUCCEEDED, Action.REDRIVE),
        (RefundEventType.SUCCEEDED, RefundStatus.FAILED, Action.DISCARD),
    ],
)
def test_a_message_with_the_outcome_of_a_refund(
    event_type: RefundOutcomeType, status: RefundStatus, action: Action
) -> None:
    """It is sent back if it moves the refund; that of a canceled order moves none."""
    data = RefundOutcome(
        order_id=ORDER_ID,
        attempt=1,
        refund_id=REFUND_ID,
        amount_minor=500,
        currency="EUR",
        occurred_at=datetime.fromtimestamp(T0, UTC),
    )
    event = RefundOutcomeEvent.of(event_type, data, revision=1, correlation_id="c")
    assert advise_refund_outcome(event, stored(status), order_is_canceled=False).action is action
    assert advise_refund_outcome(event, None, order_is_canceled=True).action is Action.DISCARD
    assert advise_refund_outcome(event, None, order_is_canceled=False).action is Action.KEEP


@pytest.fixture(scope="module")
def stripe_base() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


def test_a_redriven_refund_is_made_once(aws: None, stripe_base: str) -> None:
    """It was made 25 hours ago, its row is lost, Stripe has forgotten its key: the lookup finds it."""
    operated = DlqStack(stripe_base)
    refunds_table = operated.stack.resource("RefundsTable")
    store, gateway = RefundStore(operated.dynamodb, refunds_table), StripeRefunds(operated.stack.stripe)
    with operated.hours_ago(25):
        order = operated.pay()
        requested = stored(order_id=order.order_id, requested_at=order.placed_at)
        tools = refund_tools(store, gateway, operated.tools().instruments)
        refund_charge(requested.requested_event(), tools, operated.payments)
    operated.dynamodb.put_item(
        TableName=operated.stack.resource("OrderRefundsTable"), Item=to_item(requested.model_dump())
    )
    operated.dynamodb.delete_item(
        TableName=refunds_table, Key=to_item({"order_id": order.order_id, "refund_id": REFUND_ID})
    )
    body = requested.requested_event().model_dump_json(exclude_none=True)
    operated.send("RefundsDlq", body)
    _, document, _ = operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    assert document["redriven"] == 1
    [message] = operated.messages("RefundsQueue")
    assert message["Body"] == body
    tools = refund_tools(store, gateway, operated.tools().instruments)
    refund_charge(RefundRequestedEvent.model_validate_json(message["Body"]), tools, operated.payments)
    assert [refund["amount"] for refund in operated.standin.ledger().refunds] == [500]
    lost = store.read(order.order_id, REFUND_ID)
    assert lost is not None
    assert lost.state is RefundState.SUCCEEDED
