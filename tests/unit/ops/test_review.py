"""`review`: each resolution on tables and Stripe, with what changes beside it."""

import time
from dataclasses import dataclass
from typing import Any

import pytest
import stripe

from onecharge.contract.events import CancelRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.cancel import finish_cancellation
from ops import review
from ops.errors import Problem
from ops.resolutions import Refused, Reopen, Resolution, Seen
from ops.resolver import Resolver, Review
from tests.support.operated_stack import API_KEY, FINAL, FREE, OperatedStack

ORDER_ID, REFUND_ID = "ord_" + "a" * 32, "rfd_" + "b" * 32
NOW = int(time.time())
REVIEW = Review("retry", "me", "r", NOW)


def resolve(operated: OperatedStack, resolution: str, *words: str, yes: bool = True, reason: str = "seen") -> Any:
    """The document of `review resolve`; its exit status is 0 if it is done."""
    given = ("--as", resolution, "--reason", reason, *words, *(["--yes"] if yes else []))
    status, document, _ = operated.ops("review", "resolve", ORDER_ID, *given)
    assert (status == 0) == document["done"]
    return document


def would(operated: OperatedStack, resolution: str) -> str:
    return str(resolve(operated, resolution, yes=False)["what"])


def in_review(operated: OperatedStack, **row: Any) -> None:
    """An order and its payment, which need review."""
    operated.place(order_id=ORDER_ID, status="NEEDS_REVIEW")
    given: dict[str, Any] = {
        "state": "NEEDS_REVIEW",
        "decline_code": "unexpected status",
        "finalized_at": NOW,
        "expires_at": NOW + 99,
    }
    operated.claim(ORDER_ID, **FREE, **FINAL, **(given | row))


def order_status(operated: OperatedStack) -> str:
    return operated.order(ORDER_ID).status


def status_at_stripe(operated: OperatedStack, payment_intent_id: str) -> str:
    return operated.stack.stripe.v1.payment_intents.retrieve(payment_intent_id).status


def test_what_needs_review_is_listed_with_what_can_be_decided(operated: OperatedStack) -> None:
    """Its reason, what Stripe shows now, and the resolutions that are not refused."""
    assert operated.ops("review", "list")[0] == 0
    intent = operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=intent)
    status, document, _ = operated.ops("review", "list")
    [listed] = document["payments"]
    assert (status, listed["reason"]) == (1, "unexpected status")
    assert listed["stripe"] == [f"{intent} is requires_payment_method"]
    assert listed["possible"] == ["retry", "cancel"]
    operated.standin.assign_api_key(API_KEY, None)
    [listed] = operated.ops("review", "list")[1]["payments"]
    assert listed["possible"] == []
    assert "401" in listed["stripe"][0]


def test_without_yes_nothing_changes(operated: OperatedStack) -> None:
    """Neither the row, nor the order, nor Stripe; and it says what it would do."""
    own, other = operated.intent(ORDER_ID), operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=own)
    before = operated.row(ORDER_ID)
    assert f"cancel {other}" in would(operated, "retry")
    assert f"cancel {other}" in would(operated, "cancel")
    assert "refused" in would(operated, "paid")
    operated.stack.stripe.v1.payment_intents.cancel(other)
    for resolution in ("retry", "cancel"):
        assert "would put the row back to PENDING" in would(operated, resolution)
    assert (operated.row(ORDER_ID), order_status(operated)) == (before, "NEEDS_REVIEW")
    assert status_at_stripe(operated, own) == "requires_payment_method"


def test_a_payment_that_succeeded_is_paid(operated: OperatedStack) -> None:
    """The row names it; who, why and when is kept; an outcome as any other, for its stream."""
    intent = operated.intent(ORDER_ID, confirm="pm_card_visa")
    in_review(operated)
    assert "would write SUCCEEDED" in would(operated, "paid")
    assert resolve(operated, "paid", reason="the  bank\nsays so")["done"]
    row = operated.row(ORDER_ID)
    assert (row["state"], row["payment_intent_id"]) == ("SUCCEEDED", intent)
    record = row[f"review_{row['revision']}"]
    assert (record["resolution"], record["reason"]) == ("paid", "the bank says so")
    assert record["by"].startswith("arn:aws:")
    assert not resolve(operated, "paid")["done"]


def test_a_retry_puts_row_and_order_back(operated: OperatedStack) -> None:
    """As the first claim left them, in the index of unfinished rows; what else is open at Stripe is canceled first."""
    own, other = operated.intent(ORDER_ID), operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=own, refused_at=5)
    assert resolve(operated, "retry")["done"]
    row = operated.row(ORDER_ID)
    assert (row["state"], row["payment_intent_id"], order_status(operated)) == ("PENDING", own, "PENDING")
    assert {"unfinished_shard", "unfinished_claimed_at"} <= row.keys()
    assert not {"lease_owner", "finalized_at", "expires_at", "decline_code", "refused_at"} & row.keys()
    at_stripe = [status_at_stripe(operated, each) for each in (own, other)]
    assert at_stripe == ["requires_payment_method", "canceled"]


def test_a_retried_order_waits_since_then(operated: OperatedStack) -> None:
    """It is published again after 15 minutes, and not overdue, however old it is."""
    in_review(operated)
    long_ago = "2026-01-01T00:00:00+00:00"
    operated.set_order(ORDER_ID, placed_at=long_ago, waiting_since=long_ago)
    assert resolve(operated, "retry")["done"]
    assert operated.order(ORDER_ID).waiting_since.timestamp() >= NOW


def test_a_retry_accepts_what_a_person_canceled(operated: OperatedStack) -> None:
    """The row keeps which PaymentIntents: only after these the next generation follows."""
    own = operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=own)
    operated.stack.stripe.v1.payment_intents.cancel(own, {"cancellation_reason": "fraudulent"})
    [listed] = operated.ops("review", "list")[1]["payments"]
    assert listed["stripe"] == [f"{own} is canceled as fraudulent, by hand"]
    assert f"although {own} was canceled" in would(operated, "retry")
    assert resolve(operated, "retry")["done"]
    assert operated.payment(ORDER_ID).accepted_cancellations == (own,)


def test_a_retry_that_was_interrupted_is_run_again(operated: OperatedStack) -> None:
    """The row is PENDING already: only the order is moved."""
    in_review(operated)
    store = review.resolver_of(operated.stack).store
    assert store.reopen(operated.payment(ORDER_ID), REVIEW, Reopen(cancel=False))
    revision = operated.row(ORDER_ID)["revision"]
    assert "would move the order" in would(operated, "retry")
    assert resolve(operated, "retry")["done"]
    assert (order_status(operated), operated.row(ORDER_ID)["revision"]) == ("PENDING", revision)


@pytest.mark.parametrize(
    "state",
    [PaymentState.SUCCEEDED, PaymentState.CANCELED, PaymentState.DECLINED, PaymentState.REQUIRES_ACTION],
)
def test_an_order_whose_outcome_was_lost_can_leave_its_review(operated: OperatedStack, state: PaymentState) -> None:
    """The row was resolved. republish asks only for what waits, so a person has the outcome emitted again."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID), state=state)
    [listed] = operated.ops("review", "list")[1]["payments"]
    assert "retry" in listed["possible"]
    assert f"emit the outcome of the row again, which is {state}" in would(operated, "retry")
    assert "last_emitted_at" not in operated.row(ORDER_ID)
    assert resolve(operated, "retry")["done"]
    row = operated.row(ORDER_ID)
    assert (row["state"], order_status(operated)) == (state, "NEEDS_REVIEW")
    assert row["last_emitted_at"] >= NOW


def test_an_order_whose_row_is_lost_can_leave_its_review(operated: OperatedStack) -> None:
    """Nothing has succeeded, so reconcile does not write the row again; the order's message does."""
    operated.place(order_id=ORDER_ID, status="NEEDS_REVIEW")
    [listed] = operated.ops("review", "list")[1]["payments"]
    assert (listed["stripe"], listed["possible"]) == (["the payment's row is lost"], ["retry", "cancel"])
    assert "else retry or cancel" in would(operated, "paid")
    assert resolve(operated, "retry")["done"]
    assert order_status(operated) == "PENDING"


def test_an_order_that_is_declined_learns_of_its_review_first(operated: OperatedStack) -> None:
    """It was restored. The row alone would be PENDING, and no message would claim it."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID))
    operated.set_order(ORDER_ID, status="PAYMENT_DECLINED")
    assert "emit the outcome of the row again, which is NEEDS_REVIEW" in would(operated, "retry")
    assert resolve(operated, "retry")["done"]
    assert operated.row(ORDER_ID)["state"] == "NEEDS_REVIEW"
    operated.set_order(ORDER_ID, status="NEEDS_REVIEW", waiting_shard="0")
    assert resolve(operated, "retry")["done"]
    assert (operated.row(ORDER_ID)["state"], order_status(operated)) == ("PENDING", "PENDING")


def test_an_order_that_was_paid_late_and_does_not_know_it_is_told(operated: OperatedStack) -> None:
    """It is declined, so nothing asks about it; its customer has paid."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID), state="SUCCEEDED")
    operated.set_order(ORDER_ID, status="PAYMENT_DECLINED")
    assert resolve(operated, "retry")["done"]
    assert operated.row(ORDER_ID)["last_emitted_at"] >= NOW
    operated.set_order(ORDER_ID, status="PAID")
    assert "only what is NEEDS_REVIEW" in resolve(operated, "retry")["what"]


def test_what_the_row_said_before_a_retry_is_stale(operated: OperatedStack) -> None:
    """The order has seen the row's revision since: an outcome of an earlier one does not bring the review back."""
    in_review(operated)
    assert resolve(operated, "retry")["done"]
    assert operated.order(ORDER_ID).payment_revision == operated.row(ORDER_ID)["revision"]


def test_an_order_whose_payment_is_of_other_money_can_be_canceled(operated: OperatedStack) -> None:
    """Its item was lost, and its key used for another cart. The payment stays; once it is decided."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID, confirm="pm_card_visa"), state="SUCCEEDED")
    operated.set_order(ORDER_ID, amount_minor=99_999_900)
    [listed] = operated.ops("review", "list")[1]["payments"]
    assert (listed["reason"], listed["possible"]) == ("the payment is of other money than the order", ["cancel"])
    row = operated.row(ORDER_ID)
    assert "would cancel the order" in resolve(operated, "cancel", yes=False)["what"]
    assert resolve(operated, "cancel")["done"]
    assert (order_status(operated), operated.row(ORDER_ID)) == ("CANCELED", row)
    assert not resolve(operated, "cancel")["done"]


@pytest.mark.parametrize("amount_minor", [2500, 99_999_900])
@pytest.mark.parametrize("state", [None, "PENDING", "REQUIRES_ACTION", "DECLINED"])
def test_an_order_that_may_still_be_charged_is_canceled_as_by_its_customer(
    operated: OperatedStack, state: str | None, amount_minor: int
) -> None:
    """Also if its payment's row is lost, or of other money: Stripe shows the end, which stops every late message."""
    intent = operated.intent(ORDER_ID)
    in_review(operated, payment_intent_id=intent, state=state or "PENDING")
    operated.set_order(ORDER_ID, amount_minor=amount_minor)
    if state is None:
        operated.delete("PaymentsTable", order_id=ORDER_ID)
    [listed] = operated.ops("review", "list")[1]["payments"]
    assert "cancel" in listed["possible"]
    assert "would request" in would(operated, "cancel")
    assert resolve(operated, "cancel")["done"]
    order = operated.order(ORDER_ID)
    assert order.status == "CANCELING"
    assert order.canceled_by["reason"] == "seen"
    assert f"requested by {order.canceled_by['by']}: seen" in operated.ops("explain", ORDER_ID)[2]
    operated.send("PaymentsQueue", CancelRequestedEvent.of(order.current_attempt, correlation_id="c").model_dump_json())
    operated.charge()
    row = operated.row(ORDER_ID)
    ended = operated.stack.stripe.v1.payment_intents.retrieve(row["payment_intent_id"])
    assert (row["state"], ended.cancellation_reason) == ("CANCELED", "requested_by_customer")
    assert (operated.charges(ORDER_ID), row["payment_intent_id"] == intent) == (0, state is not None)


@pytest.mark.parametrize("status", ["PAID", "CANCELED", "CANCELING"])
def test_a_dry_run_does_not_promise_a_cancellation_that_is_refused(operated: OperatedStack, status: str) -> None:
    """The order has ended, or is being canceled; its payment's row is lost, or an older one."""
    operated.place(order_id=ORDER_ID, status=status)
    for _ in ("lost", "older"):
        said = {resolve(operated, "cancel", yes=yes)["what"] for yes in (False, True)}
        assert said == {f"refused: the order is {status}"}
        operated.claim(ORDER_ID, **FREE)
    assert order_status(operated) == status


def test_an_order_whose_charges_are_refunded_in_full_can_be_canceled(operated: OperatedStack) -> None:
    """Stripe has a PaymentIntent of other money than the row: nothing pays the order, and nothing is kept."""
    intent = operated.intent(ORDER_ID, amount=100, confirm="pm_card_visa")
    in_review(operated, payment_intent_id=intent)
    assert "in full, then resolve it as cancel" in would(operated, "paid")
    assert "the order is charged" in would(operated, "cancel")
    operated.stack.stripe.v1.refunds.create({"payment_intent": intent})
    assert "would cancel the order alone" in would(operated, "cancel")
    assert resolve(operated, "cancel")["done"]
    row = operated.row(ORDER_ID)
    assert (row["state"], order_status(operated)) == ("NEEDS_REVIEW", "CANCELED")
    assert row[f"review_{row['revision']}"]["resolution"] == "cancel"
    assert not resolve(operated, "cancel")["done"]
    assert operated.ops("review", "list")[0] == 0


@pytest.mark.parametrize("state", ["NEEDS_REVIEW", "PENDING", "DECLINED"])
def test_a_payment_of_other_money_is_not_retried(operated: OperatedStack, state: str) -> None:
    """The row's money is that of the order that was lost: the customer would pay it for another cart."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID), state=state)
    operated.set_order(ORDER_ID, amount_minor=99_999_900)
    row = operated.row(ORDER_ID)
    [listed] = operated.ops("review", "list")[1]["payments"]
    assert listed["reason"] == "the payment is of other money than the order"
    assert listed["possible"] == ["cancel"]
    for yes in (False, True):
        assert "25.00 EUR, the order 999,999.00 EUR" in resolve(operated, "retry", yes=yes)["what"]
    assert (order_status(operated), operated.row(ORDER_ID)) == ("NEEDS_REVIEW", row)


def test_a_retry_of_an_order_that_has_moved_meanwhile_says_so(operated: OperatedStack) -> None:
    """The row is PENDING; the order is what it is."""
    in_review(operated)
    operated.set_order(ORDER_ID, status="PAID")
    assert "the order was not moved" in resolve(operated, "retry")["what"]


def test_a_cancellation_is_left_to_the_protocol(operated: OperatedStack) -> None:
    """The row is PENDING with a request to cancel; nothing says CANCELED before Stripe does."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID))
    assert resolve(operated, "cancel")["done"]
    row = operated.row(ORDER_ID)
    assert (row["state"], order_status(operated)) == ("PENDING", "NEEDS_REVIEW")
    assert row["cancel_requested_at"] >= NOW
    # Another person, who does not know: the order would be PENDING, and then CANCELED all the same.
    assert operated.ops("review", "list")[1]["payments"][0]["possible"] == ["cancel"]
    assert "only what is NEEDS_REVIEW" in resolve(operated, "retry")["what"]
    assert order_status(operated) == "NEEDS_REVIEW"


@dataclass(frozen=True)
class _Meanwhile(Resolver):
    """Another worker writes the row between the lookup and the write."""

    def look_up(self, order_id: str) -> Seen:
        seen = super().look_up(order_id)
        assert seen.payment is not None
        assert self.store.reemit_outcome(seen.payment, now=NOW)
        return seen


def test_a_row_that_changes_meanwhile_refuses_the_write(operated: OperatedStack) -> None:
    """Whatever was decided: it is looked at again."""
    in_review(operated)
    resolver = _Meanwhile(**vars(review.resolver_of(operated.stack)))
    outcome = resolver.resolve(ORDER_ID, Resolution.RETRY, REVIEW)
    assert isinstance(outcome, Refused)
    assert "has changed" in outcome.why
    assert operated.row(ORDER_ID)["state"] == "NEEDS_REVIEW"


def test_a_restored_row_of_the_same_revision_refuses_the_write(operated: OperatedStack) -> None:
    """Its revision is that which was read, and its state is another."""
    in_review(operated)
    read = operated.payment(ORDER_ID)
    operated.set_payment(ORDER_ID, state="SUCCEEDED")  # As a restore puts it there.
    assert not review.resolver_of(operated.stack).store.reopen(read, REVIEW, Reopen(cancel=False))
    assert operated.row(ORDER_ID)["state"] == "SUCCEEDED"


def test_stripe_that_does_not_show_everything_decides_nothing(operated: OperatedStack) -> None:
    """A refused key, another account: the row stays."""
    in_review(operated, payment_intent_id=operated.intent(ORDER_ID))
    operated.standin.assign_api_key(API_KEY, None)
    with pytest.raises(stripe.AuthenticationError):
        resolve(operated, "retry")
    operated.standin.assign_api_key(API_KEY, "acct_other")
    assert "Stripe has no pi_" in resolve(operated, "retry")["what"]
    assert operated.row(ORDER_ID)["state"] == "NEEDS_REVIEW"


@pytest.mark.parametrize("state", ["PENDING", "REQUIRES_ACTION", "NEEDS_REVIEW"])
def test_a_payment_intent_of_a_wrong_key_is_left_behind(operated: OperatedStack, state: str) -> None:
    """The key was another account's, or of test mode, for a while: no message and no reconciler ends such an order."""
    operated.standin.assign_api_key(API_KEY, "acct_other")
    elsewhere = operated.intent(ORDER_ID)
    operated.standin.assign_api_key(API_KEY, "acct_standin")
    order = operated.place(order_id=ORDER_ID, status=state)
    operated.claim(ORDER_ID, **FREE, state=state, finalized_at=NOW, payment_intent_id=elsewhere)
    assert not resolve(operated, "retry")["done"]
    assert "would put the row back" in str(resolve(operated, "retry", "--payment-intent", elsewhere, yes=False)["what"])
    assert resolve(operated, "retry", "--payment-intent", elsewhere)["done"]
    assert order_status(operated) == "PENDING"
    operated.send("PaymentsQueue", operated.message(order))
    operated.charge()
    row = operated.row(ORDER_ID)
    assert (row["state"], operated.charges(ORDER_ID)) == ("SUCCEEDED", 1)
    assert row["payment_intent_id"] != elsewhere


def test_a_dry_run_says_what_follows_without_the_payment_intent(operated: OperatedStack) -> None:
    """A retry charges although a person canceled another one at Stripe; a cancellation charges nothing."""
    operated.place(order_id=ORDER_ID)
    stopped = operated.intent(ORDER_ID)
    operated.stack.stripe.v1.payment_intents.cancel(stopped, {"cancellation_reason": "fraudulent"})
    operated.claim(ORDER_ID, **FREE, payment_intent_id="pi_elsewhere")
    retry, cancel = (
        resolve(operated, each, "--payment-intent", "pi_elsewhere", yes=False)["what"] for each in ("retry", "cancel")
    )
    assert "PENDING without pi_elsewhere" in retry
    assert f"although {stopped} was canceled" in retry
    assert "without pi_elsewhere with a request to cancel" in cancel


def test_a_payment_intent_that_was_wrongly_left_behind_is_found_again(operated: OperatedStack) -> None:
    """The person's own key was another account's: the worker's create replays the one that was charged."""
    order = operated.pay(order_id=ORDER_ID)
    charged = operated.row(ORDER_ID)["payment_intent_id"]
    operated.set_payment(ORDER_ID, state="PENDING")  # As a restored row.
    operated.standin.assign_api_key(API_KEY, "acct_other")
    resolve(operated, "retry", "--payment-intent", charged)
    assert "payment_intent_id" not in operated.row(ORDER_ID)
    operated.standin.assign_api_key(API_KEY, "acct_standin")
    operated.send("PaymentsQueue", operated.message(order))
    operated.charge()
    row = operated.row(ORDER_ID)
    assert (row["state"], row["payment_intent_id"], operated.charges(ORDER_ID)) == ("SUCCEEDED", charged, 1)


def test_a_payment_intent_of_a_wrong_key_is_left_behind_to_cancel(operated: OperatedStack) -> None:
    operated.place(order_id=ORDER_ID, status="CANCELING")
    operated.claim(ORDER_ID, **FREE, payment_intent_id="pi_elsewhere", cancel_requested_at=NOW)
    assert resolve(operated, "cancel", "--payment-intent", "pi_elsewhere")["done"]
    assert finish_cancellation(operated.payment(ORDER_ID), operated.tools()).state == "CANCELED"


def test_a_payment_intent_is_left_behind_only_if_stripe_says_that_there_is_none(operated: OperatedStack) -> None:
    """Not while a worker has the row, nor because Stripe does not answer."""
    operated.place(order_id=ORDER_ID)
    operated.claim(ORDER_ID, payment_intent_id="pi_elsewhere")
    refused = resolve(operated, "retry", "--payment-intent", "pi_elsewhere")
    assert "has changed" in refused["what"]
    own = operated.intent(ORDER_ID)
    operated.set_payment(ORDER_ID, **FREE, payment_intent_id=own)
    assert "only what is NEEDS_REVIEW" in resolve(operated, "retry", "--payment-intent", own)["what"]
    assert operated.row(ORDER_ID)["payment_intent_id"] == own


def test_a_reason_is_needed(operated: OperatedStack) -> None:
    """It is kept, so it says something, in one line."""
    for reason in (" ", "x" * 501):
        with pytest.raises(Problem, match="a reason is a sentence"):
            resolve(operated, "retry", reason=reason)


def test_the_second_of_two_is_refunded_once(operated: OperatedStack) -> None:
    """The one that the row does not name, in full; again, however often, nothing; then the order can be paid."""
    own, second = (operated.intent(ORDER_ID, confirm="pm_card_visa") for _ in range(2))
    in_review(operated, payment_intent_id=own)
    assert not resolve(operated, "paid", "--payment-intent", own)["done"]
    assert f"would refund {second}" in would(operated, "refund-second")
    assert operated.standin.ledger().refunds == ()
    assert [resolve(operated, "refund-second")["done"] for _ in range(2)] == [True, False]
    [refund] = operated.standin.ledger().refunds
    assert (refund["payment_intent"], refund["amount"]) == (second, 2500)
    assert resolve(operated, "paid", "--payment-intent", own)["done"]
    row = operated.row(ORDER_ID)
    assert (row["state"], row["payment_intent_id"]) == ("SUCCEEDED", own)
    decided = [value["resolution"] for name, value in sorted(row.items()) if name.startswith("review_")]
    assert decided == ["refund-second", "paid"]


def test_the_refunds_and_disputes_are_those_of_the_payment_intent_that_pays(operated: OperatedStack) -> None:
    """The row had those of the other one, which is refunded in full: the order would show them as its own."""
    own, other = (operated.intent(ORDER_ID, confirm="pm_card_visa") for _ in range(2))
    disputed = {"disputes": {"du_1": "needs_response"}, "dispute_status": "needs_response"}
    in_review(operated, payment_intent_id=own, amount_refunded_minor=2500, **disputed)
    operated.stack.stripe.v1.refunds.create({"payment_intent": own})
    operated.stack.stripe.v1.refunds.create({"payment_intent": other, "amount": 700})
    assert resolve(operated, "paid", "--payment-intent", other)["done"]
    row = operated.row(ORDER_ID)
    assert (row["payment_intent_id"], row["amount_refunded_minor"]) == (other, 700)
    assert not {"disputes", "dispute_status"} & row.keys()


def test_a_payment_intent_that_pays_and_is_disputed_says_so(operated: OperatedStack) -> None:
    """The row has the dispute from then on, and no event of it raises an alarm."""
    other = operated.intent(ORDER_ID, confirm="pm_card_visa")
    in_review(operated)
    operated.standin.open_dispute(other)
    assert resolve(operated, "paid")["what"].endswith("disputed: needs_response")
    assert operated.row(ORDER_ID)["dispute_status"] == "needs_response"


def test_the_one_that_a_dispute_has_taken_back_is_not_refunded_as_well(operated: OperatedStack) -> None:
    """The customer has paid twice and disputed one, which Stripe does not refund: the other one pays the order."""
    own, second = (operated.intent(ORDER_ID, confirm="pm_card_visa") for _ in range(2))
    in_review(operated, payment_intent_id=own)
    dispute = operated.standin.open_dispute(own)
    assert "is disputed" in resolve(operated, "refund-second")["what"]
    operated.standin.close_dispute(dispute)
    assert "the other one pays the order" in resolve(operated, "refund-second")["what"]
    assert resolve(operated, "paid", "--payment-intent", second)["done"]
    assert operated.row(ORDER_ID)["payment_intent_id"] == second
    assert operated.standin.ledger().refunds == ()
    assert "two PaymentIntents of the order succeeded" not in operated.ops("explain", ORDER_ID)[2]


def test_a_refund_that_stripe_refuses_is_not_called_done(operated: OperatedStack) -> None:
    """The charge is disputed: it says so, and nothing is refunded."""
    own, second = (operated.intent(ORDER_ID, confirm="pm_card_visa") for _ in range(2))
    in_review(operated, payment_intent_id=own)
    operated.standin.open_dispute(second)
    for _ in range(2):
        assert resolve(operated, "refund-second")["what"].endswith("the refund is FAILED: charge_disputed")
    assert operated.standin.ledger().refunds == ()


# ---------------------------------------------------------------- refunds


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
    intent, refund = refund_in_review(operated), ("--refund", REFUND_ID)
    assert "no refund of this id" in resolve(operated, "refund-made", *refund)["what"]
    make_refund(operated, intent)
    assert "would write SUCCEEDED" in resolve(operated, "refund-made", *refund, yes=False)["what"]
    assert not resolve(operated, "refund-failed", *refund)["done"]
    assert resolve(operated, "refund-made", *refund)["done"]
    row = refund_row(operated)
    assert (row["state"], row[f"review_{row['revision']}"]["reason"]) == ("SUCCEEDED", "seen")
    assert not resolve(operated, "refund-failed", *refund)["done"]
    with pytest.raises(Problem, match="--refund RFD"):
        resolve(operated, "refund-made")


@pytest.mark.parametrize("amounts", [(400, 600), (1200,)])
def test_refunds_of_other_amounts_are_made_if_they_are_enough(
    operated: OperatedStack, amounts: tuple[int, ...]
) -> None:
    """Stripe cannot undo a refund: what was given back is at least what was asked for, or a person gives the rest."""
    intent = refund_in_review(operated, finalized_at=1)
    for amount in amounts:
        assert not resolve(operated, "refund-made", "--refund", REFUND_ID)["done"]
        make_refund(operated, intent, amount)
    assert not resolve(operated, "refund-failed", "--refund", REFUND_ID)["done"]
    assert resolve(operated, "refund-made", "--refund", REFUND_ID)["done"]


def test_the_outcome_of_a_resolved_refund_is_emitted_again(operated: OperatedStack) -> None:
    """It may have been lost, and nothing asks again for a refund in review."""
    make_refund(operated, refund_in_review(operated))
    refund = ("--refund", REFUND_ID)
    assert resolve(operated, "refund-made", *refund)["done"]
    assert "would be emitted again" in resolve(operated, "refund-made", *refund, yes=False)["what"]
    assert "last_emitted_at" not in refund_row(operated)
    assert resolve(operated, "refund-made", *refund)["done"]
    row = refund_row(operated)
    assert (row["state"], row["revision"] >= NOW, "last_emitted_at" in row) == ("SUCCEEDED", True, True)


def test_another_account_shows_no_refund_and_decides_nothing(operated: OperatedStack) -> None:
    """Its list of refunds is empty: FAILED would free an amount that was given back, so that it is refunded twice."""
    intent = refund_in_review(operated, finalized_at=1)
    make_refund(operated, intent)
    operated.standin.assign_api_key(API_KEY, "acct_other")
    document = resolve(operated, "refund-failed", "--refund", REFUND_ID)
    assert f"Stripe has no {intent}" in document["what"]
    assert refund_row(operated)["state"] == "NEEDS_REVIEW"
