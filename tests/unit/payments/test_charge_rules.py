"""`decide` for every PaymentIntent that a claimed row can meet, and when a PaymentIntent may be created."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import (
    CREATE_SECONDS,
    Cancel,
    Confirm,
    Finalize,
    Release,
    Step,
    decide,
    is_held,
    may_create,
)
from onecharge.runtime.alarms import Cause
from tests.shop.builders import DAY, HOUR, REQUEST, SHOP, T0, intent, payment

DECLINED, REQUIRES_ACTION = Finalize(PaymentState.DECLINED), Finalize(PaymentState.REQUIRES_ACTION)
SUCCEEDED, CANCELED = Finalize(PaymentState.SUCCEEDED), Finalize(PaymentState.CANCELED)
WAITS, UNEXPECTED = Release(""), Release("", Cause.STRIPE_INCONCLUSIVE)
OTHER_MONEY = Release("", Cause.MONEY_DIFFERS)

STEPS: dict[str, tuple[Step, Step, Step]] = {
    # the status: before this attempt's confirm is answered, after that, and if a cancellation is requested
    "requires_payment_method": (Confirm(), DECLINED, Cancel()),
    "requires_confirmation": (Confirm(), DECLINED, Cancel()),
    "requires_action": (REQUIRES_ACTION, REQUIRES_ACTION, Cancel()),
    "processing": (WAITS, WAITS, WAITS),
    "succeeded": (SUCCEEDED, SUCCEEDED, SUCCEEDED),
    "requires_capture": (UNEXPECTED, UNEXPECTED, UNEXPECTED),
    "a status of next year": (UNEXPECTED, UNEXPECTED, UNEXPECTED),
}
MONEY: list[dict[str, Any]] = [{}, {"amount_minor": 1098}, {"currency": "USD"}]


def bare(step: Step) -> Step:
    """The step without what only explains it."""
    match step:
        case Finalize():
            return Finalize(step.state)
        case Release():
            return Release("", step.alarm)
        case _:
            return step


def test_the_status_decides_the_next_step() -> None:
    """Nothing is confirmed or canceled whose amount or currency differs from the order's."""
    for status, canceling, is_answered, money in product(STEPS, (None, T0), (False, True), MONEY):
        step = decide(payment(cancel_requested_at=canceling), intent(status, **money), is_answered=is_answered)
        expected = OTHER_MONEY if money else STEPS[status][2 if canceling else int(is_answered)]
        assert bare(step) == expected, (status, canceling, is_answered, money)


@pytest.mark.parametrize("canceling", [None, T0])
@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("money", MONEY)
@pytest.mark.parametrize(
    ("by", "reason"), [("abandoned", "expired"), ("requested_by_customer", None), ("fraudulent", None), (None, None)]
)
def test_what_is_canceled_cancels_the_order(
    canceling: int | None, is_answered: bool, money: dict[str, Any], by: str | None, reason: str | None
) -> None:
    """It can never be charged, whoever canceled it and whatever its amount. 3-D Secure that expired is the reason."""
    shown = intent("canceled", cancellation_reason=by, **money)
    step = decide(payment(cancel_requested_at=canceling), shown, is_answered=is_answered)
    assert step == Finalize(PaymentState.CANCELED, shown, reason)


@pytest.mark.parametrize("code", ["lost_card", None])
def test_a_decline_has_a_reason(code: str | None) -> None:
    """It is Stripe's code; without one, the general one."""
    shown = intent("requires_payment_method", error_code=code)
    assert decide(payment(), shown, is_answered=True) == Finalize(DECLINED.state, shown, code or "card_declined")


WINDOW = CREATE_SECONDS


@pytest.mark.parametrize(
    ("placed", "released", "at", "may"),
    [
        (T0, None, T0 - HOUR, True),
        (T0, None, T0 + WINDOW - 1, True),
        (T0, None, T0 + WINDOW, False),
        (T0, T0 + 2 * DAY, T0 + 2 * DAY + WINDOW - 1, True),
        (T0, T0 + 2 * DAY, T0 + 2 * DAY + WINDOW, False),
        (T0 + DAY, T0, T0 + WINDOW, False),  # the release counts, not the later of the two
    ],
)
def test_a_payment_intent_may_be_created_for_22_hours(placed: int, released: int | None, at: int, may: bool) -> None:
    """They count from the order's time, or from its release. A row that waits longer without one is held."""
    row = payment(request=replace(REQUEST, placed_at=placed), released_at=released, payment_intent_id=None)
    assert (may_create(row, at), is_held(row, at)) == (may, not may)
    assert not is_held(replace(row, payment_intent_id="pi_1"), at)
    assert not is_held(replace(row, state=PaymentState.DECLINED), at)


def test_22_hours_leave_room_for_two_wrong_clocks() -> None:
    """Stripe keeps a key for 24 hours; the clock that set the beginning and the one that reads it may be off."""
    assert WINDOW + 2 * HOUR <= DAY


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shop": "another"},
        {"shop": ""},
        {"order_id": "ord_" + "b" * 32},
        {"order_id": None},
        {"customer_id": "cus_2"},
        *MONEY[1:],
    ],
)
def test_a_payment_intent_is_the_orders_if_everything_agrees(changes: dict[str, Any]) -> None:
    """Shop, order, customer, amount and currency: a person may have edited any of them."""
    assert intent(**changes).is_of(SHOP, REQUEST) is (changes == {})
