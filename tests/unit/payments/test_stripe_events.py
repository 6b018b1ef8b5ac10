"""What Stripe's events say, page by page, and the newest one that webhooks have delivered."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import stripe
from responses import RequestsMock

from onecharge.payments.disputes import Dispute
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_events import (
    EVENT_TYPES,
    RECEIVED_STEP_SECONDS,
    NewestReceived,
    StripeEvent,
    list_events,
    parse_event,
)
from tests.shop.builders import BOUNDS, ORDER_ID, SHOP, STRIPE_API, T0, intent, metadata, stripe_intent
from tests.shop.shop import Shop


def event(type_: str, thing: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"id": "evt_1", "object": "event", "type": type_, "created": T0, "data": {"object": thing}, **changes}


OURS = {"shop": SHOP, "order_id": ORDER_ID}
PAID = stripe_intent("succeeded")
CHARGE = {"id": "ch_1", "object": "charge", "payment_intent": "pi_1", "amount_refunded": 400, "metadata": metadata()}
DISPUTE = {"id": "dp_1", "object": "dispute", "payment_intent": "pi_1", "status": "lost", "metadata": metadata()}
EVENTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(
        (each, PAID, {**OURS, "intent": intent("succeeded", created=0)})
        for each in EVENT_TYPES
        if each.startswith("payment_intent.")
    ),
    ("charge.refunded", CHARGE, {**OURS, "amount_refunded_minor": 400}),
    ("charge.refunded", {**CHARGE, "payment_intent": {"id": "pi_1"}}, {**OURS, "amount_refunded_minor": 400}),
    # Anyone may write a dispute's metadata: the PaymentIntent says whose it is.
    *((each, DISPUTE, {"dispute": Dispute("dp_1", "lost")}) for each in EVENT_TYPES if "dispute" in each),
    # What is no order id names no order.
    ("payment_intent.succeeded", stripe_intent("succeeded", metadata={}), {}),
    ("payment_intent.succeeded", stripe_intent("succeeded", metadata={**OURS, "order_id": "ord_x"}), {"shop": SHOP}),
]


@pytest.mark.parametrize(("type_", "thing", "says"), EVENTS)
def test_an_event_says_whose_it_is_and_what_it_shows(type_: str, thing: dict[str, Any], says: dict[str, Any]) -> None:
    """A PaymentIntent or a dispute as it was when Stripe created the event, or the sum of refunds."""
    expected = StripeEvent(event_id="evt_1", type=type_, created=T0, payment_intent_id="pi_1", **says)
    assert parse_event(stripe.Event.construct_from(event(type_, thing), None)) == expected


@pytest.mark.parametrize(
    ("type_", "thing", "changes"),
    [
        ("payment_intent.created", stripe_intent(), {}),
        ("payment_intent.succeeded", stripe_intent(), {"account": "acct_connected"}),
        ("charge.refunded", {**CHARGE, "payment_intent": None}, {}),
    ],
)
def test_other_events_are_none_of_ours(type_: str, thing: dict[str, Any], changes: dict[str, Any]) -> None:
    """Another type, a connected account, or a charge without a PaymentIntent."""
    assert parse_event(stripe.Event.construct_from(event(type_, thing, **changes), None)) is None


def test_events_are_listed_page_by_page(http: RequestsMock) -> None:
    """Only the types that concern us are asked for; an event that does not is skipped, and still is the cursor."""
    client = stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS)
    url = f"{STRIPE_API}/v1/events"
    other = event("payment_intent.succeeded", stripe_intent(), id="evt_0", account="acct_connected")
    first = event("payment_intent.succeeded", PAID)
    http.get(url, json={"object": "list", "data": [first, other], "has_more": True})
    http.get(url, json={"object": "list", "data": [], "has_more": False})
    events, cursor = list_events(client, since=T0, until=T0 + 60, after=None)
    assert ([each.event_id for each in events], cursor) == (["evt_1"], "evt_0")
    assert list_events(client, since=T0, until=T0 + 60, after=cursor) == ([], None)
    asked, again = (parse_qs(urlsplit(str(call.request.url)).query) for call in http.calls)
    types = {values[0] for name, values in asked.items() if name.startswith("types[")}
    assert types == {*EVENT_TYPES} - {"payment_intent.requires_action"}
    assert (asked["created[gte]"], asked["created[lt]"]) == ([str(T0)], [str(T0 + 60)])
    assert again == asked | {"starting_after": ["evt_0"]}


def seen_at(created: int) -> StripeEvent:
    return StripeEvent(event_id="evt_1", type="charge.refunded", created=created, payment_intent_id="pi_1")


def test_the_newest_event_is_stored_once_a_minute(shop: Shop) -> None:
    """By each execution environment; an older event, or one that another environment has stored, writes nothing."""
    state, stored = shop.received, []
    newest, another = NewestReceived(state), NewestReceived(state)
    for environment, at in (
        (newest, T0),
        (newest, T0 + RECEIVED_STEP_SECONDS - 1),
        (newest, T0 - 999),
        (newest, T0 + RECEIVED_STEP_SECONDS),
        (another, T0),
        (another, T0 + RECEIVED_STEP_SECONDS),
    ):
        environment.saw(seen_at(at))
        received = state.read()
        assert received is not None
        stored.append((received.newest_event_at - T0, received.version))
    assert stored == [(0, 1)] * 3 + [(RECEIVED_STEP_SECONDS, 2)] * 3
