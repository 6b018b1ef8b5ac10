"""A claimed row is charged once: each path of `charge`, with the deployed store and client over services in memory.

`stripe.charged` is the oracle: one entry for each time that money was taken.
"""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from onecharge.payments.charge import STEPS_MAX, charge
from onecharge.payments.charge_rules import CREATE_SECONDS, KEY_AGES_SECONDS, NOT_CHARGEABLE
from onecharge.payments.payments_table import DUPLICATE, PARAMETERS_DIFFER
from onecharge.payments.stripe_responses import Deferred
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Done
from tests.shop.builders import HOUR, ORDER_ID, SHOP, T0, order
from tests.shop.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST,
    MASTERCARD,
    NO_ANSWER,
    OUTAGE,
    WRONG_KEY,
    Execute,
    Step,
    afterwards,
    answer,
    answer_after,
    meanwhile,
    of_another_order,
)
from tests.shop.sdk import client_of
from tests.shop.shop import Shop

KEYS = len(KEY_AGES_SECONDS)
CREATES = [f"{SHOP}:{ORDER_ID}:0:{number}" for number in range(KEYS)]
CONFIRM, CONFIRM_2 = (f"{SHOP}:{ORDER_ID}:{attempt}:pi_0" for attempt in (1, 2))
STORED_500 = answer(500, replay=True)
OLD = T0 + CREATE_SECONDS
OTHERS = answer(400, type="idempotency_error")
UNDECIDED: list[tuple[Step, Cause | None]] = [
    (NO_ANSWER, None),
    (LOST, None),
    (OUTAGE, None),
    (answer_after(503), None),
    (answer(409), None),
    (of_another_order, Cause.STRIPE_INCONCLUSIVE),
    (WRONG_KEY, Cause.STRIPE_ACCOUNT),
    (answer(404), Cause.STRIPE_ACCOUNT),
    (answer(400, code="parameter_unknown"), Cause.REQUEST_REFUSED),
]
"""Responses that decide nothing, and the alarm if a person must act: whichever request gets one is sent again later."""


def test_a_fresh_order_is_created_stored_and_confirmed(shop: Shop) -> None:
    """In this order: when money can move, the row names the PaymentIntent. That is three writes; a duplicate costs one
    more, and no request to Stripe."""
    seen: list[tuple[str, str | None]] = []
    shop.stripe.next("confirm", meanwhile(lambda: seen.append(shop.outcome)))
    assert [shop.deliver(), shop.deliver()] == [Done(), Done()]
    assert shop.stripe.requests == [("create", CREATES[0]), ("confirm", CONFIRM)]
    assert (seen, shop.outcome) == ([("PENDING", "pi_0")], ("SUCCEEDED", "pi_0"))
    reads = ["dynamodb GetItem"] * 2  # Those of this test.
    assert sorted(shop.io.asked) == [*reads, *["dynamodb UpdateItem"] * 4]


@pytest.mark.parametrize(("step", "cause"), UNDECIDED)
@pytest.mark.parametrize("operation", ["create", "confirm", "retrieve", "disputes"])
def test_an_undecided_request_is_sent_again_under_its_key(
    shop: Shop, operation: str, step: Step, cause: Cause | None
) -> None:
    """It may yet take effect, so no other key is used. The lease is released, and the message backs off."""
    if operation in ("retrieve", "disputes"):
        shop.crash_after("confirm")
        shop.stripe.disputed("pi_0", "won")
        shop.passes()
        step = answer(500) if step is of_another_order else step
        cause = None if cause is Cause.STRIPE_INCONCLUSIVE else cause
    shop.stripe.next(operation, step)
    assert (shop.deliver(), shop.alarms) == (BackOff(), [cause] if cause else [])
    assert (shop.payment().state, shop.payment().lease_expires_at) == ("PENDING", 0)
    assert shop.deliver() == Done()
    assert ({*shop.stripe.sent("create")}, {*shop.stripe.sent("confirm")}) == ({CREATES[0]}, {CONFIRM})
    assert (shop.outcome, shop.stripe.charged) == (("SUCCEEDED", "pi_0"), ["pi_0"])


# ---------------------------------------------------------------- create


def test_a_replayed_create_is_retrieved(shop: Shop) -> None:
    """A replay proves which PaymentIntent it is, not its status. The order was lost and placed again, at another
    time, and is led to it all the same."""
    shop.deliver()
    shop.stripe.refund_by_hand("pi_0", 400)
    shop.lose_row()
    shop.passes(3 * HOUR)
    assert shop.deliver(placed_at=datetime.fromtimestamp(shop.now, UTC)) == Done()
    assert shop.stripe.operations[2:] == ["create", "retrieve"]
    assert (shop.outcome, shop.payment().amount_refunded_minor) == (("SUCCEEDED", "pi_0"), 400)
    assert shop.stripe.charged == ["pi_0"]


@pytest.mark.parametrize("replayed", [answer(status, replay=True) for status in (500, 409, 403, 404, 400)])
@pytest.mark.parametrize("count", range(KEYS + 1))
def test_replayed_failures_lead_to_the_next_key(shop: Shop, replayed: Step, count: int) -> None:
    """Each worker walks from the first key to the same one, at no alarm. After the fifth, the order is held."""
    shop.passes(KEY_AGES_SECONDS[-1])
    shop.stripe.next("create", *[replayed] * count)
    assert shop.deliver() == Done()
    assert shop.stripe.sent("create") == CREATES[: count + 1]
    is_held = count == KEYS
    assert shop.alarms == ([Cause.STRIPE_INCONCLUSIVE] if is_held else [])
    assert shop.outcome == (("PENDING", None) if is_held else ("SUCCEEDED", "pi_0"))


@pytest.mark.parametrize("number", range(1, KEYS))
def test_a_key_is_used_once_its_time_has_come(shop: Shop, number: int) -> None:
    """So an outage of minutes, whose 500s Stripe stores, does not use up the keys of the order's window."""
    shop.passes(int(T0 + KEY_AGES_SECONDS[number] - 1 - shop.now))
    shop.stripe.next("create", *[STORED_500] * number * 2)
    assert shop.deliver() == BackOff()
    assert (shop.stripe.sent("create"), shop.alarms) == (CREATES[:number], [])
    shop.passes(1)
    assert shop.deliver() == Done()
    assert shop.stripe.sent("create") == CREATES[:number] + CREATES[: number + 1]


@pytest.mark.parametrize("before", [[], [STORED_500]])
def test_a_key_used_with_other_parameters_is_held(shop: Shop, before: list[Step]) -> None:
    """A deployment has changed them: nothing else is sent, an alarm says so, and the row keeps it for `release`."""
    shop.passes(KEY_AGES_SECONDS[1])
    shop.stripe.next("create", *before, OTHERS)
    assert shop.deliver() == Done()
    assert len(shop.stripe.requests) == len(before) + 1
    assert (shop.outcome, shop.payment().lease_expires_at) == (("PENDING", None), 0)
    assert shop.payment().held_because == PARAMETERS_DIFFER
    shop.passes(26 * HOUR)  # Stripe has forgotten the key.
    assert (shop.deliver(), shop.stripe.charged, shop.alarms) == (Done(), [], [Cause.REQUEST_REFUSED])


def test_a_row_that_names_a_duplicate_is_held(shop: Shop) -> None:
    """An older version of it was restored after a release: nothing is told, and nothing is created for it."""
    shop.stripe.next("confirm", OUTAGE)
    assert shop.deliver() == BackOff()
    shop.tools().stripe.cancel("pi_0", "duplicate")
    for _ in range(2):
        assert (shop.deliver(), shop.outcome, shop.payment().held_because) == (Done(), ("PENDING", None), DUPLICATE)
    assert shop.stripe.sent("create") == CREATES[:1]


@pytest.mark.parametrize("code", ["amount_too_small", "currency_not_supported"])
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("before", [[], [STORED_500]])
def test_an_amount_that_stripe_refuses_cancels_the_order(
    shop: Shop, code: str, replay: bool, before: list[Step]
) -> None:
    """No other card helps, so it takes no other attempt. It is no alarm of ours."""
    shop.passes(KEY_AGES_SECONDS[1])
    shop.stripe.next("create", *before, answer(400, replay=replay, code=code))
    assert [shop.deliver(), shop.deliver(attempt=2)] == [Done(), Done()]
    assert (shop.outcome, shop.payment().reason) == (("CANCELED", None), NOT_CHARGEABLE)
    assert (len(shop.stripe.requests), shop.alarms) == (len(before) + 1, [])


def test_a_payment_intent_that_takes_no_cards_declines_nobody(shop: Shop) -> None:
    """Card payments are not active for the account: an alarm, and the order waits. A replay leads to the next key.

    A cancellation passes it over, too: a late duplicate, after the row is lost, finds what was canceled.
    """
    shop.stripe.behavior.takes_cards = False
    for number in (1, 2):
        assert shop.deliver() == BackOff()
        assert (shop.outcome, shop.alarms[number - 1 :]) == (("PENDING", None), [Cause.STRIPE_ACCOUNT])
        assert shop.stripe.sent("create")[-number:] == CREATES[:number]
        shop.passes(KEY_AGES_SECONDS[number])
    shop.stripe.behavior.takes_cards = True
    assert shop.cancel() == Done()
    shop.lose_row()
    assert shop.deliver() == Done()
    assert (shop.outcome, shop.stripe.charged) == (("CANCELED", "pi_2"), [])


# ---------------------------------------------------------------- confirm


ANSWERED: list[tuple[Step, str]] = [
    (answer(402, code="card_declined", decline_code="lost_card"), "lost_card"),
    (answer(400, code="resource_missing", param="payment_method"), "payment_method_unknown"),
    (answer(400, code="payment_intent_unexpected_state"), "payment_intent_unexpected_state"),
    (answer(400, code="amount_too_large"), "amount_too_large"),
    (STORED_500, "card_declined"),
    (answer(403, replay=True), "card_declined"),
    (answer(400, replay=True, code="parameter_unknown"), "parameter_unknown"),
]
"""Responses after which the attempt's key never gets another: if the PaymentIntent is still open, it is declined."""


@pytest.mark.parametrize(("step", "code"), ANSWERED)
@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("requires_payment_method", "DECLINED"),
        ("requires_action", "REQUIRES_ACTION"),
        ("processing", "PENDING"),
        ("succeeded", "SUCCEEDED"),
        ("canceled", "CANCELED"),
    ],
)
def test_after_an_answer_the_payment_intent_decides(shop: Shop, step: Step, code: str, status: str, state: str) -> None:
    """One confirm each attempt; the response only says why it was declined. Another card is another attempt."""

    def then(execute: Execute) -> Any:
        shop.stripe.show("pi_0", status)
        return step(execute)

    shop.stripe.next("confirm", then)
    assert shop.deliver() == (BackOff() if state == "PENDING" else Done())
    assert (shop.outcome, shop.alarms) == ((state, "pi_0"), [])
    assert shop.stripe.operations == ["create", "confirm", "retrieve"]
    if state == "DECLINED":
        assert shop.payment().reason == code
        assert shop.deliver(attempt=2, payment_method=MASTERCARD) == Done()
        assert shop.stripe.sent("confirm") == [CONFIRM, CONFIRM_2]
        assert (shop.outcome, shop.stripe.charged) == (("SUCCEEDED", "pi_0"), ["pi_0"])


def test_a_replayed_confirm_is_retrieved(shop: Shop) -> None:
    """The replay still asks for action; since then the customer's bank has refused to authenticate."""
    shop.crash_after("confirm", payment_method=ASKS_FOR_ACTION)
    shop.stripe.bank_decides(shop.stripe.intent("pi_0"), pays=False)
    shop.passes()
    assert shop.deliver() == Done()
    assert (shop.payment().state, shop.payment().reason) == ("DECLINED", "payment_intent_authentication_failure")
    assert shop.stripe.operations[2:] == ["retrieve", "confirm", "retrieve"]


def test_what_stripe_refuses_is_kept_on_the_row(shop: Shop) -> None:
    """Its message and request id are for the person who investigates; they contain no API key."""
    shop.stripe.next("confirm", answer(401, message="Invalid API Key provided: sk_live_0123456789abcdef"))
    shop.deliver()
    assert shop.row()["stripe_request_id"] == "req_1"
    assert shop.row()["stripe_message"].startswith("Invalid API Key")
    assert "0123456789abcdef" not in shop.row()["stripe_message"]
    assert "Invalid API Key" not in shop.log.text


def test_a_payment_intent_that_keeps_changing_is_an_alarm(shop: Shop) -> None:
    """Stripe cancels it, and shows it open again, which it never does."""
    shop.request_cancel()
    shop.stripe.next("cancel", *[lambda _: client_of(shop.stripe).v1.payment_intents.retrieve("pi_0")] * STEPS_MAX)
    assert (shop.deliver(), shop.alarms) == (BackOff(), [Cause.STRIPE_INCONCLUSIVE])
    assert shop.stripe.operations == ["create", *["cancel"] * STEPS_MAX]


# ---------------------------------------------------------------- leases, crashes, clocks, deadlines


@pytest.mark.parametrize("operation", ["create", "confirm"])
@pytest.mark.parametrize("begins_at", [T0 + 1, OLD - 200])
def test_a_worker_that_has_lost_its_lease_writes_nothing(shop: Shop, operation: str, begins_at: int) -> None:
    """The second one's clock is 299 seconds ahead, so it takes the lease for expired, or the window for over."""
    shop.now = begins_at

    def the_second() -> None:
        shop.ahead = 299
        shop.deliver()
        shop.ahead = 0

    shop.stripe.next(operation, meanwhile(the_second))
    assert (shop.deliver(), shop.log.lines[-1]["message"][:13]) == (BackOff(), "write refused")
    shop.passes()
    shop.deliver()
    assert (shop.outcome, shop.stripe.charged) == (("SUCCEEDED", "pi_0"), ["pi_0"])


@pytest.mark.parametrize("is_canceling", [False, True])
@pytest.mark.parametrize(
    ("has_intent", "late_after", "sent"),
    [(False, None, []), (False, "create", ["create"]), (True, None, []), (True, "retrieve", ["retrieve"])],
)
def test_no_request_begins_after_the_deadline(
    shop: Shop, has_intent: bool, late_after: str | None, sent: list[str], is_canceling: bool
) -> None:
    """The lease is released for the next delivery."""
    if has_intent:
        shop.crash_before("confirm")
        shop.passes()
        shop.stripe.requests.clear()
    if is_canceling:
        shop.request_cancel()
    if late_after:
        shop.stripe.next(late_after, afterwards(lambda: shop.passes(100)))
    tools = replace(shop.tools(), deadline=shop.now + (50 if late_after else 0))
    row = tools.payments.claim(order(), correlation_id="c", now=shop.now, lease_seconds=35)
    with pytest.raises(Deferred, match="too little time left"):
        charge(row, tools)
    assert shop.stripe.operations == sent


def test_a_request_waits_for_stripes_rate_limit(shop: Shop) -> None:
    """Without a token before the deadline nothing is sent."""
    shop.rate = SimpleNamespace(creates=SimpleNamespace(take=lambda _: False))
    assert (shop.deliver(), shop.stripe.requests) == (BackOff(), [])
