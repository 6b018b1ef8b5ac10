"""`explain`, `pending` and `publish` on tables, queues, Stripe and the log: what is read and shown; nothing changes."""

import json
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
import stripe

from onecharge.payments.stripe_responses import ResponseKind
from ops import facts
from ops.output import NO_SUCH_ORDER, Problem
from publish_events.mapping import order_event_from_item, payment_outcome_from_item
from tests.support.operated_stack import API_KEY, FINAL, FREE, OperatedStack

ORDER_ID, REFUND_ID = "ord_" + "a" * 32, "rfd_" + "b" * 32
FINE = "the order is PAID: nothing is left to do"


def sentences(operated: OperatedStack) -> list[str]:
    return [each["says"] for each in operated.ops("explain", ORDER_ID)[1]["findings"]]


def put_paid(operated: OperatedStack) -> str:
    """An order that is paid, with its row; returns its PaymentIntent."""
    operated.place(order_id=ORDER_ID, status="PAID")
    own = operated.intent(ORDER_ID, confirm="pm_card_visa")
    operated.claim(ORDER_ID, payment_intent_id=own, **FREE, **FINAL, state="SUCCEEDED", finalized_at=int(time.time()))
    return own


def test_a_paid_order_by_any_of_its_names(operated: OperatedStack) -> None:
    """Its id, or its PaymentIntent's; states, timeline and findings."""
    own = put_paid(operated)
    status, document, text = operated.ops("explain", ORDER_ID)
    assert (status, [each["says"] for each in document["findings"]]) == (0, [FINE])
    states = {each["where"]: each["state"] for each in document["states"]}
    assert states == {"orders": "PAID", "payments": "SUCCEEDED", own: "succeeded"}
    for what in ("25.00 EUR, placed at", "attempt 1", "was created", "CHARGED"):
        assert what in text
    assert operated.ops("explain", own)[1]["order_id"] == ORDER_ID


def test_another_reference_says_so(operated: OperatedStack) -> None:
    """An unknown order or PaymentIntent, something else, and a PaymentIntent of another application."""
    [finding] = operated.ops("explain", ORDER_ID)[1]["findings"]
    assert [finding["says"], finding["then"]] == ["neither the tables nor the log know this order", NO_SUCH_ORDER]
    foreign = operated.intent(ORDER_ID, metadata={"order_id": "of-another-application"})
    words = {"pi_none": "Stripe does not show", foreign: "metadata names no order", "ord_nope": "is no order"}
    for command in ("explain", "publish", "release"):
        for reference, why in (words | ({} if command == "explain" else {ORDER_ID: "has no such order"})).items():
            with pytest.raises(Problem, match=why):
                operated.ops(command, reference)


def test_a_command_can_be_typed_as_it_is_printed(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stack's name, if it is a deployed one; pending prints the same."""
    with operated.hours_ago(23):
        operated.place(order_id=ORDER_ID)
        operated.claim(ORDER_ID, **FREE)
    for command in (".venv/bin/python -m ops", ".venv/bin/python -m ops --stack shop"):
        for status, document, _ in (operated.ops("explain", ORDER_ID), operated.ops("pending")):
            [told] = document.get("findings") or document["pending"]
            assert (status, told["then"]) == (1, f"{command} release {ORDER_ID} --yes")
        monkeypatch.setattr(operated.stack, "endpoint_url", None)  # As a deployed stack.


def test_what_was_not_read_is_reported(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something of this order may be in the rest of the log."""
    operated.place(order_id=ORDER_ID, status="PAID")
    assert operated.ops("explain", ORDER_ID)[1]["what_happened"] == []
    monkeypatch.setattr(facts, "READ_SECONDS", -1)
    document = operated.ops("explain", ORDER_ID)[1]
    assert "the rest of the log" in document["what_happened"][0]["what"]
    assert "look for the order's id at Stripe" in str(document["findings"])


def test_only_what_the_account_does_not_have_is_left_out() -> None:
    """Another refusal is none of what is known: Stripe does not show it."""
    client = Mock()
    for status in (404, 400):
        client.v1.payment_intents.retrieve.side_effect = stripe.InvalidRequestError("no", "id", http_status=status)
        with nullcontext() if status == 404 else pytest.raises(stripe.InvalidRequestError):
            assert facts._intent_facts(client, "pi_1") is None


def test_the_log_lines_are_in_the_timeline(operated: OperatedStack) -> None:
    """In the order of time, with what they say; not other orders', nor what is no line of ours."""
    operated.place(order_id=ORDER_ID)
    lines = (
        {"message": "payment not finished", "service": "charge_order", "why": "NO_ANSWER", "order_id": ORDER_ID},
        {"endpoint": "POST /v1/refunds", "status": "5xx", "stripe_request_id": "req_1", "order_id": ORDER_ID},
        {"order_id": "ord_other", "message": "x"},
    )
    for number, line in enumerate((*map(json.dumps, lines), f"START {ORDER_ID}")):
        operated.log.append({"timestamp": (time.time() - number) * 1000, "message": line})
    told = [each["what"] for each in operated.ops("explain", ORDER_ID)[1]["what_happened"]]
    expected = [
        "stripe request: POST /v1/refunds: status 5xx, stripe_request_id req_1",
        "payment not finished: why NO_ANSWER",
    ]
    assert told == expected


def test_a_refused_key_does_not_stop_the_rest(operated: OperatedStack) -> None:
    """Stripe is one of the facts. What breaks the order's schema is named, without the value."""
    operated.place(order_id=ORDER_ID)
    operated.claim(ORDER_ID, payment_intent_id="pi_1")
    operated.standin.assign_api_key(API_KEY, None)
    found = sentences(operated)
    assert ("Stripe does not show it" in found[0], "a worker has the row" in found[1]) == (True, True)
    assert API_KEY not in operated.ops("explain", ORDER_ID)[2]
    operated.set_order(ORDER_ID, currency="XXX")
    [says] = [each for each in sentences(operated) if "schema" in each]
    assert ("currency" in says, "XXX" in says) == (True, False)


def test_charges_disputes_and_cancellations_are_in_the_timeline(operated: OperatedStack) -> None:
    """Of every PaymentIntent of the order: its row's, a line's, and the one that is asked for. Of several disputes the
    one counts that took money."""
    own, gone, asked = put_paid(operated), operated.intent(ORDER_ID), operated.intent(ORDER_ID)
    line = {"message": "x", "order_id": ORDER_ID, "payment_intent_id": gone}
    operated.log.append({"timestamp": time.time() * 1000, "message": json.dumps(line)})
    operated.stack.stripe.v1.payment_intents.cancel(gone, {"cancellation_reason": "duplicate"})
    for status in ("lost", "won"):
        operated.standin.close_dispute(operated.standin.open_dispute(own, amount=100), status=status)
    behind, lost = sentences(operated)
    assert ("its refunds or its dispute changed" in behind, "is lost" in lost) == (True, True)
    stripe = operated.stack.payment_intents
    counts = stripe.with_dispute_that_counts(stripe.retrieve(own).shown()).dispute
    assert counts is not None
    operated.set_payment(ORDER_ID, dispute_id=counts.dispute_id, dispute_status=counts.status)
    assert (counts.status, sentences(operated)) == ("lost", [FINE, lost])
    text = operated.ops("explain", asked)[2]
    for what in (f"of {own}", f"{gone} was canceled: duplicate", "fraudulent", f"{asked} was created"):
        assert what in text


def test_a_refund_is_explained_with_its_order(operated: OperatedStack) -> None:
    """Requested, made, and made by hand; and how much in all, without what failed. pending lists it, with what the log
    says of its last delivery."""
    put_paid(operated)
    operated.put_refund(ORDER_ID, refund_id=REFUND_ID, amount_minor=100, waiting_shard="0")
    for why, status in (("the list lags", 0), (ResponseKind.BALANCE_TOO_LOW, 1)):
        line = {"refund_id": REFUND_ID, "order_id": ORDER_ID, "why": why}
        operated.log.append({"timestamp": time.time() * 1000, "message": json.dumps(line)})
        found, document, _ = operated.ops("pending")
        [listed] = document["pending"]
        assert (found, listed["what"], why in listed["says"]) == (status, f"refund {REFUND_ID}", True)
    operated.refund(ORDER_ID, 100, order_id=ORDER_ID, refund_id=REFUND_ID)
    operated.standin.fail_refund(operated.refund(ORDER_ID, 1000))
    operated.refund(ORDER_ID, 50)
    failed, behind, waiting = sentences(operated)
    assert "of 10.00 EUR failed at Stripe" in failed
    assert ("its refunds or its dispute changed" in behind, "Stripe shows it as succeeded" in waiting) == (True, True)
    text = operated.ops("explain", ORDER_ID)[2]
    for what in (f"{REFUND_ID}: re_", "1.00 EUR, is succeeded", "made by hand: re_", "25.00 EUR, refunded 1.50 EUR"):
        assert what in text


# ---------------------------------------------------------------- pending


def test_what_waits_is_listed_the_oldest_first(operated: OperatedStack) -> None:
    """Orders by how long they wait, a payment whose order does not wait, and why; not what has ended. Stripe is not
    asked, and nothing is missing for that."""
    assert operated.ops("pending")[:2] == (0, {"total": 0, "pending": []})
    old, young, alone, ended, asks = (f"ord_{sign * 32}" for sign in "abcde")
    now, at = datetime.now(UTC), int(time.time())
    operated.place(order_id=young, at=now)
    operated.place(order_id=old, at=now - timedelta(hours=3, seconds=30))
    operated.place(order_id=asks, status="REQUIRES_ACTION", at=now - timedelta(hours=2))
    operated.place(order_id=ended, status="PAID")
    operated.claim(young)
    operated.claim(alone, at=at - 60, **FREE)
    operated.claim(asks, **FREE, state="REQUIRES_ACTION", finalized_at=at, payment_intent_id="pi_1")
    status, document, text = operated.ops("pending")
    assert [(each["order_id"], each["what"], each["says"]) for each in document["pending"]] == [
        (old, "order PENDING", "no worker has taken attempt 1 yet"),
        (asks, "order REQUIRES_ACTION", "the customer has to authenticate (3-D Secure)"),
        (alone, "payment PENDING", "there is a payment, and no order"),
        (young, "order PENDING", "a worker has the row"),
    ]
    assert (status, "3:00:" in text) == (1, True)


def test_each_order_of_an_alarm_is_listed_once_the_newest_first(operated: OperatedStack) -> None:
    """With the command that explains it. A second dispute, which sent no mail, is there as well; not the metric's own
    line, nor what is no alarm."""
    assert operated.ops("pending", "--alarms")[:2] == (0, {"total": 0, "alarms": []})
    for at, line in (
        (1_000, {"cause": "ChargeDisputed", "order_id": "a", "message": "charge disputed"}),
        (2_000, {"cause": "ChargeDisputed", "order_id": "b", "message": "disputed", "payment_intent_id": "pi_1"}),
        (4_000, {"cause": "StripeAccount", "message": "no key"}),
        (3_000, {"cause": "ChargeDisputed", "order_id": "a", "message": "charge disputed", "why": "lost"}),
        (5_000, {"cause": "Held", "Alarm": [1]}),
        (5_000, {"order_id": "c", "message": "order updated"}),
    ):
        operated.log.append({"timestamp": at, "message": json.dumps(line)})
    status, document, _ = operated.ops("pending", "--alarms")
    explain = ".venv/bin/python -m ops explain"
    assert (status, [[*each.values()] for each in document["alarms"]]) == (
        1,
        [
            ["1970-01-01 00:00:04Z", "StripeAccount", "", 1, None, "no key", None],
            ["1970-01-01 00:00:03Z", "ChargeDisputed", "a", 2, None, "charge disputed: lost", f"{explain} a"],
            ["1970-01-01 00:00:02Z", "ChargeDisputed", "b", 1, "pi_1", "disputed", f"{explain} b"],
        ],
    )


# ---------------------------------------------------------------- publish


def test_the_rows_of_an_order_are_touched_and_nothing_else(operated: OperatedStack) -> None:
    """Each run changes each row, without which its stream emits nothing. The events say the same; that of the order is
    another message, which a FIFO topic takes. A dry run changes nothing."""

    def rows() -> list[dict[str, Any]]:
        return [dict(operated.stack.item(table, order_id=ORDER_ID) or {}) for table in ("OrdersTable", "PaymentsTable")]

    operated.place(order_id=ORDER_ID)
    operated.claim(ORDER_ID, **FREE, **FINAL, state="SUCCEEDED", finalized_at=int(time.time()))
    before = rows()
    status, document, _ = operated.ops("publish", ORDER_ID)
    assert (status, document["published_from"], rows()) == (1, ["OrdersTable", "PaymentsTable"], before)
    for touches in ("1", "2"):
        assert operated.ops("publish", ORDER_ID, "--yes")[0] == 0
        assert rows() == [{**row, "touches": {"N": touches}} for row in before]
    for mapping, row, touched in zip((order_event_from_item, payment_outcome_from_item), before, rows(), strict=True):
        first, again = mapping(row), mapping(touched)
        assert first is not None
        assert again is not None
        assert (again.data, again.id == first.id) == (first.data, mapping is payment_outcome_from_item)
