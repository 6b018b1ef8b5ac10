"""One delivery: its claim, what it becomes, what it counts; however many an order has, one is charged.

Once a cancellation is requested nothing is confirmed, CANCELED rests on what Stripe shows, and each one ends.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.payments.deliveries import REEMIT_AFTER_SECONDS
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Done, PoisonMessage, RetryAfter
from tests.shop.builders import AMOUNT_MINOR, BOUNDS, ORDER_ID, T0, order
from tests.shop.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST,
    MASTERCARD,
    NO_ANSWER,
    NO_FUNDS,
    OUTAGE,
    VISA,
    WRONG_KEY,
    Execute,
    afterwards,
    meanwhile,
)
from tests.shop.shop import Shop

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
    assert (seen, len(shop.stripe.requests)) == ([RetryAfter(BOUNDS.lease_seconds)], 2)
    claimed, refused, _ = shop.log.lines
    shown = ("state", "lease_expires_at", "payment_intent_id")
    assert [refused["row"][name] for name in shown] == ["PENDING", claimed["lease_expires_at"], "pi_0"]


@pytest.mark.parametrize("card", [VISA, NO_FUNDS, ASKS_FOR_ACTION])
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_late_duplicate_has_the_outcome_emitted_again(shop: Shop, card: str, attempt: int) -> None:
    """The table's stream carries it again, since its first record may be lost; once in 15 minutes at most. One of an
    earlier attempt does so, too: the order was restored."""
    if attempt == 2:
        shop.deliver(payment_method=NO_FUNDS)
    shop.deliver(attempt=attempt, payment_method=card)
    final, sent, until = shop.row(), len(shop.stripe.requests), shop.now + REEMIT_AFTER_SECONDS
    emitted = final | {"last_emitted_at": until, "revision": until}
    for seconds, expected in ((REEMIT_AFTER_SECONDS - 1, final), (1, emitted), (REEMIT_AFTER_SECONDS - 1, emitted)):
        shop.passes(seconds)
        assert (shop.deliver(payment_method=NO_FUNDS if attempt == 2 else card), shop.row()) == (Done(), expected)
    assert len(shop.stripe.requests) == sent


def test_a_row_that_changes_meanwhile_is_not_emitted_again(shop: Shop) -> None:
    """The write that changed it has emitted it."""
    shop.deliver()
    shop.passes(REEMIT_AFTER_SECONDS)
    row = shop.payment()
    write = partial(shop.store.write_if_unchanged, row, {"amount_refunded_minor": 1}, now=shop.now)
    shop.io.at["dynamodb UpdateItem answered"] = write
    assert shop.deliver() == Done()
    assert (shop.payment().amount_refunded_minor, shop.payment().last_emitted_at) == (1, None)


def test_a_message_of_an_earlier_attempt_continues_an_unfinished_one(shop: Shop) -> None:
    """The order was put back to it, or was placed again at another time: no message of the later attempt comes. It
    does not take over a lease."""
    shop.deliver(payment_method=NO_FUNDS)
    seen: list[Any] = []
    shop.stripe.next("confirm", meanwhile(lambda: seen.append(shop.deliver(payment_method=NO_FUNDS))))
    shop.stripe.next("retrieve", NO_ANSWER)
    shop.stripe.next("retrieve", NO_ANSWER)
    assert shop.deliver(attempt=2) == BackOff()
    placed_at = datetime.fromtimestamp(shop.now, UTC)
    assert shop.deliver(payment_method=NO_FUNDS, placed_at=placed_at) == BackOff()
    assert shop.deliver(payment_method=NO_FUNDS, placed_at=placed_at) == Done()
    row = shop.payment()
    assert (row.state, row.attempt, row.payment_method, row.request.placed_at) == ("SUCCEEDED", 2, VISA, T0)
    assert (seen, len(shop.stripe.charged), shop.alarms) == ([RetryAfter(BOUNDS.lease_seconds)], 1, [])


def test_a_later_attempt_backs_off_while_3d_secure_waits(shop: Shop) -> None:
    """The row was put back to an attempt before. It ends by itself, later than 500 receives in as many seconds."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    assert (shop.deliver(attempt=2), len(shop.stripe.requests)) == (BackOff(), 2)


@pytest.mark.parametrize(
    "changes", [{"amount_minor": 1}, {"currency": "USD"}, {"customer_id": "cus_2"}, {"payment_method": MASTERCARD}]
)
@pytest.mark.parametrize("is_final", [True, False])
def test_a_changed_message_changes_nothing(shop: Shop, changes: dict[str, Any], is_final: bool) -> None:
    """The frozen data are charged, and the difference raises an alarm. Another attempt's card is none."""
    if not is_final:
        shop.stripe.next("create", OUTAGE)
    shop.deliver()
    assert (shop.alarms, shop.deliver(**changes), shop.alarms) == ([], Done(), [Cause.UNEXPECTED_ERROR])
    intent = shop.stripe.intent("pi_0")
    assert (intent.amount, intent.currency, intent.payment_method) == (AMOUNT_MINOR, "eur", VISA)
    assert intent.metadata["customer_id"] == "cus_1"
    assert (shop.outcome, len(shop.stripe.charged)) == (("SUCCEEDED", "pi_0"), 1)
    shop.deliver("b", payment_method=NO_FUNDS)
    shop.deliver("b", attempt=2)
    shop.cancel(order_id=shop.order("b").order_id, payment_method=NO_FUNDS)
    assert shop.alarms == [Cause.UNEXPECTED_ERROR]


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


def test_an_end_is_counted_once_however_often_a_message_is_delivered(shop: Shop) -> None:
    """When the row ends: neither by a duplicate, early or late, nor by a replay."""
    shop.deliver("b", payment_method=NO_FUNDS)
    shop.deliver("c", payment_method=ASKS_FOR_ACTION)
    shop.stripe.next("confirm", LOST)
    assert shop.deliver() == BackOff()
    for seconds in (0, 0, BOUNDS.lease_seconds, REEMIT_AFTER_SECONDS):
        shop.passes(seconds)
        shop.deliver()
    ends = ["Payment.DECLINED", "Payment.REQUIRES_ACTION", "Payment.UNKNOWN", "Payment.SUCCEEDED"]
    assert [each for each in shop.counted if each.startswith("Payment.")] == ends


@pytest.mark.parametrize("status", ["needs_response", "lost"])
def test_a_disputes_alarm_is_raised_before_the_row_shows_it(shop: Shop, status: str) -> None:
    """The write's answer is lost: the next delivery is a duplicate, which raises none. One that is over is no alarm."""
    shop.crash_after("confirm")
    dispute = shop.stripe.disputed("pi_0", status)["data"]["object"]["id"]
    shop.passes()
    shop.stripe.next("disputes", afterwards(lambda: shop.io.faults.update(dynamodb_UpdateItem="answer lost")))
    with pytest.raises(ReadTimeoutError):
        shop.deliver()
    assert shop.deliver() == Done()
    assert (shop.payment().dispute_id, shop.payment().dispute_status) == (dispute, status)
    raised = [line for line in shop.log.lines if "cause" in line]
    assert [(line["cause"], line["order_id"], line["dispute_id"], line["dispute_status"]) for line in raised] == (
        [(Cause.CHARGE_DISPUTED, ORDER_ID, dispute, status)] if status == "needs_response" else []
    )


def test_the_alarm_is_raised_even_if_the_lease_cannot_be_released(shop: Shop) -> None:
    """DynamoDB does not answer, after Stripe has refused our API key."""

    def refused(execute: Execute) -> Any:
        shop.io.failing = "dynamodb UpdateItem"
        return WRONG_KEY(execute)

    shop.stripe.next("confirm", refused)
    with pytest.raises(ClientError):
        shop.deliver()
    assert shop.alarms == [Cause.STRIPE_ACCOUNT]


# ---------------------------------------------------------------- cancellations


@pytest.mark.parametrize("card", [None, NO_FUNDS, ASKS_FOR_ACTION])
def test_a_canceled_order_leaves_a_trace_at_stripe(shop: Shop, card: str | None) -> None:
    """Its PaymentIntent, or one that is created for it, is canceled. If the row is lost, the order's own message finds
    it so, and charges nothing."""
    if card:
        shop.deliver(payment_method=card)
    assert [shop.cancel(), shop.cancel()] == [Done()] * 2
    assert shop.stripe.operations.count("cancel") == 1
    assert shop.stripe.intent("pi_0").cancellation_reason == "requested_by_customer"
    assert (shop.outcome, shop.payment().reason) == (("CANCELED", "pi_0"), None)
    shop.lose_row()
    assert shop.deliver() == Done()
    assert (shop.outcome, shop.stripe.charged) == (("CANCELED", "pi_0"), [])


def test_a_customer_who_authenticated_first_has_paid(shop: Shop) -> None:
    """Stripe decides the race: it does not cancel a PaymentIntent that has succeeded. The row knows of its dispute."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)

    def pays() -> None:
        shop.stripe.bank_decides(shop.stripe.intent("pi_0"), pays=True)
        shop.stripe.disputed("pi_0", "needs_response")

    shop.stripe.next("cancel", meanwhile(pays))
    assert shop.cancel(payment_method=ASKS_FOR_ACTION) == Done()
    assert (shop.outcome, shop.payment().dispute_status) == (("SUCCEEDED", "pi_0"), "needs_response")
    assert shop.alarms == [Cause.CHARGE_DISPUTED]


def test_a_cancellation_is_stored_while_a_worker_has_the_row(shop: Shop) -> None:
    """So the worker does not finalize a payment that can still succeed; the next claim cancels it."""
    seen: list[Any] = []
    shop.stripe.next("confirm", meanwhile(lambda: seen.append(shop.cancel(payment_method=ASKS_FOR_ACTION))))
    assert (shop.deliver(payment_method=ASKS_FOR_ACTION), seen) == (BackOff(), [RetryAfter(BOUNDS.lease_seconds)])
    shop.passes()
    assert shop.deliver(payment_method=ASKS_FOR_ACTION) == Done()
    assert (shop.outcome, shop.stripe.charged) == (("CANCELED", "pi_0"), [])


def test_a_cancellation_does_not_wait_for_a_worker_that_has_finished_meanwhile(shop: Shop) -> None:
    """Its claim meets the worker's lease, and the worker ends the attempt before the request is stored. The payment is
    canceled by the same delivery: else the customer could finish 3-D Secure while it waits for a lease that is gone."""
    shop.crash_after("confirm", payment_method=ASKS_FOR_ACTION)

    def another_worker_finishes() -> None:
        shop.ahead = BOUNDS.lease_seconds
        shop.deliver(payment_method=ASKS_FOR_ACTION)
        assert shop.outcome == ("REQUIRES_ACTION", "pi_0")
        shop.ahead = 0

    shop.io.at["dynamodb UpdateItem answered"] = another_worker_finishes
    assert shop.cancel(payment_method=ASKS_FOR_ACTION) == Done()
    assert shop.outcome == ("CANCELED", "pi_0")
