"""`explain` and `pending` on tables, queues and Stripe: what is read, what is shown, and that nothing changes."""

import io
import json
import time
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.runtime.dynamodb import to_item
from ops import explain, gather, pending
from ops.errors import ExitStatus, Problem
from ops.output import Report, show
from testing.operated_stack import OperatedStack

ORDER_ID = "ord_" + "a" * 32


def present() -> int:
    return int(time.time())


def explained(operated: OperatedStack, reference: str = ORDER_ID) -> Report:
    return explain.run(operated.stack, Namespace(order=reference))


def causes(report: Report) -> list[str]:
    return [each["cause"] for each in report.document["findings"]]


def printed(report: Report) -> str:
    out = io.StringIO()
    show(report, as_json=False, out=out)
    return out.getvalue()


def final(state: PaymentState, **changes: Any) -> dict[str, Any]:
    return {"state": state, "finalized_at": present(), "lease_owner": None, "lease_expires_at": 0, **changes}


def test_a_paid_order_by_any_of_its_names(operated: OperatedStack) -> None:
    """Its id, its PaymentIntent's, its correlation id; states, timeline and findings of all."""
    operated.put_order(ORDER_ID, "PAID")
    intent = operated.intent(ORDER_ID, confirm="pm_card_visa")
    operated.put_payment(ORDER_ID, now=present(), payment_intent_id=intent, **final(PaymentState.SUCCEEDED))
    for reference in (ORDER_ID, intent, "corr-1"):
        report = explained(operated, reference)
        assert (report.status, report.document["order_id"]) == (ExitStatus.OK, ORDER_ID)
        assert causes(report) == ["ENDED"]
    assert report.document["states"] == {"orders": "PAID", "payments": "SUCCEEDED", intent: "succeeded"}
    for what in ("placed: 2500 EUR", "attempt 1 was first claimed", "was created", "attempt 1 became SUCCEEDED"):
        assert what in printed(report)


def test_what_is_no_order_says_so(operated: OperatedStack) -> None:
    """An unknown order, PaymentIntent and correlation id; a PaymentIntent of somebody else."""
    report = explained(operated)
    assert (report.status, causes(report)) == (ExitStatus.FOUND, ["NO_SUCH_ORDER"])
    foreign = operated.intent(ORDER_ID, metadata={"order_id": "of-another-application"})
    for reference, why in (("pi_none", "Stripe has no"), (foreign, "metadata names no order"), ("c", "correlation id")):
        with pytest.raises(Problem, match=why):
            explained(operated, reference)


def test_a_disabled_mapping_is_found_by_its_table_and_its_queue(operated: OperatedStack) -> None:
    """Whatever else the function reads; the command has its UUID."""
    operated.put_order(ORDER_ID)
    arn = "arn:aws:dynamodb:us-east-1:1:table/{}/stream/2026"
    tables = {name: operated.stack.resource(name) for name in ("OrdersTable", "PaymentsTable")}
    operated.mappings = [
        {"UUID": "u1", "EventSourceArn": arn.format(tables["OrdersTable"]), "State": "Disabled"},
        {"UUID": "u2", "EventSourceArn": arn.format(tables["PaymentsTable"]), "State": "Enabled"},
        {"UUID": "u3", "EventSourceArn": "arn:aws:sqs:us-east-1:1:shop-PaymentsQueue", "State": "Enabled"},
        {"UUID": "u4", "State": "Enabled"},
    ]
    report = explained(operated)
    [finding] = report.document["findings"]
    assert finding["cause"] == "NEVER_PUBLISHED"
    assert finding["mend"].endswith("--uuid u1 --enabled")
    operated.mappings[0]["State"], operated.mappings[2]["State"] = "Enabled", "Disabled"
    assert causes(explained(operated)) == ["QUEUE_NOT_READ"]


def test_an_item_that_breaks_its_schema_is_named(operated: OperatedStack) -> None:
    """The field and the rule, without the value."""
    operated.put_order(ORDER_ID, currency="XXX")
    report = explained(operated)
    assert causes(report)[0] == "ORDER_UNREADABLE"
    assert "currency" in report.document["findings"][0]["detail"]


def test_a_message_in_a_dlq_is_seen_and_stays(operated: OperatedStack) -> None:
    """With its reason; visible at once afterwards; also one that is no event; others' are not shown."""
    operated.put_order(ORDER_ID, "PENDING")
    url = operated.stack.resource("PaymentsDlq")
    reason: Any = {"reason": {"DataType": "String", "StringValue": "data.currency: unknown"}}
    operated.sqs.send_message(QueueUrl=url, MessageBody=f"no JSON, {ORDER_ID}", MessageAttributes=reason)
    operated.sqs.send_message(QueueUrl=url, MessageBody=json.dumps([ORDER_ID]))
    operated.sqs.send_message(QueueUrl=url, MessageBody=json.dumps({"subject": "ord_other"}))
    for _ in range(2):
        report = explained(operated)
        assert causes(report) == ["POISON", "UNDELIVERED"]
    assert "data.currency: unknown" in printed(report)
    received = operated.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert len(received) == 3


def test_a_record_that_could_not_be_published_is_found(operated: OperatedStack) -> None:
    """By the order that its key names, with the command that publishes it; others' are not shown."""
    operated.put_order(ORDER_ID, "PENDING")
    arn = f"arn:aws:dynamodb:us-east-1:1:table/{operated.stack.resource('OrdersTable')}/stream/2026"
    records = [
        {"eventSourceARN": arn, "dynamodb": {"Keys": {"order_id": {"S": each}}}} for each in (ORDER_ID, "ord_other")
    ]
    invocation = {
        "timestamp": "2026-11-21T12:00:00Z",
        "requestContext": {"condition": "RetryAttemptsExhausted"},
        "payload": json.dumps({"Records": records}),
    }
    operated.s3.put_object(
        Bucket=operated.stack.resource("FailedRecordsBucket"), Key="a/b", Body=json.dumps(invocation)
    )
    [finding] = explained(operated).document["findings"]
    assert finding["cause"] == "UNPUBLISHABLE"
    assert "OrdersTable, since 2026-11-21T12:00:00Z: RetryAttemptsExhausted" in finding["detail"]
    assert "failed-records republish a/b --yes" in finding["mend"]


def test_messages_that_were_not_read_are_reported(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is said."""
    operated.put_order(ORDER_ID, "PAID")
    monkeypatch.setattr(gather, "MESSAGES_MAX", 1)
    for _ in range(2):
        operated.sqs.send_message(QueueUrl=operated.stack.resource("OrderUpdatesDlq"), MessageBody="x")
    assert "more messages than were read" in printed(explained(operated))


def test_a_refused_key_does_not_stop_the_rest(operated: OperatedStack) -> None:
    """Stripe is one of the facts."""
    operated.put_order(ORDER_ID, "PENDING")
    operated.put_payment(ORDER_ID, now=present())
    operated.admin.assign_api_key("sk_test_x", None)
    report = explained(operated)
    assert causes(report)[0] == "STRIPE_KEY_REFUSED"
    assert "IN_PROGRESS" in causes(report)
    assert "sk_test_x" not in printed(report)


def test_charges_disputes_and_cancellations_are_in_the_timeline(operated: OperatedStack) -> None:
    """Of every PaymentIntent of the order, also one that the row does not name."""
    operated.put_order(ORDER_ID, "PAID")
    own, gone = operated.intent(ORDER_ID, confirm="pm_card_visa"), operated.intent(ORDER_ID)
    operated.stack.stripe.v1.payment_intents.cancel(gone, {"cancellation_reason": "duplicate"})
    operated.admin.open_dispute(own)
    operated.put_payment(ORDER_ID, now=present(), payment_intent_id=own, **final(PaymentState.SUCCEEDED))
    report = explained(operated)
    assert causes(report) == ["DISPUTED"]
    for what in (f"of {own} succeeded", f"{gone} (generation 0) was canceled: duplicate", "fraudulent"):
        assert what in printed(report)


def test_events_that_the_webhook_never_processed(operated: OperatedStack) -> None:
    """Stripe's list has them, the table of processed events does not; one that is processed is none."""
    operated.put_order(ORDER_ID, "PAID")
    own = operated.intent(ORDER_ID, confirm="pm_card_visa")
    operated.put_payment(ORDER_ID, now=present(), payment_intent_id=own, **final(PaymentState.SUCCEEDED))
    operated.admin.advance_clock(-120)
    old = operated.intent(ORDER_ID)
    operated.stack.stripe.v1.payment_intents.cancel(old)
    operated.admin.advance_clock(120)
    report = explained(operated)
    assert causes(report) == ["EVENTS_NOT_ARRIVED"]
    [event] = [
        each for each in operated.admin.events() if each["data"]["object"]["id"] == old and "canceled" in each["type"]
    ]
    assert event["id"] in report.document["findings"][0]["detail"]
    table = operated.stack.resource("StripeEventsTable")
    for each in operated.admin.events():
        operated.dynamodb.put_item(TableName=table, Item={"event_id": {"S": each["id"]}})
    assert causes(explained(operated)) == ["ENDED"]


def test_a_refund_is_explained_with_its_order(operated: OperatedStack) -> None:
    """Requested, made, and made by hand."""
    operated.put_order(ORDER_ID, "PAID")
    own = operated.intent(ORDER_ID, confirm="pm_card_visa")
    operated.put_payment(ORDER_ID, now=present(), payment_intent_id=own, **final(PaymentState.SUCCEEDED))
    refund_id = "rfd_" + "b" * 32
    item = {
        "order_id": ORDER_ID,
        "refund_id": refund_id,
        "attempt": 1,
        "amount_minor": 100,
        "currency": "EUR",
        "asked_for": "100",
        "requested_at": datetime.now(UTC).isoformat(),
        "correlation_id": "c",
        "status": "PENDING",
    }
    operated.dynamodb.put_item(TableName=operated.stack.resource("OrderRefundsTable"), Item=to_item(item))
    refunds = operated.stack.stripe.v1.refunds
    refunds.create({"payment_intent": own, "amount": 100, "metadata": {"order_id": ORDER_ID, "refund_id": refund_id}})
    refunds.create({"payment_intent": own, "amount": 50})
    report = explained(operated)
    assert causes(report) == ["REFUND_WAITS"]
    assert f"({refund_id}) of 100 is succeeded" in printed(report)
    assert "(made by hand) of 50" in printed(report)


# ---------------------------------------------------------------- pending


def waits(operated: OperatedStack, **given: Any) -> Report:
    return pending.run(operated.stack, Namespace(**({"limit": 100, "older_than": 0} | given)))


def test_what_waits_is_listed_the_oldest_first(operated: OperatedStack) -> None:
    """Orders by how long they wait, a payment whose order does not wait, and why; not what has ended."""
    assert waits(operated).document == {"total": 0, "pending": []}
    old, young, alone, ended = (f"ord_{sign * 32}" for sign in "abcd")
    now = datetime.now(UTC)
    operated.put_order(young, "PENDING", at=now)
    operated.put_order(old, "PENDING", at=now - timedelta(hours=3, seconds=30))
    operated.put_order(ended, "PAID")
    operated.put_payment(young, now=present())
    operated.put_payment(alone, now=present() - 60, lease_owner=None, lease_expires_at=0)
    report = waits(operated)
    found = [(each["order_id"], each["what"], each["cause"]) for each in report.document["pending"]]
    assert found == [
        (old, "order PENDING", "NOT_CLAIMED"),
        (alone, "payment PENDING", "ORDER_LOST"),
        (young, "order PENDING", "IN_PROGRESS"),
    ]
    assert report.status is ExitStatus.FOUND
    assert "3 h" in printed(report)
    assert [each["order_id"] for each in waits(operated, older_than=60).document["pending"]] == [old]
    assert "the oldest 1 of them" in printed(waits(operated, limit=1))


def test_a_refund_that_waits_is_listed(operated: OperatedStack) -> None:
    """By its id, beside its order, which is paid."""
    operated.put_order(ORDER_ID, "PAID")
    item = {"order_id": ORDER_ID, "refund_id": "rfd_" + "b" * 32, "status": "PENDING", "waiting_shard": "0"}
    requested = {"attempt": 1, "amount_minor": 100, "currency": "EUR", "asked_for": "100", "correlation_id": "c"}
    at = {"requested_at": datetime.now(UTC).isoformat()}
    table = operated.stack.resource("OrderRefundsTable")
    operated.dynamodb.put_item(TableName=table, Item=to_item(item | requested | at))
    [listed] = waits(operated).document["pending"]
    assert listed["what"] == f"refund {item['refund_id']}"
    assert listed["cause"] in ("REFUND_WAITS", "ROW_LOST")
