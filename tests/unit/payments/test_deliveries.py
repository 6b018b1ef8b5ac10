"""One delivery: its claim, what it becomes, what it counts and logs; however many an order has, one is charged."""

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from pydantic import TypeAdapter
from responses import RequestsMock

from charge_order.app import ORDER_EVENT, handle
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.deliveries import REEMIT_AFTER_SECONDS, reemit_if_late
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Done, PoisonMessage, RetryAfter
from onecharge.runtime.metrics import Metric
from tests.shop.builders import AMOUNT_MINOR, BOUNDS, INTENTS, ORDER_ID, SHOP, STRIPE_API, T0, order, stripe_intent
from tests.shop.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST,
    LOST_CARD,
    MASTERCARD,
    NO_ANSWER,
    OUTAGE,
    VISA,
    WRONG_KEY,
    afterwards,
    killed,
    meanwhile,
)
from tests.shop.shop import Shop
from tests.shop.tools import tools_of
from tests.support.harness import Log
from tests.unit.payments.conftest import alarms

LEASE_SECONDS = BOUNDS.lease_seconds


def test_an_order_costs_two_requests_to_stripe_and_three_writes_and_a_duplicate_one_write(
    payments_table: str, http: RequestsMock
) -> None:
    """Create and confirm; claim, store the id, finalize. They are counted at the real clients."""
    dynamodb = boto3.client("dynamodb")
    written: list[str] = []
    dynamodb.meta.events.register("before-call.dynamodb", lambda model, **_: written.append(model.name))
    event = OrderPlacedEvent.of(order(), correlation_id="c")
    http.post(INTENTS, json=stripe_intent())
    http.post(f"{INTENTS}/pi_1/confirm", json=stripe_intent("succeeded"))
    client = stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS)
    tools = tools_of(PaymentStore(dynamodb, payments_table), PaymentIntents(client, SHOP), lambda: T0 + 1.0)
    assert handle(event, tools) == Done()
    assert [call.request.url for call in http.calls] == [INTENTS, f"{INTENTS}/pi_1/confirm"]
    assert written == ["UpdateItem"] * 3
    assert handle(event, tools) == Done()
    assert (len(http.calls), written) == (2, ["UpdateItem"] * 4)


# ---------------------------------------------------------------- duplicates


@pytest.mark.parametrize("behind", [0, 3000])
def test_a_duplicate_waits_while_the_order_is_being_charged(shop: Shop, behind: int) -> None:
    """It becomes visible when the lease has expired, and no later if its worker's clock is far behind the owner's."""
    seen: list[Any] = []

    def duplicate() -> None:
        shop.ahead = -behind
        seen.append(shop.deliver())

    shop.stripe.next("confirm", meanwhile(duplicate))
    assert shop.deliver() == Done()
    assert (seen, len(shop.stripe.requests)) == ([RetryAfter(LEASE_SECONDS)], 2)
    assert shop.counted.count("DuplicateWaiting") == 1


@pytest.mark.parametrize("card", [VISA, LOST_CARD, ASKS_FOR_ACTION])
def test_a_late_duplicate_has_the_outcome_emitted_again(shop: Shop, card: str) -> None:
    """The table's stream carries it again, since its first record may be lost; once in 15 minutes at most."""
    shop.deliver(payment_method=card)
    final, sent = shop.row(), len(shop.stripe.requests)
    for seconds, expected in (
        (REEMIT_AFTER_SECONDS - 1, final),
        (1, final | {"last_emitted_at": shop.now + REEMIT_AFTER_SECONDS, "revision": shop.now + REEMIT_AFTER_SECONDS}),
    ):
        shop.passes(seconds)
        assert (shop.deliver(payment_method=card), shop.row()) == (Done(), expected)
    shop.passes(REEMIT_AFTER_SECONDS - 1)
    shop.deliver(payment_method=card)
    assert (shop.counted.count("OutcomeReemitted"), len(shop.stripe.requests)) == (1, sent)


def test_a_late_duplicate_of_an_earlier_attempt_has_the_outcome_emitted_again(shop: Shop) -> None:
    """The order is a restored one, and asks for an attempt that the row has left behind: it learns where the row is."""
    shop.deliver(payment_method=LOST_CARD)
    shop.deliver(attempt=2, payment_method=LOST_CARD)
    final = shop.row()
    assert (shop.deliver(), shop.row()) == (Done(), final)
    shop.passes(REEMIT_AFTER_SECONDS)
    assert shop.deliver() == Done()
    assert shop.row() == final | {"last_emitted_at": shop.now, "revision": shop.now}


def test_an_unfinished_row_has_no_outcome_to_emit(shop: Shop) -> None:
    """Another attempt may have taken the row over meanwhile."""
    shop.request_cancel()
    shop.passes(REEMIT_AFTER_SECONDS)
    reemit_if_late(shop.payment(), shop.tools())
    assert (shop.payment().last_emitted_at, shop.counted) == (None, [])


def test_a_message_of_an_earlier_attempt_continues_an_unfinished_one(shop: Shop) -> None:
    """The order was put back to it, or was placed again at another time: no message of the later attempt comes."""
    shop.deliver(payment_method=LOST_CARD)
    shop.stripe.next("confirm", NO_ANSWER)
    shop.deliver(attempt=2)
    placed_at = datetime.fromtimestamp(shop.now, UTC)
    assert shop.deliver(payment_method=LOST_CARD, placed_at=placed_at) == Done()
    row = shop.payment()
    assert (row.state, row.attempt, row.payment_method, row.request.placed_at) == ("SUCCEEDED", 2, VISA, T0)
    assert len(shop.stripe.charged) == 1


def test_a_message_of_an_earlier_attempt_waits_for_the_later_ones_worker(shop: Shop) -> None:
    """It does not take over a lease."""
    shop.deliver(payment_method=LOST_CARD)
    seen: list[Any] = []
    shop.stripe.next("confirm", meanwhile(lambda: seen.append(shop.deliver(payment_method=LOST_CARD))))
    assert shop.deliver(attempt=2) == Done()
    assert seen == [RetryAfter(LEASE_SECONDS)]


def test_a_later_attempt_backs_off_while_3d_secure_waits(shop: Shop) -> None:
    """The row was put back to an attempt before. It ends by itself, later than 500 receives in as many seconds."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    assert (shop.deliver(attempt=2), len(shop.stripe.requests)) == (BackOff(), 2)


CHANGES: list[dict[str, Any]] = [
    {"amount_minor": 1},
    {"currency": "USD"},
    {"customer_id": "cus_2"},
    {"payment_method": MASTERCARD},
]


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("is_final", [True, False])
def test_a_changed_message_changes_nothing(shop: Shop, changes: dict[str, Any], is_final: bool) -> None:
    """The frozen data are charged, and the difference raises an alarm."""
    if not is_final:
        shop.stripe.next("create", OUTAGE)
    shop.deliver()
    assert (alarms(shop), shop.deliver(**changes), alarms(shop)) == ([], Done(), [Cause.UNEXPECTED_ERROR])
    intent = shop.stripe.intent("pi_0")
    assert (intent.amount, intent.currency, intent.payment_method) == (AMOUNT_MINOR, "eur", VISA)
    assert intent.metadata["customer_id"] == "cus_1"
    assert (shop.outcome, len(shop.stripe.charged)) == (("SUCCEEDED", "pi_0"), 1)


def test_another_attempts_card_is_no_difference(shop: Shop) -> None:
    """Each attempt has its own; a cancellation may name either."""
    shop.deliver(payment_method=LOST_CARD)
    shop.deliver(attempt=2)
    shop.cancel(payment_method=LOST_CARD)
    shop.cancel(attempt=2)
    assert alarms(shop) == []


@pytest.mark.parametrize("event", [OrderPlacedEvent, CancelRequestedEvent])
def test_a_time_in_the_future_is_poison(shop: Shop, event: Any) -> None:
    """It would keep the window open. Clocks may differ by up to an hour."""
    placed_at = datetime.fromtimestamp(shop.now + FUTURE_MAX_SECONDS + 1, UTC)
    with pytest.raises(PoisonMessage, match="in the future"):
        shop.deliver(event.of(order(placed_at=placed_at), correlation_id="c"))
    assert (shop.stripe.requests, shop.io.asked) == ([], [])
    placed_at = datetime.fromtimestamp(shop.now + FUTURE_MAX_SECONDS, UTC)
    assert shop.deliver(event.of(order(placed_at=placed_at), correlation_id="c")) == Done()


# ---------------------------------------------------------------- what is counted, raised and logged


def test_money_is_counted_once_however_often_a_message_is_delivered(shop: Shop) -> None:
    """It is counted when the row becomes SUCCEEDED: neither by a duplicate, early or late, nor by a replay."""
    shop.stripe.next("confirm", LOST)
    assert shop.deliver() == BackOff()
    for seconds in (0, 0, LEASE_SECONDS, REEMIT_AFTER_SECONDS):
        shop.passes(seconds)
        shop.deliver()
    counted = [each for each in shop.counted if each == "MoneyCharged"]
    assert [(each.value, each.dimensions) for each in counted if isinstance(each, Metric)] == [
        (AMOUNT_MINOR, ({"currency": "EUR"},))
    ]


def test_the_share_of_declines_is_measured(shop: Shop) -> None:
    """One sample a payment: 1 if it is declined, whose money is not counted, 0 if it succeeds."""
    shop.deliver(payment_method=LOST_CARD)
    assert "MoneyCharged" not in shop.counted
    shop.deliver("b")
    shop.deliver("c", payment_method=ASKS_FOR_ACTION)
    samples: list[Any] = [each for each in shop.counted if each == "DeclinedShare"]
    assert [(each.value, each.dimensions) for each in samples] == [(value, ({"of": "payments"},)) for value in (1, 0)]


def test_a_disputes_alarm_is_raised_before_the_row_shows_it(shop: Shop) -> None:
    """The write's answer is lost: the next delivery is a duplicate, which raises none."""
    shop.crash_after("confirm")
    dispute = shop.stripe.disputed("pi_0", "needs_response")["data"]["object"]["id"]
    shop.passes()
    shop.stripe.next("disputes", afterwards(lambda: shop.io.faults.update(dynamodb_UpdateItem="answer lost")))
    with pytest.raises(ReadTimeoutError):
        shop.deliver()
    assert shop.deliver() == Done()
    assert (shop.payment().dispute_id, shop.payment().dispute_status) == (dispute, "needs_response")
    assert alarms(shop) == [Cause.CHARGE_DISPUTED]
    [line] = [line for line in shop.log.lines if "cause" in line]
    assert (line["order_id"], line["dispute_id"], line["dispute_status"]) == (ORDER_ID, dispute, "needs_response")


def test_a_dispute_that_is_over_is_no_alarm(shop: Shop) -> None:
    """The row that was lost shows it all the same."""
    shop.deliver()
    shop.stripe.disputed("pi_0", "lost")
    shop.lose_row()
    assert shop.deliver() == Done()
    assert (alarms(shop), shop.payment().dispute_status) == ([], "lost")


def test_the_alarm_is_raised_even_if_the_lease_cannot_be_released(shop: Shop) -> None:
    """DynamoDB does not answer, after Stripe has refused our API key."""

    def refused(execute: Any) -> Any:
        shop.io.failing = "dynamodb UpdateItem"
        return WRONG_KEY(execute)

    shop.stripe.next("confirm", refused)
    with pytest.raises(ClientError):
        shop.deliver()
    assert alarms(shop) == [Cause.STRIPE_ACCOUNT]


def test_every_step_of_a_delivery_is_one_log_line(log: Log) -> None:
    """It has order id, attempt, correlation id and PaymentIntent, and no client secret."""
    shop = Shop(log)
    shop.stripe.next("confirm", OUTAGE)
    for _ in range(3):
        shop.deliver()
    shop.cancel()
    first = ["payment claimed", "PaymentIntent stored", "payment not finished"]
    ignored = "duplicate ignored: the attempt has ended"
    assert [line["message"] for line in log.lines] == [*first, "payment claimed", "payment finalized", *[ignored] * 2]
    ids = {"order_id": ORDER_ID, "attempt": 1, "correlation_id": "c"}
    assert all(line.items() >= ids.items() for line in log.lines)
    assert log.lines[1]["payment_intent_id"] == "pi_0"
    assert log.lines[4].items() >= {"state": "SUCCEEDED", "payment_intent_id": "pi_0"}.items()
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
