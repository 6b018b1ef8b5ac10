"""`dlq list` and `redrive`: over the template's queues and tables, the real worker and a Stripe stand-in."""

import json
from typing import Any

import pytest

from charge_order.app import ORDER_EVENT
from onecharge.contract.events import (
    CancelRequestedEvent,
    EventType,
    PaymentOutcome,
    PaymentOutcomeEvent,
    event_adapter,
)
from onecharge.contract.refund_events import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.orders.refund_schema import StoredRefund
from ops import dlq
from ops.dlq import DLQS, reading
from tests.shop.builders import T0
from tests.support.harness import load_template
from tests.support.operated_stack import OperatedStack
from update_order.app import PAYMENT_EVENT

POISON = "message: json_invalid"
ORDER_ID, REFUND_ID = "ord_" + "a" * 32, "rfd_" + "b" * 32
RESOURCES = load_template()["Resources"]
QUEUES = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::SQS::Queue"}


def redrive(operated: OperatedStack) -> dict[str, str]:
    """What became of each message."""
    _, document, _ = operated.ops("dlq", "redrive", "--yes")
    return {each["message_id"]: each["outcome"] for each in document["messages"]}


def test_no_dlq_of_the_template_is_forgotten() -> None:
    """Each with the template's source. What a queue's function reads is read here: what one calls poison, the other
    does."""
    assert set(DLQS) == {name for name in QUEUES if name.endswith("Dlq")}
    targets = {name: str(each["RedrivePolicy"]) for name, each in QUEUES.items() if "RedrivePolicy" in each}
    assert set(dlq.QUEUES.values()) == set(targets)
    for queue, target in targets.items():
        assert f"{queue.replace('Queue', 'Dlq')}.Arn" in target
    for queue, function in (("PaymentsQueue", ORDER_EVENT), ("OrderUpdatesQueue", PAYMENT_EVENT)):
        ours = event_adapter(*(model for model, its_queue in dlq.QUEUES.items() if its_queue == queue))
        assert ours.json_schema() == function.json_schema()


def test_list_shows_each_message_and_deletes_nothing(operated: OperatedStack) -> None:
    """Why it is there, its event, order and age; every message is visible again afterwards."""
    assert operated.ops("dlq", "list")[:2] == (0, {"messages": [], "not_seen": []})
    order = operated.place()
    operated.send("PaymentsDlq", "{", reason=POISON)
    operated.send("PaymentsDlq", operated.message(order))
    operated.send("SubscriptionsDlq", operated.message(order), ErrorCode="E", RequestID="r", ErrorMessage="gone")
    status, document, text = operated.ops("dlq", "list")
    names = ("dlq", "reason", "event_type", "order_id")
    assert sorted(([each[name] for name in names] for each in document["messages"]), key=str) == [
        ["PaymentsDlq", POISON, None, None],
        ["PaymentsDlq", "received too often", "onecharge.order.placed", order.order_id],
        ["SubscriptionsDlq", "not delivered by SNS: E", "onecharge.order.placed", order.order_id],
    ]
    assert (status, document["not_seen"], order.order_id in text) == (1, [], True)
    assert all(each["age"].startswith("0:00:0") for each in document["messages"])
    assert len(operated.messages("PaymentsDlq")) == 2


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"data": {"order_id": "ord_1"}, "subject": ORDER_ID}, ORDER_ID),
        ({"data": {"order_id": f"{ORDER_ID} --yes"}}, ORDER_ID),
        ({"data": {"order_id": f"{ORDER_ID}0"}}, None),
        ({"data": {"order_id": "visit evil.example"}, "subject": "sk_live_1"}, None),
    ],
    ids=str,
)
def test_only_an_order_id_is_shown_as_one(operated: OperatedStack, event: dict[str, Any], shown: str | None) -> None:
    """Anyone who may send to the DLQ may have written the message, and people copy the id into commands."""
    operated.send("PaymentsDlq", json.dumps({**event, "type": "visit evil.example"}))
    _, document, text = operated.ops("dlq", "list")
    [message] = document["messages"]
    assert (message["order_id"], message["event_type"]) == (shown, None)
    assert "evil" not in text


def test_what_was_not_seen_is_said(operated: OperatedStack) -> None:
    """More than one batch is read; what another reader hides is counted."""
    for _ in range(25):
        operated.send("PaymentsDlq", "{", reason=POISON)
    with reading(operated.stack, "PaymentsDlq") as (messages, unseen):
        assert (len(messages), unseen) == (25, 0)
        status, document, _ = operated.ops("dlq", "list")
        assert (status, document["messages"]) == (1, [])
        assert document["not_seen"][0].startswith("about 25 in PaymentsDlq")
    assert len(operated.ops("dlq", "list")[1]["messages"]) == 25


def test_a_redriven_order_is_charged_once(operated: OperatedStack) -> None:
    """A dry run changes nothing; --yes sends it back with its attributes, and the worker charges it. Stripe is not
    asked before: a DLQ can be emptied without its key."""
    order = operated.place()
    operated.send("PaymentsDlq", operated.message(order), event_type="onecharge.order.placed")
    operated.send("PaymentsQueue", operated.message(order))  # As a crash between send and delete leaves it.
    status, document, _ = operated.ops("dlq", "redrive")
    assert (status, [each["outcome"] for each in document["messages"]]) == (1, ["would be redriven"])
    assert (len(operated.messages("PaymentsDlq")), len(operated.messages("PaymentsQueue"))) == (1, 1)
    status, document, _ = operated.ops("dlq", "redrive", "--yes")
    assert (status, [each["outcome"] for each in document["messages"]]) == (0, ["redriven"])
    assert (operated.messages("PaymentsDlq"), operated.standin.ledger().counts) == ([], {})
    [_, message] = sorted(operated.messages("PaymentsQueue"), key=lambda each: len(each.get("MessageAttributes", {})))
    attributes = {name: each["StringValue"] for name, each in message["MessageAttributes"].items()}
    assert (message["Body"], attributes) == (operated.message(order), {"event_type": "onecharge.order.placed"})
    for _ in operated.messages("PaymentsQueue"):
        operated.deliver(order.order_id)
    assert (operated.payment(order.order_id).state, operated.charges(order.order_id)) == (PaymentState.SUCCEEDED, 1)


def requested(operated: OperatedStack, **changes: Any) -> RefundRequestedEvent:
    """The message of a refund; its item has these changes."""
    operated.put_refund(ORDER_ID, refund_id=REFUND_ID)
    stored = operated.get("OrderRefundsTable", order_id=ORDER_ID, refund_id=REFUND_ID)
    operated.delete("OrderRefundsTable", order_id=ORDER_ID, refund_id=REFUND_ID)
    operated.put("OrderRefundsTable", **stored | changes)
    return StoredRefund.model_validate(stored).requested_event()


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"status": "PENDING"}, "redriven"),
        ({"status": "SUCCEEDED"}, "dropped: the refund is SUCCEEDED"),
        ({"status": "FAILED"}, "dropped: the refund is FAILED"),
        ({"amount_minor": 501}, "left: OrderRefunds has no such refund"),
        ({"currency": "USD"}, "left: OrderRefunds has no such refund"),
        ({"refund_id": "rfd_" + "c" * 32}, "left: OrderRefunds has no such refund"),
        ({"amount_minor": "many"}, "left: OrderRefunds has no such refund, or none that can be read"),
    ],
    ids=str,
)
def test_a_refund_that_does_not_wait_is_dropped(operated: OperatedStack, changes: dict[str, Any], outcome: str) -> None:
    """And one that OrderRefunds does not have is left: it would be made beside what is reserved."""
    operated.send("RefundsDlq", requested(operated, **changes).model_dump_json(exclude_none=True))
    [found] = redrive(operated).values()
    assert found.startswith(outcome)
    left = (len(operated.messages("RefundsDlq")), len(operated.messages("RefundsQueue")))
    assert left == {"redriven": (0, 1), "dropped": (0, 0), "left": (1, 0)}[outcome.partition(":")[0]]


def test_poison_stays(operated: OperatedStack) -> None:
    """What this version's code reads by now is sent back, if its queue takes it."""
    order = operated.place()
    poison = operated.send("PaymentsDlq", "{", reason=POISON)
    readable = operated.send("PaymentsDlq", operated.message(order), reason=POISON)
    misplaced = operated.send("RefundsDlq", operated.message(order))
    nobodys = operated.send("SubscriptionsDlq", '{"type": "other"}')
    left = dict.fromkeys((poison, nobodys), "left: this version's code cannot read it")
    found = redrive(operated)
    assert found == {readable: "redriven", misplaced: "left: its queue does not take such an event", **left}
    assert len(operated.messages("RefundsDlq")) == 1


def test_what_sns_could_not_deliver_goes_to_the_queue_that_reads_it(operated: OperatedStack) -> None:
    """Without the attributes that SNS has added, and out of its envelope if it has one."""
    order = operated.place()
    data = {"order_id": order.order_id, "attempt": 1, "amount_minor": 2500, "currency": "EUR", "occurred_at": T0}
    outcome = PaymentOutcome.model_validate(data)
    events: dict[str, Any] = {
        "PaymentsQueue": CancelRequestedEvent.of(order.current_attempt, correlation_id="c"),
        "OrderUpdatesQueue": PaymentOutcomeEvent.of(EventType.PAYMENT_SUCCEEDED, outcome, correlation_id="c"),
        "RefundsQueue": requested(operated),
    }
    bodies = {queue: event.model_dump_json(exclude_none=True) for queue, event in events.items()}
    for body in bodies.values():
        envelope = json.dumps({"Type": "Notification", "Message": body})
        operated.send("SubscriptionsDlq", envelope, RequestID="r", ErrorCode="E", ErrorMessage="m")
    assert set(redrive(operated).values()) == {"redriven"}
    for queue, body in bodies.items():
        [message] = operated.messages(queue)
        assert (message["Body"], message.get("MessageAttributes")) == (body, None)


def test_on_fifo_one_dead_letter_is_one_message(aws: None, stripe_base: str) -> None:
    """Of its group. Sent back twice within five minutes, since a crash left it in the DLQ: SQS drops the second."""
    fifo = OperatedStack(stripe_base, fifo=True)
    message_id = fifo.send("PaymentsDlq", fifo.message(fifo.place()), reason=POISON, group="g")
    assert redrive(fifo) == {message_id: "redriven"}
    [message] = fifo.messages("PaymentsQueue")
    place = [message["Attributes"][name] for name in ("MessageDeduplicationId", "MessageGroupId")]
    assert place == [f"redrive-{message_id}", "g"]
