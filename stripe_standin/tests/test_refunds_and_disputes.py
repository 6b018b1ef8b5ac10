"""Refunds that succeed, stay pending or fail; disputes; and the balance transaction of each movement."""

import pytest

from stripe_standin import disputes, refunds
from stripe_standin.charges import Charge
from stripe_standin.faults import Fault, FaultRule
from stripe_standin.messages import Response
from stripe_standin.refunds import Refund
from stripe_standin.tests.support import VISA, Stripe, short

UPDATED = ["charge.refund.updated", "refund.updated"]


def refund(stripe: Stripe, intent: str, key: str | None = None, **given: str) -> Response:
    return stripe.post("refunds", {"payment_intent": intent, **given}, key)


def booked(stripe: Stripe) -> list[tuple[str, int]]:
    """Category and amount of each balance transaction, oldest first."""
    listed = stripe.get("balance_transactions", {"limit": "100"}).body["data"]
    return [(each["reporting_category"], each["amount"]) for each in reversed(listed)]


def test_a_refund_emits_two_events(stripe: Stripe) -> None:
    """`refund.created` with the Refund; `charge.refunded` with the Charge, and the metadata of each."""
    made = refund(stripe, stripe.paid(), amount="99", **{"metadata[refund_id]": "rfd_1"}).body
    created, refunded = (each["data"]["object"] for each in stripe.account.events[-2:])
    assert stripe.last_events(2) == ["refund.created", "charge.refunded"]
    assert (created, created["metadata"]) == (made, {"refund_id": "rfd_1"})
    assert (refunded["amount_refunded"], refunded["refunded"], refunded["metadata"]) == (
        99,
        False,
        {"order_id": "ord_1"},
    )
    assert booked(stripe) == [("charge", 1099), ("refund", -99)]


@pytest.mark.parametrize(
    ("card", "first", "then", "events"),
    [
        (VISA, "succeeded", "succeeded", ["refund.created", "charge.refunded"]),
        ("pm_card_refundFail", "succeeded", "failed", [*UPDATED, "refund.failed"]),
    ],
)
def test_a_refund_may_be_decided_later(stripe: Stripe, card: str, first: str, then: str, events: list[str]) -> None:
    """After ten minutes. What failed can be refunded again."""
    intent = stripe.paid(card)
    made = refund(stripe, intent).body
    stripe.time += 601
    now = stripe.get(f"refunds/{made['id']}").body
    assert (made["status"], now["status"], stripe.last_events(len(events))) == (first, then, events)
    assert short(refund(stripe, intent)) == (
        (200, "succeeded") if then == "failed" else (400, "charge_already_refunded")
    )


def test_a_failed_refund_brings_the_money_back(stripe: Stripe) -> None:
    """It is booked once, with a transaction of its own."""
    made = refund(stripe, intent := stripe.paid()).body["id"]
    for _ in range(2):
        refunds.fail(stripe.account, stripe.account.all(Refund)[made], "lost_or_stolen_card")
    failed = stripe.get(f"refunds/{made}").body
    assert failed["failure_reason"] == "lost_or_stolen_card"
    assert booked(stripe) == [("charge", 1099), ("refund", -1099), ("refund_failure", 1099)]
    charge = stripe.get(f"charges/{stripe.intent(intent).latest_charge}").body
    assert (charge["amount_refunded"], charge["refunded"]) == (0, False)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_key_may_store_that_too_little_is_left(is_stored: bool) -> None:
    """Stripe does not say. If it does not, the same request is executed once there is money left again."""
    stripe = Stripe(stores_refused_refunds=is_stored)
    refund(stripe, intent := stripe.paid("pm_card_refundFail"))
    assert short(refund(stripe, intent, "b")) == (400, "charge_already_refunded")
    stripe.time += 601
    assert refund(stripe, intent, "b").status == (400 if is_stored else 200)


def test_faults_of_a_refund(stripe: Stripe) -> None:
    """It stays pending until it is decided, and Stripe may hold it; or the balance does not cover it."""
    given = {"payment_intent": stripe.paid()}
    assert short(stripe.meets(FaultRule(Fault.BALANCE_TOO_LOW), "refunds", given)) == (400, "balance_insufficient")
    made = stripe.meets(FaultRule(Fault.REFUND_PENDING), "refunds", given).body
    refunds.hold(stripe.account, stripe.account.all(Refund)[made["id"]], "insufficient_funds")
    held = stripe.get(f"refunds/{made['id']}").body
    assert (made["status"], held["status"], held["pending_reason"]) == ("pending", "pending", "insufficient_funds")


def test_only_what_was_paid_is_refunded(stripe: Stripe) -> None:
    """Not an unpaid PaymentIntent, not nothing, and not more than is left."""
    unpaid, intent = stripe.created(), stripe.paid()
    refused = [refund(stripe, unpaid), *(refund(stripe, intent, amount=each) for each in ("1100", "0"))]
    assert [each.status for each in (*refused, stripe.post("refunds"))] == [400] * 4
    assert short(refund(stripe, "pi_unknown")) == (404, "resource_missing")


def test_a_dispute_takes_the_money_until_it_is_won(stripe: Stripe) -> None:
    """Meanwhile its charge is not refunded. The events have the Dispute, without the charge's metadata."""
    dispute = stripe.disputed(intent := stripe.paid())
    assert stripe.last_events(2) == ["charge.dispute.created", "charge.dispute.funds_withdrawn"]
    opened = stripe.account.events[-2]["data"]["object"]
    assert (opened["status"], opened["payment_intent"], opened["metadata"]) == ("needs_response", intent, {})
    assert short(refund(stripe, intent)) == (400, "charge_disputed")
    disputes.change_status(stripe.account, dispute, "won")
    assert stripe.last_events(1) == ["charge.dispute.closed"]
    assert booked(stripe) == [("charge", 1099), ("dispute", -1099), ("dispute_reversal", 1099)]
    assert refund(stripe, intent).status == 200
    assert next(iter(stripe.account.all(Charge).values())).disputed
