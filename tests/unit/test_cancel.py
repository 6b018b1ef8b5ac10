"""Cancellations: once requested nothing is confirmed, CANCELED is said only on Stripe's word, and each ends by itself.

DynamoDB and Stripe are in memory; every interleaving with the workers is tried in tests/simulation.
"""

import pytest

from onecharge.contract.states import PaymentState
from onecharge.runtime.consumer import BackOff, Done
from testing.fake_stripe import DECLINED, THREE_D_SECURE, no_answer
from testing.harness import Log
from testing.payment_service import PaymentService
from testing.simulation.dynamodb import MemoryDynamoDB
from testing.tools import Cancellation


@pytest.fixture
def payments(log: Log) -> PaymentService:
    return PaymentService(MemoryDynamoDB(keys={"payments": ("order_id",)}), log.logger)


def test_an_order_that_was_never_sent_leaves_a_trace_at_stripe(payments: PaymentService) -> None:
    """A PaymentIntent is created to be canceled for the customer, so that the cancellation outlives the table."""
    assert [payments.cancel(), payments.cancel()] == [Cancellation.CANCELED] * 2
    [intent] = payments.stripe.intents.values()
    assert (intent["status"], intent["cancellation_reason"]) == ("canceled", "requested_by_customer")
    assert [payments.charge(), payments.state()] == [Done(), PaymentState.CANCELED]
    assert payments.stripe.asked_for("confirm") == 0


def test_if_the_charge_won_the_answer_says_so(payments: PaymentService) -> None:
    """PAID, and nothing is changed."""
    payments.charge()
    assert payments.cancel() is Cancellation.PAID
    assert payments.state() is PaymentState.SUCCEEDED


@pytest.mark.parametrize("card", [DECLINED, THREE_D_SECURE])
def test_an_order_that_waits_for_its_customer_is_canceled(payments: PaymentService, card: str) -> None:
    """The same PaymentIntent is canceled, so that no page can confirm it any more."""
    payments.charge(card=card)
    assert payments.cancel(card=card) is Cancellation.CANCELED
    [intent] = payments.stripe.intents.values()
    assert intent["cancellation_reason"] == "requested_by_customer"


def test_a_customer_who_authenticated_first_has_paid(payments: PaymentService) -> None:
    """Stripe decides the race: it refuses to cancel what has succeeded."""
    payments.charge(card=THREE_D_SECURE)
    payments.stripe.becomes("pi_0", "succeeded")
    assert payments.cancel(card=THREE_D_SECURE) is Cancellation.PAID


# ---------------------------------------------------------------- issue 8, "Cancel"


@pytest.mark.parametrize("operation", ["search", "list", "create", "retrieve", "cancel"])
def test_one_lookup_that_fails_does_not_make_the_order_uncancelable(payments: PaymentService, operation: str) -> None:
    """The order is older than 22 hours, so that it is looked up first; the next cancellation is not kept from it."""
    payments.now += 24 * 3600
    if operation == "retrieve":
        payments.crash_before("confirm")
        payments.now += payments.bounds.lease_seconds
    payments.stripe.failing[operation] = no_answer
    assert payments.cancel() is Cancellation.CANCELING
    payments.stripe.failing.clear()
    assert payments.cancel() is Cancellation.CANCELED


def test_a_cancel_during_an_outage_is_taken_and_nothing_is_confirmed_from_then_on(payments: PaymentService) -> None:
    """CANCELING at once, after one request; deliveries cancel, too, and end it when Stripe is back."""
    payments.crash_before("confirm")
    payments.now += payments.bounds.lease_seconds
    payments.stripe.failing[""] = no_answer
    payments.stripe.asked.clear()
    assert payments.cancel() is Cancellation.CANCELING
    assert len(payments.stripe.asked) == 1
    assert payments.charge() == BackOff()
    payments.stripe.failing.clear()
    assert payments.charge() == Done()
    assert (payments.state(), payments.stripe.asked_for("confirm")) == (PaymentState.CANCELED, 0)


def test_a_cancellation_ends_by_its_message(payments: PaymentService) -> None:
    """The order service publishes it again until it has an outcome."""
    payments.stripe.failing[""] = no_answer
    assert payments.cancel() is Cancellation.CANCELING
    assert payments.cancel_by_message() == BackOff()
    payments.stripe.failing.clear()
    assert payments.cancel_by_message() == Done()
    assert payments.state() is PaymentState.CANCELED


@pytest.mark.parametrize(("executed", "ends"), [(False, PaymentState.CANCELED), (True, PaymentState.SUCCEEDED)])
def test_a_cancellation_ends_by_the_reconciler(payments: PaymentService, executed: bool, ends: PaymentState) -> None:
    """As CANCELED, or PAID if the confirm whose answer was lost has won."""
    (payments.crash_after if executed else payments.crash_before)("confirm")
    payments.stripe.failing[""] = no_answer
    payments.now += payments.bounds.lease_seconds
    assert payments.cancel() is Cancellation.CANCELING
    payments.stripe.failing.clear()
    assert payments.reconcile()
    assert payments.state() is ends


def test_without_stripes_key_a_cancellation_is_taken(payments: PaymentService) -> None:
    """As during an outage: the request is stored, and somebody else finishes it."""
    assert payments.request_cancel() is Cancellation.CANCELING
    assert payments.row().cancel_requested_at == payments.now
    assert payments.stripe.asked == []


# ---------------------------------------------------------------- beside the holder of the lease


def meanwhile(payments: PaymentService, operation: str) -> list[Cancellation]:
    """Deliver the order; when its worker reaches this request, the customer cancels."""
    answers: list[Cancellation] = []

    def cancel(reached: str) -> None:
        if reached == operation and not answers:
            payments.stripe.before = lambda _: None
            answers.append(payments.cancel())

    payments.stripe.before = cancel
    payments.charge()
    return answers


def test_a_live_lease_is_waited_for(payments: PaymentService) -> None:
    """Its owner may be about to confirm: Stripe decides which of them is first."""
    assert meanwhile(payments, "confirm") == [Cancellation.CANCELING]
    assert (payments.state(), payments.stripe.charges) == (PaymentState.SUCCEEDED, ["pi_0"])
    assert payments.cancel() is Cancellation.PAID


def test_before_there_is_a_payment_intent_the_holder_cancels(payments: PaymentService) -> None:
    """Writing its id shows the holder that the row is to be canceled."""
    assert meanwhile(payments, "create") == [Cancellation.CANCELING]
    assert (payments.state(), payments.stripe.charges) == (PaymentState.CANCELED, [])


def test_a_confirm_that_was_executed_first_has_won(payments: PaymentService) -> None:
    """CANCELING, and it ends as PAID."""
    payments.crash_after("confirm")
    assert payments.cancel() is Cancellation.CANCELING
    assert payments.state() is PaymentState.PENDING
    payments.now += payments.bounds.lease_seconds
    payments.charge()
    assert payments.cancel() is Cancellation.PAID
