"""Cancellations: once one is requested nothing is confirmed, CANCELED rests on what Stripe shows, and each one ends."""

from collections.abc import Callable
from typing import Any

import pytest

from onecharge.payments.charge_rules import CREATE_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Done, RetryAfter
from tests.shop.builders import BOUNDS, T0
from tests.shop.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST,
    NO_ANSWER,
    NO_FUNDS,
    Execute,
    Step,
    afterwards,
    killed,
    killed_after,
    meanwhile,
)
from tests.shop.shop import Shop

When = Callable[[Callable[[], object]], Step]


@pytest.mark.parametrize("card", [None, NO_FUNDS, ASKS_FOR_ACTION])
def test_a_canceled_order_leaves_a_trace_at_stripe(shop: Shop, card: str | None) -> None:
    """Its PaymentIntent, or one that is created for it, is canceled. If the row is lost, the order's own message finds
    it so, and charges nothing."""
    if card:
        shop.deliver(payment_method=card)
    assert [shop.cancel(), shop.cancel()] == [Done()] * 2
    assert shop.stripe.operations.count("cancel") == 1
    assert shop.stripe.intent("pi_0").cancellation_reason == "requested_by_customer"
    assert (shop.outcome, shop.payment().reason) == (("CANCELED", "pi_0"), None)
    shop.lose_row()
    assert shop.deliver() == Done()
    assert (shop.outcome, shop.stripe.charged) == (("CANCELED", "pi_0"), [])


def test_a_paid_order_is_not_canceled(shop: Shop) -> None:
    """The request is not even stored, and costs no request to Stripe."""
    shop.deliver()
    assert shop.cancel() == Done()
    assert (shop.payment().state, shop.payment().cancel_requested_at) == ("SUCCEEDED", None)
    assert shop.stripe.operations == ["create", "confirm"]


def test_a_customer_who_authenticated_first_has_paid(shop: Shop) -> None:
    """Stripe decides the race: it does not cancel a PaymentIntent that has succeeded. The row knows of its dispute."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)

    def pays() -> None:
        shop.stripe.bank_decides(shop.stripe.intent("pi_0"), pays=True)
        shop.stripe.disputed("pi_0", "needs_response")

    shop.stripe.next("cancel", meanwhile(pays))
    assert shop.cancel(payment_method=ASKS_FOR_ACTION) == Done()
    assert (shop.outcome, shop.payment().dispute_status) == (("SUCCEEDED", "pi_0"), "needs_response")
    assert shop.alarms == [Cause.CHARGE_DISPUTED]


@pytest.mark.parametrize("operation", ["create", "cancel"])
@pytest.mark.parametrize("step", [NO_ANSWER, LOST])
def test_an_undecided_cancellation_backs_off(shop: Shop, operation: str, step: Step) -> None:
    """It does not end before Stripe answers; nothing is confirmed."""
    shop.stripe.next(operation, step)
    assert [shop.cancel(), shop.deliver()] == [BackOff(), Done()]
    assert (shop.outcome, shop.stripe.sent("confirm")) == (("CANCELED", "pi_0"), [])


def test_a_held_order_keeps_its_cancellation(shop: Shop) -> None:
    """An operator has to look at Stripe first. Once it is released, the worker creates its trace and cancels it."""
    shop.now = T0 + CREATE_SECONDS
    assert shop.cancel() == Done()
    assert (shop.outcome, shop.stripe.requests) == (("PENDING", None), [])
    assert shop.payment().cancel_requested_at == shop.now
    shop.store.write_if_unchanged(shop.payment(), {"released_at": shop.now}, now=shop.now)
    assert shop.cancel() == Done()
    assert (shop.outcome, shop.stripe.charged) == (("CANCELED", "pi_0"), [])


# ---------------------------------------------------------------- beside a worker


@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_the_lease_owner_sees_the_request_when_it_stores_the_id(shop: Shop, when: When) -> None:
    """It cancels the PaymentIntent that it has created, and never confirms it."""
    seen: list[Any] = []
    shop.stripe.next("create", when(lambda: seen.append(shop.cancel())))
    assert (shop.deliver(), seen) == (Done(), [RetryAfter(BOUNDS.lease_seconds)])
    assert shop.stripe.operations == ["create", "cancel"]
    assert shop.outcome == ("CANCELED", "pi_0")


@pytest.mark.parametrize("when", [meanwhile, afterwards])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_confirm_in_flight_wins(shop: Shop, when: When, is_lost: bool) -> None:
    """The order is charged once, and PAID: also if the answer is lost, and the cancellation finds the charge."""
    step = when(shop.cancel)

    def lost(execute: Execute) -> Any:
        return LOST(lambda: step(execute))

    shop.stripe.next("confirm", lost if is_lost else step)
    assert shop.deliver() == (BackOff() if is_lost else Done())
    assert shop.cancel() == Done()
    assert (shop.outcome, shop.stripe.charged) == (("SUCCEEDED", "pi_0"), ["pi_0"])


@pytest.mark.parametrize("card", [NO_FUNDS, ASKS_FOR_ACTION])
def test_an_unpaid_outcome_in_flight_ends_as_canceled(shop: Shop, card: str) -> None:
    """The worker may not finalize: its lease stays until it expires, and the next claim cancels."""
    shop.stripe.next("confirm", meanwhile(shop.cancel))
    assert shop.deliver(payment_method=card) == BackOff()
    assert shop.outcome == ("PENDING", "pi_0")
    assert isinstance(shop.cancel(), RetryAfter)
    shop.passes()
    assert shop.cancel() == Done()
    assert shop.outcome == ("CANCELED", "pi_0")


@pytest.mark.parametrize("operation", ["create", "cancel"])
@pytest.mark.parametrize("how", [killed, killed_after])
def test_a_cancellation_whose_worker_dies_is_finished_by_another(shop: Shop, operation: str, how: Step) -> None:
    """By the next delivery of either message, once the lease has expired."""
    shop.stripe.next(operation, how)
    with pytest.raises(KeyboardInterrupt):
        shop.cancel()
    shop.passes()
    assert shop.deliver() == Done()
    assert (shop.outcome, shop.stripe.charged) == (("CANCELED", "pi_0"), [])
