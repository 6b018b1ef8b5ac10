"""An answer that is another request's, through Stripe's SDK, our transport and the stand-in: it decides nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.faults import Fault
from local.stripe_standin.server import StandIn, running_standin
from onecharge.payments.charges.gateway import StripeGateway, StripeResponse
from onecharge.payments.charges.protocol import CancelReason, FrozenRequest, Payment
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import FrozenRefund
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_events import StripeEvents
from onecharge.payments.stripe_responses import OtherObject, ResponseKind
from testing.builders import PATIENT, REQUEST, payment

DECLINED = "pm_card_visa_chargeDeclined"
NOW = REQUEST.placed_at


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with running_standin() as standin:
        yield standin


@dataclass
class Orders:
    """Two orders at the stand-in: ours, whose first attempt was declined, and another one. Both rows are claimed."""

    admin: StandInAdmin
    gateway: StripeGateway
    ours: Payment
    other: Payment

    def cross(self, method: str) -> None:
        """The next request of this method gets the answer to the request before it."""
        self.admin.add_fault(Fault.CROSSED, method=method, path="/v1/*")

    @property
    def charged(self) -> int:
        return len(self.admin.ledger().charges)


@pytest.fixture
def orders(standin: StandIn) -> Orders:
    gateway = StripeGateway(stripe_client("sk_test_x", api_base=standin.base_url, bounds=PATIENT))
    ours, other = (_claimed(gateway, replace(REQUEST, order_id=f"ord_{each * 32}")) for each in "ab")
    gateway.confirm(replace(ours, payment_method=DECLINED))
    return Orders(StandInAdmin(standin.base_url), gateway, replace(ours, attempt=2), other)


def _claimed(gateway: StripeGateway, request: FrozenRequest) -> Payment:
    intent = gateway.create(request, 0).intent
    assert intent is not None
    return payment(request=request, payment_intent_id=intent.payment_intent_id)


def _intent(row: Payment) -> str:
    return str(row.payment_intent_id)


BEFORE: dict[str, Callable[[Orders], object]] = {
    "another order's create": lambda at: at.gateway.create(replace(REQUEST, order_id="ord_" + "c" * 32), 0),
    "another order's success": lambda at: at.gateway.confirm(at.other),
    "another order's decline": lambda at: at.gateway.confirm(replace(at.other, payment_method=DECLINED)),
    "the refusal of another order's payment method": lambda at: at.gateway.confirm(
        replace(at.other, payment_method="pm_unknown")
    ),
    "the refusal of another order's amount": lambda at: at.gateway.create(
        replace(at.other.request, order_id="ord_" + "c" * 32, amount_minor=1), 0
    ),
    "another order's PaymentIntent": lambda at: at.gateway.retrieve(_intent(at.other)),
    "another order's cancellation": lambda at: at.gateway.cancel(_intent(at.other), CancelReason.BY_CUSTOMER),
    "an empty search": lambda at: at.gateway.client.v1.payment_intents.search({"query": "metadata['order_id']:'x'"}),
    "a list": lambda at: at.gateway.client.v1.payment_intents.list(),
    "the decline of the attempt before": lambda at: at.gateway.confirm(
        replace(at.ours, attempt=1, payment_method=DECLINED)
    ),
    "the order's own create": lambda at: at.gateway.create(at.ours.request, 0),
}
ASKED: dict[str, tuple[str, Callable[[Orders], StripeResponse]]] = {
    "create": ("POST", lambda at: at.gateway.create(at.ours.request, 1)),
    "confirm": ("POST", lambda at: at.gateway.confirm(at.ours)),
    "cancel": ("POST", lambda at: at.gateway.cancel(_intent(at.ours), CancelReason.ABANDONED)),
    "retrieve": ("GET", lambda at: at.gateway.retrieve(_intent(at.ours))),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("asked", ASKED)
def test_the_answer_to_another_request_is_none(orders: Orders, asked: str, before: str) -> None:
    """Whatever it is: another order's, of an attempt before, or an error that names no object. The next one counts."""
    method, ask = ASKED[asked]
    BEFORE[before](orders)
    orders.cross(method)
    response = ask(orders)
    assert orders.admin.faults_met() == 1
    assert (response.intent, response.is_replay) == (None, False)
    assert response.failure is not None
    assert response.failure.kind is ResponseKind.OTHER_OBJECT
    assert response.failure.request_id is not None
    again = ask(orders)
    assert again.intent is not None
    assert (again.failure, again.intent.generation) == (None, 1 if asked == "create" else 0)


def test_a_confirm_that_was_answered_with_anothers_refusal_charges_once(orders: Orders) -> None:
    """It was executed: the attempt is not declined, and its own answer comes with the next request under its key."""
    BEFORE["the refusal of another order's payment method"](orders)
    orders.cross("POST")
    orders.gateway.confirm(orders.ours)
    again = orders.gateway.confirm(orders.ours)
    assert again.intent is not None
    assert (again.intent.status, again.is_replay, orders.charged) == ("succeeded", True, 1)


def test_what_was_retrieved_before_a_confirm_is_not_its_answer(orders: Orders) -> None:
    """It shows the decline of the attempt before, and no key says when that was."""
    orders.gateway.retrieve(_intent(orders.ours))
    orders.cross("POST")
    failure = orders.gateway.confirm(orders.ours).failure
    assert failure is not None
    assert failure.kind is ResponseKind.OTHER_OBJECT
    again = orders.gateway.confirm(orders.ours)
    assert again.intent is not None
    assert (again.intent.status, again.is_replay, orders.charged) == ("succeeded", True, 1)


LISTS: dict[str, Callable[[Orders], object]] = {
    "the search": lambda at: at.gateway.find_payment_intents(at.ours.request, now=NOW),
    "the events": lambda at: StripeEvents(at.gateway.client).list_events(since=0, until=2 * NOW, after=None),
    "an event": lambda at: StripeEvents(at.gateway.client).retrieve_event("evt_x"),
    "the refunded amount": lambda at: at.gateway.amount_refunded(_intent(at.ours)),
    "the order of a PaymentIntent": lambda at: at.gateway.order_of(_intent(at.ours)),
    "the refunds": lambda at: StripeRefunds(at.gateway.client).find_refunds(_intent(at.ours), "ref_1"),
}


@pytest.mark.parametrize("before", ["another order's success", "an empty list of another kind"])
@pytest.mark.parametrize("asked", LISTS)
def test_a_list_that_is_another_answer_has_found_nothing_out(orders: Orders, asked: str, before: str) -> None:
    """Not even that it is empty, as a list of other things is."""
    if before == "an empty list of another kind":
        orders.gateway.client.v1.disputes.list()
    else:
        orders.gateway.confirm(orders.other)
    orders.cross("GET")
    with pytest.raises(OtherObject):
        LISTS[asked](orders)


def test_the_list_of_a_lookup_is_not_its_search(orders: Orders) -> None:
    """An empty search result is not taken for the list that was asked for next."""
    orders.admin.settings(search_lag_seconds=3600)
    orders.admin.add_fault(Fault.CROSSED, method="GET", path="/v1/payment_intents")
    with pytest.raises(OtherObject):
        orders.gateway.find_payment_intents(orders.ours.request, now=NOW)


@pytest.mark.parametrize("amount", [100, 5000])
def test_the_answer_to_another_refund_is_none(orders: Orders, amount: int) -> None:
    """Not of its order's other refund either, nor the refusal of one."""
    paid = orders.gateway.confirm(orders.ours).intent
    assert paid is not None
    refunds = StripeRefunds(orders.gateway.client)
    ours = FrozenRefund(orders.ours.request.order_id, "ref_a", 2, 100, "EUR", paid.payment_intent_id, NOW)
    refunds.create(replace(ours, refund_id="ref_b", amount_minor=amount))
    refunded = orders.gateway.amount_refunded(paid.payment_intent_id)
    orders.cross("POST")
    response = refunds.create(ours)
    assert response.failure is not None
    assert (response.failure.kind, response.is_replay) == (ResponseKind.OTHER_OBJECT, False)
    assert refunds.create(ours).refund is not None
    assert orders.gateway.amount_refunded(paid.payment_intent_id) == refunded + 100
