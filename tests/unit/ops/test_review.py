"""`review`: a refund is resolved as Stripe shows it."""

import time
from typing import Any

import pytest

from onecharge.contract.refunds import RefundState
from onecharge.payments.refund_rules import SPENT_KEY_SECONDS, FrozenRefund, Refund, StripeRefund
from ops.review import Refused, decide_refund
from tests.support.operated_stack import API_KEY, OperatedStack

ORDER_ID, REFUND_ID = "ord_" + "a" * 32, "rfd_" + "b" * 32
NOW = int(time.time())
MADE, FAILED = RefundState.SUCCEEDED, RefundState.FAILED
DAY = SPENT_KEY_SECONDS


def found(status: str, id_: str = "re_1", *, amount: int = 1000) -> StripeRefund:
    return StripeRefund(id_, status, amount, "EUR", failure_reason="lost_card" if status == "failed" else None)


def test_a_refund_is_resolved_as_stripe_shows_it() -> None:
    """FAILED frees the amount: only if nothing gives it back, now or later."""
    cases = [
        (MADE, [found("succeeded")], 0, True),
        (MADE, [found("pending")], 0, True),
        (MADE, [found("succeeded", amount=1)], 0, False),
        (MADE, [found("succeeded"), found("succeeded", "re_2")], 0, True),
        (MADE, [found("succeeded", amount=400), found("succeeded", "re_2", amount=600)], 0, True),
        (MADE, [found("failed")], 0, False),
        (MADE, [found("requires_action")], 0, False),
        (MADE, [], DAY, False),
        (FAILED, [found("failed")], 0, True),
        (FAILED, [found("failed"), found("canceled", "re_2")], 0, True),
        (FAILED, [found("failed"), found("succeeded", "re_2")], DAY, False),
        (FAILED, [found("requires_action")], DAY, False),
        (FAILED, [], DAY, True),
        (FAILED, [], DAY - 1, False),
    ]
    request = FrozenRefund(ORDER_ID, REFUND_ID, 1, 1000, "EUR", "pi_1", NOW)
    for state, shown, age, is_possible in cases:
        refund = Refund(request=request, state=RefundState.NEEDS_REVIEW, finalized_at=NOW - age)
        try:
            decided = decide_refund(state, refund, shown, now=NOW).state is state
        except Refused:
            decided = False
        assert decided is is_possible, (state, shown, age)


def resolve(operated: OperatedStack, resolution: str, *, yes: bool = True) -> Any:
    """The document; the exit status is 0 if it is done."""
    words = ("review", ORDER_ID, REFUND_ID, "--as", resolution, "--reason", "seen", *(["--yes"] if yes else []))
    status, document, _ = operated.ops(*words)
    assert (status == 0) == document["done"]
    return document


def refund_in_review(operated: OperatedStack, *, finalized_at: int = NOW) -> str:
    """A refund that needs review; returns the PaymentIntent."""
    intent = operated.intent(ORDER_ID, confirm="pm_card_visa")
    key = {"order_id": ORDER_ID, "refund_id": REFUND_ID, "correlation_id": "c"}
    frozen = {"attempt": 1, "amount_minor": 1000, "currency": "EUR", "payment_intent_id": intent, "requested_at": NOW}
    state = {"state": "NEEDS_REVIEW", "finalized_at": finalized_at, "lease_expires_at": 0, "open_claims": 0}
    operated.put("RefundsTable", **key, **frozen, **state, revision=4)
    return intent


def refund_row(operated: OperatedStack) -> dict[str, Any]:
    return operated.get("RefundsTable", order_id=ORDER_ID, refund_id=REFUND_ID)


def make_refund(operated: OperatedStack, intent: str, amount: int = 1000) -> None:
    metadata = {"order_id": ORDER_ID, "refund_id": REFUND_ID}
    operated.stack.stripe.v1.refunds.create({"payment_intent": intent, "amount": amount, "metadata": metadata})


def test_a_refund_is_written_on_its_row_with_who_and_why(operated: OperatedStack) -> None:
    """Refused while Stripe shows none; a dry run writes nothing; once Stripe shows it SUCCEEDED, and not again."""
    intent = refund_in_review(operated)
    assert "no refund of this id" in resolve(operated, "made")["what"]
    make_refund(operated, intent)
    assert "would write SUCCEEDED" in resolve(operated, "made", yes=False)["what"]
    assert not resolve(operated, "failed")["done"]
    assert refund_row(operated)["state"] == "NEEDS_REVIEW"
    assert resolve(operated, "made")["done"]
    row = refund_row(operated)
    assert (row["state"], row["review"]["reason"], row["revision"] >= NOW) == ("SUCCEEDED", "seen", True)
    assert not resolve(operated, "failed")["done"]


def test_a_row_that_changes_meanwhile_is_not_written(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored row may have the same revision, and another state."""
    make_refund(operated, refund_in_review(operated))

    def decided(*given: Any, **named: Any) -> Any:
        operated.put("RefundsTable", **refund_row(operated) | {"state": "FAILED"})
        return decide_refund(*given, **named)

    monkeypatch.setattr("ops.review.decide_refund", decided)
    assert "has changed" in resolve(operated, "made")["what"]
    assert refund_row(operated)["state"] == "FAILED"


def test_another_account_shows_no_refund_and_decides_nothing(operated: OperatedStack) -> None:
    """Its list of refunds is empty: FAILED would free an amount that was given back, so that it is refunded twice."""
    intent = refund_in_review(operated, finalized_at=1)
    make_refund(operated, intent)
    operated.standin.assign_api_key(API_KEY, "acct_other")
    assert f"Stripe has no {intent}" in resolve(operated, "failed")["what"]
    assert refund_row(operated)["state"] == "NEEDS_REVIEW"
