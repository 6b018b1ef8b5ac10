"""PaymentIntents with Stripe's client and the stand-in over HTTP: one charge, under each answer."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from onecharge.payments.payment_intents import PaymentIntents, Response
from onecharge.payments.rows import Payment
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import ResponseKind
from stripe_standin.admin import StandInAdmin
from stripe_standin.faults import Fault
from stripe_standin.server import running_standin
from tests.shop.builders import PATIENT, REQUEST, SHOP, payment

CONFIRM = "/v1/payment_intents/*/confirm"
NO_FUNDS = "pm_card_visa_chargeDeclinedInsufficientFunds"


@pytest.fixture
def url() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


@pytest.fixture
def admin(url: str) -> StandInAdmin:
    return StandInAdmin(url)


@pytest.fixture
def intents(url: str) -> PaymentIntents:
    return PaymentIntents(stripe_client("sk_test_x", api_base=url, bounds=PATIENT), SHOP)


def claimed(intents: PaymentIntents, card: str = "pm_card_visa", order: str = "a") -> Payment:
    """A claimed row with a PaymentIntent at the stand-in."""
    request = replace(REQUEST, order_id=f"ord_{order * 32}", placed_at=int(time.time()))
    row = payment(request=request, payment_method=card, payment_intent_id=None)
    made = intents.create(row, 0)
    assert made.intent is not None
    assert intents.create(row, 0) == replace(made, is_replay=True)
    return replace(row, payment_intent_id=made.intent.payment_intent_id)


def kind_of(response: Response) -> str:
    """The kind of failure, or the PaymentIntent's status."""
    if response.failure is not None:
        return response.failure.kind
    assert response.intent is not None
    return response.intent.status


@pytest.mark.parametrize(
    ("card", "kind", "code"),
    [
        ("pm_card_visa", "succeeded", None),
        ("pm_card_threeDSecure2Required", "requires_action", None),
        (NO_FUNDS, ResponseKind.DECLINED, "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", ResponseKind.DECLINED, "expired_card"),
        ("pm_unknown", ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_unknown"),
    ],
)
def test_each_card_has_its_answer(intents: PaymentIntents, card: str, kind: str, code: str | None) -> None:
    """A second confirm gets the same response as a replay."""
    row = claimed(intents, card)
    first, again = intents.confirm(row), intents.confirm(row)
    assert kind_of(first) == kind_of(again) == kind
    assert (first.failure.code if first.failure else None) == code
    assert (first.is_replay, again.is_replay) == (False, True)


def test_a_confirm_with_a_lost_response_charges_once(intents: PaymentIntents, admin: StandInAdmin) -> None:
    """The SDK's retry and ours get the stored response."""
    row = claimed(intents)
    admin.add_fault(Fault.DROP_AFTER, path=CONFIRM)
    assert [kind_of(intents.confirm(row)) for _ in range(2)] == ["succeeded"] * 2
    assert len(admin.ledger().charges) == 1


def test_concurrent_confirms_charge_once(intents: PaymentIntents, admin: StandInAdmin) -> None:
    """One charges; the nine others are retryable or get the stored response."""
    row = claimed(intents)
    admin.settings(latency_seconds=1)
    barrier = threading.Barrier(10)

    def confirm() -> str:
        barrier.wait()
        return kind_of(intents.confirm(row))

    with ThreadPoolExecutor(10) as threads:
        kinds = [future.result() for future in [threads.submit(confirm) for _ in range(10)]]
    assert set(kinds) <= {"succeeded", ResponseKind.RETRYABLE}
    assert "succeeded" in kinds
    assert len(admin.ledger().charges) == 1
