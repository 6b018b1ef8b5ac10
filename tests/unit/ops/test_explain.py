"""`explain` and `pending` on tables, queues and Stripe: what is read, what is shown, and that nothing changes."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from ops import dlq_letters, facts
from ops.errors import Problem
from tests.support.operated_stack import API_KEY, FINAL, FREE, OperatedStack

ORDER_ID = "ord_" + "a" * 32
REFUND_ID = "rfd_" + "b" * 32


def causes(operated: OperatedStack) -> list[str]:
    return [each["cause"] for each in operated.ops("explain", ORDER_ID)[1]["findings"]]


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
        assert [each["cause"] for each in document["findings"]] == ["ENDED"]
    assert document["states"] == {"orders": "PAID", "payments": "SUCCEEDED", own: "succeeded"}
    for what in ("placed: 25.00 EUR", "attempt 1 was claimed", "was created", "attempt 1 became SUCCEEDED"):
        assert what in text


def test_the_beginning_of_an_id_will_do(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without `ord_`, if one order has it; else they are named. On AWS nothing is scanned."""
    other, start = "ord_" + "ab" * 16, "ord_a"
    for order_id in (ORDER_ID, other):
        operated.place(order_id=order_id)
    for given in ("ord_aa…", "aaaa…", "a" * 32):
        assert operated.ops("explain", given)[1]["order_id"] == ORDER_ID
    with pytest.raises(Problem, match=f"several orders: {ORDER_ID}, {other}$"):
        operated.ops("explain", start)
    with pytest.raises(Problem, match="no order's id begins with ord_b"):
        operated.ops("explain", "ord_b")
    monkeypatch.setattr(type(operated.stack), "is_local", False)
    with pytest.raises(Problem, match="on AWS an order is found by its whole id"):
        operated.ops("explain", "ord_aa")


def test_another_reference_says_so(operated: OperatedStack) -> None:
    """An unknown order or PaymentIntent, something else, and a PaymentIntent of another application."""
    status, document, _ = operated.ops("explain", ORDER_ID)
    assert (status, [each["cause"] for each in document["findings"]]) == (1, ["NO_SUCH_ORDER"])
    foreign = operated.intent(ORDER_ID, metadata={"order_id": "of-another-application"})
    for reference, why in (
        ("pi_none", "Stripe does not show"),
        (foreign, "metadata names no order"),
        ("c", "neither an order id"),
    ):
        with pytest.raises(Problem, match=why):
            operated.ops("explain", reference)


def test_a_disabled_mapping_is_found_by_its_table_and_its_queue(operated: OperatedStack) -> None:
    """Whatever else the function reads; the command has its UUID. It comes first: the rest follows from it."""
    operated.place(order_id=ORDER_ID)
    arn = "arn:aws:dynamodb:us-east-1:1:table/{}/stream/2026"
    queue = operated.stack.resource("PaymentsQueue").rpartition("/")[2]
    operated.mappings += [
        {"UUID": "u1", "EventSourceArn": arn.format(operated.stack.resource("OrdersTable")), "State": "Enabled"},
        {"UUID": "u2", "EventSourceArn": arn.format(operated.stack.resource("PaymentsTable")), "State": "Enabled"},
        {"UUID": "u3", "EventSourceArn": f"arn:aws:sqs:us-east-1:1:{queue}", "State": "Enabled"},
        {"UUID": "u4", "State": "Enabled"},
    ]
    for number, uuid in ((0, "u1"), (2, "u3")):
        operated.mappings[number]["State"] = "Disabled"
        finding, waiting = operated.ops("explain", ORDER_ID)[1]["findings"]
        assert (finding["cause"], waiting["cause"]) == ("NOT_READ", "NOT_CLAIMED_YET")
        assert finding["fix"].endswith(f"--uuid {uuid} --enabled")
        operated.mappings[number]["State"] = "Enabled"


def test_a_command_names_the_stack_and_its_functions(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be copied as it is printed."""
    operated.place(order_id=ORDER_ID, at=datetime.now(UTC) - timedelta(hours=1))
    operated.send("PaymentsDlq", ORDER_ID)
    operated.stack.endpoint_url = None  # As a deployed stack.
    monkeypatch.setattr(dlq_letters, "_WAIT_SECONDS", 0)
    fixes = [each["fix"] for each in operated.ops("explain", ORDER_ID)[1]["findings"]]
    assert fixes[0].startswith("once the cause is gone: python -m ops --stack shop dlq redrive")
    operated.sqs.purge_queue(QueueUrl=operated.stack.resource("PaymentsDlq"))
    [finding] = operated.ops("explain", ORDER_ID)[1]["findings"]
    assert f"--function-name {operated.stack.resource('RepublishFunction')} " in finding["fix"]


def test_an_item_that_breaks_its_schema_is_named(operated: OperatedStack) -> None:
    """The field and the rule, without the value."""
    operated.set_order(operated.place(order_id=ORDER_ID).order_id, currency="XXX")
    [finding] = operated.ops("explain", ORDER_ID)[1]["findings"]
    assert finding["cause"] == "ORDER_UNREADABLE"
    assert "currency" in finding["detail"]


def test_a_message_in_a_dlq_is_seen_and_stays(operated: OperatedStack) -> None:
    """With its reason; visible again afterwards; also one that is not an event; other orders' are not shown."""
    operated.place(order_id=ORDER_ID)
    operated.send("PaymentsDlq", f"no JSON, {ORDER_ID}", reason="data.currency: unknown")
    operated.send("PaymentsDlq", json.dumps([ORDER_ID]))
    operated.send("PaymentsDlq", json.dumps({"subject": "ord_other"}))
    for _ in range(2):
        assert causes(operated) == ["DEAD_LETTER", "DEAD_LETTER"]
    assert "data.currency: unknown" in operated.ops("explain", ORDER_ID)[2]
    assert len(operated.messages("PaymentsDlq")) == 3


def test_messages_that_were_not_read_are_reported(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more of this order may be among them."""
    operated.place(order_id=ORDER_ID, status="PAID")
    monkeypatch.setattr(facts, "MESSAGES_MAX", 1)
    for _ in range(2):
        operated.send("OrderUpdatesDlq", "x")
    assert "more messages than were read" in operated.ops("explain", ORDER_ID)[2]


def test_a_refused_key_does_not_stop_the_rest(operated: OperatedStack) -> None:
    """Stripe is one of the facts."""
    operated.place(order_id=ORDER_ID)
    operated.claim(ORDER_ID)
    operated.standin.assign_api_key(API_KEY, None)
    found = causes(operated)
    assert found[0] == "STRIPE_KEY_REFUSED"
    assert "IN_PROGRESS" in found
    assert API_KEY not in operated.ops("explain", ORDER_ID)[2]


def test_charges_disputes_and_cancellations_are_in_the_timeline(operated: OperatedStack) -> None:
    """Of every PaymentIntent of the order, also one that the row does not name."""
    own, gone = put_paid(operated), operated.intent(ORDER_ID)
    operated.stack.stripe.v1.payment_intents.cancel(gone, {"cancellation_reason": "duplicate"})
    operated.standin.open_dispute(own)
    assert causes(operated) == ["DISPUTED", "STRIPE_DIFFERS"]  # Its event is on its way.
    text = operated.ops("explain", ORDER_ID)[2]
    for what in (f"of {own}", f"{gone} was canceled: duplicate", "fraudulent"):
        assert what in text


def test_what_is_held_names_the_command_that_releases_it(operated: OperatedStack) -> None:
    """In both commands, for an order that waited for longer than its PaymentIntent may be created."""
    with operated.hours_ago(23):
        operated.place(order_id=ORDER_ID)
        operated.claim(ORDER_ID, **FREE)
    [finding] = operated.ops("explain", ORDER_ID)[1]["findings"]
    [listed] = operated.ops("pending")[1]["pending"]
    assert [finding["cause"], listed["cause"]] == ["HELD", "HELD"]
    assert {finding["fix"], listed["fix"]} == {f"python -m ops release {ORDER_ID} --yes"}


def test_a_busy_day_is_not_read_to_its_end(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an order without a PaymentIntent: what names it may be among those that were not read."""
    operated.place(order_id=ORDER_ID)
    assert "LOOKUP_INCOMPLETE" not in causes(operated)
    monkeypatch.setattr(facts, "LISTED_MAX", 1)
    for _ in range(2):
        operated.intent("ord_" + "c" * 32)
    assert "LOOKUP_INCOMPLETE" in causes(operated)


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
    assert causes(operated) == ["STRIPE_DIFFERS", "REFUND_WAITS"]  # The event is on its way.
    text = operated.ops("explain", ORDER_ID)[2]
    assert f"({REFUND_ID}) of 1.00 EUR is succeeded" in text
    assert "(made by hand) of 0.50 EUR" in text
    assert "refunded 1.50 EUR of 25.00 EUR" in text
    operated.standin.fail_refund(refunds.create({"payment_intent": own, "amount": 1000}).id)
    assert "refunded 1.50 EUR of 25.00 EUR" in operated.ops("explain", ORDER_ID)[2]
    refunds.create({"payment_intent": own})
    assert "fully refunded" in operated.ops("explain", ORDER_ID)[2]


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
    assert [(each["order_id"], each["what"], each["cause"]) for each in document["pending"]] == [
        (old, "order PENDING", "NOT_CLAIMED"),
        (alone, "payment PENDING", "ORDER_LOST"),
        (young, "order PENDING", "IN_PROGRESS"),
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
    assert [each["cause"] for each in document["pending"]] == causes(operated) == ["AUTHENTICATION_AWAITED"]
    assert status == 0


def test_a_refund_that_waits_is_listed(operated: OperatedStack) -> None:
    """By its id, beside its order, which is paid."""
    put_paid(operated)
    put_refund(operated)
    [listed] = operated.ops("pending")[1]["pending"]
    assert (listed["what"], listed["cause"]) == (f"refund {REFUND_ID}", "REFUND_WAITS")
