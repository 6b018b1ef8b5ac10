"""Many confirms at the same time with Stripe's client, over HTTP: one charge."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import ResponseKind
from stripe_standin.admin import StandInAdmin
from stripe_standin.faults import Fault
from stripe_standin.server import running_standin
from tests.shop.builders import PATIENT, REQUEST, SHOP, payment


@pytest.mark.parametrize("is_lost", [False, True])
def test_concurrent_confirms_charge_once(*, is_lost: bool) -> None:
    """One charges; the others are retryable or get the stored response, as do the SDK's retry and ours if a response is
    lost."""
    with running_standin() as standin:
        admin = StandInAdmin(standin.base_url)
        intents = PaymentIntents(stripe_client("sk_test_x", api_base=standin.base_url, bounds=PATIENT), SHOP)
        row = payment(request=replace(REQUEST, placed_at=int(time.time())), payment_intent_id=None)
        made = intents.create(row, 0)
        assert made.intent is not None
        assert intents.create(row, 0) == replace(made, is_replay=True)
        row = replace(row, payment_intent_id=made.intent.payment_intent_id)
        if is_lost:
            admin.add_fault(Fault.DROP_AFTER, path="/v1/payment_intents/*/confirm")
        else:
            admin.settings(latency_seconds=1)
        barrier = threading.Barrier(10)

        def confirm(_: int) -> str:
            barrier.wait()
            response = intents.confirm(row)
            return response.failure.kind if response.failure else response.intent.status if response.intent else ""

        with ThreadPoolExecutor(10) as threads:
            kinds = {*threads.map(confirm, range(10))}
        assert "succeeded" in kinds <= {"succeeded", ResponseKind.RETRYABLE}
        assert len(admin.ledger().charges) == 1
