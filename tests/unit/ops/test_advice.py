"""What to do with a message of a DLQ, by the state of its order, payment and refund."""

from datetime import UTC, datetime
from typing import Any

from onecharge.contract.events import (
    CancelRequestedEvent,
    EventType,
    OrderPlacedEvent,
    PaymentEventType,
    PaymentOutcome,
    PaymentOutcomeEvent,
)
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from ops.dlq_advice import (
    Action,
    Advice,
    advise_payment_outcome,
    advise_refund_outcome,
    advise_refund_requested,
    advise_request,
)
from tests.support.builders import ORDER_ID, T0, order, payment

REDRIVE, DISCARD, KEEP = Action.REDRIVE, Action.DISCARD, Action.KEEP
PLACED_AT = datetime.fromtimestamp(T0, UTC)
REFUND_ID = "rfd_" + "b" * 32
Status, S = OrderStatus, PaymentState


def stored(status: OrderStatus = Status.PENDING, **changes: Any) -> StoredOrder:
    """The stored order of tests/support/builders.py."""
    details = {"placed_at": PLACED_AT.isoformat(), "fingerprint": "f", "correlation_id": "c", "status": status}
    return StoredOrder.model_validate({**order().model_dump(), **details, **changes})


def wrong(advices: dict[str, tuple[Advice, Action]]) -> dict[str, Advice]:
    """The cases that are advised otherwise."""
    return {name: advice for name, (advice, action) in advices.items() if advice.action is not action}


# ---------------------------------------------------------------- to charge, to cancel


def placed(**changes: Any) -> OrderPlacedEvent:
    return OrderPlacedEvent.of(order(**changes), correlation_id="c")


OTHER_CARD = placed(payment_method="pm_other")


def test_a_message_to_charge_an_order() -> None:
    """It is sent back only if the order waits for it. The worker knows the payment's end, if there is one."""
    charge = advise_request
    by_status = {
        **dict.fromkeys((Status.PENDING, Status.REQUIRES_ACTION), REDRIVE),
        **dict.fromkeys((Status.CANCELING, Status.NEEDS_REVIEW), KEEP),
        **dict.fromkeys((Status.CANCELED, Status.PAID, Status.PAYMENT_DECLINED), DISCARD),
    }
    assert {status: charge(placed(), stored(status)).action for status in Status} == by_status
    advices = {
        "superseded": (charge(placed(), stored(attempt=2)), DISCARD),
        "of an attempt that the order does not know": (charge(placed(attempt=2), stored()), KEEP),
        "of an earlier attempt, another card": (charge(OTHER_CARD, stored(attempt=2)), DISCARD),
        "of an order that is lost": (charge(placed(), None), KEEP),
        "forged: amount": (charge(placed(amount_minor=999_00), stored()), KEEP),
        "forged: customer": (charge(placed(customer_id="cus_2"), stored()), KEEP),
        "forged: card": (charge(OTHER_CARD, stored()), KEEP),
        "forged: age": (charge(placed(placed_at=datetime.now(UTC)), stored()), KEEP),
    }
    assert wrong(advices) == {}
    assert not any(advice.can_be_forced for advice, _ in advices.values())


def test_a_message_to_cancel_an_order() -> None:
    """Nothing is canceled that the order service does not want canceled."""
    event, forged = (
        CancelRequestedEvent.of(order(**changes), correlation_id="c") for changes in ({}, {"amount_minor": 1})
    )
    by_status = {
        Status.CANCELING: REDRIVE,
        **dict.fromkeys((Status.PENDING, Status.REQUIRES_ACTION, Status.NEEDS_REVIEW), KEEP),
        **dict.fromkeys((Status.CANCELED, Status.PAID, Status.PAYMENT_DECLINED), DISCARD),
    }
    assert {status: advise_request(event, stored(status)).action for status in Status} == by_status
    assert advise_request(event, None).action is KEEP
    assert {advise_request(forged, stored(status)).action for status in Status} == {KEEP}


# ---------------------------------------------------------------- outcomes of payments


def outcome(event_type: PaymentEventType) -> PaymentOutcomeEvent:
    values = {"order_id": ORDER_ID, "attempt": 1, "amount_minor": 1099, "currency": "EUR", "occurred_at": PLACED_AT}
    return PaymentOutcomeEvent.of(event_type, PaymentOutcome.model_validate(values), correlation_id="c")


def test_a_message_with_an_outcome() -> None:
    """It moves no money, and the order ignores a stale one: it is sent back, unless there is no order."""
    success, decline = outcome(EventType.PAYMENT_SUCCEEDED), outcome(EventType.PAYMENT_DECLINED)
    advices = [advise_payment_outcome(each, stored(status), None) for each in (success, decline) for status in Status]
    assert {advice.action for advice in advices} == {REDRIVE}
    assert advise_payment_outcome(success, None, None).action is KEEP


def test_a_review_that_a_person_has_ended_does_not_come_back() -> None:
    """The order would be in review again, while its payment is charged: its customer could not act on it."""
    event = outcome(EventType.PAYMENT_NEEDS_REVIEW)
    actions = {state: advise_payment_outcome(event, stored(), payment(state=state)).action for state in S}
    assert actions == dict.fromkeys(S, DISCARD) | {S.NEEDS_REVIEW: REDRIVE}


# ---------------------------------------------------------------- refunds


def asked(status: RefundState = RefundState.PENDING, **changes: Any) -> StoredRefund:
    names = {"order_id": ORDER_ID, "refund_id": REFUND_ID, "attempt": 1, "correlation_id": "c", "status": status}
    money = {"amount_minor": 500, "currency": "EUR", "fingerprint": "f", "requested_at": PLACED_AT.isoformat()}
    return StoredRefund.model_validate({**names, **money, **changes})


def test_a_message_to_refund() -> None:
    """It is sent back only if the refund waits for it."""
    event, forged = asked().requested_event(), asked(amount_minor=2500).requested_event()
    review, refund = asked(RefundState.NEEDS_REVIEW), advise_refund_requested
    advices = {
        "waits": (refund(event, asked()), REDRIVE),
        "made": (refund(event, asked(RefundState.SUCCEEDED)), DISCARD),
        "failed": (refund(event, asked(RefundState.FAILED)), DISCARD),
        "under review": (refund(event, review), KEEP),
        "not requested": (refund(event, None), KEEP),
        "forged": (refund(forged, asked()), KEEP),
    }
    assert wrong(advices) == {}


def test_a_message_with_the_outcome_of_a_refund() -> None:
    """It is sent back to its refund; a canceled order that was charged has none."""
    for status in RefundState:
        assert advise_refund_outcome(asked(status), order_is_canceled=False).action is REDRIVE
    assert advise_refund_outcome(None, order_is_canceled=True).action is DISCARD
    assert advise_refund_outcome(None, order_is_canceled=False).action is KEEP
