"""refund_charge handles one delivery; however many a refund has, and wherever a worker stops, it is made once."""

from typing import Any

import pytest

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.deliveries import REEMIT_AFTER_SECONDS
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS, RETENTION_SECONDS
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from tests.shop.builders import AMOUNT_MINOR, BOUNDS, DAY, HOUR, ORDER_ID, PAYMENTS, T0, paid
from tests.shop.shop import Shop, crash, paid_shop, refund_with
from tests.support.harness import Sample

OTHER_REFUND_ID = "rfd_" + "b" * 32
BOUNDARIES = 11
"""Of one delivery: before and after each request, and while Stripe has it."""


@pytest.fixture
def shop() -> Shop:
    return paid_shop()


def test_a_refund_is_made_once_however_often_it_is_delivered(shop: Shop) -> None:
    """Before and after Stripe has forgotten the key."""
    assert {shop.refund() for _ in range(5)} == {Done()}
    shop.passes(3 * DAY)
    assert {shop.refund() for _ in range(5)} == {Done()}
    assert shop.refund_outcome == ("SUCCEEDED", [400])
    assert shop.counted.count("MoneyRefunded") == 1
    assert shop.refund_row["expires_at"] == shop.refund_row["finalized_at"] + RETENTION_SECONDS


def test_two_refunds_of_an_order_are_two(shop: Shop) -> None:
    """Each has its own row and key, though their amounts are equal."""
    shop.refund()
    shop.refund(refund_with(refund_id=OTHER_REFUND_ID))
    assert shop.refunded == [400, 400]


def test_a_delivery_has_so_many_boundaries(shop: Shop) -> None:
    """The two tests below leave none out; a fresh refund is three requests to Stripe, and three to DynamoDB."""
    shop.refund()
    assert shop.io.passed == BOUNDARIES


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("forgotten", [False, True], ids=["soon", "after the key is forgotten"])
def test_a_worker_may_crash_anywhere(shop: Shop, place: int, *, forgotten: bool) -> None:
    """Once the lease has expired, the next deliveries end with the one refund."""
    shop.io.at[place] = crash
    with pytest.raises(KeyboardInterrupt):
        shop.refund()
    shop.passes()
    for _ in range(3):
        if forgotten:
            shop.passes(25 * HOUR)
        shop.refund()
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("late", [0, BOUNDS.lease_seconds], ids=["beside a live lease", "after the lease"])
def test_a_second_delivery_at_any_moment_refunds_nothing_twice(shop: Shop, place: int, late: int) -> None:
    """The first one goes on afterwards."""
    dispositions: list[Disposition] = []

    def deliver_meanwhile() -> None:
        shop.io.time += late
        dispositions.append(shop.refund())

    shop.io.at[place] = deliver_meanwhile
    dispositions.append(shop.refund())
    shop.passes()
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])
    assert all(isinstance(each, Done | RetryAfter | BackOff) for each in dispositions)


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
