"""The gateway, Stripe's own client and the stand-in agree, over HTTP: charges, replays, and looks that prove."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.faults import Fault
from local.stripe_standin.server import StandIn, running_standin
from onecharge.events import OrderPlaced, RefundRequested
from onecharge.payments.protocol import Answer, FrozenRequest, Reply
from onecharge.payments.stripe_gateway import LookInconclusive, StripeGateway, stripe_client
from onecharge.payments.time_bounds import (
    ABSENCE_GRACE_SECONDS,
    CLOCK_DIFFERENCE_SECONDS,
    SEARCH_LAG_SECONDS,
    TimeBounds,
)
from refund_charge.protocol import FrozenRefund
from refund_charge.stripe_refunds import StripeRefunds
from tests.simulation.dynamodb import NoFaults
from tests.simulation.stripe import MemoryStripe, stripe_in_memory


def request_for(order: str = "a", **changes: Any) -> FrozenRequest:
    placed = {
        "order_id": f"ord_{order * 32}",
        "attempt": 1,
        "customer_id": "cus_1",
        "amount_minor": 1099,
        "currency": "EUR",
        "payment_method": "pm_card_visa",
        "placed_at": datetime(2026, 11, 1, tzinfo=UTC),
        **changes,
    }
    return FrozenRequest.of(OrderPlaced.model_validate(placed))


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with running_standin() as standin:
        yield standin


@pytest.fixture
def admin(standin: StandIn) -> StandInAdmin:
    return StandInAdmin(standin.base_url)


@pytest.fixture
def gateway(standin: StandIn) -> StripeGateway:
    return StripeGateway(stripe_client("sk_test_x", api_base=standin.base_url, bounds=TimeBounds.of(12)))


def look(gateway: StripeGateway, request: FrozenRequest, *, age_seconds: int = 60) -> list[str]:
    now = int(time.time())
    found = gateway.look(request, placed_at=now - age_seconds, appears_until=now + age_seconds, now=now)
    return [f"{intent.status} {intent.amount_minor} {intent.currency}" for intent in found]


@pytest.mark.parametrize(
    ("payment_method", "answer", "code"),
    [
        ("pm_card_visa", Answer.SUCCEEDED, None),
        ("pm_card_visa_chargeDeclinedInsufficientFunds", Answer.DECLINED, "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", Answer.DECLINED, "expired_card"),
        ("pm_card_threeDSecure2Required", Answer.REQUIRES_ACTION, None),
        ("pm_unknown", Answer.REFUSED, "resource_missing"),
    ],
)
def test_each_kind_of_card(gateway: StripeGateway, payment_method: str, answer: Answer, code: str | None) -> None:
    """And the same answer when it is asked again under the same key."""
    request = request_for(payment_method=payment_method)
    first, again = gateway.charge(request, "charge:1"), gateway.charge(request, "charge:1")
    assert first == again
    assert (first.answer, first.code) == (answer, code)


def test_one_key_makes_one_charge_however_the_first_answer_was_lost(
    gateway: StripeGateway, admin: StandInAdmin
) -> None:
    """The SDK's retry and ours both replay it."""
    admin.add_fault(Fault.DROP_AFTER)
    assert gateway.charge(request_for(), "charge:1").answer is Answer.SUCCEEDED
    assert gateway.charge(request_for(), "charge:1").answer is Answer.SUCCEEDED
    assert len(admin.ledger().charges) == 1


def test_another_request_under_the_same_key_is_seen(gateway: StripeGateway) -> None:
    """It is neither charged nor taken for a decline."""
    gateway.charge(request_for(), "charge:1")
    assert gateway.charge(request_for(amount_minor=1), "charge:1") == Reply(Answer.OTHER_REQUEST)


def test_a_key_in_use_is_no_answer_yet(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """Ten at once under one key: one charges, the others are told to come back or get the replay."""
    admin.settings(latency_seconds=1)
    barrier = threading.Barrier(10)

    def charge() -> Answer:
        barrier.wait()
        return gateway.charge(request_for(), "charge:1").answer

    with ThreadPoolExecutor(10) as threads:
        answers = [future.result() for future in [threads.submit(charge) for _ in range(10)]]
    assert set(answers) <= {Answer.SUCCEEDED, Answer.KEY_IN_USE}
    assert Answer.SUCCEEDED in answers
    assert len(admin.ledger().charges) == 1


def test_a_500_is_told_apart(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """The look finds what it hid."""
    admin.add_fault(Fault.ERROR_500_AFTER)
    assert gateway.charge(request_for(), "charge:1") == Reply(Answer.SERVER_ERROR)
    assert look(gateway, request_for()) == ["succeeded 1099 EUR"]


def test_a_wrong_api_key_is_told_apart(standin: StandIn) -> None:
    """Ours to mend: no order is failed for it."""
    gateway = StripeGateway(stripe_client("pk_wrong", api_base=standin.base_url, bounds=TimeBounds.of(12)))
    assert gateway.charge(request_for(), "charge:1") == Reply(Answer.BAD_API_KEY)


def test_a_look_finds_what_search_does_not_show_yet(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """In the list, among others, over several pages."""
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    gateway.charge(request_for("a"), "charge:a")
    for number in range(120):
        gateway.charge(request_for("b"), f"charge:b{number}")
    assert look(gateway, request_for("a")) == ["succeeded 1099 EUR"]


def test_a_look_finds_by_search_what_is_old(gateway: StripeGateway, admin: StandInAdmin, standin: StandIn) -> None:
    """Thirteen days later, without reading any list."""
    gateway.charge(request_for(), "charge:1")
    admin.advance_clock(13 * 24 * 3600)
    assert look(gateway, request_for(), age_seconds=0) == ["succeeded 1099 EUR"]


def test_once_nothing_of_ours_can_appear_search_alone_is_proof(
    gateway: StripeGateway, admin: StandInAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much else is charged: no list is read, which a busy shop's would be too long for."""
    monkeypatch.setattr("onecharge.payments.stripe_gateway._LIST_PAGES_MAX", 0)
    gateway.charge(request_for("b"), "charge:b")
    now = int(time.time())
    long_ago = now - SEARCH_LAG_SECONDS - ABSENCE_GRACE_SECONDS - 2 * CLOCK_DIFFERENCE_SECONDS - 1
    assert gateway.look(request_for("a"), placed_at=long_ago, appears_until=long_ago, now=now) == []


def test_a_look_finds_all_that_there_is(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """What search shows, and what only the list shows yet: two of one attempt are seen as two."""
    gateway.charge(request_for(), "charge:1")
    admin.advance_clock(600)
    admin.settings(search_lag_seconds=300)
    gateway.charge(request_for(), "charge:2")
    now = int(time.time()) + 600
    found = gateway.look(request_for(), placed_at=now - 900, appears_until=now, now=now)
    assert len(found) == 2


def test_a_look_that_finds_nothing_says_so(gateway: StripeGateway) -> None:
    """Neither another order nor another attempt counts."""
    gateway.charge(request_for("b"), "charge:b")
    gateway.charge(request_for("a", attempt=2), "charge:a2")
    assert look(gateway, request_for("a")) == []


def test_a_list_too_long_to_read_proves_nothing(
    gateway: StripeGateway, admin: StandInAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absence is claimed only after the whole list was read."""
    monkeypatch.setattr("onecharge.payments.stripe_gateway._LIST_PAGES_MAX", 1)
    admin.settings(search_lag_seconds=SEARCH_LAG_SECONDS)
    for number in range(101):
        gateway.charge(request_for("b"), f"charge:b{number}")
    with pytest.raises(LookInconclusive):
        look(gateway, request_for("a"))


def test_an_unconfirmed_payment_intent_is_confirmed_once(gateway: StripeGateway, admin: StandInAdmin) -> None:
    """However often that is asked."""
    intent = gateway.client.v1.payment_intents.create(
        {"amount": 1099, "currency": "eur", "payment_method": "pm_card_visa", "allowed_payment_method_types": ["card"]}
    )
    replies = {gateway.confirm(request_for(), intent.id) for _ in range(3)}
    assert replies == {Reply(Answer.SUCCEEDED, intent.id)}
    assert len(admin.ledger().charges) == 1


def told(gateway: StripeGateway, *, since: int, until: int) -> list[tuple[str, int, str, bool]]:
    """What events tell, oldest first, read to the end."""
    seen, after = [], None
    while True:
        page = gateway.told(since=since, until=until, after=after)
        seen += [(each.order_id, each.attempt, each.intent.status, each.intent.was_declined) for each in page.told]
        after = page.next
        if after is None:
            return seen[::-1]


def test_events_tell_of_every_charge_of_ours(
    gateway: StripeGateway, admin: StandInAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page, within the time that was asked for; not of PaymentIntents that others have made."""
    monkeypatch.setattr("onecharge.payments.stripe_gateway._PAGE_SIZE", 2)
    now = int(time.time())
    gateway.client.v1.payment_intents.create(
        {
            "amount": 50,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "confirm": True,
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        }
    )
    for number in range(3):
        gateway.charge(request_for("a", attempt=number + 1), f"charge:{number}")
    gateway.charge(request_for("b", payment_method="pm_card_visa_chargeDeclined"), "charge:b")
    a, b = (request_for(order).order_id for order in "ab")
    expected = [(a, 1, "succeeded", False), (a, 2, "succeeded", False), (a, 3, "succeeded", False)]
    assert told(gateway, since=now - 60, until=now + 60) == [*expected, (b, 1, "requires_payment_method", True)]
    assert told(gateway, since=now - 60, until=now - 30) == []


def test_a_canceled_payment_intent_can_succeed_no_more(gateway: StripeGateway) -> None:
    """Canceling it again changes nothing, and one that has succeeded says so instead."""
    waiting = gateway.charge(request_for(payment_method="pm_card_threeDSecure2Required"), "charge:1").payment_intent_id
    paid = gateway.charge(request_for("b"), "charge:2").payment_intent_id
    assert waiting
    assert paid
    assert [gateway.cancel(waiting).status for _ in range(2)] == ["canceled", "canceled"]
    assert gateway.confirm(request_for(), waiting).answer is Answer.REFUSED
    assert gateway.cancel(paid).status == "succeeded"


def test_a_payment_intent_that_stripe_does_not_know(gateway: StripeGateway) -> None:
    """Is None, and no error."""
    assert gateway.retrieve("pi_unknown") is None
    assert gateway.whose("pi_unknown") is None


def test_a_payment_intent_names_its_order(gateway: StripeGateway) -> None:
    """As the events about its charge do not."""
    request = request_for(attempt=3)
    intent_id = gateway.charge(request, "charge:1").payment_intent_id
    assert intent_id
    assert gateway.whose(intent_id) == (request.order_id, 3)


def script(gateway: Any) -> list[Any]:
    """What a gateway answers to a number of requests that depend on each other."""
    cards = {"b": "pm_card_visa_chargeDeclined", "c": "pm_card_threeDSecure2Required"}
    others = [request_for(order, payment_method=card) for order, card in cards.items()]
    sent = [request_for("a"), request_for("a"), request_for("a", amount_minor=1), *others, *others, request_for("d")]
    answers = [gateway.charge(request, f"charge:{request.order_id}").answer for request in sent]
    now = int(time.time())
    looks = [
        [
            (intent.status, intent.amount_minor, intent.was_declined)
            for intent in gateway.look(request, placed_at=now - 60, appears_until=now + 60, now=now)
        ]
        for request in (*sent, request_for("e"), request_for("a", attempt=2))
    ]
    return [answers, looks, told(gateway, since=now - 60, until=now + 60), gateway.retrieve("pi_unknown")]


def test_the_stripe_in_memory_answers_as_the_stand_in_does(gateway: StripeGateway) -> None:
    """The simulation stands on it: charges, replays, other requests, declines, 3-D Secure, looks."""
    in_memory = MemoryStripe(io=NoFaults(int(time.time())))
    assert script(StripeGateway(stripe_in_memory(in_memory))) == script(gateway)


def refund_of(payment_intent_id: str | None, refund: str, amount_minor: int) -> FrozenRefund:
    requested = {
        "order_id": f"ord_{'a' * 32}",
        "refund_id": f"rfd_{refund * 32}",
        "attempt": 1,
        "amount_minor": amount_minor,
        "currency": "EUR",
        "requested_at": datetime(2026, 11, 1, tzinfo=UTC),
    }
    return FrozenRefund.of(RefundRequested.model_validate(requested), payment_intent_id or "")


def refund_script(gateway: StripeGateway) -> list[Any]:
    """What Stripe answers to refunds, replays, refunds of too much; and what a look finds."""
    refunds = StripeRefunds(gateway.client)
    paid = gateway.charge(request_for("a"), "charge:a").payment_intent_id
    waiting = gateway.charge(request_for("b", payment_method="pm_card_threeDSecure2Required"), "charge:b")
    part, rest = refund_of(paid, "a", 1000), refund_of(paid, "b", 99)
    sent = [
        (part, "refund:a"),
        (part, "refund:a"),
        (refund_of(paid, "a", 1), "refund:a"),
        (refund_of(paid, "c", 100), "refund:c"),
        (rest, "refund:b"),
        (refund_of(paid, "d", 1), "refund:d"),
        (refund_of(waiting.payment_intent_id, "e", 1), "refund:e"),
        (refund_of("pi_unknown", "f", 1), "refund:f"),
    ]
    replies = [refunds.refund(request, key) for request, key in sent]
    looks = [[(each.status, each.amount_minor, each.currency) for each in refunds.look(of)] for of, _ in sent[:5]]
    return [[(reply.answer, reply.code, reply.stripe_refund_id is not None) for reply in replies], looks]


def test_refunds_in_memory_are_answered_as_the_stand_in_answers_them(gateway: StripeGateway) -> None:
    """Once under each key, never more than was paid; a look finds what carries the refund's id, and nothing else."""
    answers, looks = refund_script(gateway)
    made, refused = (Answer.SUCCEEDED, None, True), (Answer.REFUSED, None, False)
    already = (Answer.REFUSED, "charge_already_refunded", False)
    unknown = (Answer.REFUSED, "resource_missing", False)
    assert answers == [made, made, (Answer.OTHER_REQUEST, None, False), refused, made, already, refused, unknown]
    assert looks == [[("succeeded", 1000, "EUR")]] * 3 + [[], [("succeeded", 99, "EUR")]]
    assert refund_script(StripeGateway(stripe_in_memory(MemoryStripe(io=NoFaults(int(time.time())))))) == [
        answers,
        looks,
    ]


def test_a_look_for_a_refund_reads_every_page(gateway: StripeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of many is found; a list too long to read proves nothing."""
    refunds = StripeRefunds(gateway.client)
    paid = gateway.charge(request_for("a"), "charge:a").payment_intent_id
    oldest = refund_of(paid, "a", 1)
    for refund in "abcde":
        refunds.refund(refund_of(paid, refund, 1), f"refund:{refund}")
    monkeypatch.setattr("refund_charge.stripe_refunds._PAGE_SIZE", 2)
    assert len(refunds.look(oldest)) == 1
    monkeypatch.setattr("refund_charge.stripe_refunds._PAGES_MAX", 2)
    with pytest.raises(LookInconclusive):
        refunds.look(oldest)
