"""The refunds' gateway, Stripe's client and the stand-in agree, over HTTP; the simulation's Stripe answers alike."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.faults import Fault
from local.stripe_standin.server import running_standin
from onecharge.payments.charges.gateway import LookupInconclusive, stripe_client
from onecharge.payments.refunds import gateway as stripe_refunds
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import FrozenRefund, RefundResponseKind, kind_of
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.payments.time_bounds import TimeBounds
from testing.simulation.dynamodb import NoFaults
from testing.simulation.refunds import AMOUNT_MINOR, ORDER_ID, MemoryRefunds


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
def refunds(url: str, admin: StandInAdmin) -> StripeRefunds:
    return StripeRefunds(stripe_client("sk_test_x", api_base=url, bounds=TimeBounds.of(12)))


@pytest.fixture
def paid(refunds: StripeRefunds) -> str:
    """A PaymentIntent that succeeded."""
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


def script(refunds: StripeRefunds, payment_intent_id: str) -> list[Any]:
    """What Stripe answers to refunds, replays, refunds of too much; and what a lookup finds."""
    part, rest = refund_of(payment_intent_id, "a", 1000), refund_of(payment_intent_id, "b", 99)
    other = refund_of(payment_intent_id, "a", 1)
    answers: list[Any] = []
    too_much, nothing_left = refund_of(payment_intent_id, "c", 100), refund_of(payment_intent_id, "d", 1)
    for request in (part, part, other, too_much, rest, nothing_left):
        response = refunds.create(request)
        kind = kind_of(response.failure) if response.failure else None
        answers.append((kind, response.refund is not None, response.is_replay))
    found = [refunds.find_refunds(payment_intent_id, each.refund_id) for each in (part, rest, nothing_left)]
    return [answers, [[(each.amount_minor, each.currency, each.attempt) for each in every] for every in found]]


def test_refunds_replays_and_refusals(refunds: StripeRefunds, paid: str) -> None:
    """Once under each key, never more than was paid; a lookup finds what carries the refund's id, and nothing else."""
    refused = (RefundResponseKind.REFUSED, False, False)
    made, replayed = (None, True, False), (None, True, True)
    answers, found = script(refunds, paid)
    assert answers == [made, replayed, (RefundResponseKind.KEY_SPENT, False, False), refused, made, refused]
    assert found == [[(1000, "EUR", 1)], [(99, "EUR", 1)], []]
    memory = MemoryRefunds(NoFaults(int(time.time())))
    assert script(StripeRefunds(memory.client()), "pi_1") == [answers, found]


def test_a_refund_of_an_unknown_payment_intent_is_no_refusal(refunds: StripeRefunds) -> None:
    """The secret may be another account's."""
    failure = refunds.create(refund_of("pi_unknown", "a", 1)).failure
    assert failure
    assert (failure.kind, kind_of(failure)) == (ResponseKind.NOT_FOUND, RefundResponseKind.ACCOUNT)


def test_a_refund_is_sent_once(refunds: StripeRefunds, paid: str, admin: StandInAdmin) -> None:
    """The SDK does not send it again, so that every answer is seen; the next request gets the stored one."""
    admin.add_fault(Fault.ERROR_500_AFTER, path="/v1/refunds")
    request = refund_of(paid, "a", 1)
    first, second = refunds.create(request), refunds.create(request)
    assert first.failure
    assert second.failure
    assert (first.failure.kind, second.failure.kind) == (ResponseKind.RETRYABLE, ResponseKind.STORED_FAILURE)
    assert len(refunds.find_refunds(paid, request.refund_id)) == 1


def test_a_lookup_reads_every_page(refunds: StripeRefunds, paid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of many is found; a list too long to read proves nothing."""
    for refund in "abcde":
        refunds.create(refund_of(paid, refund, 1))
    monkeypatch.setattr(stripe_refunds, "_PAGE_SIZE", 2)
    assert len(refunds.find_refunds(paid, "rfd_" + "a" * 32)) == 1
    monkeypatch.setattr(stripe_refunds, "_LIST_PAGES_MAX", 2)
    with pytest.raises(LookupInconclusive):
        refunds.find_refunds(paid, "rfd_" + "a" * 32)
