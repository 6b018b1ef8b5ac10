"""charge_order: one delivery. Deliveries of one order, however many, make one charge.

The paths through Stripe are in test_charge_worker.py; the real client against a stand-in is in tests/contract.
"""

import json
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from pydantic import TypeAdapter
from responses import RequestsMock

from charge_order.app import ORDER_EVENT
from charge_order.charge import charge_order
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent, event_adapter
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.payments.work import REEMIT_AFTER_SECONDS
from onecharge.runtime.consumer import BackOff, Done, PoisonMessage, RetryAfter
from onecharge.runtime.metrics import Metric
from testing.builders import BOUNDS, INTENTS, ORDER_ID, STRIPE_API, T0, order, stripe_intent
from testing.charge_harness import ChargeHarness
from testing.fake_gateway import NO_ANSWER, afterwards, executed_but, meanwhile, refused
from testing.harness import Log, Sample
from testing.silent import SILENT
from testing.tools import charge_tools

LEASE_SECONDS = BOUNDS.lease_seconds
CANCEL_REQUESTED = CancelRequestedEvent.of(order(), correlation_id="c")


@pytest.fixture
def service() -> ChargeHarness:
    return ChargeHarness()


def test_a_fresh_order_costs_two_requests_to_stripe_and_three_writes_and_a_duplicate_one_write(
    payments_table: str, http: RequestsMock
) -> None:
    """Create and confirm; claim, write the id, finalize. They are counted at the real clients."""
    dynamodb = boto3.client("dynamodb")
    written: list[str] = []
    dynamodb.meta.events.register("before-call.dynamodb", lambda model, **_: written.append(model.name))
    event = OrderPlacedEvent.of(order(), correlation_id="c")
    http.post(INTENTS, json=stripe_intent())
    http.post(f"{INTENTS}/pi_1/confirm", json=stripe_intent("succeeded"))
    tools = charge_tools(
        PaymentStore(dynamodb, payments_table),
        StripeGateway(stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS)),
        Instruments(lambda: T0 + 1.0, SILENT, SILENT),
    )
    assert charge_order(event, tools) == Done()
    assert [call.request.url for call in http.calls] == [INTENTS, f"{INTENTS}/pi_1/confirm"]
    assert written == ["UpdateItem"] * 3
    assert charge_order(event, tools) == Done()
    assert (len(http.calls), written) == (2, ["UpdateItem"] * 4)


def test_a_duplicate_of_a_finalized_payment_is_done(service: ChargeHarness) -> None:
    """However often it is delivered: no request to Stripe, and nothing is written."""
    service.deliver()
    before = service.row
    assert [service.deliver() for _ in range(5)] == [Done()] * 5
    assert len(service.stripe.requests) == 2
    assert service.row == before


def test_money_is_counted_once_however_often_a_message_is_delivered(service: ChargeHarness) -> None:
    """When the row becomes SUCCEEDED; no duplicate counts, early or late, and no replay of Stripe's."""
    service.stripe.next("confirm", executed_but(ResponseKind.NO_ANSWER))
    assert service.deliver() == BackOff()
    for seconds in (0, 0, LEASE_SECONDS, REEMIT_AFTER_SECONDS):
        service.now += seconds
        service.deliver()
    counted = [each for each in service.counted if each == "MoneyCharged"]
    assert [(each.value, each.dimensions) for each in counted if isinstance(each, Metric)] == [
        (order().amount_minor, ({"currency": "EUR"},))
    ]


def test_money_that_was_declined_is_not_counted(service: ChargeHarness) -> None:
    """Nor what waits for the customer."""
    service.stripe.banks["pm_card_visa"] = "lost_card"
    service.deliver()
    assert "MoneyCharged" not in service.counted


@pytest.mark.parametrize("answer", ["succeeded", "lost_card", "requires_action"])
def test_a_late_duplicate_reemits_the_outcome(service: ChargeHarness, answer: str) -> None:
    """Through the table's stream, whose first record may be lost; once in 15 minutes at most."""
    service.stripe.banks["pm_card_visa"] = answer
    service.deliver()
    final = service.row
    service.now += REEMIT_AFTER_SECONDS - 1
    assert service.deliver() == Done()
    assert service.row == final
    service.now += 1
    assert service.deliver() == Done()
    assert service.row == final | {"last_emitted_at": int(service.now), "revision": final["revision"] + 1}
    service.now += REEMIT_AFTER_SECONDS - 1
    service.deliver()
    assert service.counted.count("OutcomeReemitted") == 1
    assert len(service.stripe.requests) == 2


def test_a_duplicate_waits_while_the_order_is_being_charged(service: ChargeHarness) -> None:
    """It is not acknowledged: it becomes visible when the lease has ended."""
    seen: list[Any] = []
    service.stripe.next("confirm", meanwhile(lambda: seen.append(service.deliver())))
    assert service.deliver() == Done()
    assert seen == [RetryAfter(LEASE_SECONDS)]
    assert len(service.stripe.requests) == 2


def test_no_message_waits_longer_than_a_lease(service: ChargeHarness) -> None:
    """Also if the holder's clock is far ahead: clocks may differ by an hour."""
    seen: list[Any] = []

    def behind() -> None:
        service.ahead = -3000
        seen.append(service.deliver())

    service.stripe.next("confirm", meanwhile(behind))
    service.deliver()
    assert seen == [RetryAfter(LEASE_SECONDS)]


def test_an_unknown_result_backs_off_and_releases_the_lease(service: ChargeHarness) -> None:
    """The next delivery continues at once."""
    service.stripe.next("confirm", NO_ANSWER)
    assert service.deliver() == BackOff()
    assert service.row["lease_expires_at"] == 0
    assert service.deliver() == Done()


@pytest.mark.parametrize("changed", [{"amount_minor": 1}, {"currency": "USD"}, {"payment_method": "pm_other"}])
@pytest.mark.parametrize("finalized", [True, False])
def test_a_changed_duplicate_changes_nothing(service: ChargeHarness, changed: dict[str, Any], finalized: bool) -> None:
    """What was frozen first is what is charged, and the difference is an alarm."""
    if not finalized:
        service.stripe.next("create", refused(ResponseKind.RETRYABLE))
    service.deliver()
    assert service.deliver(**changed) == Done()
    assert "Alarm" in service.counted
    intent = service.stripe.intents["pi_0"]
    assert (intent.amount_minor, intent.currency, intent.payment_method) == (1099, "EUR", "pm_card_visa")


def test_an_attempt_that_was_superseded_is_done(service: ChargeHarness) -> None:
    """A later attempt has taken the row over: the first one's message, redriven, charges nothing."""
    service.stripe.banks["pm_card_visa"] = "lost_card"
    service.deliver()
    service.stripe.next("confirm", NO_ANSWER)
    assert service.deliver(attempt=2, payment_method="pm_second") == BackOff()
    before = len(service.stripe.requests)
    assert service.deliver() == Done()
    assert len(service.stripe.requests) == before
    assert service.row["attempt"] == 2


def test_a_later_attempt_waits_for_one_that_is_being_charged(service: ChargeHarness) -> None:
    """And takes over what its worker left."""
    seen: list[Any] = []
    second: dict[str, Any] = {"attempt": 2, "payment_method": "pm_second"}
    service.stripe.next("confirm", meanwhile(lambda: seen.append(service.deliver(**second))), NO_ANSWER)
    service.deliver()
    assert seen == [RetryAfter(LEASE_SECONDS)]


def test_a_paid_order_is_never_attempted_again(service: ChargeHarness) -> None:
    """Done: its outcome is published, and nothing is charged."""
    service.deliver()
    assert service.deliver(attempt=2, payment_method="pm_second") == Done()
    assert service.stripe.successes == ["pi_0"]
    assert len(service.stripe.requests) == 2


@pytest.mark.parametrize("event", [OrderPlacedEvent, CancelRequestedEvent])
def test_a_time_in_the_future_is_poison(service: ChargeHarness, event: Any) -> None:
    """It would switch the lookup off until then. Clocks may differ by up to an hour."""
    placed_at = datetime.fromtimestamp(service.now + FUTURE_MAX_SECONDS + 1, UTC)
    with pytest.raises(PoisonMessage, match="in the future"):
        service.deliver(event.of(order(placed_at=placed_at), correlation_id="c"))
    assert service.stripe.requests == []
    placed_at = datetime.fromtimestamp(service.now + FUTURE_MAX_SECONDS, UTC)
    assert service.deliver(event.of(order(placed_at=placed_at), correlation_id="c")) == Done()


# ---------------------------------------------------------------- the order service's own message of a cancellation


def test_a_cancel_requested_event_cancels(service: ChargeHarness) -> None:
    """Before the order's own message, after it, and again."""
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.row["state"] == "CANCELED"
    assert [service.deliver(), service.deliver(CANCEL_REQUESTED)] == [Done(), Done()]
    assert service.stripe.successes == []


def test_a_cancel_requested_event_of_a_paid_order_is_done(service: ChargeHarness) -> None:
    """And late, it re-emits that the order is paid."""
    service.deliver()
    assert service.deliver(CANCEL_REQUESTED) == Done()
    service.now += REEMIT_AFTER_SECONDS
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.counted.count("OutcomeReemitted") == 1
    assert service.row["state"] == "SUCCEEDED"


def test_a_cancel_requested_event_backs_off_until_stripe_has_answered(service: ChargeHarness) -> None:
    """During an outage nothing is confirmed, and the order ends as CANCELED when it is over."""
    service.stripe.next("create", NO_ANSWER, NO_ANSWER)
    assert service.deliver(CANCEL_REQUESTED) == BackOff()
    assert service.deliver() == BackOff()
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.row["state"] == "CANCELED"
    assert service.stripe.sent("confirm") == []


def test_a_cancel_requested_event_meets_a_charge_in_flight(service: ChargeHarness) -> None:
    """It backs off, and finds that the charge has succeeded."""
    seen: list[Any] = []
    service.stripe.next("confirm", afterwards(lambda: seen.append(service.deliver(CANCEL_REQUESTED))))
    assert service.deliver() == Done()
    assert seen == [BackOff()]
    assert service.deliver(CANCEL_REQUESTED) == Done()
    assert service.row["state"] == "SUCCEEDED"


def test_the_payments_queue_carries_both_events(sample: Sample) -> None:
    """The type says which; a field that a newer producer adds is ignored."""
    body = json.loads(sample("charge_order/order_placed")["Records"][0]["body"])
    placed = ORDER_EVENT.validate_python(body | {"data": body["data"] | {"newer": 1}})
    assert isinstance(placed, OrderPlacedEvent)
    assert ORDER_EVENT.validate_json(CANCEL_REQUESTED.model_dump_json()) == CANCEL_REQUESTED


def test_every_delivery_is_one_log_line(log: Log) -> None:
    """With order id, attempt and correlation id."""
    service = ChargeHarness(logger=log.logger)
    for event in (None, None, CANCEL_REQUESTED):
        service.deliver(event)
    expected = {"order_id": ORDER_ID, "attempt": 1, "correlation_id": "c"}
    assert len(log.lines) == 3
    assert all(line.items() >= expected.items() for line in log.lines)


@pytest.mark.parametrize("adapter", [ORDER_EVENT, event_adapter(OrderPlacedEvent)])
def test_no_value_of_a_message_is_kept_once_it_is_handled(adapter: TypeAdapter[Any]) -> None:
    """The same text is read into another object each time. By default pydantic keeps 1.5 MB of ids."""
    body = OrderPlacedEvent.of(order(), correlation_id="c").model_dump_json()
    first, second = adapter.validate_json(body), adapter.validate_json(body)
    assert first.data.order_id == second.data.order_id
    assert first.data.order_id is not second.data.order_id
