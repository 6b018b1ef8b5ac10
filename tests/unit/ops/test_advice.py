"""What to do with a message of a DLQ, by the state of its order or refund."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge_rules import CREATE_SECONDS
from onecharge.payments.rows import Payment
from ops.dlq_advice import Action, Advice, advise_outcome, advise_refund, advise_request
from tests.shop.builders import ORDER_ID, T0, order, payment

REDRIVE, DISCARD, KEEP = Action.REDRIVE, Action.DISCARD, Action.KEEP
PLACED_AT = datetime.fromtimestamp(T0, UTC)
REFUND_ID = "rfd_" + "b" * 32
Status = OrderStatus


def stored(status: OrderStatus = Status.PENDING, **changes: Any) -> StoredOrder:
    """The stored order of tests/shop/builders.py."""
    at = PLACED_AT.isoformat()
    details = {"placed_at": at, "waiting_since": at, "fingerprint": "f", "correlation_id": "c", "status": status}
    return StoredOrder.model_validate({**order().model_dump(), **details, **changes})


def placed(**changes: Any) -> OrderPlacedEvent:
    return OrderPlacedEvent.of(order(**changes), correlation_id="c")


def advised(
    event: OrderPlacedEvent | CancelRequestedEvent, of: StoredOrder | None, row: Payment | None = None, age: int = 60
) -> Advice:
    return advise_request(event, of, row, now=T0 + age)


def test_a_message_to_charge_an_order() -> None:
    """It is sent back only if the order waits for it, and says the same."""
    by_status = {
        **dict.fromkeys((Status.PENDING, Status.REQUIRES_ACTION), REDRIVE),
        Status.CANCELING: KEEP,
        **dict.fromkeys((Status.CANCELED, Status.PAID, Status.PAYMENT_DECLINED), DISCARD),
    }
    assert {status: advised(placed(), stored(status)).action for status in Status} == by_status
    cases = {
        "superseded": (placed(), stored(attempt=2), DISCARD),
        "of an earlier attempt, another card": (placed(payment_method="pm_other"), stored(attempt=2), DISCARD),
        "of an attempt that the order does not know": (placed(attempt=2), stored(), KEEP),
        "of an order that is lost": (placed(), None, KEEP),
        "forged: amount": (placed(amount_minor=999_00), stored(), KEEP),
        "forged: customer": (placed(customer_id="cus_2"), stored(), KEEP),
        "forged: card": (placed(payment_method="pm_other"), stored(), KEEP),
        "forged: age": (placed(placed_at=datetime.now(UTC)), stored(), KEEP),
    }
    advices = {name: advised(event, of) for name, (event, of, _) in cases.items()}
    assert {name: each.action for name, each in advices.items()} == {name: each[2] for name, each in cases.items()}
    assert not any(advice.can_be_forced for advice in advices.values())


def test_a_message_to_cancel_an_order() -> None:
    """Nothing is canceled that the order service does not want canceled."""
    event, forged = (
        CancelRequestedEvent.of(order(**changes), correlation_id="c") for changes in ({}, {"amount_minor": 1})
    )
    by_status = {
        Status.CANCELING: REDRIVE,
        **dict.fromkeys((Status.PENDING, Status.REQUIRES_ACTION), KEEP),
        **dict.fromkeys((Status.CANCELED, Status.PAID, Status.PAYMENT_DECLINED), DISCARD),
    }
    assert {status: advised(event, stored(status)).action for status in Status} == by_status
    assert advised(event, None).action is KEEP
    assert {advised(forged, stored(status)).action for status in Status} == {KEEP}


def test_what_will_be_held_is_said() -> None:
    """It is sent back all the same: after 22 hours without a PaymentIntent only a release lets one be created."""
    cancel = CancelRequestedEvent.of(order(), correlation_id="c")
    none, own = payment(payment_intent_id=None), payment()
    cases: list[tuple[Payment | None, int, bool]] = [
        (None, CREATE_SECONDS - 1, False),
        (None, CREATE_SECONDS, True),
        (none, CREATE_SECONDS - 1, False),
        (none, CREATE_SECONDS, True),
        (replace(none, released_at=T0 + CREATE_SECONDS), CREATE_SECONDS, False),
        (replace(none, state=PaymentState.DECLINED), CREATE_SECONDS, True),
        (replace(none, state=PaymentState.CANCELED), CREATE_SECONDS, False),
        (own, CREATE_SECONDS, False),
    ]
    for row, age, is_held in cases:
        for event, status in ((placed(), Status.PENDING), (cancel, Status.CANCELING)):
            advice = advised(event, stored(status), row, age)
            assert (advice.action, advice.is_held, "release" in advice.why) == (REDRIVE, is_held, is_held), (row, age)
    assert not advised(placed(), stored(Status.PAID), None, CREATE_SECONDS).is_held


def asked(status: RefundState = RefundState.PENDING, **changes: Any) -> StoredRefund:
    names = {"order_id": ORDER_ID, "refund_id": REFUND_ID, "attempt": 1, "correlation_id": "c", "status": status}
    money = {"amount_minor": 500, "currency": "EUR", "fingerprint": "f", "requested_at": PLACED_AT.isoformat()}
    return StoredRefund.model_validate({**names, **money, **changes})


def test_a_message_to_refund() -> None:
    """It is sent back only if the refund waits for it, and says the same."""
    event, forged = asked().requested_event(), asked(amount_minor=2500).requested_event()
    by_state = dict.fromkeys(RefundState, DISCARD) | {RefundState.PENDING: REDRIVE, RefundState.NEEDS_REVIEW: KEEP}
    assert {state: advise_refund(event, asked(state)).action for state in RefundState} == by_state
    assert {advise_refund(event, None).action, advise_refund(forged, asked()).action} == {KEEP}


def test_a_message_with_an_outcome() -> None:
    """It moves no money, and a stale one is ignored: it is sent back, unless nothing is there that takes it."""
    assert {advise_outcome(stored(status)).action for status in Status} == {REDRIVE}
    assert {advise_outcome(asked(state)).action for state in RefundState} == {REDRIVE}
    assert advise_outcome(None).action is KEEP
