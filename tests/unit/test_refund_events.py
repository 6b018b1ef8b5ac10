"""Events of refunds are hints: Stripe is asked, and its answer is written. A canceled order's charge is refunded."""

import pytest
import stripe

from onecharge.contract.refunds import RefundState
from onecharge.payments.apply_event import RefundDiscrepancy
from onecharge.payments.charges.protocol import StripeIntent
from onecharge.payments.charges.store import payment_of
from onecharge.payments.refunds.canceled_orders import refund_canceled_order
from onecharge.payments.refunds.protocol import refund_id_of_canceled_order
from onecharge.payments.stripe_events import EventDeferred
from onecharge.runtime.consumer import BackOff, Done
from tests.shop.paid_order import AMOUNT_MINOR, ORDER_ID, PAYMENT_INTENT, paid
from tests.support.refund_harness import REFUND_ID, RefundHarness, crash

INTENT = StripeIntent(PAYMENT_INTENT, "succeeded", AMOUNT_MINOR, "EUR")


@pytest.fixture
def service() -> RefundHarness:
    return RefundHarness()


def bank_returns(service: RefundHarness) -> None:
    service.stripe.return_refund(service.stripe.refunds[0])


# ---------------------------------------------------------------- refund.failed after success


def test_late_repeated_and_disordered_events_are_harmless(service: RefundHarness) -> None:
    """Stripe is asked if an event says something else than the row, and its answer decides."""
    service.deliver()
    assert service.happens("failed") is RefundDiscrepancy.NONE
    assert service.row["state"] == "SUCCEEDED"
    bank_returns(service)
    assert service.happens("pending") is None
    assert service.happens("failed") is RefundDiscrepancy.RETURNED
    revision = service.row["revision"]
    for status, asked in (("failed", None), ("succeeded", RefundDiscrepancy.NONE), ("failed", None)):
        assert service.happens(status) is asked
    assert (service.row["state"], service.row["revision"]) == ("FAILED", revision)
    assert service.deliver() == Done()
    assert service.row["state"] == "FAILED"


def test_a_refund_that_stripe_holds_says_why(service: RefundHarness) -> None:
    """Too little balance is an alarm, whenever it begins; once Stripe sends the refund, the reason is gone."""
    service.deliver()
    [made] = service.stripe.refunds
    shown = []
    for reason in ("insufficient_funds", "processing", "insufficient_funds", None):
        service.stripe.hold_refund(made, reason)
        status = made.status
        first = service.happens(status, pending_reason=reason)
        assert (first, service.happens(status, pending_reason=reason)) == (RefundDiscrepancy.PENDING, None)
        shown.append((service.row.get("pending_reason"), service.row["state"], service.counted.count("Alarm")))
    assert shown == [
        ("insufficient_funds", "SUCCEEDED", 1),
        ("processing", "SUCCEEDED", 1),
        ("insufficient_funds", "SUCCEEDED", 2),
        (None, "SUCCEEDED", 2),
    ]


def test_a_refund_that_is_held_from_the_beginning_is_an_alarm(service: RefundHarness) -> None:
    """Stripe's answer to its create says so."""
    service.loses_the_answer()
    service.stripe.hold_refund(service.stripe.refunds[0], "insufficient_funds")
    service.passes()
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["pending_reason"]) == ("SUCCEEDED", "insufficient_funds")
    assert "Alarm" in service.counted


def test_an_event_may_overtake_the_worker(service: RefundHarness) -> None:
    """The worker was answered `succeeded` and would write SUCCEEDED; its write is refused."""

    def bank_returns_before_the_write() -> None:
        bank_returns(service)
        assert service.happens() is RefundDiscrepancy.RETURNED

    service.io.at[8] = bank_returns_before_the_write
    assert service.deliver() == BackOff()
    assert service.deliver() == Done()
    assert (service.row["state"], "WriteRefused" in service.counted) == ("FAILED", True)


def test_a_worker_may_overtake_the_event(service: RefundHarness) -> None:
    """The row changes between the event's read and its write, so the event reads it again."""
    service.io.at["stripe refund answered"] = crash
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    service.passes()
    bank_returns(service)
    service.io.at["stripe refunds"] = service.deliver
    assert service.happens() is None
    assert service.row["state"] == "FAILED"


def test_a_failed_refund_without_a_row_gets_one(service: RefundHarness) -> None:
    """The order service receives the outcome through it."""
    service.deliver()
    service.lose_row()
    bank_returns(service)
    assert service.happens() is RefundDiscrepancy.LOST_ROW
    row = service.row
    assert (row["state"], row["amount_minor"], row["currency"], row["attempt"]) == ("FAILED", 400, "EUR", 1)
    assert service.deliver() == Done()
    assert service.refunded == []


@pytest.mark.parametrize("refund_id", [None, "", "R-17", "rfd_1"])
def test_a_refund_by_hand_is_ignored(service: RefundHarness, refund_id: str | None) -> None:
    """It has no refund id, or another system's. The charge's event counts it; if it fails, a person has to know."""
    service.made_by_hand(1)
    service.counted.clear()
    assert service.happens("succeeded", refund_id=refund_id) is None
    assert "Alarm" not in service.counted
    bank_returns(service)
    assert service.happens(refund_id=refund_id) is None
    assert (service.rows, "Alarm" in service.counted) == ([], True)


def test_stripe_is_asked_once_for_the_order_of_a_refund_by_hand(service: RefundHarness) -> None:
    """The event names only its PaymentIntent."""
    service.made_by_hand(1)
    bank_returns(service)
    service.io.at["stripe retrieve"] = lambda: service.io.at.update({"stripe retrieve": pytest.fail})
    service.happens(order_id=None, refund_id=None)
    assert "Alarm" in service.counted


def test_an_event_that_stripe_does_not_confirm_is_deferred(service: RefundHarness) -> None:
    """The secret may be another account's. Stripe delivers the event again."""
    service.deliver()
    bank_returns(service)
    service.stripe.account = 1
    with pytest.raises((EventDeferred, stripe.StripeError)):
        service.happens()
    assert service.row["state"] == "SUCCEEDED"
    service.stripe.account = 0
    assert service.happens() is RefundDiscrepancy.RETURNED


def test_a_refund_that_is_made_after_it_failed_raises_an_alarm(service: RefundHarness) -> None:
    """The rules exclude it; if it happens, a person has to see it."""
    by_hand = service.made_by_hand(AMOUNT_MINOR)
    service.deliver()
    service.stripe.return_refund(by_hand)
    made = service.made_by_hand(400, refund_id=REFUND_ID)
    service.counted.clear()
    assert service.happens(stripe_refund_id=made.id) is RefundDiscrepancy.MADE_AFTER_FAILED
    assert (service.row["state"], "Alarm" in service.counted) == ("FAILED", True)


# ---------------------------------------------------------------- a canceled order that is charged


def refund_canceled(service: RefundHarness) -> str:
    """Refund it; returns the refund's state."""
    refund_canceled_order(payment_of(paid()), INTENT, service.tools())
    return str(service.row["state"])


def test_a_canceled_order_that_is_charged_is_refunded(service: RefundHarness) -> None:
    """All of it, once, with an alarm. The order service does not know this refund, and is not told its outcome."""
    for _ in range(3):
        assert refund_canceled(service) == RefundState.SUCCEEDED
    assert service.refunded == [AMOUNT_MINOR]
    assert (service.row["is_internal"], "Alarm" in service.counted) == (True, True)
    assert service.row["refund_id"] == refund_id_of_canceled_order(ORDER_ID, PAYMENT_INTENT)


def test_a_canceled_orders_refund_continues(service: RefundHarness) -> None:
    """While a worker has the lease, the event is deferred; Stripe delivers it again."""
    service.io.at["stripe refund answered"] = crash
    with pytest.raises(KeyboardInterrupt):
        refund_canceled(service)
    with pytest.raises(EventDeferred):
        refund_canceled(service)
    service.passes()
    assert refund_canceled(service) == RefundState.SUCCEEDED
    assert service.refunded == [AMOUNT_MINOR]


def test_an_internal_refund_without_a_row_gets_an_internal_one(service: RefundHarness) -> None:
    """The order service is not told its outcome, either."""
    refund_canceled(service)
    service.lose_row()
    bank_returns(service)
    refund_id = refund_id_of_canceled_order(ORDER_ID, PAYMENT_INTENT)
    assert service.happens(refund_id=refund_id) is RefundDiscrepancy.LOST_ROW
    assert service.row["is_internal"] is True
