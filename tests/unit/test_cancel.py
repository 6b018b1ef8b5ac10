"""Cancellations: once one is requested nothing is confirmed, CANCELED rests on Stripe's word, and each one ends.

DynamoDB and Stripe are in memory; tests/simulation tries every interleaving with the workers.
"""

from typing import Any

import pytest

from onecharge.contract.events import CancelRequestedEvent
from onecharge.payments.charges.cancel import finish_cancellation
from onecharge.payments.charges.protocol import CancelReason
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS
from onecharge.payments.work import REEMIT_AFTER_SECONDS
from onecharge.runtime.consumer import BackOff, Done
from tests.shop.stripe import client_of
from tests.support.builders import ORDER_ID, T0, order
from tests.support.charge_harness import ChargeHarness
from tests.support.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST_CARD,
    NO_ANSWER,
    Step,
    afterwards,
    answer,
    killed_after,
    meanwhile,
)
from tests.support.tools import Cancellation

OLD = T0 + LOOKUP_AGE_SECONDS
CANCEL_REQUESTED = CancelRequestedEvent.of(order(), correlation_id="c")


@pytest.fixture
def service() -> ChargeHarness:
    return ChargeHarness()


def reason(service: ChargeHarness, intent_id: str = "pi_0") -> str | None:
    return service.stripe.intent(intent_id).cancellation_reason


def unconfirmed(service: ChargeHarness) -> None:
    """The order has a PaymentIntent that could be confirmed, and nobody works on it."""
    service.stripe.next("confirm", NO_ANSWER)
    assert service.deliver() == BackOff()


# ---------------------------------------------------------------- what the customer is told


def test_a_cancellation_before_the_charge_leaves_a_trace_at_stripe(service: ChargeHarness) -> None:
    """A PaymentIntent is created and canceled for the customer. The order's own message charges nothing then."""
    assert [service.cancel(), service.cancel()] == [Cancellation.CANCELED] * 2
    assert service.stripe.operations == ["create", "cancel"]
    assert reason(service) == CancelReason.BY_CUSTOMER
    assert service.deliver() == Done()
    assert service.outcome == ("CANCELED", "pi_0")


def test_the_trace_outlives_the_row(service: ChargeHarness) -> None:
    """The row is lost and the keys are forgotten: the order stays canceled."""
    service.cancel()
    service.lose_row()
    service.stripe.forget_keys()
    service.now = OLD
    assert service.deliver() == Done()
    assert service.row["state"] == "CANCELED"
    assert service.stripe.charged == []


def test_an_order_that_stripe_never_charges_needs_no_trace(service: ChargeHarness) -> None:
    """Stripe refuses its amount."""
    service.stripe.next("create", answer(400, code="amount_too_small"))
    assert service.cancel() is Cancellation.CANCELED


def test_an_account_that_takes_no_cards_cancels(service: ChargeHarness) -> None:
    """Nothing is to be confirmed: its PaymentIntent is a trace like any other."""
    service.stripe.engine.behavior.takes_cards = False
    assert service.cancel() is Cancellation.CANCELED


def test_a_refusal_that_we_may_mend_is_not_yet_canceled(service: ChargeHarness) -> None:
    """Stripe refused our request, which our next deploy may change."""
    service.stripe.next("create", answer(400))
    assert service.cancel() is Cancellation.CANCELING
    service.deliver()
    assert (service.row["state"], service.stripe.charged) == ("CANCELED", [])


@pytest.mark.parametrize("paid", [True, False])
def test_an_old_order_that_cannot_be_created_is_looked_up(service: ChargeHarness, *, paid: bool) -> None:
    """Its row and keys may be gone, and a deploy's parameters refused: it is CANCELED only if nothing was charged."""
    if paid:
        service.deliver()
        service.lose_row()
    service.now = OLD
    service.stripe.next("create", answer(400, code="amount_too_small"))
    assert service.cancel() is (Cancellation.PAID if paid else Cancellation.CANCELED)
    assert "search" in service.stripe.operations


def test_a_paid_order_is_not_canceled(service: ChargeHarness) -> None:
    """The answer is PAID, without a request to Stripe."""
    service.deliver()
    service.stripe.requests.clear()
    assert service.cancel() is Cancellation.PAID
    assert (service.stripe.requests, service.row["state"]) == ([], "SUCCEEDED")


@pytest.mark.parametrize("card", [LOST_CARD, ASKS_FOR_ACTION])
def test_a_declined_or_waiting_order_is_canceled(service: ChargeHarness, card: str) -> None:
    """Its own PaymentIntent is canceled, so no page can confirm it anymore."""
    service.deliver(payment_method=card)
    assert service.cancel() is Cancellation.CANCELED
    assert service.outcome == ("CANCELED", "pi_0")
    assert reason(service) == CancelReason.BY_CUSTOMER


def test_a_customer_who_authenticated_first_has_paid(service: ChargeHarness) -> None:
    """Stripe decides the race: it does not cancel a PaymentIntent that has succeeded."""
    service.deliver(payment_method=ASKS_FOR_ACTION)
    service.stripe.show("pi_0", "succeeded")
    assert service.cancel() is Cancellation.PAID


def test_an_abandoned_payment_intent_is_not_a_trace(service: ChargeHarness) -> None:
    """Another one is created to be canceled for the customer."""
    service.deliver(payment_method=ASKS_FOR_ACTION)
    service.stripe.show("pi_0", "canceled", cancellation_reason="abandoned")
    assert service.cancel() is Cancellation.CANCELED
    assert reason(service, "pi_1") == CancelReason.BY_CUSTOMER
    assert service.outcome == ("CANCELED", "pi_1")


def test_a_processing_payment_is_waited_for(service: ChargeHarness) -> None:
    """Stripe has not decided yet."""
    service.io.faults["stripe_confirm"] = "processing"
    service.deliver()
    assert service.cancel() is Cancellation.CANCELING
    service.stripe.show("pi_0", "succeeded")
    assert service.cancel() is Cancellation.PAID


def test_a_payment_intent_that_stripe_does_not_cancel_is_left_alone(service: ChargeHarness) -> None:
    """It can still be confirmed: nothing is created beside it, and an alarm is raised."""
    unconfirmed(service)
    service.stripe.next("cancel", lambda _: client_of(service.stripe).v1.payment_intents.retrieve("pi_0"))
    assert service.cancel() is Cancellation.CANCELING
    assert "Alarm" in service.counted
    assert service.cancel() is Cancellation.CANCELED
    assert len(service.stripe.intents) == 1


# ---------------------------------------------------------------- outages


@pytest.mark.parametrize("operation", ["search", "list", "create", "retrieve", "cancel"])
def test_a_failed_request_does_not_prevent_the_next_cancellation(service: ChargeHarness, operation: str) -> None:
    """The order is old, so it is looked up first."""
    service.now = OLD
    service.stripe.next(operation, NO_ANSWER)
    assert service.cancel() is Cancellation.CANCELING
    assert service.cancel() is Cancellation.CANCELED


def test_a_cancellation_during_an_outage_is_stored(service: ChargeHarness) -> None:
    """It is answered after one request, nothing is confirmed from then on, and a delivery ends it after the outage."""
    unconfirmed(service)
    service.stripe.down = True
    service.stripe.requests.clear()
    assert service.cancel() is Cancellation.CANCELING
    assert len(service.stripe.requests) == 1
    assert service.deliver() == BackOff()
    service.stripe.down = False
    assert service.deliver() == Done()
    assert service.row["state"] == "CANCELED"
    assert service.stripe.sent("confirm") == []


def test_a_cancellation_whose_worker_dies_is_finished_by_another(service: ChargeHarness) -> None:
    """The reconciler does so once the lease has expired."""
    service.stripe.next("create", killed_after)
    with pytest.raises(KeyboardInterrupt):
        service.cancel()
    service.passes()
    payment = service.store.read(ORDER_ID)
    assert payment is not None
    assert finish_cancellation(payment, service.tools()).state == "CANCELED"


# ---------------------------------------------------------------- beside the lease owner


def canceled_at(service: ChargeHarness, operation: str, when: Any, *, row_lost: bool = False) -> list[Cancellation]:
    """The customer cancels before or after the worker's next request of this kind; returns the answer, later."""
    answers: list[Cancellation] = []

    def cancel() -> None:
        if row_lost:
            service.lose_row()
        answers.append(service.cancel())

    step: Step = when(cancel)
    service.stripe.next(operation, step)
    return answers


@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_the_lease_owner_sees_the_request_when_it_stores_the_id(service: ChargeHarness, when: Any) -> None:
    """It cancels the PaymentIntent that it has created, and never confirms it."""
    answers = canceled_at(service, "create", when)
    assert service.deliver() == Done()
    assert answers == [Cancellation.CANCELING]
    assert service.stripe.operations == ["create", "cancel"]
    assert service.row["state"] == "CANCELED"


@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_a_confirm_in_flight_wins(service: ChargeHarness, when: Any) -> None:
    """The lease owner may be about to confirm. The order is charged once, and PAID."""
    answers = canceled_at(service, "confirm", when)
    assert service.deliver() == Done()
    assert answers == [Cancellation.CANCELING]
    assert service.cancel() is Cancellation.PAID
    assert service.stripe.charged == ["pi_0"]


def test_a_confirm_whose_answer_is_lost_wins(service: ChargeHarness) -> None:
    """The cancellation waits for the dead worker's lease, and finds the charge."""
    service.stripe.next("confirm", killed_after)
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    assert service.cancel() is Cancellation.CANCELING
    assert service.row["state"] == "PENDING"
    service.passes()
    assert service.cancel() is Cancellation.PAID


def test_a_cancellation_of_a_lost_row_competes_with_the_confirm(service: ChargeHarness) -> None:
    """It finds the PaymentIntent by its key, and Stripe decides the race."""
    answers = canceled_at(service, "confirm", meanwhile, row_lost=True)
    assert service.deliver() == BackOff()
    assert answers == [Cancellation.CANCELED]
    assert service.stripe.charged == []
    assert service.outcome == ("CANCELED", "pi_0")


def test_a_decline_in_flight_ends_as_canceled(service: ChargeHarness) -> None:
    """DECLINED would remove the row from the index of unfinished rows. The next claim cancels."""
    canceled_at(service, "confirm", meanwhile)
    assert service.deliver(payment_method=LOST_CARD) == BackOff()
    assert service.row["state"] == "PENDING"
    service.passes()
    assert service.deliver() == Done()
    assert service.row["state"] == "CANCELED"


# ---------------------------------------------------------------- the order service's message


def test_a_cancel_requested_event_cancels(service: ChargeHarness) -> None:
    """It may arrive before the order's own message, after it, and again."""
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.row["state"] == "CANCELED"
    assert [service.deliver(), service.deliver(CANCEL_REQUESTED)] == [Done(), Done()]
    assert service.stripe.charged == []


def test_a_cancel_requested_event_of_a_paid_order_is_done(service: ChargeHarness) -> None:
    """A late one has the outcome emitted again."""
    service.deliver()
    assert service.deliver(CANCEL_REQUESTED) == Done()
    service.passes(REEMIT_AFTER_SECONDS)
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.counted.count("OutcomeReemitted") == 1
    assert service.row["state"] == "SUCCEEDED"


def test_a_cancel_requested_event_backs_off_during_an_outage(service: ChargeHarness) -> None:
    """Neither it nor the order's message ends before Stripe answers; nothing is confirmed."""
    service.stripe.next("create", NO_ANSWER, NO_ANSWER)
    assert [service.deliver(CANCEL_REQUESTED), service.deliver()] == [BackOff()] * 2
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.row["state"] == "CANCELED"
    assert service.stripe.sent("confirm") == []


def test_a_cancel_requested_event_backs_off_beside_the_lease_owner(service: ChargeHarness) -> None:
    """Its next delivery finds that the charge has succeeded."""
    seen: list[Any] = []
    service.stripe.next("confirm", afterwards(lambda: seen.append(service.deliver(CANCEL_REQUESTED))))
    assert service.deliver() == Done()
    assert seen == [BackOff()]
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.row["state"] == "SUCCEEDED"
