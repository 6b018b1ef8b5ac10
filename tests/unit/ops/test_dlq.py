"""`dlq list`, `redrive` and `discard`: over the template's queues and tables, the real worker and a Stripe stand-in."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from pydantic import TypeAdapter

from charge_order.app import ORDER_EVENT
from onecharge.contract.events import CancelRequestedEvent, EventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.refunds import RefundRequestedEvent, RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import StoredRefund
from ops import dlq
from ops.dlq_letters import DESTINATIONS, DLQS, Reading, message_to_send, reading
from ops.errors import Problem
from refund_charge.refund import refund_charge
from tests.shop.builders import T0
from tests.support.harness import PROJECT, load_template
from tests.support.operated_stack import OperatedStack
from update_order.app import PAYMENT_EVENT

POISON = "message: json_invalid"
MOVED = "received too often"
REFUND_ID = "rfd_" + "b" * 32


def redrive(operated: OperatedStack, *words: str) -> Any:
    return operated.ops("dlq", "redrive", *words, "--yes")[1]


def outcomes(document: dict[str, Any]) -> dict[str, str]:
    """What was said of each message."""
    return {message["message_id"]: message["outcome"] for message in document["messages"]}


class Sqs:
    """SQS, with another `delete_message`."""

    def __init__(self, operated: OperatedStack, delete_message: Callable[..., Any]) -> None:
        self._sqs, self.delete_message = operated.sqs, delete_message
        operated.stack.__dict__["sqs"] = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sqs, name)


# ---------------------------------------------------------------- which DLQs

RESOURCES = load_template()["Resources"]
QUEUES = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::SQS::Queue"}


def logical_id(reference: str) -> str:
    """`GetAtt PaymentsDlq.Arn` is about PaymentsDlq."""
    return reference.split()[-1].partition(".")[0]


def test_no_dlq_of_the_template_is_forgotten() -> None:
    """Every queue that another queue, a subscription or a function names as its DLQ or failure destination."""
    named = {logical_id(part) for part in _values_of(RESOURCES, {"deadLetterTargetArn", "Destination"})}
    assert set(DLQS) == named & set(QUEUES) == {name for name in QUEUES if name.endswith("Dlq")}


def test_a_dlq_has_the_source_that_the_template_gives_it() -> None:
    """And each event type goes to the queue whose subscription filters for it."""
    sources = {
        logical_id(each["RedrivePolicy"]["deadLetterTargetArn"]): name
        for name, each in QUEUES.items()
        if "RedrivePolicy" in each
    }
    assert {dlq: source for dlq, source in DLQS.items() if source} == sources
    subscriptions = [each["Properties"] for each in RESOURCES.values() if each["Type"] == "AWS::SNS::Subscription"]
    subscribed = {logical_id(each["Endpoint"]): each.get("FilterPolicy") for each in subscriptions}
    assert set(subscribed) == {destination.queue for destination in DESTINATIONS}
    for destination in DESTINATIONS:
        policy = subscribed[destination.queue]
        assert policy is None or set(policy["event_type"]) == destination.event_types


def test_a_destination_reads_what_its_function_reads() -> None:
    """What one calls poison, the other does."""
    functions = {"PaymentsQueue": ORDER_EVENT, "OrderUpdatesQueue": PAYMENT_EVENT}
    for each in DESTINATIONS:
        adapter = functions.get(each.queue, TypeAdapter(RefundRequestedEvent))
        assert each.adapter.json_schema() == adapter.json_schema()


def _values_of(value: Any, names: set[str]) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in names and isinstance(each, str):
                yield each
            yield from _values_of(each, names)
    elif isinstance(value, list):
        for each in value:
            yield from _values_of(each, names)


# ---------------------------------------------------------------- list


def test_list_counts_by_reason_and_deletes_nothing(operated: OperatedStack) -> None:
    """By DLQ and reason; every message is visible again afterwards."""
    assert operated.ops("dlq", "list") == (0, {"reasons": [], "messages": [], "notes": []}, "the DLQs are empty\n")
    order = operated.place()
    operated.send("PaymentsDlq", "{", reason=POISON)
    operated.send("PaymentsDlq", "[", reason=POISON)
    operated.send("PaymentsDlq", operated.message(order))
    undelivered = {"ErrorCode": "AWS.SimpleQueueService.NonExistentQueue", "RequestID": "r", "ErrorMessage": "gone"}
    operated.send("SubscriptionsDlq", operated.message(order), **undelivered)
    status, document, text = operated.ops("dlq", "list", "--messages")
    assert [(each["dlq"], each["reason"], each["messages"]) for each in document["reasons"]] == [
        ("PaymentsDlq", POISON, 2),
        ("PaymentsDlq", MOVED, 1),
        ("SubscriptionsDlq", "not delivered by SNS: AWS.SimpleQueueService.NonExistentQueue", 1),
    ]
    [moved] = [each for each in document["messages"] if each["reason"] == MOVED]
    assert (moved["order_id"], moved["attempt"], moved["event_type"]) == (order.order_id, 1, "onecharge.order.placed")
    assert (status, document["notes"], order.order_id in text) == (1, [], True)
    assert len(operated.messages("PaymentsDlq")) == 3


def test_list_reads_more_than_one_batch_and_says_what_it_did_not_see(
    operated: OperatedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another reader hides, or what is beyond the limit, is counted."""
    for _ in range(25):
        operated.send("PaymentsDlq", "{", reason=POISON)
    assert operated.ops("dlq", "list")[1]["reasons"][0]["messages"] == 25
    with monkeypatch.context() as patched:
        patched.setattr(dlq, "READ_MAX", 12)
        _, limited, _ = operated.ops("dlq", "list")
    assert limited["reasons"][0]["messages"] == 12
    assert limited["notes"][0].startswith("PaymentsDlq: about 13 messages were not seen")
    other = Reading(operated.stack.sqs, operated.stack.resource("PaymentsDlq"), "PaymentsDlq", wait_seconds=0)
    hidden = next(other.batches())
    status, beside, _ = operated.ops("dlq", "list")
    assert beside["reasons"][0]["messages"] == 25 - len(hidden)
    assert (status, len(beside["notes"])) == (1, 1)


def test_list_chooses_by_queue_and_reason(operated: OperatedStack) -> None:
    """Only the DLQ and the reason that are named."""
    operated.send("PaymentsDlq", "{", reason=POISON)
    operated.send("OrderUpdatesDlq", "{", reason=POISON)
    operated.send("OrderUpdatesDlq", "{}", reason="type: missing")
    _, document, _ = operated.ops("dlq", "list", "--queue", "OrderUpdatesDlq", "--reason", POISON)
    assert [(each["dlq"], each["messages"]) for each in document["reasons"]] == [("OrderUpdatesDlq", 1)]


# ---------------------------------------------------------------- redrive


def test_a_redriven_order_is_charged_once(operated: OperatedStack) -> None:
    """A dry run changes nothing; --yes sends it back with its attributes, and the worker charges it."""
    order = operated.place()
    message_id = operated.send("PaymentsDlq", operated.message(order), event_type="onecharge.order.placed")
    status, document, _ = operated.ops("dlq", "redrive", "--message-id", message_id)
    assert (status, document["dry_run"], document["redriven"]) == (1, True, 1)
    assert (len(operated.messages("PaymentsDlq")), operated.messages("PaymentsQueue")) == (1, [])
    status, document, _ = operated.ops("dlq", "redrive", "--reason", MOVED, "--yes")
    assert (status, document["dry_run"], document["redriven"], document["left"]) == (0, False, 1, 0)
    assert operated.messages("PaymentsDlq") == []
    [message] = operated.messages("PaymentsQueue")
    assert message["Body"] == operated.message(order)
    attributes = {name: each["StringValue"] for name, each in message["MessageAttributes"].items()}
    assert attributes == {"event_type": "onecharge.order.placed"}
    operated.charge()
    assert operated.payment(order.order_id).state is PaymentState.SUCCEEDED
    assert operated.charges(order.order_id) == 1


def test_a_paid_order_is_not_redriven(operated: OperatedStack) -> None:
    """Discarding it is offered instead."""
    message_id = operated.send("PaymentsDlq", operated.message(operated.pay()))
    status, document, text = operated.ops("dlq", "redrive", "--message-id", message_id, "--yes")
    assert outcomes(document) == {message_id: "`dlq discard` it: the order is PAID: nothing to do"}
    assert (status, document["redriven"], document["left"]) == (1, 0, 1)
    assert "left in the DLQ: 1, `dlq discard` it: the order is PAID: nothing to do" in text
    assert (len(operated.messages("PaymentsDlq")), operated.messages("PaymentsQueue")) == (1, [])


def test_a_message_whose_row_is_lost_is_not_charged_again(operated: OperatedStack) -> None:
    """Stripe replays the create within a day. Later the order is held, as the command says; `release` finds the charge.

    The stand-in forgets an idempotency key after 24 hours, as Stripe may.
    """
    for hours, is_held in ((1, False), (25, True), (24 * 6, True)):
        with operated.hours_ago(hours):
            order = operated.place()
            operated.send("PaymentsQueue", operated.message(order))
            operated.charge()
        operated.delete("PaymentsTable", order_id=order.order_id)
        operated.send("PaymentsDlq", operated.message(order))
        document = redrive(operated, "--reason", MOVED)
        assert (document["redriven"], document["held"]) == (1, [order.order_id] if is_held else [])
        operated.charge()
        state = operated.payment(order.order_id).state
        assert state is (PaymentState.PENDING if is_held else PaymentState.SUCCEEDED)
        assert operated.ops("release", "--all", "--yes")[0] == 0
        assert operated.payment(order.order_id).state is PaymentState.SUCCEEDED
        assert operated.charges(order.order_id) == 1
    assert len(operated.standin.ledger().charges) == 3


def test_a_redriven_refund_is_made_once(operated: OperatedStack) -> None:
    """It was made 25 hours ago, its row is lost, Stripe has forgotten its key: the lookup finds it."""

    def handle(event: RefundRequestedEvent) -> None:
        refund_charge(event, operated.refund_tools())

    with operated.hours_ago(25):
        order = operated.pay()
        names = {"order_id": order.order_id, "refund_id": REFUND_ID, "correlation_id": "c", "attempt": 1}
        money = {"amount_minor": 500, "currency": "EUR", "fingerprint": "f"}
        item = names | money | {"requested_at": order.placed_at, "status": "PENDING"}
        requested = StoredRefund.model_validate(item).requested_event()
        handle(requested)
    operated.put("OrderRefundsTable", **item)
    operated.delete("RefundsTable", order_id=order.order_id, refund_id=REFUND_ID)
    operated.send("RefundsDlq", requested.model_dump_json(exclude_none=True))
    assert redrive(operated, "--reason", MOVED)["redriven"] == 1
    [message] = operated.messages("RefundsQueue")
    handle(RefundRequestedEvent.model_validate_json(message["Body"]))
    assert [refund["amount"] for refund in operated.standin.ledger().refunds] == [500]
    made = operated.refund_tools().refunds.read(order.order_id, REFUND_ID)
    assert made is not None
    assert made.state is RefundState.SUCCEEDED


def test_a_crash_between_send_and_delete_makes_a_harmless_duplicate(operated: OperatedStack) -> None:
    """The message is still in the DLQ, and is redriven again: two deliveries, one charge."""
    order = operated.place()
    operated.send("PaymentsDlq", operated.message(order))
    operated.send("PaymentsQueue", operated.message(order))  # What was sent before the crash.
    redrive(operated, "--reason", MOVED)
    assert len(operated.messages("PaymentsQueue")) == 2
    operated.charge()
    operated.charge()
    assert operated.charges(order.order_id) == 1


def test_what_cannot_be_deleted_is_said(operated: OperatedStack) -> None:
    """It was sent, and is in the DLQ still: its next redrive is a duplicate."""
    operated.send("PaymentsDlq", operated.message(operated.place()))

    def refuse(**_: Any) -> None:
        raise operated.sqs.exceptions.ReceiptHandleIsInvalid({"Error": {"Code": "x"}}, "DeleteMessage")

    Sqs(operated, refuse)
    [outcome] = outcomes(redrive(operated, "--reason", MOVED)).values()
    assert outcome.endswith("; still in the DLQ: its next redrive is a harmless duplicate")
    assert (len(operated.messages("PaymentsDlq")), len(operated.messages("PaymentsQueue"))) == (1, 1)


def test_poison_stays_until_the_code_is_fixed(operated: OperatedStack) -> None:
    """Still unreadable: left, unless --force. What this version's code reads by now is sent back."""
    order = operated.place()
    poison = operated.send("PaymentsDlq", "{", reason=POISON)
    readable = operated.send("PaymentsDlq", operated.message(order), reason=POISON)
    found = outcomes(redrive(operated, "--reason", POISON))
    assert found[poison].startswith("`dlq discard` it: still poison (message: json_invalid)")
    assert found[readable].startswith("redriven: the order is PENDING")
    operated.charge()
    assert operated.charges(order.order_id) == 1
    assert redrive(operated, "--reason", POISON, "--force")["redriven"] == 1
    operated.charge()
    [again] = operated.messages("PaymentsDlq")
    assert again["MessageAttributes"]["reason"]["StringValue"] == POISON
    assert again["MessageAttributes"]["source_queue"]["StringValue"].endswith("-PaymentsQueue")


def test_poison_that_comes_back_immediately_is_not_chased(operated: OperatedStack) -> None:
    """The function is faster than the command: each message is sent back once, and its return is said."""
    for _ in range(3):
        operated.send("PaymentsDlq", "{", reason=POISON)

    one_worker = Lock()  # The command deletes on several threads, and moto gives a message to two of them.

    def delete_and_charge(**given: Any) -> None:
        with one_worker:
            operated.sqs.delete_message(**given)
            operated.charge()

    Sqs(operated, delete_and_charge)
    status, document, _ = operated.ops("dlq", "redrive", "--reason", POISON, "--force", "--yes")
    assert (status, document["redriven"]) == (1, 3)
    assert [note.endswith(f"was redriven, and came back: {POISON}") for note in document["notes"]] == [True] * 3
    assert len(operated.messages("PaymentsDlq")) == 3


def test_a_forged_message_is_not_redriven(operated: OperatedStack) -> None:
    """A younger order would not be looked up, a larger amount would be charged: neither is what the order says."""
    with operated.hours_ago(25):
        order = operated.pay()
    operated.delete("PaymentsTable", order_id=order.order_id)
    operated.set_status(order, OrderStatus.PENDING)
    event = json.loads(operated.message(order))
    for change in ({"placed_at": "2026-11-21T00:00:00Z"}, {"amount_minor": 99900}, {"payment_method": "pm_other"}):
        forged = operated.send("PaymentsDlq", json.dumps({**event, "data": {**event["data"], **change}}))
        found = outcomes(redrive(operated, "--message-id", forged, "--force"))
        assert found[forged].startswith("it differs from what is stored: who has sent it")
    assert operated.messages("PaymentsQueue") == []


def test_a_lost_order_is_not_redriven(operated: OperatedStack) -> None:
    """Not even with --force: it would charge a customer for nothing."""
    order = operated.place()
    operated.delete("OrdersTable", order_id=order.order_id)
    message_id = operated.send("PaymentsDlq", operated.message(order))
    found = outcomes(redrive(operated, "--message-id", message_id, "--force"))
    assert found[message_id].startswith("the order service has no such order")


def test_what_cannot_be_consulted_is_left(operated: OperatedStack) -> None:
    """No queue takes it, its time is in the future, or its order cannot be read: each with its own reason."""
    order, broken = operated.place(), operated.place()
    event = json.loads(operated.message(order))
    future = json.dumps({**event, "data": {**event["data"], "placed_at": "2999-01-01T00:00:00Z"}})
    operated.set_status(order, OrderStatus.PAID)
    operated.set_order(broken.order_id, amount_minor=None)
    sent = {
        operated.send("SubscriptionsDlq", "{"): "no queue takes messages of the type None",
        operated.send("SubscriptionsDlq", '{"type": "other"}'): "no queue takes messages of the type other",
        operated.send("PaymentsDlq", future): "it differs from what is stored",
        operated.send("PaymentsDlq", operated.message(broken)): "the item of its order or refund cannot be read",
    }
    found = outcomes(redrive(operated, "--reason", MOVED))
    assert found.keys() == sent.keys()
    assert [found[each] for each in sent if not found[each].startswith(sent[each])] == []


def test_a_table_that_does_not_answer_changes_nothing(operated: OperatedStack) -> None:
    """The message is left, with the error."""
    message_id = operated.send("PaymentsDlq", operated.message(operated.place()))
    operated.dynamodb.delete_table(TableName=operated.stack.resource("OrdersTable"))
    found = outcomes(redrive(operated, "--message-id", message_id, "--force"))
    assert found[message_id].startswith("it could not be consulted: ")
    assert len(operated.messages("PaymentsDlq")) == 1


def test_outcomes_and_cancellations_go_to_their_queues(operated: OperatedStack) -> None:
    """An outcome that the order does not know; a cancellation that was not requested is left."""
    order = operated.place()
    data = {"order_id": order.order_id, "attempt": 1, "amount_minor": 2500, "currency": "EUR", "occurred_at": T0}
    outcome = PaymentOutcomeEvent.of(
        EventType.PAYMENT_SUCCEEDED, PaymentOutcome.model_validate(data), correlation_id="c"
    ).model_dump_json()
    cancel = CancelRequestedEvent.of(order.current_attempt, correlation_id="c").model_dump_json()
    emitted, asked = operated.send("SubscriptionsDlq", outcome), operated.send("SubscriptionsDlq", cancel)
    assert outcomes(redrive(operated, "--reason", MOVED)) == {
        emitted: "redriven: it is PENDING, takes it once, and ignores it if it knows better",
        asked: "the order is PENDING: it waits for another message",
    }
    [message] = operated.messages("OrderUpdatesQueue")
    assert message["Body"] == outcome


def test_a_message_that_was_not_seen_is_said(operated: OperatedStack) -> None:
    """An id that no DLQ shows; and no choice at all is refused."""
    status, document, _ = operated.ops("dlq", "redrive", "--message-id", "unknown", "--yes")
    assert (status, document["notes"]) == (1, ["no message unknown was seen"])
    with pytest.raises(Problem, match="which messages"):
        redrive(operated)


def test_what_sns_could_not_deliver_goes_to_the_queue_of_its_type(operated: OperatedStack) -> None:
    """Without the attributes that SNS has added, and out of its envelope if it has one."""
    order = operated.place()
    envelope = json.dumps({"Type": "Notification", "Message": operated.message(order)})
    operated.send("SubscriptionsDlq", envelope, RequestID="r", ErrorCode="E", ErrorMessage="m")
    assert redrive(operated, "--reason", "not delivered by SNS: E")["redriven"] == 1
    [message] = operated.messages("PaymentsQueue")
    assert (message["Body"], message.get("MessageAttributes")) == (operated.message(order), None)


def test_on_fifo_one_dead_letter_is_one_message(aws: None, stripe_base: str) -> None:
    """Of its group. Sent back twice within five minutes, since a crash left it in the DLQ: SQS drops the second."""
    fifo = OperatedStack(stripe_base, fifo=True)
    fifo.send("PaymentsDlq", "{", reason=POISON, group="g")
    with reading(fifo.stack, "PaymentsDlq") as opened:
        [[letter]] = opened.batches()
    first, second = (message_to_send(fifo.stack, letter) for _ in range(2))
    assert first["MessageDeduplicationId"] == second["MessageDeduplicationId"]
    assert first["MessageGroupId"] == "g"


# ---------------------------------------------------------------- discard


def test_a_discarded_message_is_recorded_first(operated: OperatedStack, tmp_path: Path) -> None:
    """With why, by whom, and the request that sends it again."""
    order, file = operated.pay(), tmp_path / "record"
    message_id = operated.send("PaymentsDlq", operated.message(order), event_type="onecharge.order.placed")
    words = ("dlq", "discard", "--message-id", message_id, "--because", "paid", "--record", str(file))
    status, document, _ = operated.ops(*words)
    assert (status, document["dry_run"], document["discarded"], file.exists()) == (1, True, 1, False)
    status, document, _ = operated.ops(*words, "--yes")
    assert (status, document["discarded"], operated.messages("PaymentsDlq")) == (0, 1, [])
    [record] = [json.loads(line) for line in file.read_text().splitlines()]
    assert (record["because"], record["message_id"], record["order_id"]) == ("paid", message_id, order.order_id)
    assert ":" in record["discarded_by"]
    operated.sqs.send_message(**record["send_again"])
    [message] = operated.messages("PaymentsQueue")
    assert message["Body"] == operated.message(order)


def discard(operated: OperatedStack, file: Path, *words: str) -> Any:
    return operated.ops("dlq", "discard", *words, "--because", "x", "--record", str(file), "--yes")[1]


def test_a_message_that_is_needed_is_not_discarded(operated: OperatedStack, tmp_path: Path) -> None:
    """Its order is unfinished; --although-unfinished discards it."""
    message_id = operated.send("PaymentsDlq", operated.message(operated.place()))
    document = discard(operated, tmp_path / "r", "--message-id", message_id)
    assert outcomes(document)[message_id].startswith("`dlq redrive` it: ")
    assert (document["discarded"], len(operated.messages("PaymentsDlq"))) == (0, 1)
    document = discard(operated, tmp_path / "r", "--message-id", message_id, "--although-unfinished")
    assert (document["discarded"], operated.messages("PaymentsDlq")) == (1, [])


def test_what_cannot_be_recorded_is_not_discarded(operated: OperatedStack, tmp_path: Path) -> None:
    """As on a full disk, or in a folder that is not there."""
    operated.send("PaymentsDlq", operated.message(operated.pay()))
    assert discard(operated, tmp_path / "nowhere" / "record", "--reason", MOVED)["discarded"] == 0
    assert len(operated.messages("PaymentsDlq")) == 1


def test_git_does_not_see_the_record(operated: OperatedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds messages of customers: where it is written by default, .gitignore names it."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    shutil.copy(PROJECT / ".gitignore", tmp_path)
    monkeypatch.chdir(tmp_path)
    operated.send("PaymentsDlq", operated.message(operated.pay()))
    assert operated.ops("dlq", "discard", "--reason", MOVED, "--because", "x", "--yes")[1]["discarded"] == 1
    untracked = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    assert (len([*tmp_path.glob("*.jsonl")]), untracked) == (1, "?? .gitignore\n")


def test_a_record_holds_no_secret(operated: OperatedStack, tmp_path: Path) -> None:
    """Client secrets and API keys are cut out; then it cannot be sent again."""
    bodies = {
        '{"client_secret": "pi_1_secret_abc"}': "pi_1_secret_abc",
        "sk_test_abcdef": "sk_test_abcdef",
    }
    for body in bodies:
        operated.send("PaymentsDlq", body, reason=POISON)
        operated.send("PaymentsDlq", "{", reason=POISON, given=body)
    discard(operated, tmp_path / "record", "--reason", POISON)
    text = (tmp_path / "record").read_text()
    assert [secret for secret in bodies.values() if secret in text] == []
    assert [json.loads(line)["send_again"] for line in text.splitlines()] == [None] * 4


def test_poison_of_an_unfinished_order_is_kept(operated: OperatedStack, tmp_path: Path) -> None:
    """It cannot be read, but names an order that waits: a person checks first."""
    order = operated.place()
    event = json.loads(operated.message(order))
    del event["data"]["currency"]
    message_id = operated.send("PaymentsDlq", json.dumps(event), reason="data.currency: missing")
    found = outcomes(discard(operated, tmp_path / "r", "--message-id", message_id))
    why = "still poison (onecharge.order.placed.data.currency: missing), and its order is PENDING"
    assert found[message_id].startswith(why)
    operated.set_status(order, OrderStatus.PAID)
    assert discard(operated, tmp_path / "r", "--message-id", message_id)["discarded"] == 1


def test_stripe_is_not_asked(operated: OperatedStack) -> None:
    """A DLQ can be emptied without a key of Stripe's: the worker that receives a message asks."""
    operated.send("PaymentsDlq", operated.message(operated.place()))
    redrive(operated, "--reason", MOVED)
    assert operated.standin.ledger().counts == {}
