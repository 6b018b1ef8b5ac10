"""`explain` and `pending` on tables, queues, Stripe and the log: what is read and shown, and that nothing changes."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import stripe

from ops import facts
from ops.errors import Problem
from tests.support.operated_stack import API_KEY, FINAL, FREE, OperatedStack

ORDER_ID = "ord_" + "a" * 32
REFUND_ID = "rfd_" + "b" * 32
OPS = ".venv/bin/python -m ops"


def sentences(operated: OperatedStack) -> list[str]:
    return [each["says"] for each in operated.ops("explain", ORDER_ID)[1]["findings"]]


def put_paid(operated: OperatedStack) -> str:
    """An order that is paid, with its row; returns its PaymentIntent."""
    operated.place(order_id=ORDER_ID, status="PAID")
    own = operated.intent(ORDER_ID, confirm="pm_card_visa")
    operated.claim(ORDER_ID, payment_intent_id=own, **FREE, **FINAL, state="SUCCEEDED", finalized_at=int(time.time()))
    return own


def test_a_paid_order_by_any_of_its_names(operated: OperatedStack) -> None:
    """Its id, and its PaymentIntent's; states, timeline and findings of all."""
    own = put_paid(operated)
    for reference in (ORDER_ID, own):
        status, document, text = operated.ops("explain", reference)
        assert (status, document["order_id"]) == (0, ORDER_ID)
        assert [each["says"] for each in document["findings"]] == ["the order is PAID: nothing is left to do"]
    assert document["states"] == {"orders": "PAID", "payments": "SUCCEEDED", own: "succeeded"}
    for what in ("placed: 25.00 EUR", "attempt 1 was claimed", "was created", "attempt 1 became SUCCEEDED"):
        assert what in text


def test_another_reference_says_so(operated: OperatedStack) -> None:
    """An unknown order or PaymentIntent, something else, and a PaymentIntent of another application."""
    assert operated.ops("explain", ORDER_ID)[0] == 1
    assert sentences(operated) == ["neither the tables nor Stripe know this order"]
    foreign = operated.intent(ORDER_ID, metadata={"order_id": "of-another-application"})
    for reference, why in (
        ("pi_none", "Stripe does not show"),
        (foreign, "metadata names no order"),
        ("c", "neither an order id"),
    ):
        with pytest.raises(Problem, match=why):
            operated.ops("explain", reference)


def test_a_command_can_be_typed_as_it_is_printed(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stack's name, if it is a deployed one; pending prints the same."""
    with operated.hours_ago(23):
        operated.place(order_id=ORDER_ID)
        operated.claim(ORDER_ID, **FREE)
    for command in (OPS, f"{OPS} --stack shop"):
        [finding] = operated.ops("explain", ORDER_ID)[1]["findings"]
        [listed] = operated.ops("pending")[1]["pending"]
        assert [finding["fix"], listed["fix"]] == [f"{command} release {ORDER_ID} --yes"] * 2
        monkeypatch.setattr(type(operated.stack), "is_local", False)  # As a deployed stack.


def test_an_item_that_breaks_its_schema_is_named(operated: OperatedStack) -> None:
    """The field and the rule, without the value."""
    operated.set_order(operated.place(order_id=ORDER_ID).order_id, currency="XXX")
    [says] = sentences(operated)
    assert "schema" in says
    assert "currency" in says


def test_a_message_in_a_dlq_is_seen_and_stays(operated: OperatedStack) -> None:
    """With its reason; visible again afterwards; also one that is not an event; other orders' are not shown."""
    operated.place(order_id=ORDER_ID)
    operated.send("PaymentsDlq", f"no JSON, {ORDER_ID}", reason="data.currency: unknown")
    operated.send("PaymentsDlq", json.dumps([ORDER_ID]))
    operated.send("PaymentsDlq", json.dumps({"subject": "ord_other"}))
    for _ in range(2):
        assert ["PaymentsDlq" in each for each in sentences(operated)] == [True, True, False]
    assert "data.currency: unknown" in operated.ops("explain", ORDER_ID)[2]
    assert len(operated.messages("PaymentsDlq")) == 3


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("MESSAGES_MAX", "more messages than were read"),
        ("LISTED_MAX", "more PaymentIntents of the order's first day"),
        ("LOG_SECONDS", "log was not read to its end"),
    ],
)
def test_what_was_not_read_is_reported(
    operated: OperatedStack, monkeypatch: pytest.MonkeyPatch, limit: str, says: str
) -> None:
    """Something of this order may be in it."""
    operated.place(order_id=ORDER_ID, status="PAID")
    pages: Any = operated.answers["logs"]
    pages[0]["nextToken"] = "more"
    for _ in range(2):
        operated.send("OrderUpdatesDlq", "x")
        operated.intent("ord_" + "c" * 32)
    assert says not in operated.ops("explain", ORDER_ID)[2]
    monkeypatch.setattr(facts, limit, -1 if limit == "LOG_SECONDS" else 1)
    assert says in operated.ops("explain", ORDER_ID)[2]


def test_the_log_lines_are_in_the_timeline(operated: OperatedStack) -> None:
    """In the order of time, with what they say; not other orders', nor what is no line of ours."""
    operated.place(order_id=ORDER_ID)
    for number, message in enumerate(
        (
            json.dumps({"message": "payment not finished", "service": "charge_order", "why": "NO_ANSWER"}),
            json.dumps({"StripeSeconds": [1], "endpoint": "POST /v1/payment_intents", "status": "none"}),
        )
    ):
        line = json.loads(message) | {"order_id": ORDER_ID}
        operated.log.append({"timestamp": (time.time() - number) * 1000, "message": json.dumps(line)})
    operated.log.append({"timestamp": time.time() * 1000, "message": '{"order_id": "ord_other", "message": "x"}'})
    operated.log.append({"timestamp": time.time() * 1000, "message": f"START {ORDER_ID}"})
    told = [each["what"] for each in operated.ops("explain", ORDER_ID)[1]["timeline"]]
    expected = ["stripe request: POST /v1/payment_intents: status none", "payment not finished: why NO_ANSWER"]
    assert [each for each in told if not each.startswith("placed")] == expected


def test_a_refused_key_does_not_stop_the_rest(operated: OperatedStack) -> None:
    """Stripe is one of the facts."""
    operated.place(order_id=ORDER_ID)
    operated.claim(ORDER_ID)
    operated.standin.assign_api_key(API_KEY, None)
    found = sentences(operated)
    assert "Stripe does not show it" in found[0]
    assert "a worker has the row" in found[1]
    assert API_KEY not in operated.ops("explain", ORDER_ID)[2]


def test_a_stripe_that_does_not_answer_is_asked_once(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry would double the wait of a person, who can run it again."""
    put_paid(operated)
    asked = list[str]()

    def no_answer(self: Any, method: str, url: str, *_: Any) -> None:
        asked.append(url)
        raise stripe.APIConnectionError("timed out", should_retry=True)

    monkeypatch.setattr(stripe.RequestsClient, "request", no_answer)
    assert "Stripe does not show it" in sentences(operated)[0]
    assert len(asked) == 1


def test_charges_disputes_and_cancellations_are_in_the_timeline(operated: OperatedStack) -> None:
    """Of every PaymentIntent of the order, also one that the row does not name."""
    own, gone = put_paid(operated), operated.intent(ORDER_ID)
    operated.stack.stripe.v1.payment_intents.cancel(gone, {"cancellation_reason": "duplicate"})
    operated.standin.open_dispute(own)
    disputed, behind = sentences(operated)
    assert "the charge is disputed" in disputed
    assert "its refunds or its dispute changed" in behind
    text = operated.ops("explain", ORDER_ID)[2]
    for what in (f"of {own}", f"{gone} was canceled: duplicate", "fraudulent"):
        assert what in text


def test_of_several_disputes_the_row_and_explain_count_the_same(operated: OperatedStack) -> None:
    """The one that took money, as the webhook has written it, although a later one was won."""
    own = put_paid(operated)
    for status in ("lost", "won"):
        operated.standin.close_dispute(operated.standin.open_dispute(own, amount=100), status=status)
    shown = operated.stack.payment_intents.retrieve(own).intent
    counts = shown.dispute if shown else None
    assert counts is not None
    operated.set_payment(ORDER_ID, dispute_id=counts.dispute_id, dispute_status=counts.status)
    assert (counts.status, sentences(operated)) == ("lost", ["the order is PAID: nothing is left to do"])


def put_refund(operated: OperatedStack) -> None:
    """A refund of 1.00 EUR, which is requested and waits."""
    names = {"order_id": ORDER_ID, "refund_id": REFUND_ID, "correlation_id": "c", "attempt": 1}
    money = {"amount_minor": 100, "currency": "EUR", "fingerprint": "f"}
    waits = {"requested_at": datetime.now(UTC).isoformat(), "status": "PENDING", "waiting_shard": "0"}
    operated.put("OrderRefundsTable", **names, **money, **waits)


def test_a_refund_is_explained_with_its_order(operated: OperatedStack) -> None:
    """Requested, made, and made by hand; and how much in all, without what failed."""
    own = put_paid(operated)
    assert "refunded" not in operated.ops("explain", ORDER_ID)[2]
    put_refund(operated)
    refunds, metadata = operated.stack.stripe.v1.refunds, {"order_id": ORDER_ID, "refund_id": REFUND_ID}
    refunds.create({"payment_intent": own, "amount": 100, "metadata": metadata})
    refunds.create({"payment_intent": own, "amount": 50})
    behind, waits = sentences(operated)
    assert "its refunds or its dispute changed" in behind
    assert "Stripe shows it as succeeded" in waits
    text = operated.ops("explain", ORDER_ID)[2]
    assert f"({REFUND_ID}) of 1.00 EUR is succeeded" in text
    assert "(made by hand) of 0.50 EUR" in text
    assert "refunded 1.50 EUR of 25.00 EUR" in text
    operated.standin.fail_refund(refunds.create({"payment_intent": own, "amount": 1000}).id)
    assert "refunded 1.50 EUR of 25.00 EUR" in operated.ops("explain", ORDER_ID)[2]
    refunds.create({"payment_intent": own})
    assert "refunded 25.00 EUR of 25.00 EUR" in operated.ops("explain", ORDER_ID)[2]


# ---------------------------------------------------------------- pending


def test_what_waits_is_listed_the_oldest_first(operated: OperatedStack) -> None:
    """Orders by how long they wait, a payment whose order does not wait, and why; not what has ended."""
    assert operated.ops("pending")[:2] == (0, {"total": 0, "pending": []})
    old, young, alone, ended = (f"ord_{sign * 32}" for sign in "abcd")
    now = datetime.now(UTC)
    operated.place(order_id=young, at=now)
    operated.place(order_id=old, at=now - timedelta(hours=3, seconds=30))
    operated.place(order_id=ended, status="PAID")
    operated.claim(young)
    operated.claim(alone, at=int(time.time()) - 60, **FREE)
    status, document, text = operated.ops("pending")
    assert [(each["order_id"], each["what"], each["says"]) for each in document["pending"]] == [
        (old, "order PENDING", "no worker has taken attempt 1 yet"),
        (alone, "payment PENDING", "there is a payment, and no order"),
        (young, "order PENDING", "a worker has the row"),
    ]
    assert (status, "3 h" in text) == (1, True)
    assert "the oldest 1 of them" in operated.ops("pending", "--limit", "1")[2]


def test_what_stripe_was_not_asked_about_is_not_missing(operated: OperatedStack) -> None:
    """A row that names its PaymentIntent waits, as explain says, and nothing is broken."""
    operated.place(order_id=ORDER_ID, status="REQUIRES_ACTION")
    own = operated.intent(ORDER_ID, confirm="pm_card_threeDSecure2Required")
    of_row = {"state": "REQUIRES_ACTION", "finalized_at": int(time.time()), "payment_intent_id": own}
    operated.claim(ORDER_ID, **FREE, **FINAL | of_row)
    status, document, _ = operated.ops("pending")
    expected = ["the customer has to authenticate (3-D Secure)"]
    assert [each["says"] for each in document["pending"]] == sentences(operated) == expected
    assert status == 0


def test_a_refund_that_waits_is_listed(operated: OperatedStack) -> None:
    """By its id, beside its order, which is paid."""
    put_paid(operated)
    put_refund(operated)
    [listed] = operated.ops("pending")[1]["pending"]
    assert listed["what"] == f"refund {REFUND_ID}"
    assert "it waits for the payment service" in listed["says"]
