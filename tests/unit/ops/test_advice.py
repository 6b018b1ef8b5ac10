"""What to do with a message of a DLQ, by the status of its order: each state of order and payment."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from onecharge.contract.events import (
    CancelRequestedEvent,
    EventType,
    OrderPlacedEvent,
    PaymentEventType,
    PaymentOutcome,
    PaymentOutcomeEvent,
)
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charges.protocol import FoundIntent, Payment
from ops.dead_letters.advice import (
    Action,
    advise_cancel_requested,
    advise_order_placed,
    advise_payment_outcome,
    asks_stripe,
)
from testing.builders import ORDER_ID, T0, intent, order, payment

PLACED_AT = datetime.fromtimestamp(T0, UTC)


def stored(status: OrderStatus = OrderStatus.PENDING, **changes: Any) -> StoredOrder:
    """The stored order of testing/builders.py."""
    item = {
        **order().model_dump(),
        "placed_at": PLACED_AT.isoformat(),
        "fingerprint": "f",
        "correlation_id": "c",
        "status": status,
        **changes,
    }
    return StoredOrder.model_validate(item)


def placed(**changes: Any) -> OrderPlacedEvent:
    return OrderPlacedEvent.of(order(**changes), correlation_id="c")


PENDING_ROW = payment(state=PaymentState.PENDING)
ORDER_PLACED: dict[str, tuple[OrderPlacedEvent, StoredOrder, Payment | None, list[FoundIntent] | None, Action]] = {
    "waits, no row, nothing at Stripe": (placed(), stored(), None, [], Action.REDRIVE),
    "waits, its row too": (placed(), stored(), PENDING_ROW, [intent("requires_payment_method")], Action.REDRIVE),
    "Stripe shows success": (placed(), stored(), PENDING_ROW, [intent("succeeded")], Action.REDRIVE),
    "Stripe does not answer": (placed(), stored(), PENDING_ROW, None, Action.KEEP),
    "charged twice": (placed(), stored(), None, [intent(), intent(payment_intent_id="pi_2")], Action.KEEP),
    "other money": (placed(), stored(), PENDING_ROW, [intent(amount_minor=1)], Action.KEEP),
    "paid": (placed(), stored(OrderStatus.PAID), payment(state=PaymentState.SUCCEEDED), [], Action.DISCARD),
    "paid, the row is lost": (placed(), stored(OrderStatus.PAID), None, [], Action.DISCARD),
    "paid, and the order does not know": (
        placed(),
        stored(),
        payment(state=PaymentState.SUCCEEDED),
        [],
        Action.REDRIVE,
    ),
    "declined, and the order does not know": (
        *(placed(), stored(), payment(state=PaymentState.DECLINED), []),
        Action.REDRIVE,
    ),
    "declined": (
        placed(),
        stored(OrderStatus.PAYMENT_DECLINED),
        payment(state=PaymentState.DECLINED),
        [],
        Action.DISCARD,
    ),
    "canceled": (placed(), stored(OrderStatus.CANCELED), payment(state=PaymentState.CANCELED), [], Action.DISCARD),
    "canceled, the row is lost": (placed(), stored(OrderStatus.CANCELED), None, [], Action.DISCARD),
    "being canceled, by the row": (placed(), stored(), replace(PENDING_ROW, cancel_requested_at=T0), [], Action.KEEP),
    "under review": (
        placed(),
        stored(OrderStatus.NEEDS_REVIEW),
        payment(state=PaymentState.NEEDS_REVIEW),
        [],
        Action.KEEP,
    ),
    "at the customer's": (
        *(placed(), stored(OrderStatus.REQUIRES_ACTION), payment(state=PaymentState.REQUIRES_ACTION), []),
        Action.KEEP,
    ),
    "superseded, says the order": (placed(), stored(attempt=2), None, [], Action.DISCARD),
    "superseded, says the row": (placed(), stored(), payment(attempt=2), [], Action.DISCARD),
    "of an attempt that the order does not know": (placed(attempt=2), stored(), None, [], Action.KEEP),
    "of a former attempt with another card": (
        *(placed(payment_method="pm_other"), stored(attempt=2), None, []),
        Action.DISCARD,
    ),
    "forged: amount": (placed(amount_minor=999_00), stored(), None, [], Action.KEEP),
    "forged: customer": (placed(customer_id="cus_2"), stored(), None, [], Action.KEEP),
    "forged: card": (placed(payment_method="pm_other"), stored(), None, [], Action.KEEP),
    "forged: age": (placed(placed_at=datetime.now(UTC)), stored(), None, [], Action.KEEP),
}


@pytest.mark.parametrize(("event", "found_order", "row", "found", "action"), ORDER_PLACED.values(), ids=ORDER_PLACED)
def test_a_message_to_charge_an_order(
    event: OrderPlacedEvent,
    found_order: StoredOrder,
    row: Payment | None,
    found: list[FoundIntent] | None,
    action: Action,
) -> None:
    """It is sent back only if the order waits for it, or does not know its payment's end."""
    advice = advise_order_placed(event, found_order, row, found)
    assert advice.action is action, advice.why
    assert not (advice.can_be_forced and found is not None)


def test_an_order_that_is_being_canceled_is_not_charged() -> None:
    """By neither message: the one to cancel it is sent back, the one to charge it is left."""
    canceling = stored(OrderStatus.CANCELING)
    assert advise_order_placed(placed(), canceling, PENDING_ROW, []).action is Action.KEEP
    event = CancelRequestedEvent.of(order(), correlation_id="c")
    assert advise_cancel_requested(event, canceling).action is Action.REDRIVE


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (OrderStatus.PENDING, Action.KEEP),
        (OrderStatus.NEEDS_REVIEW, Action.KEEP),
        (OrderStatus.CANCELED, Action.DISCARD),
        (OrderStatus.PAID, Action.DISCARD),
        (OrderStatus.PAYMENT_DECLINED, Action.DISCARD),
    ],
)
def test_a_message_to_cancel_an_order(status: OrderStatus, action: Action) -> None:
    """Nothing is canceled that the order service does not want canceled."""
    event = CancelRequestedEvent.of(order(), correlation_id="c")
    assert advise_cancel_requested(event, stored(status)).action is action
    assert advise_cancel_requested(event, None).action is Action.KEEP
    forged = CancelRequestedEvent.of(order(amount_minor=1), correlation_id="c")
    assert advise_cancel_requested(forged, stored(status)).action is Action.KEEP


@pytest.mark.parametrize(
    ("row", "asks"),
    [(None, True), (PENDING_ROW, True), (payment(state=PaymentState.SUCCEEDED), False)],
)
def test_stripe_is_asked_only_if_only_stripe_knows(row: Payment | None, asks: bool) -> None:
    """A final row answers; a PAID order needs no question."""
    assert asks_stripe(placed(), stored(), row) is asks
    assert asks_stripe(placed(), stored(OrderStatus.PAID), row) is False
    assert asks_stripe(placed(), None, row) is False


def outcome(event_type: PaymentEventType, **changes: Any) -> PaymentOutcomeEvent:
    values = {"order_id": ORDER_ID, "attempt": 1, "amount_minor": 1099, "currency": "EUR", "occurred_at": PLACED_AT}
    return PaymentOutcomeEvent.of(event_type, PaymentOutcome.model_validate({**values, **changes}), correlation_id="c")


OUTCOMES = {
    "moves it": (outcome(EventType.PAYMENT_SUCCEEDED), stored(), Action.REDRIVE),
    "known": (outcome(EventType.PAYMENT_SUCCEEDED), stored(OrderStatus.PAID), Action.DISCARD),
    "a late success": (outcome(EventType.PAYMENT_SUCCEEDED), stored(OrderStatus.PAYMENT_DECLINED), Action.REDRIVE),
    "stale": (outcome(EventType.PAYMENT_DECLINED), stored(OrderStatus.PAID), Action.DISCARD),
    "of another attempt": (outcome(EventType.PAYMENT_DECLINED), stored(attempt=2), Action.DISCARD),
    "refunded": (
        *(outcome(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=99), stored(OrderStatus.PAID)),
        Action.REDRIVE,
    ),
    "refunded, known": (
        outcome(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=99),
        stored(OrderStatus.PAID, stripe_refunded_minor=99),
        Action.DISCARD,
    ),
    "disputed": (
        *(outcome(EventType.PAYMENT_SUCCEEDED, dispute_status="lost"), stored(OrderStatus.PAID)),
        Action.REDRIVE,
    ),
    "of an order that nobody knows": (outcome(EventType.PAYMENT_SUCCEEDED), None, Action.KEEP),
}


@pytest.mark.parametrize(("event", "found_order", "action"), OUTCOMES.values(), ids=OUTCOMES)
def test_a_message_with_an_outcome(event: PaymentOutcomeEvent, found_order: StoredOrder | None, action: Action) -> None:
    """It is sent back if the order does not know the outcome."""
    assert advise_payment_outcome(event, found_order).action is action


@pytest.mark.parametrize("state", PaymentState)
def test_a_review_that_a_person_has_ended_does_not_come_back(state: PaymentState) -> None:
    """The order would be in review again, while its payment is charged: its customer could not act on it."""
    event = outcome(EventType.PAYMENT_NEEDS_REVIEW)
    action = Action.REDRIVE if state is PaymentState.NEEDS_REVIEW else Action.DISCARD
    assert advise_payment_outcome(event, stored(), payment(state=state)).action is action
