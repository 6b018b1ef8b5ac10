"""`decide` for every PaymentIntent that a claimed row can meet, and when a PaymentIntent may be created."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import CREATE_SECONDS, Cancel, Confirm, Held, Outcome, decide, is_held, may_create
from onecharge.payments.payments_table import DUPLICATE, KEYS_USED_UP
from onecharge.payments.stripe_responses import Deferred
from onecharge.runtime.alarms import Cause
from tests.shop.builders import DAY, HOUR, REQUEST, SHOP, T0, intent, payment

DECLINED, REQUIRES_ACTION, SUCCEEDED = PaymentState.DECLINED, PaymentState.REQUIRES_ACTION, PaymentState.SUCCEEDED
STEPS: dict[str, tuple[Any, Any, Any]] = {
    # the status: before this attempt's confirm is answered, after that, and if a cancellation is requested
    "requires_payment_method": (Confirm, DECLINED, Cancel),
    "requires_confirmation": (Confirm, DECLINED, Cancel),
    "requires_action": (REQUIRES_ACTION, REQUIRES_ACTION, Cancel),
    "processing": (None, None, None),
    "succeeded": (SUCCEEDED, SUCCEEDED, SUCCEEDED),
    "requires_capture": (Cause.STRIPE_INCONCLUSIVE,) * 3,
    "a status of next year": (Cause.STRIPE_INCONCLUSIVE,) * 3,
}
"""A final state, a request, or the alarm of what is deferred."""
MONEY: list[dict[str, Any]] = [{}, {"amount_minor": 1098}, {"currency": "USD"}]


def test_the_status_decides_the_next_step() -> None:
    """Nothing is confirmed or canceled whose amount or currency differs from the order's; what is canceled can never
    be charged, whoever canceled it."""
    for status, canceling, is_answered, money in product([*STEPS, "canceled"], (None, T0), (False, True), MONEY):
        step = decide(payment(cancel_requested_at=canceling), intent(status, **money), is_answered=is_answered)
        found = step.state if isinstance(step, Outcome) else step.alarm if isinstance(step, Deferred) else type(step)
        if status == "canceled":
            expected: Any = PaymentState.CANCELED
        else:
            expected = Cause.MONEY_DIFFERS if money else STEPS[status][2 if canceling else int(is_answered)]
        assert found == expected, (status, canceling, is_answered, money)


@pytest.mark.parametrize(
    ("status", "changes", "reason"),
    [
        ("requires_payment_method", {"error_code": "lost_card"}, "lost_card"),
        ("requires_payment_method", {}, "card_declined"),
        ("canceled", {"cancellation_reason": "abandoned"}, "expired"),
        ("canceled", {"cancellation_reason": "requested_by_customer"}, None),
        ("canceled", {"cancellation_reason": "fraudulent"}, None),
        ("canceled", {}, None),
    ],
)
def test_an_end_has_a_reason(status: str, changes: dict[str, Any], reason: str | None) -> None:
    """A decline's is Stripe's code; without one, the general one. 3-D Secure that expired is a cancellation's."""
    shown = intent(status, **changes)
    step = decide(payment(), shown, is_answered=True)
    assert isinstance(step, Outcome)
    assert (step.intent, step.reason) == (shown, reason)


def test_a_duplicate_of_another_does_not_end_the_order() -> None:
    """A release canceled it, and an older row was restored: the other one may be charged. The row is held again, until
    a person has looked, whatever held it before."""
    duplicate = intent("canceled", cancellation_reason="duplicate")
    step: Any = decide(payment(held_because=KEYS_USED_UP), duplicate, is_answered=False)
    assert (type(step), step.kept) == (Held, {"payment_intent_id": None, "held_because": DUPLICATE})
    assert isinstance(decide(payment(), replace(duplicate, amount_minor=9), is_answered=False), Outcome)


@pytest.mark.parametrize(
    ("placed", "released", "at", "may"),
    [
        (T0, None, T0 - HOUR, True),
        (T0, None, T0 + 22 * HOUR - 1, True),
        (T0, None, T0 + 22 * HOUR, False),
        (T0, T0 + 2 * DAY, T0 + 2 * DAY + CREATE_SECONDS - 1, True),
        (T0, T0 + 2 * DAY, T0 + 2 * DAY + CREATE_SECONDS, False),
        (T0 + DAY, T0, T0 + CREATE_SECONDS, False),  # the release counts, not the later of the two
    ],
)
def test_a_payment_intent_may_be_created_for_22_hours(placed: int, released: int | None, at: int, may: bool) -> None:
    """They count from the order's time, or from its release. A row that waits longer without one is held."""
    row = payment(request=replace(REQUEST, placed_at=placed), released_at=released, payment_intent_id=None)
    assert (may_create(row, at), is_held(row, at)) == (may, not may)
    assert is_held(replace(row, held_because=KEYS_USED_UP), at)
    assert not is_held(replace(row, payment_intent_id="pi_1"), at)
    assert not is_held(replace(row, state=DECLINED), at)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        *({"shop": each} for each in ("another", "")),
        *({"order_id": each} for each in ("ord_" + "b" * 32, None)),
        {"customer_id": "cus_2"},
        *MONEY[1:],
    ],
)
def test_a_payment_intent_is_the_orders_if_everything_agrees(changes: dict[str, Any]) -> None:
    """Shop, order, customer, amount and currency: a person may have edited any of them."""
    assert REQUEST.matches(intent(**changes), SHOP) is (changes == {})
