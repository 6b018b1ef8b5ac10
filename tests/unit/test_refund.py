"""A refund is made once, and told as Stripe shows it, then and later, with DynamoDB and Stripe in process."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.refund_rules import OVERDUE_SECONDS, Sent
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.sync import OUTAGES
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Done, PoisonMessage
from tests.shop.builders import (
    AMOUNT_MINOR,
    DAY,
    HOUR,
    ORDER_ID,
    OTHER_REFUND_ID,
    PAYMENT_INTENT,
    PAYMENTS,
    REFUND_ID,
    SHOP,
    T0,
    paid,
)
from tests.shop.dynamodb import SENT_AGAIN
from tests.shop.scripted_stripe import Execute, Step, afterwards, answer, killed
from tests.shop.sdk import SdkObject
from tests.shop.shop import Shop, paid_shop, refund_with
from tests.shop.stripe import REFUND_FAULTS

BOUNDARIES = 13
"""Of a delivery that refunds: before and after each request to DynamoDB or Stripe, and while Stripe has it."""
MADE, REFUSED = "succeeded", "failed"
FAULTS = REFUND_FAULTS - {"500, executed a day later", "500, executed two days later"}
"""Stripe executes what it has received within 23 hours, or never."""


@pytest.fixture
def shop() -> Shop:
    return paid_shop()


def posts(shop: Shop) -> int:
    """How many requests to refund were sent."""
    return len(shop.stripe.sent("create refund"))


def finish(shop: Shop) -> tuple[str, str | None, int]:
    """Deliver the message as SQS does, for two days at most; returns the last that was told."""
    for _ in range(50):
        if shop.refund() == Done():
            return shop.told[-1]
        shop.passes(HOUR)
    raise AssertionError("it was never told")


# ---------------------------------------------------------------- made once


def test_a_fresh_refund_is_three_requests(shop: Shop) -> None:
    """The list, the refund under its one key, and the charge for the row, whose total is told with its revision.
    Another refund of the order has another key."""
    already = len(shop.stripe.requests)
    assert (shop.refund(), shop.io.passed) == (Done(), BOUNDARIES)
    requests = [("refunds", ""), ("create refund", f"{SHOP}:{REFUND_ID}")]
    assert shop.stripe.requests[already:] == [*requests, ("retrieve", PAYMENT_INTENT)]
    [event], row = shop.published, shop.payment()
    outcome = event.data
    assert (outcome.refund_id, outcome.amount_minor, outcome.stripe_refund_id) == (REFUND_ID, 400, "re_0")
    assert (outcome.amount_refunded_minor, outcome.revision) == (400, row.revision)
    shop.refund(refund_with(refund_id=OTHER_REFUND_ID))
    assert (shop.refunded, shop.told[-1]) == ([400, 400], (MADE, None, 800))


def test_a_replayed_success_is_not_told(shop: Shop) -> None:
    """Stripe shows it as it was: meanwhile the bank has returned the refund. The next delivery lists it."""

    def made_and_returned() -> None:
        shop.refund()
        shop.stripe.return_refund(shop.stripe.refunds[0])
        shop.published.clear()

    shop.io.at["stripe create refund"] = made_and_returned
    assert (shop.refund(), shop.told) == (BackOff(), [])
    assert (shop.refund(), shop.told) == (Done(), [(REFUSED, "lost_or_stolen_card", 0)])
    assert shop.published[0].data.stripe_refund_id == "re_0"


@pytest.mark.parametrize(("slow", "then"), [("retrieve", "disputes"), ("refunds", "create refund")])
def test_no_request_begins_after_the_deadline(shop: Shop, slow: str, then: str) -> None:
    """The one before took all of the time."""
    if then == "disputes":
        shop.stripe.disputed(PAYMENT_INTENT, "won")
    shop.stripe.next(slow, afterwards(lambda: shop.passes(20)))
    assert (shop.refund(), shop.stripe.sent(then)) == (BackOff(), [])


def test_nothing_is_told_from_a_row_that_was_claimed_anew(shop: Shop) -> None:
    """The row is lost while Stripe refunds, and the order's own message makes it again: it names no PaymentIntent."""

    def lose_and_claim() -> None:
        shop.lose_row()
        shop.stripe.next("create", killed)
        with suppress(KeyboardInterrupt):
            shop.deliver()

    shop.stripe.next("create refund", afterwards(lose_and_claim))
    assert (shop.refund(), shop.told, shop.refunded) == (BackOff(), [], [400])
    assert shop.payment().payment_intent_id is None


# ---------------------------------------------------------------- refused


def by_hand(shop: Shop) -> Callable[[], object]:
    """All is refunded by hand; returns how the bank gives it back."""
    made = shop.refund_by_hand(AMOUNT_MINOR)
    return lambda: shop.stripe.return_refund(made)


def disputed(shop: Shop) -> Callable[[], object]:
    """A dispute is open; returns how it is won."""
    shop.stripe.dispute_is(PAYMENT_INTENT, "needs_response")
    return lambda: shop.stripe.dispute_is(PAYMENT_INTENT, "won")


@pytest.mark.parametrize(
    ("reason", "code", "total"), [(by_hand, "charge_already_refunded", AMOUNT_MINOR), (disputed, "charge_disputed", 0)]
)
def test_a_refusal_is_told_and_never_sent_again(shop: Shop, reason: Any, code: str, total: int) -> None:
    """The row says so, and the next delivery tells it: nothing is sent when the reason is gone, and its message comes
    once more."""
    ends = reason(shop)
    assert (shop.refund(), shop.told, shop.alarms) == (BackOff(), [], [])
    assert shop.payment().refunds_sent == {REFUND_ID: Sent(code=code)}
    assert (shop.refund(), shop.told) == (Done(), [(REFUSED, code, total)])
    assert (shop.published[0].data.stripe_refund_id, shop.published[0].data.amount_minor) == (None, 400)
    ends()
    for seconds in (0, 3 * DAY):
        shop.passes(seconds)
        assert shop.refund() == Done()
    assert ({told[:2] for told in shop.told}, posts(shop)) == ({(REFUSED, code)}, 1)


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_a_refusal_after_a_request_without_an_answer_is_told_days_later(shop: Shop, kind: str) -> None:
    """Until then Stripe may still make the refund, also when the refusal's reason is gone: then it is told as made."""
    shop.io.faults["stripe_create_refund"] = kind
    shop.refund()
    shop.io.faults.clear()
    ends = (lambda: None) if shop.refunded else by_hand(shop)
    shop.refund()
    ends()
    hours = 0
    while not shop.told and hours < 80:
        shop.passes(HOUR)
        shop.refund()
        hours += 1
    shop.passes(2 * DAY)
    shop.refund()
    assert {each[0] for each in shop.told} == ({MADE} if shop.refunded else {REFUSED})
    assert shop.refunded or hours == (1 if kind == "401" else 72)


def test_a_refusal_beside_a_request_without_an_answer_is_told_days_later(shop: Shop) -> None:
    """The answer to the first one says nothing of the second: only a later one is written, as one after another."""
    disputed(shop)

    def deliver_again() -> None:
        shop.io.faults["stripe_create_refund"] = "drop before"
        assert shop.refund() == BackOff()

    shop.io.at["stripe create refund in flight"] = deliver_again
    for seconds in (0, 0, 3 * DAY - 1):
        shop.passes(seconds)
        assert (shop.refund(), shop.told) == (BackOff(), [])
    shop.passes(1)
    assert (shop.refund(), shop.told) == (Done(), [(REFUSED, "charge_disputed", 0)])


def test_a_refund_without_an_answer_is_sent_for_22_hours_and_again_after_three_days(shop: Shop) -> None:
    """Between them its key may be forgotten, and Stripe's list may still lack it: also one that a bank has returned,
    which the charge's sum does not show."""
    for hours, sent in ((0, 1), (21, 2), (1, 2), (49, 2), (1, 3)):
        shop.passes(hours * HOUR)
        shop.io.faults["stripe_create_refund"] = "drop before"
        assert (shop.refund(), posts(shop)) == (BackOff(), sent)


BESIDE: dict[str, Callable[[Any], object]] = {
    "killed": killed,
    "killed, and the key is forgotten": killed,
    "delivered again": Shop.refund,
    "its row lost": Shop.lose_row,
    "refused, and its row lost": Shop.lose_row,
    "refused, and its row written": lambda shop: shop.store.write_if_unchanged(shop.payment(), {"reason": "x"}, now=T0),
    "refused, and a write is sent again": lambda shop: shop.io.faults.update({"dynamodb_UpdateItem": SENT_AGAIN}),
}


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("happens", BESIDE)
def test_a_delivery_may_be_disturbed_anywhere(shop: Shop, place: int, happens: str) -> None:
    """The next one ends with the one refund, or tells that it is refused, once the row knows that. No lease separates
    two deliveries: the key does. A lost row is restored as it was. No other writer makes a refusal wait for days."""
    row, is_refused = shop.row(), "refused" in happens
    if is_refused:
        disputed(shop)
    shop.io.passed, shop.io.at[place] = 0, partial(BESIDE[happens], shop)
    with suppress(KeyboardInterrupt):
        shop.refund()
    shop.io.at.clear()
    if "lost" in happens:
        found = shop.store.read(ORDER_ID)
        assert not (is_refused and shop.told and found) or REFUND_ID in found.refunds_sent
        shop.restore(row)
    if "forgotten" in happens:
        shop.passes(3 * DAY)
        shop.stripe.forget_keys()
    assert finish(shop) == ((REFUSED, "charge_disputed", 0) if is_refused else (MADE, None, 400))
    assert (len({*shop.told}), shop.refunded) == (1, [400] * (not is_refused))


# ---------------------------------------------------------------- what waits

Happens = Callable[[Shop], object]


def twice(operation: str, step: Step) -> Happens:
    return lambda shop: shop.stripe.next(operation, step, step)


def of_another_refund(_: Execute) -> Any:
    metadata = {"shop": SHOP, "order_id": ORDER_ID, "refund_id": OTHER_REFUND_ID}
    return SdkObject({"id": "re_9", "status": "succeeded", "amount": 400, "currency": "eur", "metadata": metadata})


WAITS: dict[str, tuple[Happens, Cause | None]] = {
    "a stored failure": (twice("create refund", answer(500, replay=True)), None),
    "too little balance": (twice("create refund", answer(400, code="balance_insufficient")), None),
    "no list": (twice("refunds", answer(429)), None),
    "no right to list": (twice("refunds", answer(403)), Cause.STRIPE_ACCOUNT),
    "another account": (lambda shop: setattr(shop.stripe, "of_account", 1), Cause.STRIPE_ACCOUNT),
    "other parameters": (twice("create refund", answer(400, type="idempotency_error")), Cause.REQUEST_REFUSED),
    "another refund": (twice("create refund", of_another_refund), Cause.STRIPE_INCONCLUSIVE),
    "no write": (lambda shop: setattr(shop.io, "failing", "dynamodb UpdateItem"), None),
}
"""With the alarm of each delivery, if time does not help."""


@pytest.mark.parametrize(("happens", "cause"), WAITS.values(), ids=WAITS.keys())
def test_what_is_not_clear_is_delivered_again(shop: Shop, happens: Happens, cause: Cause | None) -> None:
    """Nothing is told; from an hour after the request on, each delivery raises an alarm. Then the refund is made."""
    happens(shop)
    shop.now = T0 + OVERDUE_SECONDS - 1
    assert (shop.refund(), shop.alarms) == (BackOff(), [cause] if cause else [])
    shop.passes(1)
    shop.counted.clear()
    assert (shop.refund(), shop.alarms, shop.told) == (BackOff(), [cause or Cause.OVERDUE], [])
    shop.stripe.of_account, shop.io.failing = 0, ""
    assert (finish(shop), shop.refunded) == ((MADE, None, 400), [400])


NOT_PAID = [each for each in PaymentState if each is not PaymentState.SUCCEEDED]


@pytest.mark.parametrize("state", [None, "without an id", *NOT_PAID])
def test_a_refund_waits_for_its_payments_row(shop: Shop, state: Any) -> None:
    """With an alarm: rows are restored. Stripe is not asked."""
    row = paid() if state in (None, "without an id") else paid(state)
    if state == "without an id":
        del row["payment_intent_id"]
    shop.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): row} if state else {}
    already = len(shop.stripe.requests)
    assert (shop.refund(), shop.alarms, len(shop.stripe.requests)) == (BackOff(), [Cause.ROW_LOST], already)
    shop.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid()}
    assert finish(shop) == (MADE, None, 400)


@pytest.mark.parametrize("changes", [{"amount_minor": AMOUNT_MINOR + 1}, {"currency": "USD"}])
def test_more_than_was_charged_is_poison(shop: Shop, changes: dict[str, Any]) -> None:
    """Nothing is sent to Stripe."""
    with pytest.raises(PoisonMessage):
        shop.refund(refund_with(**changes))
    assert posts(shop) == 0


def test_a_refund_that_stripe_holds_is_made(shop: Shop) -> None:
    """Too little balance is an alarm. It is found on a later page of the list, too: the newest refund comes first."""
    shop.stripe.next("create refund", killed)
    with pytest.raises(KeyboardInterrupt):
        shop.refund()
    made = shop.refund_by_hand(400, refund_id=REFUND_ID)
    shop.refund_by_hand(100)
    shop.stripe.page_max = 1
    for reason in ("processing", "insufficient_funds"):
        shop.stripe.hold_refund(made, reason)
        assert shop.refund() == Done()
        assert shop.alarms == [Cause.BALANCE_TOO_LOW] * (reason == "insufficient_funds")
    assert [told[0] for told in shop.told] == [MADE, MADE]


# ---------------------------------------------------------------- later changes at Stripe: an event is a hint


@pytest.fixture
def after(shop: Shop) -> Shop:
    """Its first refund is made and told."""
    shop.refund()
    shop.published.clear()
    shop.counted.clear()
    return shop


def happens(shop: Shop) -> None:
    """An event comes of the first refund: it only names it."""
    about: Any = {"event_id": "evt_1", "type": "refund.failed", "created": T0, "payment_intent_id": PAYMENT_INTENT}
    shop.apply(StripeEvent(**about, stripe_refund_id="re_0"))


def bank_returns(shop: Shop) -> None:
    shop.stripe.return_refund(shop.stripe.refunds[0])


def test_a_refund_of_a_payment_whose_row_has_expired_is_not_told(after: Shop) -> None:
    """Nor of one whose row names another PaymentIntent. That it failed has to be known all the same."""
    row = after.row()
    after.lose_row()
    bank_returns(after)
    after.passes(501 * DAY)
    happens(after)
    after.restore({**row, "payment_intent_id": "pi_9"})
    happens(after)
    expected = [Cause.REFUND_FAILED, Cause.MONEY_DIFFERS, Cause.REFUND_FAILED]
    assert (after.told, after.alarms) == ([], expected)


@pytest.mark.parametrize("refund_id", [None, "", "R-17", "rfd_1", f"{REFUND_ID}\n"])
def test_a_refund_by_hand_is_not_told(shop: Shop, refund_id: str | None) -> None:
    """It has no refund id, or another system's. Its charge's event counts it; if it fails, a person has to know."""
    made = shop.refund_by_hand(400, **({} if refund_id is None else {"refund_id": refund_id}))
    happens(shop)
    assert shop.alarms == []
    shop.stripe.return_refund(made)
    happens(shop)
    assert (shop.told, shop.alarms) == ([], [Cause.REFUND_FAILED])


def test_an_event_is_a_hint(after: Shop) -> None:
    """What Stripe shows now is told, with the row's total; later, if Stripe cannot be asked, or too late for it."""
    after.stripe.next("retrieve", afterwards(lambda: after.passes(20)))
    with pytest.raises(OUTAGES):
        happens(after)
    assert after.stripe.sent("refund") == []
    bank_returns(after)
    for fault in ("429", "drop before"):
        after.io.faults["stripe_refund"] = fault
        with pytest.raises(OUTAGES):
            happens(after)
    happens(after)
    assert after.told == [(REFUSED, "lost_or_stolen_card", 0)]
    assert after.published[0].data.revision == after.payment().revision
