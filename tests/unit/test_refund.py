"""A refund is made once, and told as Stripe shows it: each path of `refund`, with DynamoDB and Stripe in process."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.refund_rules import OVERDUE_SECONDS, Sent
from onecharge.payments.stripe_responses import Deferred
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Done, PoisonMessage
from tests.shop.builders import AMOUNT_MINOR, DAY, HOUR, ORDER_ID, PAYMENT_INTENT, PAYMENTS, SHOP, T0, paid
from tests.shop.scripted_stripe import LOST, Execute, Step, answer, killed
from tests.shop.shop import OTHER_REFUND_ID, REFUND_ID, Shop, crash, paid_shop, refund_with
from tests.shop.stripe import REFUND_FAULTS, SdkObject
from tests.support.harness import Sample

BOUNDARIES = 17
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


def test_a_fresh_refund_is_five_requests(shop: Shop) -> None:
    """Its charge, the list, the refund under its one key, and the charge again until the row says the same: its total
    is told with the row's revision. Another refund of the order has another key."""
    already = len(shop.stripe.requests)
    assert (shop.refund(), shop.io.passed) == (Done(), BOUNDARIES)
    requests = [("retrieve", PAYMENT_INTENT), ("refunds", ""), ("create refund", f"{SHOP}:{REFUND_ID}")]
    assert shop.stripe.requests[already:] == [*requests, *[("retrieve", PAYMENT_INTENT)] * 2]
    [event], row = shop.published, shop.payment()
    outcome = event.data
    assert (outcome.refund_id, outcome.amount_minor, outcome.stripe_refund_id) == (REFUND_ID, 400, "re_0")
    assert (outcome.amount_refunded_minor, outcome.revision) == (400, row.revision)
    shop.refund(refund_with(refund_id=OTHER_REFUND_ID))
    assert (shop.refunded, shop.told[-1]) == ([400, 400], (MADE, None, 800))


def test_a_duplicate_tells_it_again_as_it_is(shop: Shop) -> None:
    """It sends nothing, before and after Stripe has forgotten the key: the first event may be lost. If it names another
    amount, as after Orders was put back, the order's side notices that it is another one."""
    for seconds in (0, 0, 3 * DAY):
        shop.passes(seconds)
        assert shop.refund() == Done()
    assert shop.refund(refund_with(amount_minor=500)) == Done()
    assert (shop.told, posts(shop), shop.refunded) == ([(MADE, None, 400)] * 4, 1, [400])
    assert shop.published[-1].data.amount_minor == 400


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("happens", ["killed", "killed, and the key is forgotten", "delivered again"])
def test_a_worker_may_be_killed_or_overtaken_anywhere(shop: Shop, place: int, happens: str) -> None:
    """The next delivery ends with the one refund, told with its total. No lease separates two deliveries: the key does,
    and each tells what Stripe shows."""
    shop.io.at[place] = shop.refund if happens == "delivered again" else crash
    with suppress(KeyboardInterrupt):
        shop.refund()
    if "forgotten" in happens:
        shop.passes(25 * HOUR)
        shop.stripe.forget_keys()
    assert finish(shop) == (MADE, None, 400)
    assert ({*shop.told}, shop.refunded) == ({(MADE, None, 400)}, [400])


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_a_refund_is_made_once_whatever_stripe_answers(shop: Shop, kind: str) -> None:
    """The next delivery lists it, or sends the same key: it waits while Stripe remembers a failure under that key."""
    shop.io.faults["stripe_refund"] = kind
    shop.refund()
    shop.io.faults.clear()
    assert finish(shop) == (MADE, None, 400)
    shop.passes(2 * DAY)
    assert (shop.refunded, {*shop.stripe.sent("create refund")}) == ([400], {f"{SHOP}:{REFUND_ID}"})


def test_a_replayed_success_is_not_told(shop: Shop) -> None:
    """Stripe shows it as it was: meanwhile the bank has returned the refund. The next delivery lists it."""

    def made_and_returned() -> None:
        shop.refund()
        shop.stripe.return_refund(shop.stripe.refunds[0])
        shop.published.clear()

    shop.io.at["stripe refund"] = made_and_returned
    assert (shop.refund(), shop.told) == (BackOff(), [])
    assert (shop.refund(), shop.told) == (Done(), [(REFUSED, "lost_or_stolen_card", 0)])
    assert shop.published[0].data.stripe_refund_id == "re_0"


def test_a_list_that_shows_less_than_the_charge_sends_nothing(shop: Shop) -> None:
    """The key is forgotten, and the list does not show the refund yet: sent again, it would be a second one."""
    shop.stripe.next("create refund", LOST)
    shop.refund()
    shop.passes(25 * HOUR)
    shop.stripe.forget_keys()
    shop.stripe.next("refunds", lambda _: SimpleNamespace(auto_paging_iter=list))
    assert (shop.refund(), posts(shop)) == (BackOff(), 1)
    assert (finish(shop), shop.refunded) == ((MADE, None, 400), [400])


def test_no_request_begins_after_the_deadline(shop: Shop) -> None:
    """The list took all of the time."""
    shop.io.at["stripe refunds"] = lambda: shop.passes(20)
    assert (shop.refund(), posts(shop)) == (BackOff(), 0)


def test_an_event_that_sns_refuses_is_told_by_the_next_delivery(shop: Shop) -> None:
    """Nothing is refunded twice for it."""
    failures = [Deferred("refused"), EndpointConnectionError(endpoint_url="https://sns")]
    told: Any = shop.published

    class Down(list[Any]):
        def append(self, event: Any) -> None:
            if failures:
                raise failures.pop(0)
            told.append(event)

    shop.published = Down()
    assert shop.refund() == BackOff()
    with pytest.raises(EndpointConnectionError):
        shop.refund()
    assert shop.refund() == Done()
    assert (len(told), shop.refunded) == (1, [400])


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
    """The row says so first: nothing is sent when the reason is gone, and its message comes once more."""
    ends = reason(shop)
    assert (shop.refund(), shop.told) == (Done(), [(REFUSED, code, total)])
    assert (shop.published[0].data.stripe_refund_id, shop.published[0].data.amount_minor) == (None, 400)
    assert shop.payment().refunds_sent == {REFUND_ID: Sent((), code)}
    ends()
    for seconds in (0, 3 * DAY):
        shop.passes(seconds)
        assert shop.refund() == Done()
    assert ({told[:2] for told in shop.told}, posts(shop)) == ({(REFUSED, code)}, 1)


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_a_refusal_after_a_request_without_an_answer_is_told_a_day_later(shop: Shop, kind: str) -> None:
    """Until then Stripe may still make the refund, also when the refusal's reason is gone: then it is told as made."""
    shop.io.faults["stripe_refund"] = kind
    shop.refund()
    shop.io.faults.clear()
    ends = (lambda: None) if shop.refunded else by_hand(shop)
    shop.refund()
    ends()
    hours = 0
    while not shop.told and hours < 50:
        shop.passes(HOUR)
        shop.refund()
        hours += 1
    shop.passes(2 * DAY)
    shop.refund()
    assert {each[0] for each in shop.told} == ({MADE} if shop.refunded else {REFUSED})
    # A 401 is an answer: Stripe has not executed it.
    assert shop.refunded or (hours >= 24) is (kind != "401")


def test_each_refund_has_requests_of_its_own(shop: Shop) -> None:
    """A refusal that is written beside another one forgets neither."""
    by_hand(shop)
    shop.io.at["stripe refund answered"] = lambda: shop.refund(refund_with(refund_id=OTHER_REFUND_ID))
    assert shop.refund() == Done()
    refused = Sent((), "charge_already_refunded")
    assert shop.payment().refunds_sent == dict.fromkeys((REFUND_ID, OTHER_REFUND_ID), refused)


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
def test_a_refusal_beside_a_slow_worker_is_told_only_if_there_is_no_refund(
    shop: Shop, place: int, *, dies: bool
) -> None:
    """Whatever the slow worker does then, and whenever: what is told stays so."""

    def another_is_refused() -> None:
        ends = disputed(shop)
        for _ in range(3):
            shop.refund()
        ends()
        if dies:
            crash()

    shop.io.at[place] = another_is_refused
    with suppress(KeyboardInterrupt):
        shop.refund()
    kind, _, total = finish(shop)
    shop.passes(3 * DAY)
    assert finish(shop)[0] == kind
    assert (shop.refunded, total) == (([400], 400) if kind == MADE else ([], 0))
    assert {each[0] for each in shop.told} == {kind}


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
    "another account": (lambda shop: setattr(shop.stripe, "account", 1), Cause.STRIPE_ACCOUNT),
    "other parameters": (twice("create refund", answer(400, type="idempotency_error")), Cause.REQUEST_REFUSED),
    "another refund": (twice("create refund", of_another_refund), Cause.STRIPE_INCONCLUSIVE),
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
    shop.stripe.account = 0
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


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("is_refused", [False, True])
def test_its_payments_row_may_be_lost_at_any_moment(shop: Shop, place: int, *, is_refused: bool) -> None:
    """And is restored as it was: the refund is made once, or told as refused, once the row knows it."""
    row = shop.row()
    if is_refused:
        disputed(shop)
    shop.io.passed, shop.io.at[place] = 0, shop.lose_row
    shop.refund()
    shop.io.at.clear()
    found = shop.store.read(ORDER_ID)
    assert not (is_refused and shop.told and found) or REFUND_ID in found.refunds_sent
    shop.restore(row)
    assert finish(shop)[0] == (REFUSED if is_refused else MADE)
    assert shop.refunded == [400] * (not is_refused)


@pytest.mark.parametrize("changes", [{"amount_minor": AMOUNT_MINOR + 1}, {"currency": "USD"}])
def test_more_than_was_charged_is_poison(shop: Shop, changes: dict[str, Any]) -> None:
    """Nothing is sent to Stripe."""
    with pytest.raises(PoisonMessage):
        shop.refund(refund_with(**changes))
    assert posts(shop) == 0


def test_a_refund_that_stripe_holds_is_made(shop: Shop) -> None:
    """Told with the reason; too little balance is an alarm, whether Stripe's answer or its list says so."""
    shop.stripe.next("create refund", killed)
    with pytest.raises(KeyboardInterrupt):
        shop.refund()
    made = shop.refund_by_hand(400, refund_id=REFUND_ID)
    for reason in ("processing", "insufficient_funds"):
        shop.stripe.hold_refund(made, reason)
        assert shop.refund() == Done()
    assert [each.data.pending_reason for each in shop.published] == ["processing", "insufficient_funds"]
    assert ({told[0] for told in shop.told}, shop.alarms) == ({MADE}, [Cause.BALANCE_TOO_LOW])


def test_the_samples_are_refunds_that_can_be_handled(sample: Sample) -> None:
    """events/refund_charge follows the contract."""
    for name in ("refund_requested", "duplicate"):
        for record in sample(f"refund_charge/{name}")["Records"]:
            assert RefundRequestedEvent.model_validate_json(record["body"]).data.amount_minor == 1000
