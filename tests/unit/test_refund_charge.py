"""refund_charge handles one delivery; however many a refund has, and wherever a worker stops, it is made once."""

from typing import Any

import pytest

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS, RETENTION_SECONDS
from onecharge.payments.work import REEMIT_AFTER_SECONDS
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from tests.shop.paid_order import AMOUNT_MINOR, BOUNDS, DAY, HOUR, ORDER_ID, PAYMENTS, T0, paid
from tests.support.harness import Sample
from tests.support.refund_harness import OTHER_REFUND_ID, RefundHarness, crash, requested_with

BOUNDARIES = 10
"""Of one delivery: before and after each request, and while Stripe has it."""


@pytest.fixture
def service() -> RefundHarness:
    return RefundHarness()


def test_a_refund_is_made_once_however_often_it_is_delivered(service: RefundHarness) -> None:
    """Before and after Stripe has forgotten the key."""
    assert {service.deliver() for _ in range(5)} == {Done()}
    service.passes(3 * DAY)
    assert {service.deliver() for _ in range(5)} == {Done()}
    assert service.outcome == ("SUCCEEDED", [400])
    assert service.counted.count("MoneyRefunded") == 1
    assert service.row["expires_at"] == service.row["finalized_at"] + RETENTION_SECONDS


def test_two_refunds_of_an_order_are_two(service: RefundHarness) -> None:
    """Each has its own row and key, though their amounts are equal."""
    service.deliver()
    service.deliver(requested_with(refund_id=OTHER_REFUND_ID))
    assert service.refunded == [400, 400]


def test_a_delivery_has_so_many_boundaries(service: RefundHarness) -> None:
    """The two tests below leave none out; a fresh refund is two requests to Stripe, and three to DynamoDB."""
    service.deliver()
    assert service.io.passed == BOUNDARIES


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("forgotten", [False, True], ids=["soon", "after the key is forgotten"])
def test_a_worker_may_crash_anywhere(service: RefundHarness, place: int, *, forgotten: bool) -> None:
    """Once the lease has expired, the next deliveries end with the one refund."""
    service.io.at[place] = crash
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    service.passes()
    for _ in range(3):
        if forgotten:
            service.passes(25 * HOUR)
        service.deliver()
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("late", [0, BOUNDS.lease_seconds], ids=["beside a live lease", "after the lease"])
def test_a_second_delivery_at_any_moment_refunds_nothing_twice(service: RefundHarness, place: int, late: int) -> None:
    """The first one goes on afterwards."""
    dispositions: list[Disposition] = []

    def deliver_meanwhile() -> None:
        service.io.time += late
        dispositions.append(service.deliver())

    service.io.at[place] = deliver_meanwhile
    dispositions.append(service.deliver())
    service.passes()
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])
    assert all(isinstance(each, Done | RetryAfter | BackOff) for each in dispositions)


def test_a_late_duplicate_reemits_the_outcome(service: RefundHarness) -> None:
    """The order service asks again for a refund that is PENDING there: the first stream record may be lost."""
    service.deliver()
    revision = service.row["revision"]
    service.passes(REEMIT_AFTER_SECONDS - 1)
    service.deliver()
    assert (service.row["revision"], "OutcomeReemitted" in service.counted) == (revision, False)
    service.passes(1)
    assert service.deliver() == Done()
    assert (service.row["revision"], service.row["last_emitted_at"]) == (service.io.time, service.io.time)
    service.deliver()
    assert service.counted.count("OutcomeReemitted") == 1


@pytest.mark.parametrize("state", [None, *(each for each in PaymentState if each is not PaymentState.SUCCEEDED)])
def test_a_refund_waits_for_its_payment(service: RefundHarness, state: PaymentState | None) -> None:
    """It claims no row meanwhile."""
    service.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid(state)} if state else {}
    assert service.deliver() == BackOff()
    assert service.rows == []


@pytest.mark.parametrize("changes", [{"amount_minor": AMOUNT_MINOR + 1}, {"currency": "USD"}])
def test_more_than_was_charged_is_poison(service: RefundHarness, changes: dict[str, Any]) -> None:
    """Nothing is sent to Stripe."""
    with pytest.raises(PoisonMessage):
        service.deliver(requested_with(**changes))
    assert not service.stripe.ours.keys


def test_a_refund_from_the_future_is_poison(service: RefundHarness) -> None:
    """Clocks may differ by up to an hour."""
    service.io.time = T0 - FUTURE_MAX_SECONDS
    assert service.deliver() == Done()
    service.io.time -= 1
    with pytest.raises(PoisonMessage):
        service.deliver(requested_with(refund_id=OTHER_REFUND_ID))


def test_a_changed_duplicate_changes_nothing(service: RefundHarness) -> None:
    """The frozen data are refunded, and the difference raises an alarm."""
    service.deliver()
    assert service.deliver(requested_with(amount_minor=2)) == Done()
    assert service.refunded == [400]
    assert "Alarm" in service.counted


def test_the_sample_is_a_refund_that_can_be_handled(sample: Sample) -> None:
    """events/refund_charge follows the contract."""
    body = str(sample("refund_charge/refund_requested")["Records"][0]["body"])
    assert RefundRequestedEvent.model_validate_json(body).data.amount_minor == 1000
