"""What a row becomes by what Stripe shows later: every row and every PaymentIntent that can meet."""

from itertools import product
from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.disputes import Dispute
from onecharge.payments.payments_table import DUPLICATE, UNPAID, Payment
from onecharge.payments.stripe_responses import StripeIntent
from onecharge.payments.sync_rules import Difference, find_difference
from onecharge.payments.time_bounds import RETENTION_SECONDS
from tests.shop.builders import AMOUNT_MINOR, SHOP, T0, intent, payment

STATES = ("PENDING", "DECLINED", "REQUIRES_ACTION", "SUCCEEDED", "CANCELED")
STATUSES = ("requires_payment_method", "requires_action", "processing", "succeeded", "canceled", "requires_capture")
REQUIRES_ACTION_SECONDS = 3600
NOW = T0 + 100
OTHER_MONEY: list[dict[str, Any]] = [{"amount_minor": 1}, {"currency": "USD"}]
RETURNED: list[tuple[dict[str, Any], bool]] = [
    ({"amount_refunded_minor": AMOUNT_MINOR - 1}, False),
    ({"amount_refunded_minor": AMOUNT_MINOR}, True),
    ({"dispute": Dispute("dp_1", "lost")}, True),
    ({"dispute": Dispute("dp_1", "won")}, False),
]
"""Whether the customer has all of the money back."""


def found(row: Payment | None, shown: StripeIntent, *, now: int = NOW) -> Difference | None:
    return find_difference(row, shown, shop=SHOP, now=now, requires_action_seconds=REQUIRES_ACTION_SECONDS)


def word(difference: Difference | None) -> str:
    """What follows, in a word or two: `DECLINED`, `alarm MoneyDiffers`, `SUCCEEDED, alarm PaidAfterDecline`."""
    if difference is None:
        return ""
    becomes = [str(difference.changes["state"])] if "state" in difference.changes else []
    flags = [name for name in ["expires"] if getattr(difference, name)]
    return ", ".join([*becomes, *flags, *([f"alarm {difference.alarm}"] if difference.alarm else [])])


OWN = {
    # a row that names the PaymentIntent, whose lease is free: (state, status); all others need nothing
    ("PENDING", "succeeded"): "SUCCEEDED",
    ("REQUIRES_ACTION", "succeeded"): "SUCCEEDED",
    ("DECLINED", "succeeded"): "SUCCEEDED, alarm PaidAfterDecline",
    ("CANCELED", "succeeded"): "alarm MoneyDiffers",
    ("REQUIRES_ACTION", "requires_payment_method"): "DECLINED",
    ("REQUIRES_ACTION", "canceled"): "CANCELED",
    ("DECLINED", "canceled"): "CANCELED",
    **{("SUCCEEDED", each): "alarm MoneyDiffers" for each in STATUSES if each != "succeeded"},
}


def test_a_row_follows_its_own_payment_intent() -> None:
    """A worker finishes what is PENDING, unless it is paid. A success counts with the right money."""
    for state, status, is_leased, money in product(STATES, STATUSES, (False, True), ({}, *OTHER_MONEY)):
        lease = {"lease_expires_at": NOW + 1 if is_leased else NOW}
        row = payment(state=PaymentState(state), finalized_at=T0, **lease)
        expected = OWN.get((state, status), "")
        if status == "succeeded" and state == "PENDING" and is_leased:
            expected = ""
        elif status == "succeeded" and state in STATES[:3] and money:
            expected = "alarm MoneyDiffers"
        assert word(found(row, intent(status, **money))) == expected, (state, status, is_leased, money)


@pytest.mark.parametrize("state", UNPAID)
def test_a_row_that_names_a_duplicate_is_held(state: PaymentState) -> None:
    """It may be an older version, restored after a release: the other PaymentIntent may be charged."""
    duplicate = intent("canceled", cancellation_reason="duplicate")
    assert found(payment(state=PaymentState.PENDING, lease_expires_at=NOW + 1), duplicate) is None
    difference: Any = found(payment(state=state, finalized_at=T0, lease_expires_at=NOW), duplicate)
    held = {"state": PaymentState.PENDING, "payment_intent_id": None, "held_because": DUPLICATE, "finalized_at": None}
    assert difference.changes.items() >= {**held, "expires_at": None, "unfinished_claimed_at": NOW}.items()


@pytest.mark.parametrize(
    ("after", "expected"), [(REQUIRES_ACTION_SECONDS - 1, ""), (REQUIRES_ACTION_SECONDS, "expires")]
)
def test_3d_secure_expires(after: int, expected: str) -> None:
    """Its time counts from when the row began to wait."""
    row = payment(state=PaymentState.REQUIRES_ACTION, finalized_at=T0)
    assert word(found(row, intent("requires_action"), now=T0 + after)) == expected


def test_a_success_that_the_row_does_not_name_is_an_alarm_until_it_is_returned() -> None:
    """Or one of a row that is CANCELED: a person refunds all of it, or the customer wins a dispute."""
    rows = [payment(state=PaymentState(state), payment_intent_id=names) for state in STATES for names in ("pi_2", None)]
    for row, status, (back, is_back) in product(rows, STATUSES, [({}, False), *RETURNED]):
        expected = "alarm MoneyDiffers" if status == "succeeded" and not is_back else ""
        assert word(found(row, intent(status, **back))) == expected, (row.state, row.payment_intent_id, status, back)
    for back, is_back in RETURNED:
        shown = intent(**back)
        expected = "" if is_back else "alarm MoneyDiffers"
        assert word(found(payment(state=PaymentState.CANCELED), shown)) == expected, back


LOST = "SUCCEEDED, alarm RowLost"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, LOST),
        ({"shop": "another"}, ""),
        ({"charged_at": NOW - RETENTION_SECONDS}, ""),
        ({"charged_at": NOW - RETENTION_SECONDS + 1}, LOST),
        ({"customer_id": ""}, "alarm RowLost"),
        ({"is_described": False}, "alarm RowLost"),
        *(({"status": status}, "") for status in STATUSES if status != "succeeded"),
    ],
)
def test_a_success_without_a_row_is_a_lost_row(changes: dict[str, Any], expected: str) -> None:
    """It is written again from the metadata, unless they were edited, are another shop's, or the row has expired."""
    assert word(found(None, intent(**changes))) == expected


REFUNDED: dict[str, Any] = {"amount_refunded_minor": 500}
DISPUTED: dict[str, Any] = {"dispute_id": "dp_1", "dispute_status": "lost"}


@pytest.mark.parametrize("of_row", [{}, REFUNDED, DISPUTED])
@pytest.mark.parametrize("of_intent", [{}, REFUNDED, DISPUTED])
def test_a_paid_row_follows_refunds_and_disputes(of_row: dict[str, Any], of_intent: dict[str, Any]) -> None:
    """The sum may decrease. A dispute that nobody asked for stays in the row. A success brings both with it."""
    dispute = payment(**of_intent).dispute
    shown = intent(amount_refunded_minor=of_intent.get("amount_refunded_minor", 0), dispute=dispute)
    wanted = {"amount_refunded_minor": 0} | of_intent
    row = payment(state=PaymentState.SUCCEEDED, **of_row)
    is_known = all(getattr(row, name) == value for name, value in wanted.items())
    difference = found(row, shown)
    assert (difference and difference.changes) == (None if is_known else wanted)
    paid = found(payment(state=PaymentState.REQUIRES_ACTION), shown)
    assert paid is not None
    assert paid.changes.items() >= wanted.items()
