"""The gateway with Stripe's client and the stand-in: one charge for each PaymentIntent, complete lookups."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import stripe

from onecharge.payments.charge_rules import FrozenRequest, Payment, StripeIntent
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_events import list_events, retrieve_event
from onecharge.payments.stripe_gateway import (
    WINDOW_PARTS,
    StripeGateway,
    StripeResponse,
    parts_of,
)
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind
from onecharge.payments.time_bounds import SEARCH_LAG_SECONDS
from onecharge.runtime.parallel import Threads
from stripe_standin.admin import StandInAdmin
from stripe_standin.faults import Fault
from stripe_standin.server import StandIn, running_standin
from tests.shop.builders import PATIENT, REQUEST, payment

CONFIRM = "/v1/payment_intents/*/confirm"
NOW = int(time.time())


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with running_standin() as standin:
        yield standin


@pytest.fixture
def admin(standin: StandIn) -> StandInAdmin:
    return StandInAdmin(standin.base_url)


@pytest.fixture
def gateway(standin: StandIn) -> StripeGateway:
    return StripeGateway(stripe_client("sk_test_x", api_base=standin.base_url, bounds=PATIENT))


def request_for(order: str = "a", *, age_seconds: int = 60) -> FrozenRequest:
    return replace(REQUEST, order_id=f"ord_{order * 32}", placed_at=NOW - age_seconds)


def created(gateway: StripeGateway, request: FrozenRequest, generation: int = 0) -> str:
    intent = gateway.create(request, generation).found
    assert intent is not None
    return intent.payment_intent_id


def claimed(gateway: StripeGateway, payment_method: str = "pm_card_visa", order: str = "a") -> Payment:
    """A claimed row with a PaymentIntent at the stand-in."""
    request = request_for(order)
    return payment(request=request, payment_method=payment_method, payment_intent_id=created(gateway, request))


def kind_of(response: StripeResponse[StripeIntent]) -> ResponseKind | str:
    """The kind of failure, or the PaymentIntent's status."""
    if response.failure is not None:
        return response.failure.kind
    assert response.found is not None
    return response.found.status


@pytest.mark.parametrize(
    ("payment_method", "kind", "code"),
    [
        ("pm_card_visa", "succeeded", None),
        ("pm_card_threeDSecure2Required", "requires_action", None),
        ("pm_card_visa_chargeDeclinedInsufficientFunds", ResponseKind.DECLINED, "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", ResponseKind.DECLINED, "expired_card"),
        ("pm_unknown", ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_unknown"),
    ],
)
def test_confirm_classifies_the_response_for_each_card(
    gateway: StripeGateway, payment_method: str, kind: ResponseKind | str, code: str | None
) -> None:
    """A second confirm gets the same response as a replay."""
    row = claimed(gateway, payment_method)
    first, again = gateway.confirm(row), gateway.confirm(row)
    assert kind_of(first) == kind_of(again) == kind
    assert (first.failure.code if first.failure else None) == code
    assert (first.is_replay, again.is_replay) == (False, True)


def test_the_latest_charge_tells_a_decline_whose_error_an_update_has_cleared(gateway: StripeGateway) -> None:
    """Its code is the decline's. The same of a PaymentIntent that no confirm has failed on is none."""
    row = claimed(gateway, "pm_card_visa_chargeDeclinedInsufficientFunds")
    intent_id = str(row.payment_intent_id)
    gateway.confirm(row)
    gateway.client.v1.payment_intents.update(intent_id, {"metadata": {"seen_by": "a person"}})
    declined, fresh = gateway.retrieve(intent_id).found, gateway.retrieve(created(gateway, request_for("b"))).found
    assert declined
    assert fresh
    assert declined.latest_charge
    assert (declined.status, declined.error_code) == ("requires_payment_method", "insufficient_funds")
    assert (fresh.status, fresh.error_code) == ("requires_payment_method", None)


def test_a_confirm_with_a_lost_response_charges_once(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """The SDK's retry and ours get the stored response."""
    row = claimed(gateway)
    admin.add_fault(Fault.DROP_AFTER, path=CONFIRM)
    assert [kind_of(gateway.confirm(row)) for _ in range(2)] == ["succeeded"] * 2
    assert len(admin.ledger().charges) == 1


def test_concurrent_confirms_charge_once(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """One charges; the nine others are retryable or get the stored response."""
    row = claimed(gateway)
    admin.settings(latency_seconds=1)
    barrier = threading.Barrier(10)

    def confirm() -> ResponseKind | str:
        barrier.wait()
        return kind_of(gateway.confirm(row))

    with ThreadPoolExecutor(10) as threads:
        kinds = [future.result() for future in [threads.submit(confirm) for _ in range(10)]]
    assert set(kinds) <= {"succeeded", ResponseKind.RETRYABLE}
    assert "succeeded" in kinds
    assert len(admin.ledger().charges) == 1


# ---------------------------------------------------------------- lookups


def found(gateway: StripeGateway, request: FrozenRequest, *, now: int = NOW) -> set[str]:
    return {intent.payment_intent_id for intent in gateway.find_payment_intents(request, now=now)}


def test_a_lookup_finds_what_search_does_not_return_yet(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """The list has it, on several pages."""
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    own = {created(gateway, request_for("a"), generation) for generation in range(2)}
    for number in range(120):
        created(gateway, request_for("b"), number)
    assert found(gateway, request_for("a")) == own


def test_an_account_without_search_is_listed_from_the_orders_time_on(
    gateway: StripeGateway, admin: StandInAdmin
) -> None:
    """Thirteen days later, all of it: accounts in India have no search."""
    admin.settings(has_search=False)
    own = created(gateway, request_for("a"))
    for number in range(120):
        created(gateway, request_for("b"), number)
    admin.advance_clock(13 * 24 * 3600)
    assert found(gateway, request_for("a"), now=NOW + 13 * 24 * 3600) == {own}


def test_without_search_nothing_is_known_of_an_order_that_was_placed_again(
    gateway: StripeGateway, admin: StandInAdmin
) -> None:
    """Its PaymentIntents may be older than its time: a list from there on would miss the one that was charged."""
    admin.settings(has_search=False)
    with pytest.raises(LookupInconclusive):
        gateway.find_payment_intents(request_for("a"), now=NOW, is_time_known=False)


def test_a_lookup_lists_the_last_hour_also_of_an_order_that_is_younger(
    gateway: StripeGateway, admin: StandInAdmin
) -> None:
    """Its time is our clock's, which may be ahead of Stripe's; and new, if it was lost and placed again."""
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    own = created(gateway, request_for("a"))
    admin.advance_clock(2400)
    ahead = NOW + 2400 + 3300
    assert found(gateway, replace(request_for("a"), placed_at=ahead), now=ahead) == {own}


def test_an_account_without_card_payments_is_told_by_the_payment_intent(
    gateway: StripeGateway, admin: StandInAdmin
) -> None:
    """Stripe filters cards out silently, and refuses each confirm."""
    admin.settings(takes_cards=False)
    intent = gateway.create(request_for(), 0).found
    assert intent
    assert not intent.takes_cards
    response = gateway.confirm(payment(request=request_for(), payment_intent_id=intent.payment_intent_id))
    assert kind_of(response) is ResponseKind.PAYMENT_METHOD_REFUSED


def test_a_lookup_combines_search_and_list(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """One PaymentIntent found by search, another in the list."""
    old = created(gateway, request_for())
    admin.advance_clock(3 * SEARCH_LAG_SECONDS)
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    young = created(gateway, request_for(), generation=1)
    assert found(gateway, request_for(), now=NOW + 3 * SEARCH_LAG_SECONDS) == {old, young}


def test_a_lookup_returns_the_current_status(gateway: StripeGateway) -> None:
    """Search may return a stale one."""
    row = claimed(gateway)
    gateway.confirm(row)
    assert [intent.status for intent in gateway.find_payment_intents(row.request, now=NOW)] == ["succeeded"]


def test_a_lookup_lists_a_window_of_many_pages_in_parts(
    gateway: StripeGateway, admin: StandInAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parallel, by time: the order's PaymentIntents are found anywhere in the window, each once."""
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    own = set()
    for number in range(40):
        if number % 4 == 0:
            own.add(created(gateway, request_for("a"), number))
        created(gateway, request_for("b"), number)
        admin.advance_clock(number % 3 * 40)
    monkeypatch.setattr("onecharge.payments.stripe_gateway._PAGE_SIZE", 3)
    paged = replace(gateway, parallel=Threads(WINDOW_PARTS))
    assert found(paged, request_for("a"), now=NOW + 1600) == own


def test_the_parts_of_a_window_have_no_gaps() -> None:
    """Each second is in exactly one of them."""
    for since, until in [(0, 0), (9, 3), (0, 1), (5, 8), (100, 108), (100, 109), (0, 7200), (7, 100_000)]:
        parts = parts_of(since, until, WINDOW_PARTS)
        seconds = [second for begin, end in parts for second in range(begin, end)]
        assert (seconds, len(parts) <= WINDOW_PARTS) == (list(range(since, until)), True)


@pytest.mark.parametrize("pages_in_time", [0, 1, 2])
def test_a_lookup_that_runs_out_of_time_is_inconclusive(
    gateway: StripeGateway, admin: StandInAdmin, pages_in_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not matter what it has read by then."""
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    created(gateway, request_for("a"))
    for number in range(10):
        created(gateway, request_for("b"), number)
    left = iter([True] * pages_in_time)
    monkeypatch.setattr("onecharge.payments.stripe_gateway._PAGE_SIZE", 2)
    with pytest.raises(LookupInconclusive):
        gateway.find_payment_intents(request_for("a"), now=NOW, has_time=lambda: next(left, False))


def test_a_lookup_is_bounded(gateway: StripeGateway, admin: StandInAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list with more pages than it may read is inconclusive."""
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    for number in range(10):
        created(gateway, request_for("b"), number)
    monkeypatch.setattr("onecharge.payments.stripe_gateway._PAGE_SIZE", 2)
    assert found(gateway, request_for("a")) == set()
    monkeypatch.setattr("onecharge.payments.stripe_gateway._LIST_PAGES_MAX", 1)
    with pytest.raises(LookupInconclusive):
        found(gateway, request_for("a"))


# ---------------------------------------------------------------- events


def listed(gateway: StripeGateway, *, since: int, until: int) -> list[tuple[str | None, str]]:
    """Order ids and statuses of all events, oldest first."""
    seen: list[tuple[str | None, str]] = []
    after = None
    while True:
        page = list_events(gateway.client, since=since, until=until, after=after)
        seen += [(each.order_id, each.intent.status) for each in page.events if each.intent]
        after = page.next
        if after is None:
            return seen[::-1]


def test_events_are_listed_page_by_page(gateway: StripeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of our PaymentIntents within the given time; others in the account are omitted."""
    monkeypatch.setattr("onecharge.payments.stripe_events._PAGE_SIZE", 2)
    other = gateway.client.v1.payment_intents.create({"amount": 100, "currency": "eur"})
    gateway.client.v1.payment_intents.cancel(other.id)
    for order in "abc":
        gateway.confirm(claimed(gateway, order=order))
    gateway.confirm(claimed(gateway, "pm_card_visa_chargeDeclined", order="d"))
    expected = [(request_for(order).order_id, "succeeded") for order in "abc"]
    now = int(time.time())
    assert listed(gateway, since=now - 300, until=now + 60) == [
        *expected,
        (request_for("d").order_id, "requires_payment_method"),
    ]
    assert listed(gateway, since=now - 3600, until=now - 1800) == []


def test_events_of_charges_are_listed_and_retrieved(gateway: StripeGateway) -> None:
    """For a refund in the Dashboard the newest event is the charge's, with the order's id in its metadata."""
    now = int(time.time())
    row = claimed(gateway)
    gateway.confirm(row)
    gateway.client.v1.refunds.create({"payment_intent": str(row.payment_intent_id), "amount": 100})
    newest = list_events(gateway.client, since=now - 300, until=now + 60, after=None).events[0]
    assert newest is not None
    assert (newest.order_id, newest.payment_intent_id) == (row.request.order_id, row.payment_intent_id)
    assert newest.amount_refunded_minor == gateway.amount_refunded(str(row.payment_intent_id)) == 100
    assert retrieve_event(gateway.client, newest.event_id) == newest
    with pytest.raises(stripe.InvalidRequestError):
        retrieve_event(gateway.client, "evt_unknown")
