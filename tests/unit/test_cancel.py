"""Cancellations: once one is requested nothing is confirmed, CANCELED rests on Stripe's word, and each one ends.

DynamoDB and Stripe are in memory; tests/simulation tries every interleaving with the workers.
"""

from typing import Any

import pytest

from onecharge.contract.events import CancelRequestedEvent
from onecharge.payments.cancel import finish_cancellation
from onecharge.payments.charge_rules import CancelReason
from onecharge.payments.deliveries import REEMIT_AFTER_SECONDS
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS
from onecharge.runtime.consumer import BackOff, Done
from tests.shop.builders import ORDER_ID, T0, order
from tests.shop.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST_CARD,
    NO_ANSWER,
    Step,
    afterwards,
    answer,
    killed_after,
    meanwhile,
)
from tests.shop.shop import Shop
from tests.shop.stripe import client_of
from tests.shop.tools import Cancellation

OLD = T0 + LOOKUP_AGE_SECONDS
CANCEL_REQUESTED = CancelRequestedEvent.of(order(), correlation_id="c")


@pytest.fixture
def shop() -> Shop:
    return Shop()


def reason(shop: Shop, intent_id: str = "pi_0") -> str | None:
    return shop.stripe.intent(intent_id).cancellation_reason


def unconfirmed(shop: Shop) -> None:
    """The order has a PaymentIntent that could be confirmed, and nobody works on it."""
    shop.stripe.next("confirm", NO_ANSWER)
    assert shop.deliver() == BackOff()


# ---------------------------------------------------------------- what the customer is told


def test_a_cancellation_before_the_charge_leaves_a_trace_at_stripe(shop: Shop) -> None:
    """A PaymentIntent is created and canceled for the customer. The order's own message charges nothing then."""
    assert [shop.cancel(), shop.cancel()] == [Cancellation.CANCELED] * 2
    assert shop.stripe.operations == ["create", "cancel"]
    assert reason(shop) == CancelReason.BY_CUSTOMER
    assert shop.deliver() == Done()
    assert shop.outcome == ("CANCELED", "pi_0")


def test_the_trace_outlives_the_row(shop: Shop) -> None:
    """The row is lost and the keys are forgotten: the order stays canceled."""
    shop.cancel()
    shop.lose_row()
    shop.stripe.forget_keys()
    shop.now = OLD
    assert shop.deliver() == Done()
    assert shop.row()["state"] == "CANCELED"
    assert shop.stripe.charged == []


def test_an_order_that_stripe_never_charges_needs_no_trace(shop: Shop) -> None:
    """Stripe refuses its amount."""
    shop.stripe.next("create", answer(400, code="amount_too_small"))
    assert shop.cancel() is Cancellation.CANCELED


def test_an_account_that_takes_no_cards_cancels(shop: Shop) -> None:
    """Nothing is to be confirmed: its PaymentIntent is a trace like any other."""
    shop.stripe.engine.behavior.takes_cards = False
    assert shop.cancel() is Cancellation.CANCELED


def test_a_refusal_that_we_may_mend_is_not_yet_canceled(shop: Shop) -> None:
    """Stripe refused our request, which our next deploy may change."""
    shop.stripe.next("create", answer(400))
    assert shop.cancel() is Cancellation.CANCELING
    shop.deliver()
    assert (shop.row()["state"], shop.stripe.charged) == ("CANCELED", [])


@pytest.mark.parametrize("paid", [True, False])
def test_an_old_order_that_cannot_be_created_is_looked_up(shop: Shop, *, paid: bool) -> None:
    """Its row and keys may be gone, and a deploy's parameters refused: it is CANCELED only if nothing was charged."""
    if paid:
        shop.deliver()
        shop.lose_row()
    shop.now = OLD
    shop.stripe.next("create", answer(400, code="amount_too_small"))
    assert shop.cancel() is (Cancellation.PAID if paid else Cancellation.CANCELED)
    assert "search" in shop.stripe.operations


def test_a_paid_order_is_not_canceled(shop: Shop) -> None:
    """The answer is PAID, without a request to Stripe."""
    shop.deliver()
    shop.stripe.requests.clear()
    assert shop.cancel() is Cancellation.PAID
    assert (shop.stripe.requests, shop.row()["state"]) == ([], "SUCCEEDED")


@pytest.mark.parametrize("card", [LOST_CARD, ASKS_FOR_ACTION])
def test_a_declined_or_waiting_order_is_canceled(shop: Shop, card: str) -> None:
    """Its own PaymentIntent is canceled, so no page can confirm it anymore."""
    shop.deliver(payment_method=card)
    assert shop.cancel() is Cancellation.CANCELED
    assert shop.outcome == ("CANCELED", "pi_0")
    assert reason(shop) == CancelReason.BY_CUSTOMER


def test_a_customer_who_authenticated_first_has_paid(shop: Shop) -> None:
    """Stripe decides the race: it does not cancel a PaymentIntent that has succeeded."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.show("pi_0", "succeeded")
    assert shop.cancel() is Cancellation.PAID


def test_an_abandoned_payment_intent_is_not_a_trace(shop: Shop) -> None:
    """Another one is created to be canceled for the customer."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.show("pi_0", "canceled", cancellation_reason="abandoned")
    assert shop.cancel() is Cancellation.CANCELED
    assert reason(shop, "pi_1") == CancelReason.BY_CUSTOMER
    assert shop.outcome == ("CANCELED", "pi_1")


def test_a_processing_payment_is_waited_for(shop: Shop) -> None:
    """Stripe has not decided yet."""
    shop.io.faults["stripe_confirm"] = "processing"
    shop.deliver()
    assert shop.cancel() is Cancellation.CANCELING
    shop.stripe.show("pi_0", "succeeded")
    assert shop.cancel() is Cancellation.PAID


def test_a_payment_intent_that_stripe_does_not_cancel_is_left_alone(shop: Shop) -> None:
    """It can still be confirmed: nothing is created beside it, and an alarm is raised."""
    unconfirmed(shop)
    shop.stripe.next("cancel", lambda _: client_of(shop.stripe).v1.payment_intents.retrieve("pi_0"))
    assert shop.cancel() is Cancellation.CANCELING
    assert "Alarm" in shop.counted
    assert shop.cancel() is Cancellation.CANCELED
    assert len(shop.stripe.intents) == 1


# ---------------------------------------------------------------- outages


@pytest.mark.parametrize("operation", ["search", "list", "create", "retrieve", "cancel"])
def test_a_failed_request_does_not_prevent_the_next_cancellation(shop: Shop, operation: str) -> None:
    """The order is old, so it is looked up first."""
    shop.now = OLD
    shop.stripe.next(operation, NO_ANSWER)
    assert shop.cancel() is Cancellation.CANCELING
    assert shop.cancel() is Cancellation.CANCELED


def test_a_cancellation_during_an_outage_is_stored(shop: Shop) -> None:
    """It is answered after one request, nothing is confirmed from then on, and a delivery ends it after the outage."""
    unconfirmed(shop)
    shop.stripe.down = True
    shop.stripe.requests.clear()
    assert shop.cancel() is Cancellation.CANCELING
    assert len(shop.stripe.requests) == 1
    assert shop.deliver() == BackOff()
    shop.stripe.down = False
    assert shop.deliver() == Done()
    assert shop.row()["state"] == "CANCELED"
    assert shop.stripe.sent("confirm") == []


def test_a_cancellation_whose_worker_dies_is_finished_by_another(shop: Shop) -> None:
    """The reconciler does so once the lease has expired."""
    shop.stripe.next("create", killed_after)
    with pytest.raises(KeyboardInterrupt):
        shop.cancel()
    shop.passes()
    payment = shop.store.read(ORDER_ID)
    assert payment is not None
    assert finish_cancellation(payment, shop.tools()).state == "CANCELED"


# ---------------------------------------------------------------- beside the lease owner


def canceled_at(shop: Shop, operation: str, when: Any, *, row_lost: bool = False) -> list[Cancellation]:
    """The customer cancels before or after the worker's next request of this kind; returns the answer, later."""
    answers: list[Cancellation] = []

    def cancel() -> None:
        if row_lost:
            shop.lose_row()
        answers.append(shop.cancel())

    step: Step = when(cancel)
    shop.stripe.next(operation, step)
    return answers


@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_the_lease_owner_sees_the_request_when_it_stores_the_id(shop: Shop, when: Any) -> None:
    """It cancels the PaymentIntent that it has created, and never confirms it."""
    answers = canceled_at(shop, "create", when)
    assert shop.deliver() == Done()
    assert answers == [Cancellation.CANCELING]
    assert shop.stripe.operations == ["create", "cancel"]
    assert shop.row()["state"] == "CANCELED"


@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_a_confirm_in_flight_wins(shop: Shop, when: Any) -> None:
    """The lease owner may be about to confirm. The order is charged once, and PAID."""
    answers = canceled_at(shop, "confirm", when)
    assert shop.deliver() == Done()
    assert answers == [Cancellation.CANCELING]
    assert shop.cancel() is Cancellation.PAID
    assert shop.stripe.charged == ["pi_0"]


def test_a_confirm_whose_answer_is_lost_wins(shop: Shop) -> None:
    """The cancellation waits for the dead worker's lease, and finds the charge."""
    shop.stripe.next("confirm", killed_after)
    with pytest.raises(KeyboardInterrupt):
        shop.deliver()
    assert shop.cancel() is Cancellation.CANCELING
    assert shop.row()["state"] == "PENDING"
    shop.passes()
    assert shop.cancel() is Cancellation.PAID


def test_a_cancellation_of_a_lost_row_competes_with_the_confirm(shop: Shop) -> None:
    """It finds the PaymentIntent by its key, and Stripe decides the race."""
    answers = canceled_at(shop, "confirm", meanwhile, row_lost=True)
    assert shop.deliver() == BackOff()
    assert answers == [Cancellation.CANCELED]
    assert shop.stripe.charged == []
    assert shop.outcome == ("CANCELED", "pi_0")


def test_a_decline_in_flight_ends_as_canceled(shop: Shop) -> None:
    """DECLINED would remove the row from the index of unfinished rows. The next claim cancels."""
    canceled_at(shop, "confirm", meanwhile)
    assert shop.deliver(payment_method=LOST_CARD) == BackOff()
    assert shop.row()["state"] == "PENDING"
    shop.passes()
    assert shop.deliver() == Done()
    assert shop.row()["state"] == "CANCELED"


# ---------------------------------------------------------------- the order service's message


def test_a_cancel_requested_event_cancels(shop: Shop) -> None:
    """It may arrive before the order's own message, after it, and again."""
    assert shop.deliver(CANCEL_REQUESTED) == Done()
    assert shop.row()["state"] == "CANCELED"
    assert [shop.deliver(), shop.deliver(CANCEL_REQUESTED)] == [Done(), Done()]
    assert shop.stripe.charged == []


def test_a_cancel_requested_event_of_a_paid_order_is_done(shop: Shop) -> None:
    """A late one has the outcome emitted again."""
    shop.deliver()
    assert shop.deliver(CANCEL_REQUESTED) == Done()
    shop.passes(REEMIT_AFTER_SECONDS)
    assert shop.deliver(CANCEL_REQUESTED) == Done()
    assert shop.counted.count("OutcomeReemitted") == 1
    assert shop.row()["state"] == "SUCCEEDED"


def test_a_cancel_requested_event_backs_off_during_an_outage(shop: Shop) -> None:
    """Neither it nor the order's message ends before Stripe answers; nothing is confirmed."""
    shop.stripe.next("create", NO_ANSWER, NO_ANSWER)
    assert [shop.deliver(CANCEL_REQUESTED), shop.deliver()] == [BackOff()] * 2
    assert shop.deliver(CANCEL_REQUESTED) == Done()
    assert shop.row()["state"] == "CANCELED"
    assert shop.stripe.sent("confirm") == []


def test_a_cancel_requested_event_backs_off_beside_the_lease_owner(shop: Shop) -> None:
    """Its next delivery finds that the charge has succeeded."""
    seen: list[Any] = []
    shop.stripe.next("confirm", afterwards(lambda: seen.append(shop.deliver(CANCEL_REQUESTED))))
    assert shop.deliver() == Done()
    assert seen == [BackOff()]
    assert shop.deliver(CANCEL_REQUESTED) == Done()
    assert shop.row()["state"] == "SUCCEEDED"
