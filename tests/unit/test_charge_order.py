"""charge_order handles one delivery; however many an order has, together they charge it once.

The paths through Stripe are in test_charge.py; the real client against a stand-in is in tests/contract.
"""

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from pydantic import TypeAdapter
from responses import RequestsMock

from charge_order.app import ORDER_EVENT
from charge_order.order_placed import charge_order
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.deliveries import REEMIT_AFTER_SECONDS
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.consumer import BackOff, Done, PoisonMessage, RetryAfter
from onecharge.runtime.metrics import Metric
from tests.shop.builders import BOUNDS, INTENTS, ORDER_ID, STRIPE_API, T0, order, stripe_intent
from tests.shop.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST,
    LOST_CARD,
    MASTERCARD,
    NO_ANSWER,
    OUTAGE,
    VISA,
    killed,
    meanwhile,
)
from tests.shop.shop import Shop
from tests.shop.tools import tools_of
from tests.support.harness import Log
from tests.support.silent import SILENT

LEASE_SECONDS = BOUNDS.lease_seconds
CANCEL_REQUESTED = CancelRequestedEvent.of(order(), correlation_id="c")


@pytest.fixture
def shop() -> Shop:
    return Shop()


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
    tools = tools_of(
        PaymentStore(dynamodb, payments_table),
        StripeGateway(stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS)),
        Instruments(lambda: T0 + 1.0, SILENT, SILENT),
    )
    assert charge_order(event, tools) == Done()
    assert [call.request.url for call in http.calls] == [INTENTS, f"{INTENTS}/pi_1/confirm"]
    assert written == ["UpdateItem"] * 3
    assert charge_order(event, tools) == Done()
    assert (len(http.calls), written) == (2, ["UpdateItem"] * 4)


def test_money_is_counted_once_however_often_a_message_is_delivered(shop: Shop) -> None:
    """It is counted when the row becomes SUCCEEDED: neither by a duplicate, early or late, nor by a replay."""
    shop.stripe.next("confirm", LOST)
    assert shop.deliver() == BackOff()
    for seconds in (0, 0, LEASE_SECONDS, REEMIT_AFTER_SECONDS):
        shop.passes(seconds)
        shop.deliver()
    counted = [each for each in shop.counted if each == "MoneyCharged"]
    assert [(each.value, each.dimensions) for each in counted if isinstance(each, Metric)] == [
        (order().amount_minor, ({"currency": "EUR"},))
    ]


def test_money_that_was_declined_is_not_counted(shop: Shop) -> None:
    """It has not been taken."""
    shop.deliver(payment_method=LOST_CARD)
    assert "MoneyCharged" not in shop.counted


@pytest.mark.parametrize("card", [VISA, LOST_CARD, ASKS_FOR_ACTION])
def test_a_late_duplicate_reemits_the_outcome(shop: Shop, card: str) -> None:
    """The table's stream carries it again, since its first record may be lost; once in 15 minutes at most."""
    shop.deliver(payment_method=card)
    final = shop.row()
    shop.passes(REEMIT_AFTER_SECONDS - 1)
    assert shop.deliver(payment_method=card) == Done()
    assert shop.row() == final
    shop.passes(1)
    assert shop.deliver(payment_method=card) == Done()
    assert shop.row() == final | {"last_emitted_at": shop.now, "revision": shop.now}
    shop.passes(REEMIT_AFTER_SECONDS - 1)
    shop.deliver(payment_method=card)
    assert shop.counted.count("OutcomeReemitted") == 1
    assert len(shop.stripe.requests) == 2


@pytest.mark.parametrize("behind", [0, 3000])
def test_a_duplicate_waits_while_the_order_is_being_charged(shop: Shop, behind: int) -> None:
    """It becomes visible when the lease has expired, and no later if its worker's clock is far behind the owner's."""
    seen: list[Any] = []

    def duplicate() -> None:
        shop.ahead = -behind
        seen.append(shop.deliver())

    shop.stripe.next("confirm", meanwhile(duplicate))
    assert shop.deliver() == Done()
    assert seen == [RetryAfter(LEASE_SECONDS)]
    assert len(shop.stripe.requests) == 2


@pytest.mark.parametrize("changed", [{"amount_minor": 1}, {"currency": "USD"}, {"payment_method": MASTERCARD}])
@pytest.mark.parametrize("finalized", [True, False])
def test_a_changed_duplicate_changes_nothing(shop: Shop, changed: dict[str, Any], finalized: bool) -> None:
    """The frozen data are charged, and the difference raises an alarm."""
    if not finalized:
        shop.stripe.next("create", OUTAGE)
    shop.deliver()
    assert shop.deliver(**changed) == Done()
    assert "Alarm" in shop.counted
    intent = shop.stripe.intent("pi_0")
    assert (intent.amount, intent.currency, intent.payment_method) == (1099, "eur", VISA)


def test_a_late_message_of_an_earlier_attempt_reemits_the_outcome(shop: Shop) -> None:
    """The order is a restored one, and asks for an attempt that the row has left behind: it learns where the row is."""
    shop.deliver(payment_method=LOST_CARD)
    shop.deliver(attempt=2, payment_method=LOST_CARD)
    final = shop.row()
    assert shop.deliver() == Done()
    assert shop.row() == final
    shop.passes(REEMIT_AFTER_SECONDS)
    assert shop.deliver() == Done()
    assert shop.row() == final | {"last_emitted_at": shop.now, "revision": shop.now}


def test_a_late_message_of_an_earlier_attempt_goes_on_with_an_unfinished_one(shop: Shop) -> None:
    """The order is a restored one, which has forgotten the row's attempt; no message of that attempt comes any more."""
    shop.deliver(payment_method=LOST_CARD)
    shop.stripe.next("confirm", NO_ANSWER)
    shop.deliver(attempt=2)
    unfinished = shop.row()
    assert shop.deliver(payment_method=LOST_CARD) == Done()
    assert shop.row() == unfinished
    shop.passes(REEMIT_AFTER_SECONDS)
    assert shop.deliver(payment_method=LOST_CARD, amount_minor=1) == Done()
    assert shop.row() == unfinished
    assert shop.deliver(payment_method=LOST_CARD) == Done()
    assert (shop.row()["state"], shop.row()["attempt"]) == ("SUCCEEDED", 2)


def test_an_order_that_is_placed_again_goes_on_with_an_unfinished_attempt(shop: Shop) -> None:
    """Its item was lost, and has another time now: customer and money are the row's, and no other message comes."""
    shop.deliver(payment_method=LOST_CARD)
    shop.stripe.next("confirm", NO_ANSWER)
    shop.deliver(attempt=2)
    shop.passes(REEMIT_AFTER_SECONDS)
    frozen = shop.row()["placed_at"]
    placed_at = datetime.fromtimestamp(shop.now, UTC)
    assert shop.deliver(payment_method=LOST_CARD, placed_at=placed_at, customer_id="cus_other") == Done()
    assert shop.row()["state"] == "PENDING"
    assert shop.deliver(payment_method=LOST_CARD, placed_at=placed_at) == Done()
    assert (shop.row()["state"], shop.row()["attempt"], shop.row()["placed_at"]) == ("SUCCEEDED", 2, frozen)
    assert len(shop.stripe.charged) == 1


@pytest.mark.parametrize("event", [OrderPlacedEvent, CancelRequestedEvent])
def test_a_time_in_the_future_is_poison(shop: Shop, event: Any) -> None:
    """It would switch the lookup off until then. Clocks may differ by up to an hour."""
    placed_at = datetime.fromtimestamp(shop.now + FUTURE_MAX_SECONDS + 1, UTC)
    with pytest.raises(PoisonMessage, match="in the future"):
        shop.deliver(event.of(order(placed_at=placed_at), correlation_id="c"))
    assert shop.stripe.requests == []
    placed_at = datetime.fromtimestamp(shop.now + FUTURE_MAX_SECONDS, UTC)
    assert shop.deliver(event.of(order(placed_at=placed_at), correlation_id="c")) == Done()


def test_every_step_of_a_delivery_is_one_log_line(log: Log) -> None:
    """It has order id, attempt, correlation id and PaymentIntent, and no client secret."""
    shop = Shop(log)
    shop.stripe.next("confirm", OUTAGE)
    for event in ("a", "a", "a", CANCEL_REQUESTED):
        shop.deliver(event)
    first = ["payment claimed", "PaymentIntent stored", "payment not finished"]
    others = ["payment claimed", "payment finalized", "duplicate ignored: the attempt has ended"]
    assert [line["message"] for line in log.lines] == [*first, *others, "cancellation requested"]
    ids = {"order_id": ORDER_ID, "attempt": 1, "correlation_id": "c"}
    assert all(line.items() >= ids.items() for line in log.lines)
    assert log.lines[1]["payment_intent_id"] == "pi_0"
    assert "_secret_" not in log.text


def test_a_refused_claim_logs_the_row_that_refused_it(log: Log) -> None:
    """A live lease says whose it is and until when; an outcome says which, and since when."""
    shop = Shop(log)
    shop.stripe.next("confirm", killed)
    with pytest.raises(KeyboardInterrupt):
        shop.deliver()
    shop.deliver()
    shop.passes()
    shop.deliver()
    shop.deliver()
    claimed, refused, again, ended = (
        line["row"] for line in log.lines if "claimed" in line["message"] or "duplicate" in line["message"]
    )
    assert refused == {**claimed, "revision": claimed["revision"] + 1, "payment_intent_id": "pi_0"}
    assert again["lease_owner"] != claimed["lease_owner"]
    assert (ended["state"], ended["attempt"], ended["payment_intent_id"]) == ("SUCCEEDED", 1, "pi_0")
    assert ended["finalized_at"] == shop.now


@pytest.mark.parametrize("adapter", [ORDER_EVENT, TypeAdapter(OrderPlacedEvent)])
def test_no_value_of_a_message_is_kept_once_it_is_handled(adapter: TypeAdapter[Any]) -> None:
    """The same text is read into another object each time. By default pydantic keeps 1.5 MB of ids."""
    body = OrderPlacedEvent.of(order(), correlation_id="c").model_dump_json()
    first, second = adapter.validate_json(body), adapter.validate_json(body)
    assert first.data.order_id == second.data.order_id
    assert first.data.order_id is not second.data.order_id
