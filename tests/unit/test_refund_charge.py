"""refund_charge handles one delivery of a request: it waits for the payment, and takes no other money."""

from typing import Any

import pytest

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.refund_deliveries import REEMIT_AFTER_SECONDS
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.consumer import BackOff, Done, PoisonMessage, RetryAfter
from tests.shop.builders import AMOUNT_MINOR, BOUNDS, ORDER_ID, PAYMENTS, T0, paid
from tests.shop.shop import OTHER_REFUND_ID, Shop, crash, paid_shop, refund_with
from tests.support.harness import Sample


@pytest.fixture
def shop() -> Shop:
    return paid_shop()


def test_a_late_duplicate_reemits_the_outcome(shop: Shop) -> None:
    """The order service asks again for a refund that is PENDING there: the first stream record may be lost."""
    shop.refund()
    revision = shop.refund_row["revision"]
    shop.passes(REEMIT_AFTER_SECONDS - 1)
    shop.refund()
    assert (shop.refund_row["revision"], "OutcomeReemitted" in shop.counted) == (revision, False)
    shop.passes(1)
    assert shop.refund() == Done()
    assert (shop.refund_row["revision"], shop.refund_row["last_emitted_at"]) == (shop.io.time, shop.io.time)
    shop.refund()
    assert shop.counted.count("OutcomeReemitted") == 1


def test_a_duplicate_waits_for_the_lease(shop: Shop) -> None:
    """Until it has expired; if the owner's clock is ahead, for one lease at most."""
    shop.io.at["stripe refund answered"] = crash
    with pytest.raises(KeyboardInterrupt):
        shop.refund(ahead=10)
    waits = []
    for seconds in (0, 30, 14):
        shop.now += seconds
        waits.append(shop.refund())
    assert waits == [RetryAfter(BOUNDS.lease_seconds), RetryAfter(16), RetryAfter(2)]


@pytest.mark.parametrize("state", [None, *(each for each in PaymentState if each is not PaymentState.SUCCEEDED)])
def test_a_refund_waits_for_its_payment(shop: Shop, state: PaymentState | None) -> None:
    """It claims no row meanwhile."""
    shop.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid(state)} if state else {}
    assert shop.refund() == BackOff()
    assert shop.refund_rows == []


@pytest.mark.parametrize("changes", [{"amount_minor": AMOUNT_MINOR + 1}, {"currency": "USD"}])
def test_more_than_was_charged_is_poison(shop: Shop, changes: dict[str, Any]) -> None:
    """Nothing is sent to Stripe."""
    with pytest.raises(PoisonMessage):
        shop.refund(refund_with(**changes))
    assert not shop.stripe.ours.keys


def test_a_refund_from_the_future_is_poison(shop: Shop) -> None:
    """Clocks may differ by up to an hour."""
    shop.io.time = T0 - FUTURE_MAX_SECONDS
    assert shop.refund() == Done()
    shop.io.time -= 1
    with pytest.raises(PoisonMessage):
        shop.refund(refund_with(refund_id=OTHER_REFUND_ID))


def test_a_changed_duplicate_changes_nothing(shop: Shop) -> None:
    """The frozen data are refunded, and the difference raises an alarm."""
    shop.refund()
    assert shop.refund(refund_with(amount_minor=2)) == Done()
    assert shop.refunded == [400]
    assert "Alarm" in shop.counted


def test_the_sample_is_a_refund_that_can_be_handled(sample: Sample) -> None:
    """events/refund_charge follows the contract."""
    body = str(sample("refund_charge/refund_requested")["Records"][0]["body"])
    assert RefundRequestedEvent.model_validate_json(body).data.amount_minor == 1000
