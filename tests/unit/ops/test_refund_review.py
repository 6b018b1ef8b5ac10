"""`review resolve --refund`: what a person may decide about a refund, by what Stripe shows of it."""

from argparse import Namespace
from typing import Any

import pytest

from onecharge.contract.refunds import RefundState
from onecharge.payments.refunds.protocol import SPENT_KEY_SECONDS, FinalizeRefund, FoundRefund, FrozenRefund, Refund
from onecharge.runtime.dynamodb import to_item
from ops import review
from ops.errors import ExitStatus, Problem
from ops.refund_review import RefundResolution, decide_refund
from ops.resolutions import Refused
from testing.operated_stack import OperatedStack

NOW = 1_800_000_000
ORDER_ID, REFUND_ID = "ord_" + "a" * 32, "rfd_" + "b" * 32
MADE, FAILED = RefundResolution.MADE, RefundResolution.FAILED


def row(*, state: RefundState = RefundState.NEEDS_REVIEW, age: int = 0) -> Refund:
    request = FrozenRefund(ORDER_ID, REFUND_ID, 1, 1000, "EUR", "pi_1", NOW)
    return Refund(request=request, state=state, finalized_at=NOW - age)


def found(status: str, id_: str = "re_1", *, amount: int = 1000) -> FoundRefund:
    return FoundRefund(id_, status, amount, "EUR", failure_reason="lost_card" if status == "failed" else None)


@pytest.mark.parametrize(
    ("resolution", "shown", "age", "state"),
    [
        (MADE, [found("succeeded")], 0, RefundState.SUCCEEDED),
        (MADE, [found("pending")], 0, RefundState.SUCCEEDED),
        (MADE, [found("succeeded", amount=1)], 0, None),
        (MADE, [found("succeeded"), found("succeeded", "re_2")], 0, None),
        (MADE, [found("failed")], 0, None),
        (MADE, [found("requires_action")], 0, None),
        (MADE, [], SPENT_KEY_SECONDS, None),
        (FAILED, [found("failed")], 0, RefundState.FAILED),
        (FAILED, [found("failed"), found("canceled", "re_2")], 0, RefundState.FAILED),
        (FAILED, [found("failed"), found("succeeded", "re_2")], SPENT_KEY_SECONDS, None),
        (FAILED, [found("requires_action")], SPENT_KEY_SECONDS, None),
        (FAILED, [], SPENT_KEY_SECONDS, RefundState.FAILED),
        (FAILED, [], SPENT_KEY_SECONDS - 1, None),
    ],
)
def test_a_refund_is_resolved_as_stripe_shows_it(
    resolution: RefundResolution, shown: list[FoundRefund], age: int, state: RefundState | None
) -> None:
    """FAILED frees the amount: only if nothing gives it back, now or later."""
    decided = decide_refund(resolution, row(age=age), shown, now=NOW)
    assert (decided.state if isinstance(decided, FinalizeRefund) else None) == state


@pytest.mark.parametrize("state", [state for state in RefundState if state is not RefundState.NEEDS_REVIEW])
def test_only_what_needs_review_is_resolved(state: RefundState) -> None:
    """Also not a refund without a row."""
    for refund in (row(state=state, age=SPENT_KEY_SECONDS), None):
        for shown in ([], [found("succeeded")], [found("failed")]):
            assert all(isinstance(decide_refund(each, refund, shown, now=NOW), Refused) for each in (MADE, FAILED))


def resolve(operated: OperatedStack, resolution: str, **given: Any) -> Any:
    words = {"order": ORDER_ID, "refund": REFUND_ID, "reason": "seen", "payment_intent": None, "yes": True}
    return review.run(operated.stack, Namespace(review_command="resolve", resolution=resolution, **(words | given)))


def test_it_is_written_on_the_row_with_who_and_why(operated: OperatedStack) -> None:
    """A dry run writes nothing; refused while Stripe shows none; once it does, SUCCEEDED, and not again."""
    intent = operated.intent(ORDER_ID, confirm="pm_card_visa")
    frozen = {"attempt": 1, "amount_minor": 1000, "currency": "EUR", "payment_intent_id": intent, "requested_at": NOW}
    state = {"state": "NEEDS_REVIEW", "finalized_at": NOW, "lease_expires_at": 0, "open_claims": 0, "revision": 4}
    key = {"order_id": ORDER_ID, "refund_id": REFUND_ID}
    table = operated.stack.resource("RefundsTable")
    operated.dynamodb.put_item(TableName=table, Item=to_item(key | frozen | state | {"correlation_id": "c"}))
    assert "no refund of this id" in resolve(operated, MADE).document["what"]
    operated.stack.stripe.v1.refunds.create(
        {"payment_intent": intent, "amount": 1000, "metadata": {"order_id": ORDER_ID, "refund_id": REFUND_ID}}
    )
    assert "would write SUCCEEDED" in resolve(operated, MADE, yes=False).document["what"]
    assert resolve(operated, FAILED).status is ExitStatus.FOUND
    assert resolve(operated, MADE).status is ExitStatus.OK
    item = operated.dynamodb.get_item(TableName=table, Key=to_item(key))["Item"]
    assert (item["state"]["S"], item["revision"]["N"]) == ("SUCCEEDED", "5")
    assert item["review_5"]["M"]["reason"]["S"] == "seen"
    assert "would be emitted again" in resolve(operated, MADE, yes=False).document["what"]
    assert resolve(operated, MADE).status is ExitStatus.OK  # Its outcome may have been lost: it is emitted again.
    again = operated.dynamodb.get_item(TableName=table, Key=to_item(key))["Item"]
    assert (again["state"]["S"], again["revision"]["N"], "last_emitted_at" in again) == ("SUCCEEDED", "6", True)
    assert resolve(operated, FAILED).status is ExitStatus.FOUND
    with pytest.raises(Problem, match="--refund RFD"):
        resolve(operated, MADE, refund=None)


def test_another_account_shows_no_refund_and_decides_nothing(operated: OperatedStack) -> None:
    """Its list of refunds is empty: FAILED would free an amount that was given back, so that it is refunded twice."""
    intent = operated.intent(ORDER_ID, confirm="pm_card_visa")
    frozen = {"attempt": 1, "amount_minor": 1000, "currency": "EUR", "payment_intent_id": intent, "requested_at": NOW}
    state = {"state": "NEEDS_REVIEW", "finalized_at": 1, "lease_expires_at": 0, "open_claims": 0, "revision": 4}
    key = {"order_id": ORDER_ID, "refund_id": REFUND_ID}
    table = operated.stack.resource("RefundsTable")
    operated.dynamodb.put_item(TableName=table, Item=to_item(key | frozen | state | {"correlation_id": "c"}))
    operated.stack.stripe.v1.refunds.create(
        {"payment_intent": intent, "amount": 1000, "metadata": {"order_id": ORDER_ID, "refund_id": REFUND_ID}}
    )
    operated.admin.assign_api_key("sk_test_x", "acct_other")
    report = resolve(operated, FAILED)
    assert report.status is ExitStatus.FOUND
    assert f"Stripe has no {intent}" in report.document["what"]
    assert operated.dynamodb.get_item(TableName=table, Key=to_item(key))["Item"]["state"]["S"] == "NEEDS_REVIEW"
