"""Events of refunds are hints: Stripe is asked, and its answer is written."""

from dataclasses import replace
from typing import Any

import pytest

from onecharge.payments.refund_rules import StripeRefund
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.sync import OUTAGES
from onecharge.payments.sync_refund_rules import RefundDiscrepancy
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.consumer import BackOff, Done
from tests.shop.builders import AMOUNT_MINOR, DAY, PAYMENT_INTENT, T0
from tests.shop.shop import REFUND_ID, Shop, crash, paid_shop


@pytest.fixture
def shop() -> Shop:
    return paid_shop()


def happens(shop: Shop, status: str = "failed", **changes: Any) -> RefundDiscrepancy | None:
    """Stripe sends an event of the first refund; returns how its row differs, None if Stripe is not asked."""
    refund = StripeRefund("re_0", status, 400, "EUR", refund_id=REFUND_ID)
    event = StripeEvent(
        event_id="evt_1",
        type="refund.failed",
        created=T0,
        payment_intent_id=PAYMENT_INTENT,
        refund=replace(refund, **changes),
    )
    already = len(shop.counted)
    shop.apply(event)
    found = [each.partition(".")[2] for each in shop.counted[already:] if each.startswith("RefundDiscrepancy")]
    return RefundDiscrepancy[found[-1]] if found else None


def bank_returns(shop: Shop) -> None:
    shop.stripe.return_refund(shop.stripe.refunds[0])


# ---------------------------------------------------------------- refund.failed after success


def test_late_repeated_and_disordered_events_are_harmless(shop: Shop) -> None:
    """Stripe is asked if an event says something else than the row, and its answer decides."""
    shop.refund()
    assert happens(shop, "failed") is RefundDiscrepancy.NONE
    assert shop.refund_row["state"] == "SUCCEEDED"
    bank_returns(shop)
    assert happens(shop, "pending") is None
    assert happens(shop, "failed") is RefundDiscrepancy.RETURNED
    revision = shop.refund_row["revision"]
    for status, asked in (("failed", None), ("succeeded", RefundDiscrepancy.NONE), ("failed", None)):
        assert happens(shop, status) is asked
    assert (shop.refund_row["state"], shop.refund_row["revision"]) == ("FAILED", revision)
    assert shop.refund() == Done()
    assert shop.refund_row["state"] == "FAILED"


def test_a_refund_that_stripe_holds_says_why(shop: Shop) -> None:
    """Too little balance is an alarm, whenever it begins; once Stripe sends the refund, the reason is gone."""
    shop.refund()
    [made] = shop.stripe.refunds
    shown = []
    for reason in ("insufficient_funds", "processing", "insufficient_funds", None):
        shop.stripe.hold_refund(made, reason)
        status = made.status
        first = happens(shop, status, pending_reason=reason)
        assert (first, happens(shop, status, pending_reason=reason)) == (RefundDiscrepancy.PENDING, None)
        shown.append((shop.refund_row.get("pending_reason"), shop.refund_row["state"], shop.counted.count("Alarm")))
    assert shown == [
        ("insufficient_funds", "SUCCEEDED", 1),
        ("processing", "SUCCEEDED", 1),
        ("insufficient_funds", "SUCCEEDED", 2),
        (None, "SUCCEEDED", 2),
    ]


def test_a_refund_that_is_held_from_the_beginning_is_an_alarm(shop: Shop) -> None:
    """Stripe's answer to its create says so."""
    shop.lose_refund_answer()
    shop.stripe.hold_refund(shop.stripe.refunds[0], "insufficient_funds")
    shop.passes()
    assert shop.refund() == Done()
    assert (shop.refund_row["state"], shop.refund_row["pending_reason"]) == ("SUCCEEDED", "insufficient_funds")
    assert "Alarm" in shop.counted


def test_an_event_may_overtake_the_worker(shop: Shop) -> None:
    """The worker was answered `succeeded` and would write SUCCEEDED; its write is refused."""

    def bank_returns_before_the_write() -> None:
        bank_returns(shop)
        assert happens(shop) is RefundDiscrepancy.RETURNED

    shop.io.at[8] = bank_returns_before_the_write
    assert shop.refund() == BackOff()
    assert shop.refund() == Done()
    assert (shop.refund_row["state"], "WriteRefused" in shop.counted) == ("FAILED", True)


def test_a_worker_may_overtake_the_event(shop: Shop) -> None:
    """The row changes between the event's read and its write, so the event reads it again."""
    shop.io.at["stripe refund answered"] = crash
    with pytest.raises(KeyboardInterrupt):
        shop.refund()
    shop.passes()
    bank_returns(shop)
    shop.io.at["stripe refunds"] = shop.refund
    assert happens(shop) is RefundDiscrepancy.RETURNED
    assert (shop.refund_row["state"], shop.counted.count("Refund.FAILED")) == ("FAILED", 1)


def test_a_failed_refund_without_a_row_gets_one(shop: Shop) -> None:
    """The order service receives the outcome through it."""
    shop.refund()
    shop.lose_refund()
    bank_returns(shop)
    assert happens(shop) is RefundDiscrepancy.LOST_ROW
    row = shop.refund_row
    assert (row["state"], row["amount_minor"], row["currency"], row["attempt"]) == ("FAILED", 400, "EUR", 1)
    assert shop.refund() == Done()
    assert shop.refunded == []


@pytest.mark.parametrize(("days", "written"), [(499, True), (501, False)])
def test_a_refund_whose_row_has_expired_gets_none(shop: Shop, days: int, *, written: bool) -> None:
    """It was not lost. One that is written again expires when the lost one would have."""
    shop.refund()
    made_at = shop.now
    shop.lose_refund()
    bank_returns(shop)
    shop.passes(days * DAY)
    assert happens(shop) is (RefundDiscrepancy.LOST_ROW if written else None)
    assert [row["expires_at"] for row in shop.refund_rows] == [made_at + RETENTION_SECONDS] * written


@pytest.mark.parametrize("refund_id", [None, "", "R-17", "rfd_1", f"{REFUND_ID}\n"])
def test_a_refund_by_hand_is_ignored(shop: Shop, refund_id: str | None) -> None:
    """It has no refund id, or another system's. The charge's event counts it; if it fails, a person has to know."""
    shop.refund_by_hand(1)
    shop.counted.clear()
    assert happens(shop, "succeeded", refund_id=refund_id) is None
    assert "Alarm" not in shop.counted
    bank_returns(shop)
    assert happens(shop, refund_id=refund_id) is None
    assert (shop.refund_rows, "Alarm" in shop.counted) == ([], True)


def test_an_event_that_stripe_does_not_confirm_is_deferred(shop: Shop) -> None:
    """The secret may be another account's. Stripe delivers the event again."""
    shop.refund()
    bank_returns(shop)
    shop.stripe.account = 1
    with pytest.raises(OUTAGES):
        happens(shop)
    assert shop.refund_row["state"] == "SUCCEEDED"
    shop.stripe.account = 0
    assert happens(shop) is RefundDiscrepancy.RETURNED


def test_a_refund_that_is_made_after_it_failed_raises_an_alarm(shop: Shop) -> None:
    """The rules exclude it; if it happens, a person has to see it."""
    by_hand = shop.refund_by_hand(AMOUNT_MINOR)
    shop.refund()
    shop.stripe.return_refund(by_hand)
    made = shop.refund_by_hand(400, refund_id=REFUND_ID)
    shop.counted.clear()
    assert happens(shop, stripe_refund_id=made.id) is RefundDiscrepancy.MADE_AFTER_FAILED
    assert (shop.refund_row["state"], "Alarm" in shop.counted) == ("FAILED", True)
