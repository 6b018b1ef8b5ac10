"""The gateway's refunds with Stripe's client and the stand-in; the shop's client shows the same."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from onecharge.payments import stripe_gateway
from onecharge.payments.refund_rules import FrozenRefund
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind
from stripe_standin.admin import StandInAdmin
from stripe_standin.faults import Fault
from stripe_standin.server import running_standin
from tests.shop.builders import AMOUNT_MINOR, ORDER_ID, PATIENT, PAYMENT_INTENT, charged
from tests.shop.dynamodb import NoFaults
from tests.shop.stripe import ShopStripe, client_of


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


@pytest.fixture
def admin(url: str) -> Iterator[StandInAdmin]:
    admin = StandInAdmin(url)
    yield admin
    admin.reset()


@pytest.fixture
def refunds(url: str, admin: StandInAdmin) -> StripeGateway:
    return StripeGateway(stripe_client("sk_test_x", api_base=url, bounds=PATIENT))


@pytest.fixture
def paid(refunds: StripeGateway) -> str:
    """The id of a PaymentIntent that succeeded."""
    intent = refunds.client.v1.payment_intents.create(
        {
            "amount": AMOUNT_MINOR,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "confirm": True,
            "return_url": "https://shop.example/",
        }
    )
    assert intent.status == "succeeded"
    return intent.id


def refund_of(payment_intent_id: str, refund: str, amount_minor: int) -> FrozenRefund:
    return FrozenRefund(ORDER_ID, f"rfd_{refund * 32}", 1, amount_minor, "EUR", payment_intent_id, 0)


def script(refunds: StripeGateway, payment_intent_id: str) -> list[Any]:
    """Send refunds, a replay, and refunds of too much; returns the responses and what lookups find."""
    part, rest = refund_of(payment_intent_id, "a", 1000), refund_of(payment_intent_id, "b", 99)
    other = refund_of(payment_intent_id, "a", 1)
    results: list[Any] = []
    too_much, nothing_left = refund_of(payment_intent_id, "c", 100), refund_of(payment_intent_id, "d", 1)
    for request in (part, part, other, too_much, rest, nothing_left):
        response = refunds.create_refund(request)
        kind = response.failure.kind if response.failure else None
        results.append((kind, response.found is not None, response.is_replay))
    found = [refunds.find_refunds(payment_intent_id, each.refund_id) for each in (part, rest, nothing_left)]
    return [results, [[(each.amount_minor, each.currency, each.attempt) for each in every] for every in found]]


def test_refunds_replays_and_refusals(refunds: StripeGateway, paid: str) -> None:
    """One refund for each key, never more than was paid; a lookup finds only refunds with the refund's id."""
    refused = (ResponseKind.REFUND_REFUSED, False, False)
    created, replayed = (None, True, False), (None, True, True)
    results, found = script(refunds, paid)
    assert results == [created, replayed, (ResponseKind.OTHER_PARAMETERS, False, False), refused, created, refused]
    assert found == [[(1000, "EUR", 1)], [(99, "EUR", 1)], []]
    memory = client_of(charged(ShopStripe(NoFaults(int(time.time())))))
    assert script(StripeGateway(memory), PAYMENT_INTENT) == [results, found]


def test_an_unknown_payment_intent_is_an_account_error(refunds: StripeGateway) -> None:
    """The API key may belong to another account, so the refund is not refused."""
    failure = refunds.create_refund(refund_of("pi_unknown", "a", 1)).failure
    assert failure
    assert failure.kind is ResponseKind.NOT_FOUND


def test_the_sdk_does_not_retry_a_refund(refunds: StripeGateway, paid: str, admin: StandInAdmin) -> None:
    """So the gateway sees every response; the next request gets the stored one."""
    admin.add_fault(Fault.ERROR_500_AFTER, path="/v1/refunds")
    request = refund_of(paid, "a", 1)
    first, second = refunds.create_refund(request), refunds.create_refund(request)
    assert first.failure
    assert second.failure
    assert (first.failure.kind, second.failure.kind) == (ResponseKind.RETRYABLE, ResponseKind.STORED_FAILURE)
    assert len(refunds.find_refunds(paid, request.refund_id)) == 1


def test_a_lookup_reads_every_page(refunds: StripeGateway, paid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the oldest refund; a list with too many pages is inconclusive."""
    for refund in "abcde":
        refunds.create_refund(refund_of(paid, refund, 1))
    monkeypatch.setattr(stripe_gateway, "_PAGE_SIZE", 2)
    assert len(refunds.find_refunds(paid, "rfd_" + "a" * 32)) == 1
    monkeypatch.setattr(stripe_gateway, "_PAGES_MAX", 2)
    with pytest.raises(LookupInconclusive):
        refunds.find_refunds(paid, "rfd_" + "a" * 32)
