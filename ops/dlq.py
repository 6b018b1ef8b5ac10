"""The messages in the DLQs: list each with its reason, order and age, or send all back to their queues.

A redrive is one more delivery. It charges no order twice and makes no refund twice, at any age: the worker asks its row
and Stripe. A request for a refund that is no longer PENDING is deleted instead. What this version's code cannot read
stays: the functions would send it to the DLQ again. Reading hides a message for a moment.
"""

import json
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import batched
from typing import Any

from pydantic import ValidationError

from onecharge.contract import events
from onecharge.contract.refund_events import RefundOutcomeEvent, RefundRequestedEvent, RefundState
from onecharge.orders.refund_schema import StoredRefund
from onecharge.runtime.queues import DeadLetterAttribute
from ops.connection import Stack
from ops.output import Report, duration_of

DLQS = ("PaymentsDlq", "OrderUpdatesDlq", "RefundsDlq", "SubscriptionsDlq")
"""Every DLQ of template.yaml by its logical id. Its queue is named alike; SNS's own has messages of all queues."""
QUEUES: Mapping[type[events.Event], str] = {
    **dict.fromkeys((events.OrderPlacedEvent, events.CancelRequestedEvent), "PaymentsQueue"),
    **dict.fromkeys((events.PaymentOutcomeEvent, RefundOutcomeEvent), "OrderUpdatesQueue"),
    RefundRequestedEvent: "RefundsQueue",
}
"""The queue whose function reads an event of this type."""
_EVENT = events.event_adapter(*QUEUES)
_ADDED = {*DeadLetterAttribute, "RequestID", "ErrorCode", "ErrorMessage"}
"""The message attributes that our functions and SNS add (Amazon SNS Developer Guide, "Dead-letter queues")."""
_LEFT, _DROPPED, _REDRIVEN = "left", "dropped", "redriven"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "redrive"), help="show each message, or send all back")


def run(stack: Stack, arguments: Namespace) -> Report:
    rows, unseen, is_left, redrives = list[dict[str, Any]](), list[str](), False, arguments.action == "redrive"
    for dlq in DLQS:
        with reading(stack, dlq) as (messages, more):
            for each in messages:
                outcome = _redrive(stack, dlq, each, is_dry_run=not arguments.yes) if redrives else _LEFT
                shown = {"outcome": outcome if arguments.yes else f"would be {outcome}"} if redrives else {}
                rows.append(_shown(dlq, each) | shown)
                is_left |= outcome.startswith(_LEFT)
        if more:  # Another reader hides them, or the first ten of their FIFO group.
            unseen.append(f"about {more} in {dlq}: try again in 15 minutes")
    document = {"messages": rows, "not_seen": unseen}
    return Report(document, is_left or bool(unseen), is_dry_run=redrives and bool(rows) and not arguments.yes)


def _shown(dlq: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Why it is there, the order that it names even if the code cannot read it, and its age in the DLQ."""
    # Nothing in it is trusted: anyone who may send to the DLQ may have written it.
    given, body = message.get("MessageAttributes", {}), _body(message)
    attributes = {name: each.get("StringValue") for name, each in given.items()}
    # A function that cannot read a message says why, and so does SNS; SQS itself says nothing.
    code = attributes.get("ErrorCode")
    moved = f"not delivered by SNS: {code}" if code else "received too often"
    return {
        "message_id": message["MessageId"],
        "dlq": dlq,
        "reason": attributes.get(DeadLetterAttribute.REASON, moved),
        "event_type": next((each for each in events.EventType if f'"{each}"' in body), None),
        "order_id": next(iter(re.findall(r"\bord_[0-9a-f]{32}\b", body)), None),
        "age": duration_of(time.time() - int(message["Attributes"]["SentTimestamp"]) / 1000),
    }


def _body(message: Mapping[str, Any]) -> str:
    """The event: what SNS has wrapped in its envelope, if it has."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        return str(json.loads(message["Body"])["Message"])
    return str(message["Body"])


@contextmanager
def reading(stack: Stack, dlq: str) -> Iterator[tuple[list[Mapping[str, Any]], int]]:
    """The messages of a DLQ, and about how many more there are. The block hides them from other readers."""
    url, found = stack.value(dlq), dict[str, Mapping[str, Any]]()
    counts = stack.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    present = sum(int(count) for name, count in counts.items() if name.startswith("ApproximateNumberOf"))
    # Long polling asks all servers of a queue (Amazon SQS Developer Guide); an emulator is one.
    given: Any = {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0 if stack.endpoint_url else 1}
    given |= {"VisibilityTimeout": 900, "MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    try:
        while new := stack.sqs.receive_message(**given).get("Messages"):
            found |= {each["MessageId"]: each for each in new}
        yield list(found.values()), max(0, present - len(found))
    finally:
        for batch in batched(enumerate(each["ReceiptHandle"] for each in found.values()), 10, strict=False):
            # A message that was deleted is refused by itself.
            entries: Any = [{"Id": str(n), "ReceiptHandle": each, "VisibilityTimeout": 0} for n, each in batch]
            stack.sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)


def _redrive(stack: Stack, dlq: str, message: Mapping[str, Any], *, is_dry_run: bool) -> str:
    """Send, then delete; the other order would lose the message. Returns what becomes of it, and why."""
    body = _body(message)
    try:
        event = _EVENT.validate_json(body)
    except ValidationError:
        return f"{_LEFT}: this version's code cannot read it"
    queue = QUEUES[type(event)]
    if dlq not in ("SubscriptionsDlq", queue.replace("Queue", "Dlq")):
        return f"{_LEFT}: its queue does not take such an event"
    outcome = _outcome_of_refund(stack, event) if isinstance(event, RefundRequestedEvent) else _REDRIVEN
    if is_dry_run or outcome.startswith(_LEFT):
        return outcome
    if outcome == _REDRIVEN:
        url, place = stack.value(queue), dict[str, Any]()
        if url.endswith(".fifo"):
            # With its previous deduplication id, SQS would drop what is sent back for the second time in five minutes.
            group = message["Attributes"].get("MessageGroupId", message["MessageId"])
            place = {"MessageGroupId": group, "MessageDeduplicationId": f"redrive-{message['MessageId']}"}
        kept = {name: each for name, each in message.get("MessageAttributes", {}).items() if name not in _ADDED}
        stack.sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=kept, **place)
    stack.sqs.delete_message(QueueUrl=stack.value(dlq), ReceiptHandle=message["ReceiptHandle"])
    return outcome


def _outcome_of_refund(stack: Stack, event: RefundRequestedEvent) -> str:
    item = stack.item("OrderRefundsTable", order_id=event.data.order_id, refund_id=event.data.refund_id)
    with suppress(ValueError):  # The values of an item that breaks its schema stay out of it.
        refund = StoredRefund.from_item(item) if item else None
        if refund and refund.requested_event().data == event.data:
            return _REDRIVEN if refund.status is RefundState.PENDING else f"{_DROPPED}: the refund is {refund.status}"
    return f"{_LEFT}: OrderRefunds has no such refund, or none that can be read: `explain` the order"
