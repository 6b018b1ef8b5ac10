"""The console's core: recorded log events and facts become lines, a tally, and a timeline in lanes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import stripe

from console.lines import STRIPE_REQUEST, TIMED_OUT, Line, by_order, line_of
from console.tally import Seen, Stored, tally
from console.timeline import CUSTOMER, ORDERS, QUEUE, REFUNDS, REPAIRS, STRIPE, Kind, Timeline, short, timeline
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.republication import DAY_SECONDS
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge_rules import StripeIntent
from ops.facts import Facts, IntentFacts, StripeFacts
from ops.story import story
from tests.shop import builders

ORDER_ID = "ord_" + "a" * 32
OTHER_ID = "ord_" + "b" * 32
PI = "pi_" + "1" * 24
REFUND_ID = "rfd_" + "b" * 32
T0 = 1_795_414_380
CONFIRM_KEY = f"shop-1:{ORDER_ID}:1:{PI}"
ROW = {"state": "PENDING", "attempt": 1, "revision": 1, "lease_owner": "0123456789abcdef", "lease_expires_at": T0 + 17}


def powertools(
    at: float, message: str, *, service: str = "charge_order", worker: str = "w1", **fields: Any
) -> dict[str, Any]:
    """An event of CloudWatch Logs, as a function's logger writes it; the event itself comes a moment later."""
    stamp = f"2026-11-23 06:{13 + int(at) // 60:02}:{int(at) % 60:02},{round(at % 1 * 1000):03}+0000"
    line = {"level": "INFO", "message": message, "timestamp": stamp, "service": service, "order_id": ORDER_ID, **fields}
    return {"timestamp": (T0 + at + 0.4) * 1000, "logStreamName": worker, "message": json.dumps(line)}


def request(at: float, endpoint: str, *, status: str = "2xx", worker: str = "w1", **about: Any) -> dict[str, Any]:
    """A request to Stripe, in embedded metric format."""
    metrics = {"_aws": {"Timestamp": (T0 + at) * 1000}, "StripeSeconds": [0.1], "service": "charge_order"}
    line = {**metrics, "endpoint": endpoint, "status": status, **about}
    return {"timestamp": (T0 + at + 0.4) * 1000, "logStreamName": worker, "message": json.dumps(line)}


def timed_out(at: float, worker: str = "w1") -> dict[str, Any]:
    return {"timestamp": (T0 + at) * 1000, "logStreamName": worker, "message": "Task timed out after 12.00 seconds\n"}


TOLD: dict[str, Any] = {"service": "refund_charge", "refund_id": REFUND_ID, "type": "onecharge.refund.succeeded"}
FIRST: dict[str, Any] = {"message_id": "m1", "receive_count": 1}
CREATE = request(1.1, "POST /v1/payment_intents", idempotency_key=f"shop-1:{ORDER_ID}:0:0", order_id=ORDER_ID)
STORED = powertools(1.2, "PaymentIntent stored", payment_intent_id=PI, **FIRST)
CONFIRM = request(1.4, "POST /v1/payment_intents/{id}/confirm", idempotency_key=CONFIRM_KEY, order_id=ORDER_ID)
BEGUN = [
    powertools(0, "order placed", service="orders_api", worker="api"),
    powertools(0.2, "event published", service="publish_events", worker="p", event_type="onecharge.order.placed"),
    powertools(1, "payment claimed", row=ROW, **FIRST),
    CREATE,
    STORED,
]
FINALIZED = powertools(1.5, "payment finalized", state="SUCCEEDED", payment_intent_id=PI, **FIRST)
DUPLICATE = powertools(
    2,
    "duplicate ignored: the attempt has ended",
    worker="w2",
    message_id="m2",
    receive_count=1,
    row={**ROW, "state": "SUCCEEDED"},
)


def lines_of(*events: Mapping[str, Any]) -> list[Line]:
    return by_order(filter(None, map(line_of, events)))[ORDER_ID]


def facts(*, charged_at: int | None = None, now: int = T0 + 600) -> Facts:
    intent = StripeIntent(
        payment_intent_id=PI,
        status="succeeded",
        amount_minor=2500,
        currency="EUR",
        customer_id="cus_1",
        created=T0 + 1,
    )
    made = {
        "id": "ch_1",
        "object": "charge",
        "status": "succeeded",
        "amount": 2500,
        "currency": "eur",
        "created": charged_at,
    }
    charge: Any = stripe.Charge.construct_from(made, "k")
    seen = StripeFacts(intents=[IntentFacts(intent=intent, charges=[charge])] if charged_at else [])
    return Facts(order_id=ORDER_ID, now=now, stripe=seen)


def refunded() -> Facts:
    """5.00 EUR, 40 seconds after the order was placed."""
    charged = facts(charged_at=T0 + 1)
    made: Any = stripe.Refund.construct_from(
        {
            **{"id": "re_" + "c" * 24, "amount": 500, "created": T0 + 40, "status": "succeeded"},
            "metadata": {"refund_id": REFUND_ID},
        },
        "k",
    )
    [intent] = charged.stripe.intents
    asked = StoredRefund(
        order_id=ORDER_ID,
        refund_id=REFUND_ID,
        attempt=1,
        amount_minor=500,
        currency="EUR",
        fingerprint="f",
        requested_at=datetime.fromtimestamp(T0 + 40.2, UTC).isoformat(),
        correlation_id="c",
        requested_by="me",
        reason="a cup was broken",
        status=RefundState.SUCCEEDED,
    )
    return replace(
        charged,
        stripe=StripeFacts(intents=[replace(intent, refunds=[made])]),
        refunds=[asked],
    )


def shown(*events: Mapping[str, Any], charged_at: int | None = None) -> Timeline:
    return timeline(story(facts(charged_at=charged_at)), lines_of(*events))


def said(made: Timeline) -> list[tuple[str, str]]:
    return [(each.lane, each.what) for each in made.moments]


# ---------------------------------------------------------------- lines


def test_a_line_has_the_time_at_which_it_was_written() -> None:
    """Not the one at which CloudWatch received it, so that lines of several functions are in order."""
    [line] = lines_of(BEGUN[0])
    assert (line.at, line.service, line.order_id) == (T0, "orders_api", ORDER_ID)
    [asked] = lines_of(CREATE)
    assert (asked.at, asked.message) == (T0 + 1.1, STRIPE_REQUEST)


@pytest.mark.parametrize("text", ["START RequestId: 1", "[1]", '"text"', "{", '{"type": "platform.start"}'])
def test_what_is_no_line_of_ours_is_left_out(text: str) -> None:
    """Lambda's own lines, and whatever a library printed."""
    assert line_of({"timestamp": T0, "logStreamName": "w", "message": text}) is None


def test_a_request_that_names_only_its_payment_intent_is_the_orders() -> None:
    """A retrieve has no idempotency key; another line of the order names the PaymentIntent."""
    retrieve = request(3, "GET /v1/payment_intents/{id}", stripe_object=PI)
    assert lines_of(*BEGUN, retrieve)[-1].fields["endpoint"] == "GET /v1/payment_intents/{id}"
    assert by_order([each for each in [line_of(retrieve)] if each]) == {}


def test_a_timeout_is_of_the_orders_that_its_worker_had_begun() -> None:
    """On AWS Lambda reports it as JSON, here as text. One that was finalized before is not concerned."""
    on_aws = {"timestamp": (T0 + 12) * 1000, "logStreamName": "w1", "message": '{"record": {"status": "timeout"}}'}
    for event in (timed_out(12), on_aws):
        assert lines_of(*BEGUN, event)[-1].message == TIMED_OUT
        assert lines_of(*BEGUN, FINALIZED, event)[-1].message == "payment finalized"


# ---------------------------------------------------------------- the tally


def test_the_tally_counts_charges_in_stripes_ledger_alone() -> None:
    """Our rows say PAID for both; the ledger has two charges of one, and none of the other."""
    paid = Stored("PAID", 2500, "EUR", T0)
    made = tally(Seen(T0 + 60, {}, {ORDER_ID: paid, OTHER_ID: paid}, [ORDER_ID, ORDER_ID]))
    assert [made.total(name) for name in ("charges", "is_charged_twice", "is_lost", "is_wrong")] == [2, 1, 1, 2]


def test_deliveries_duplicates_and_replays_are_counted_by_their_lines() -> None:
    """Two lines of one delivery are one delivery; a message that is received again is another."""
    again = powertools(80, "payment claimed", row=ROW, message_id="m1", receive_count=2)
    replay = request(
        81, "POST /v1/payment_intents/{id}/confirm", idempotency_key=CONFIRM_KEY, order_id=ORDER_ID, replayed="true"
    )
    lines = by_order(filter(None, map(line_of, [*BEGUN, again, replay, DUPLICATE])))
    made = tally(Seen(T0 + 90, lines, {ORDER_ID: Stored("PAID", 2500, "EUR", T0)}, [ORDER_ID]))
    assert [made.total(name) for name in ("deliveries", "duplicates", "requests", "replays")] == [3, 1, 2, 1]
    assert made.total("is_wrong") == 0


def test_a_confirm_that_was_never_answered_is_counted() -> None:
    """Its worker was killed before it could log it; a charge shows that it was sent."""
    lines = by_order(filter(None, map(line_of, [*BEGUN, timed_out(13)])))
    assert [tally(Seen(T0 + 90, lines, {}, charges)).total("requests") for charges in ([], [ORDER_ID])] == [1, 2]


def test_an_order_is_in_the_list_where_the_log_placed_it() -> None:
    """The button "A day passes" makes the stored order a day older: it stays where it was."""
    lines = by_order(filter(None, [line_of(BEGUN[0])]))
    aged = Stored("PAID", 2500, "EUR", T0 - 90_000)
    assert [row.at for row in tally(Seen(T0 + 60, lines, {ORDER_ID: aged})).rows] == [T0]
    assert [row.at for row in tally(Seen(T0 + 60, {}, {ORDER_ID: aged})).rows] == [T0 - 90_000]


@pytest.mark.parametrize(
    ("stored", "after_seconds", "is_lost"),
    [
        (None, 1, True),
        (Stored("PENDING", 1, "EUR", T0), 60, False),
        (Stored("PENDING", 1, "EUR", T0), DAY_SECONDS + 1, True),
        (Stored("PAYMENT_DECLINED", 1, "EUR", T0), DAY_SECONDS + 1, False),
        (Stored("PAID", 1, "EUR", T0), 60, True),
    ],
    ids=["accepted, no item", "waits", "waits a day", "declined", "PAID without a charge"],
)
def test_what_is_lost(stored: Stored | None, after_seconds: int, is_lost: bool) -> None:
    """An order that nothing will charge although it was accepted."""
    lines = by_order(filter(None, [line_of(BEGUN[0])]))
    made = tally(Seen(T0 + after_seconds, lines, {ORDER_ID: stored} if stored else {}))
    assert made.total("is_lost") == is_lost


# ---------------------------------------------------------------- the timeline


def test_a_fresh_order_from_left_to_right() -> None:
    """The customer, the order service, the queue, a worker and Stripe; the id is stored before the confirm."""
    assert said(shown(*BEGUN, CONFIRM, FINALIZED, charged_at=T0 + 1)) == [
        (CUSTOMER, "POST /orders: 202, placed"),
        (ORDERS, "order stored, by one conditional write"),
        (QUEUE, "published: order placed"),
        (QUEUE, "message m1 delivered"),
        ("worker A", "claim granted to 012345: lease until 06:13:17"),
        (STRIPE, "create: 2xx, key shop-1:ord_aaaa…:0:0"),
        ("worker A", "id stored before the confirm: pi_1111…"),
        (STRIPE, "CHARGED: 25.00 EUR, ch_1 of pi_1111…"),
        (STRIPE, "confirm: 2xx, key shop-1:ord_aaaa…:1:pi_1111…"),
        ("worker A", "finalized: SUCCEEDED"),
    ]


def test_a_refused_claim_shows_the_row_that_refused_it() -> None:
    """In red, with the row as it was."""
    held = powertools(
        1.3, "duplicate waits for the lease", worker="w2", message_id="m3", receive_count=1, wait_seconds=17, row=ROW
    )
    made = shown(*BEGUN, held, DUPLICATE)
    refused = [each for each in made.moments if each.kind is Kind.REFUSED]
    assert [each.what for each in refused] == [
        "claim refused: leased until 06:13:17; again in 17 s",
        "claim refused: the row is SUCCEEDED; duplicate deleted",
    ]
    assert refused[0].details["row"] == ROW
    assert {each.lane for each in refused} == {"worker B"}


def test_a_refusal_is_beside_the_delivery_that_it_refuses() -> None:
    """Even if several are delivered in the same millisecond."""
    at_once = [
        powertools(2, "duplicate ignored", worker="w2", message_id=f"copy-{each}", receive_count=1, row=ROW)
        for each in "abc"
    ]
    rows = [row.cells for row in shown(*BEGUN, *at_once).rows if "worker B" in row.cells]
    assert [(row[QUEUE].details["message_id"], row["worker B"].details["message_id"]) for row in rows] == [
        (f"copy-{each}", f"copy-{each}") for each in "abc"
    ]


def test_nothing_follows_from_a_refused_claim() -> None:
    """A request that another worker sends within the same milliseconds has a row of its own."""
    retrieve = request(2.01, "GET /v1/payment_intents/{id}", stripe_object=PI)
    [refusal] = [row.cells for row in shown(*BEGUN, DUPLICATE, retrieve).rows if "worker B" in row.cells]
    assert STRIPE not in refusal


def test_a_killed_worker_keeps_its_lease_until_it_expires() -> None:
    """Stripe has charged, and no line of ours says so: the charge is where Stripe's second ends."""
    claimed = powertools(
        80, "payment claimed", worker="w2", message_id="m1", receive_count=2, row={**ROW, "lease_expires_at": T0 + 97}
    )
    retrieve = request(80.1, "GET /v1/payment_intents/{id}", worker="w2", stripe_object=PI)
    finalized = powertools(80.2, "payment finalized", worker="w2", state="SUCCEEDED", message_id="m1", receive_count=2)
    made = shown(*BEGUN, timed_out(13), claimed, retrieve, finalized, charged_at=T0 + 1)
    dead, next_one = made.leases
    assert (dead.lane, dead.ends, dead.expired) == ("worker A", T0 + 17, True)
    assert (next_one.lane, next_one.ends, next_one.expired) == ("worker B", T0 + 80.2, False)
    assert {row.at > T0 + 17 for row in made.rows if "worker A" in row.leased} == {False}
    texts = [what for _, what in said(made)]
    stored = texts.index("id stored before the confirm: pi_1111…")
    assert texts[stored + 1 : stored + 4] == [
        "CHARGED: 25.00 EUR, ch_1 of pi_1111…, and no answer is logged",
        "worker killed at its timeout: no result stored, the lease stays",
        "lease expired: the next delivery can claim the row",
    ]
    assert "receive count 2" in texts[stored + 4]


def test_a_line_that_has_no_sentence_of_its_own_is_shown_as_it_is() -> None:
    """With the function that wrote it. What reconcile or a webhook does is ours, and is in no lane of Stripe's."""
    other = powertools(3, "refund of a canceled order", service="update_order", worker="u")
    written = powertools(4, "it succeeded: the row becomes SUCCEEDED", service="reconcile", worker="r")
    made = shown(*BEGUN, other, written)
    assert (ORDERS, "update_order: refund of a canceled order") in said(made)
    assert (REPAIRS, "reconcile: it succeeded: the row becomes SUCCEEDED") in said(made)
    assert REPAIRS in made.lanes
    assert REPAIRS not in shown(*BEGUN).lanes


def test_a_row_that_a_webhook_finalizes_is_told_by_its_line_alone() -> None:
    """The story's event is not shown beside it."""
    written = powertools(4, "it succeeded: the row becomes SUCCEEDED", service="stripe_webhook", worker="h")
    payment = builders.payment(state=PaymentState.SUCCEEDED, finalized_at=T0 + 4)
    made = timeline(story(replace(facts(charged_at=T0 + 1), payment=payment)), lines_of(*BEGUN, written))
    assert sum("SUCCEEDED" in what for _, what in said(made)) == 1


def test_an_attempt_that_waits_is_shown_with_the_time_since_which_it_does() -> None:
    """Until the payment's row tells when it was claimed."""
    at = [datetime.fromtimestamp(T0 + seconds, UTC).isoformat() for seconds in (0, 9)]
    details = {"placed_at": at[0], "waiting_since": at[1], "correlation_id": "c", "fingerprint": "f", "attempt": 2}
    for status, told in (("PENDING", ["attempt 2 was asked for, with pm_card_visa"]), ("PAYMENT_DECLINED", [])):
        order = StoredOrder.model_validate({**builders.order().model_dump(), **details, "status": status})
        moments = timeline(story(replace(facts(), order=order)), []).moments
        assert [each.what for each in moments if each.lane == ORDERS and each.at == T0 + 9] == told


def test_an_event_without_a_line_is_shown_as_explain_prints_it() -> None:
    """The log lacks a release, or all of it: each event is told once, by its line or by the story."""
    payment = builders.payment(claimed_at=T0 + 1, released_at=T0 - 60)
    told = story(replace(facts(charged_at=T0 + 1), payment=payment))
    without = [each.what for each in timeline(told, []).moments]
    assert sorted(short(each.what) for each in told.events) == sorted(without)
    partly = [each.what for each in timeline(told, lines_of(*BEGUN)).moments]
    assert [what for what in without if what not in partly] == [
        "attempt 1 was claimed, with pm_card_visa",
        "pi_1111… was created: 25.00 EUR",
    ]


def test_a_charge_comes_before_the_webhook_that_reports_it() -> None:
    """Stripe says its second, and the webhook may arrive within it."""
    webhook = powertools(1.6, "event processed", service="stripe_webhook", worker="h", event_type="charge.succeeded")
    texts = [what for _, what in said(shown(*BEGUN, webhook, charged_at=T0 + 1))]
    told = "webhook: charge succeeded; row left alone: leased to worker A"
    assert texts.index("CHARGED: 25.00 EUR, ch_1 of pi_1111…") + 1 == texts.index(told)
    assert "webhook: charge succeeded" in [what for _, what in said(shown(*BEGUN, FINALIZED, webhook))]


def test_a_charge_comes_before_what_was_stored_of_it() -> None:
    """Without lines, both have the same whole second."""
    payment = builders.payment(state=PaymentState.SUCCEEDED, finalized_at=T0 + 1)
    told = story(replace(facts(charged_at=T0 + 1), payment=payment))
    *_, charge, stored = [each.what for each in timeline(told, []).moments if each.at <= T0 + 2]
    assert (charge.split()[0], stored) == ("CHARGED:", "attempt 1 became SUCCEEDED")


def test_the_message_of_a_dead_worker_says_until_when_it_is_hidden() -> None:
    """Once it is received again, the next delivery says the rest."""
    lines = lines_of(*BEGUN, timed_out(13))
    [last] = [
        each for each in timeline(story(facts(now=T0 + 20)), lines, hidden_seconds=72).moments if each.at > T0 + 20
    ]
    assert (last.at, last.kind) == (T0 + 73, Kind.EXPECTED)
    assert last.what == "message m1 is visible again: its visibility timeout ends"
    again = powertools(80, "payment claimed", row=ROW, message_id="m1", receive_count=2)
    later = timeline(story(facts(now=T0 + 81)), lines_of(*BEGUN, timed_out(13), again), hidden_seconds=72)
    assert not any("visible" in each.what for each in later.moments)


def test_a_message_that_waits_says_when_it_comes_again() -> None:
    """By its own line, and not when a job would come at the latest; nothing once that time is over."""
    waits = powertools(1.6, "message waits", wait_seconds=4, **FIRST)
    for now, expected in ((T0 + 3, "message m1 is delivered again"), (T0 + 6, None)):
        found = timeline(story(facts(now=now)), lines_of(*BEGUN, waits)).expected
        assert (found and (found.what, found.at)) == (expected and (expected, T0 + 5.6))


def test_a_refunds_timeline_is_in_the_order_of_time_and_says_its_amount() -> None:
    """Who wanted it and why is before what the refund worker did; Stripe's refund is before the answer to the request.

    Stripe and the row have whole seconds: without the lines they are in the same order.
    """
    lines = [
        powertools(40.2, "refund requested", service="orders_api", worker="api", refund_id=REFUND_ID),
        request(40.7, "POST /v1/refunds", idempotency_key=f"{builders.SHOP}:{REFUND_ID}", order_id=ORDER_ID),
        powertools(40.9, "refund told", worker="r", **TOLD),
    ]
    told = story(refunded())
    with_lines = [(each.lane, each.what) for each in timeline(told, lines_of(*BEGUN, *lines)).moments][-4:]
    assert with_lines == [
        (ORDERS, "rfd_bbbb… was requested: 5.00 EUR, by me: a cup was broken"),
        (STRIPE, "re_cccc… (rfd_bbbb…) of 5.00 EUR is succeeded"),
        (STRIPE, f"refund: 2xx, key {builders.SHOP}:rfd_bbbb…"),
        (REFUNDS, "published: refund succeeded"),
    ]
    without = [each for each in timeline(told, []).moments if "rfd_" in each.what]
    assert [(each.lane, each.what) for each in without] == with_lines[:2]


def test_a_refund_whose_line_is_not_logged_yet_is_shown_beside_another_one() -> None:
    """In the same second: the line of the one does not tell the other."""
    facts = refunded()
    [one] = facts.refunds
    other = one.model_copy(update={"refund_id": REFUND_ID.replace("b", "d")})
    told = story(replace(facts, refunds=[one, other]))
    line = powertools(40.2, "refund requested", service="orders_api", worker="api", refund_id=REFUND_ID)
    requested = [each.what for each in timeline(told, lines_of(line)).moments if "was requested" in each.what]
    assert sorted(requested) == [
        "rfd_bbbb… was requested: 5.00 EUR, by me: a cup was broken",
        "rfd_dddd… was requested: 5.00 EUR, by me: a cup was broken",
    ]


def test_a_replay_is_marked_and_a_wait_says_why() -> None:
    """The answer was lost, the order waits, and the same key has the stored answer replayed."""
    lost = request(
        1.4, "POST /v1/payment_intents/{id}/confirm", status="none", idempotency_key=CONFIRM_KEY, order_id=ORDER_ID
    )
    released = powertools(1.5, "payment not finished", why="NO_ANSWER", **FIRST)
    waits = powertools(1.6, "message waits", wait_seconds=4, **FIRST)
    replay = request(
        6, "POST /v1/payment_intents/{id}/confirm", idempotency_key=CONFIRM_KEY, order_id=ORDER_ID, replayed="true"
    )
    made = shown(*BEGUN, lost, released, waits, replay)
    kinds = {each.what: each.kind for each in made.moments}
    assert kinds["confirm: no answer, key shop-1:ord_aaaa…:1:pi_1111…"] is Kind.WAITS
    assert Kind.FAILED not in kinds.values()
    assert kinds["waits 4 s, because: NO_ANSWER"] is Kind.WAITS
    assert kinds["confirm: 2xx, key shop-1:ord_aaaa…:1:pi_1111…, replayed"] is Kind.REPLAYED
    assert made.leases[0].ends == T0 + 1.5


def test_an_order_that_is_held_is_red_and_has_no_lease() -> None:
    """The lease ends with the line, and a person has to act."""
    held = powertools(1.1, "payment held: an operator releases it", why="too old to create its PaymentIntent", **FIRST)
    made = shown(*BEGUN[:3], held)
    [moment] = [each for each in made.moments if each.kind is Kind.FAILED]
    assert (moment.lane, moment.what) == (
        "worker A",
        "held, an operator releases it: too old to create its PaymentIntent",
    )
    assert [(each.ends, each.expired) for each in made.leases] == [(T0 + 1.1, False)]


def test_moments_share_a_row_only_from_left_to_right() -> None:
    """Within some milliseconds; so a row is read in the order of what happened, and a gap says how long it was."""
    made = shown(*BEGUN, CONFIRM, FINALIZED, DUPLICATE)
    for row in made.rows:
        lanes = [made.lanes.index(lane) for lane in row.cells]
        assert lanes == sorted(lanes)
    assert [each.at for each in made.moments] == sorted(each.at for each in made.moments)
    late = shown(*BEGUN, powertools(40, "payment finalized", state="SUCCEEDED", **FIRST))
    [gap] = [row for row in late.rows if row.after_seconds]
    assert gap.after_seconds == pytest.approx(38.8)
    assert gap.leased_before == {"worker A"}
