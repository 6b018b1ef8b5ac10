"""`review`: each resolution on tables and Stripe, with what changes beside it."""

import io
import json
import time
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import pytest
import stripe

from onecharge.contract.states import PaymentState
from ops import review
from ops.errors import ExitStatus, Problem
from ops.output import Report, show
from ops.resolutions import Refused, Resolution, Seen
from ops.resolver import Resolver
from ops.review_store import Review, ReviewStore
from testing.operated_stack import OperatedStack

ORDER_ID = "ord_" + "a" * 32
NOW = int(time.time())


def run(operated: OperatedStack, *words: str, yes: bool = False, **given: Any) -> Report:
    command = {"review_command": words[0], "order": ORDER_ID, "reason": "seen at Stripe", "payment_intent": None}
    return review.run(operated.stack, Namespace(**(command | {"yes": yes} | given)))


def resolve(operated: OperatedStack, resolution: str, **given: Any) -> Report:
    return run(operated, "resolve", resolution=resolution, **({"yes": True} | given))


def in_review(operated: OperatedStack, **row: Any) -> None:
    """An order and its payment, which need review."""
    operated.put_order(ORDER_ID, "NEEDS_REVIEW")
    given = {
        "state": PaymentState.NEEDS_REVIEW,
        "decline_code": "unexpected status",
        "finalized_at": NOW,
        "lease_owner": None,
        "lease_expires_at": 0,
        "expires_at": NOW + 99,
        "unfinished_shard": None,
        "unfinished_claimed_at": None,
    }
    operated.put_payment(ORDER_ID, now=NOW, **(given | row))


def test_what_needs_review_is_listed_with_what_can_be_decided(operated: OperatedStack) -> None:
    """Its reason, what Stripe shows now, and the resolutions that are not refused."""
    assert run(operated, "list").status is ExitStatus.OK
    intent = operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=intent)
    report = run(operated, "list")
    [listed] = report.document["payments"]
    assert (report.status, listed["reason"]) == (ExitStatus.FOUND, "unexpected status")
    assert listed["stripe"] == [f"{intent} is requires_payment_method"]
    assert listed["possible"] == ["retry", "cancel"]
    operated.admin.assign_api_key("sk_test_x", None)
    [listed] = run(operated, "list").document["payments"]
    assert listed["possible"] == []
    assert "401" in listed["stripe"][0]
    show(report, as_json=False, out=io.StringIO())


def test_without_yes_nothing_changes(operated: OperatedStack) -> None:
    """Neither the row, nor the order, nor Stripe; and it says what it would do."""
    own, other = operated.intent(ORDER_ID), operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=own)
    before = operated.row(ORDER_ID)
    for resolution, what in (("retry", f"cancel {other}"), ("cancel", f"cancel {other}"), ("paid", "refused")):
        report = resolve(operated, resolution, yes=False)
        assert report.status is ExitStatus.FOUND
        assert what in report.document["what"]
    operated.stack.stripe.v1.payment_intents.cancel(other)
    for resolution in ("retry", "cancel"):
        assert "would put the row back to PENDING" in resolve(operated, resolution, yes=False).document["what"]
    assert (operated.row(ORDER_ID), operated.order_status(ORDER_ID)) == (before, "NEEDS_REVIEW")
    assert operated.status_at_stripe(own) == "requires_payment_method"


def test_a_payment_that_succeeded_is_paid(operated: OperatedStack) -> None:
    """The row names it; who, why and when is kept; an outcome as any other, for its stream."""
    intent = operated.intent(ORDER_ID, confirm="pm_card_visa")
    in_review(operated, payment_intent_id=None)
    assert "would write SUCCEEDED" in resolve(operated, "paid", yes=False).document["what"]
    report = resolve(operated, "paid", reason="the  bank\nsays so")
    row = operated.row(ORDER_ID)
    assert (report.status, report.document["done"]) == (ExitStatus.OK, True)
    assert (row["state"]["S"], row["payment_intent_id"]["S"]) == ("SUCCEEDED", intent)
    record = row[f"review_{row['revision']['N']}"]["M"]
    assert record["resolution"]["S"] == "paid"
    assert record["reason"]["S"] == "the bank says so"
    assert record["by"]["S"].startswith("arn:aws:")
    assert resolve(operated, "paid").status is ExitStatus.FOUND


def test_a_retry_puts_row_and_order_back(operated: OperatedStack) -> None:
    """As the first claim left them, in the index of unfinished rows; what else is open at Stripe is canceled first."""
    own, other = operated.intent(ORDER_ID), operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=own, refused_at=5)
    assert resolve(operated, "retry").status is ExitStatus.OK
    row = operated.row(ORDER_ID)
    assert (row["state"]["S"], row["payment_intent_id"]["S"]) == ("PENDING", own)
    assert {"unfinished_shard", "unfinished_claimed_at"} <= row.keys()
    assert not {"lease_owner", "finalized_at", "expires_at", "decline_code", "refused_at"} & row.keys()
    assert operated.order_status(ORDER_ID) == "PENDING"
    assert operated.status_at_stripe(other) == "canceled"
    assert operated.status_at_stripe(own) == "requires_payment_method"


def test_a_retry_that_was_interrupted_is_run_again(operated: OperatedStack) -> None:
    """The row is PENDING already: only the order is moved."""
    in_review(operated, payment_intent_id=None)
    store = ReviewStore(operated.dynamodb, operated.stack.resource("PaymentsTable"))
    payment = store.read(ORDER_ID)
    assert payment is not None
    assert store.reopen(payment, Review("retry", "me", "r", NOW), cancel=False)
    revision = operated.row(ORDER_ID)["revision"]
    assert "would move the order" in resolve(operated, "retry", yes=False).document["what"]
    assert resolve(operated, "retry").status is ExitStatus.OK
    assert operated.order_status(ORDER_ID) == "PENDING"
    assert operated.row(ORDER_ID)["revision"] == revision


@pytest.mark.parametrize("state", [PaymentState.SUCCEEDED, PaymentState.CANCELED, PaymentState.DECLINED])
def test_an_order_whose_outcome_was_lost_can_leave_its_review(operated: OperatedStack, state: PaymentState) -> None:
    """The row was resolved. republish asks only for what waits, so a person has the outcome emitted again."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID), state=state)
    [listed] = run(operated, "list").document["payments"]
    assert listed["possible"] == ["retry"]
    assert (
        f"emit the outcome of the row again, which is {state}" in resolve(operated, "retry", yes=False).document["what"]
    )
    before = operated.row(ORDER_ID)
    assert "last_emitted_at" not in before
    assert resolve(operated, "retry").status is ExitStatus.OK
    row = operated.row(ORDER_ID)
    assert (row["state"], operated.order_status(ORDER_ID)) == (before["state"], "NEEDS_REVIEW")
    assert int(row["last_emitted_at"]["N"]) >= NOW


def test_an_order_that_was_paid_late_and_does_not_know_it_is_told(operated: OperatedStack) -> None:
    """It is declined, so nobody asks about it; its customer has paid."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID), state=PaymentState.SUCCEEDED)
    operated.put_order(ORDER_ID, "PAYMENT_DECLINED")
    assert resolve(operated, "retry").status is ExitStatus.OK
    assert int(operated.row(ORDER_ID)["last_emitted_at"]["N"]) >= NOW
    operated.put_order(ORDER_ID, "PAID")
    assert "only what is NEEDS_REVIEW" in resolve(operated, "retry").document["what"]


def test_an_order_in_review_whose_payment_waits_for_its_customer_waits_too(operated: OperatedStack) -> None:
    """An order in review ignores that outcome: it is PENDING first, and asked about again."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID), state=PaymentState.REQUIRES_ACTION)
    assert resolve(operated, "retry").status is ExitStatus.OK
    assert operated.order_status(ORDER_ID) == "PENDING"
    assert operated.row(ORDER_ID)["state"]["S"] == "REQUIRES_ACTION"


def test_a_retry_of_an_order_that_has_moved_meanwhile_says_so(operated: OperatedStack) -> None:
    """The row is PENDING; the order is what it is."""
    in_review(operated, payment_intent_id=None)
    operated.put_order(ORDER_ID, "PAID")
    report = resolve(operated, "retry")
    assert report.status is ExitStatus.FOUND
    assert "the order was not moved" in report.document["what"]


def test_a_cancellation_is_left_to_the_protocol(operated: OperatedStack) -> None:
    """The row is PENDING with a request to cancel; nothing says CANCELED before Stripe does."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID))
    assert resolve(operated, "cancel").status is ExitStatus.OK
    row = operated.row(ORDER_ID)
    assert row["state"]["S"] == "PENDING"
    assert int(row["cancel_requested_at"]["N"]) >= NOW
    assert operated.order_status(ORDER_ID) == "NEEDS_REVIEW"


@dataclass(frozen=True)
class _Meanwhile(Resolver):
    """Another worker finalizes the row between the lookup and the write."""

    def look_up(self, order_id: str) -> Seen:
        seen = super().look_up(order_id)
        assert seen.payment is not None
        assert self.store.reemit_outcome(seen.payment, now=NOW)
        return seen


def test_a_row_that_changes_meanwhile_refuses_the_write(operated: OperatedStack) -> None:
    """Whatever was decided: it is looked at again."""
    in_review(operated, payment_intent_id=None)
    given = review.Reviews.of(operated.stack).resolver
    resolver = _Meanwhile(given.store, given.gateway, given.clock)
    outcome = resolver.resolve(ORDER_ID, Resolution.RETRY, Review("retry", "me", "r", NOW))
    assert isinstance(outcome, Refused)
    assert "has changed" in outcome.why
    assert operated.row(ORDER_ID)["state"]["S"] == "NEEDS_REVIEW"


def test_a_restored_row_of_the_same_revision_refuses_the_write(operated: OperatedStack) -> None:
    """Its revision is that which was read, and its state is another."""
    in_review(operated, payment_intent_id=None)
    store = ReviewStore(operated.dynamodb, operated.stack.resource("PaymentsTable"))
    payment = store.read(ORDER_ID)
    assert payment is not None
    operated.dynamodb.update_item(  # As a restore puts it there.
        TableName=operated.stack.resource("PaymentsTable"),
        Key={"order_id": {"S": ORDER_ID}},
        UpdateExpression="SET #state = :paid",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={":paid": {"S": "SUCCEEDED"}},
    )
    assert not store.reopen(payment, Review("retry", "me", "r", NOW), cancel=False)
    assert operated.row(ORDER_ID)["state"]["S"] == "SUCCEEDED"


def test_stripe_that_does_not_show_everything_decides_nothing(operated: OperatedStack) -> None:
    """A refused key, an order that Stripe's list cannot end with: the row stays."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID))
    operated.admin.assign_api_key("sk_test_x", None)
    with pytest.raises(stripe.AuthenticationError):
        resolve(operated, "retry")
    # Another account knows nothing of the order.
    operated.admin.assign_api_key("sk_test_x", "acct_other")
    assert "Stripe has no pi_" in resolve(operated, "retry").document["what"]
    assert operated.row(ORDER_ID)["state"]["S"] == "NEEDS_REVIEW"


def test_a_reason_is_needed(operated: OperatedStack) -> None:
    """It is kept, so it says something, in one line."""
    for reason in (" ", "x" * 501):
        with pytest.raises(Problem, match="--reason"):
            resolve(operated, "retry", reason=reason)


def test_the_second_of_two_is_refunded_once(operated: OperatedStack) -> None:
    """The one that the row does not name, in full; again, however often, nothing; then the order can be paid."""
    own, second = (operated.intent(ORDER_ID, confirm="pm_card_visa") for _ in range(2))
    in_review(operated, payment_intent_id=own)
    assert resolve(operated, "paid", payment_intent=own).status is ExitStatus.FOUND
    assert f"would refund {second}" in resolve(operated, "refund-second", yes=False).document["what"]
    assert operated.admin.ledger().refunds == ()
    assert resolve(operated, "refund-second").status is ExitStatus.OK
    assert resolve(operated, "refund-second").status is ExitStatus.FOUND
    [refund] = operated.admin.ledger().refunds
    assert (refund["payment_intent"], refund["amount"]) == (second, 2500)
    assert resolve(operated, "paid", payment_intent=own).status is ExitStatus.OK
    row = operated.row(ORDER_ID)
    assert (row["state"]["S"], row["payment_intent_id"]["S"]) == ("SUCCEEDED", own)
    decided = [value["M"]["resolution"]["S"] for name, value in sorted(row.items()) if name.startswith("review_")]
    assert decided == ["refund-second", "paid"]


def test_a_refund_that_stripe_refuses_is_not_called_done(operated: OperatedStack) -> None:
    """The charge is disputed: it says so, and nothing is refunded."""
    own, second = (operated.intent(ORDER_ID, confirm="pm_card_visa") for _ in range(2))
    in_review(operated, payment_intent_id=own)
    operated.admin.open_dispute(second)
    report = resolve(operated, "refund-second")
    assert report.status is ExitStatus.FOUND
    assert "charge_disputed" in json.dumps(report.document)
    assert operated.admin.ledger().refunds == ()
