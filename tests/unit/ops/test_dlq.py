"""`dlq list`, `redrive` and `discard`: over the template's queues and tables, the real worker and a Stripe stand-in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.stripe_standin.server import running_standin
from onecharge.contract.events import CancelRequestedEvent, EventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus, PaymentState
from ops.dead_letters.queues import DESTINATIONS, DLQS, Reading, reading
from ops.dead_letters.redrive import message_to_send
from testing.builders import T0
from testing.dlq_stack import DlqStack
from testing.harness import load_template

POISON = "message: json_invalid"


@pytest.fixture(scope="module")
def stripe_base() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


@pytest.fixture
def operated(aws: None, stripe_base: str) -> DlqStack:
    made = DlqStack(stripe_base)
    made.standin.reset()
    return made


@pytest.fixture
def fifo(aws: None, stripe_base: str) -> DlqStack:
    made = DlqStack(stripe_base, fifo=True)
    made.standin.reset()
    return made


def outcomes(document: dict[str, Any]) -> dict[str, str]:
    """What was said of each message."""
    return {message["message_id"]: message["outcome"] for message in document["messages"]}


# ---------------------------------------------------------------- which DLQs


def test_no_dlq_of_the_template_is_forgotten() -> None:
    """Every queue that another queue, a subscription or a function names as its DLQ or failure destination."""
    template = load_template()["Resources"]
    named = {
        part.partition(".")[0].split()[-1]
        for resource in template.values()
        for part in _values_of(resource, {"deadLetterTargetArn", "Destination"})
    }
    queues = {name for name, resource in template.items() if resource["Type"] == "AWS::SQS::Queue"}
    assert set(DLQS) == named & queues
    assert {name for name in queues if name.endswith("Dlq")} == set(DLQS)


def test_a_dlq_has_the_source_that_the_template_gives_it() -> None:
    """And each event type goes to the queue whose subscription filters for it."""
    template = load_template()["Resources"]
    by_dlq = {
        resource["Properties"]["RedrivePolicy"]["deadLetterTargetArn"].split()[-1].partition(".")[0]: name
        for name, resource in template.items()
        if resource["Type"] == "AWS::SQS::Queue" and "RedrivePolicy" in resource["Properties"]
    }
    assert {dlq: source for dlq, source in DLQS.items() if source} == by_dlq
    subscribed = {
        resource["Properties"]["Endpoint"].split()[-1].partition(".")[0]: resource["Properties"].get("FilterPolicy")
        for resource in template.values()
        if resource["Type"] == "AWS::SNS::Subscription"
    }
    for destination in DESTINATIONS:
        policy = subscribed[destination.queue]
        assert policy is None or set(policy["event_type"]) == destination.event_types
    assert set(subscribed) == {destination.queue for destination in DESTINATIONS}


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


def test_list_counts_by_reason_and_deletes_nothing(operated: DlqStack) -> None:
    """By DLQ and reason; every message is visible again afterwards."""
    order = operated.place()
    operated.send("PaymentsDlq", "{", reason=POISON)
    operated.send("PaymentsDlq", "[", reason=POISON)
    operated.send("PaymentsDlq", operated.message(order))
    undelivered = {"ErrorCode": "AWS.SimpleQueueService.NonExistentQueue", "RequestID": "r", "ErrorMessage": "gone"}
    operated.send("SubscriptionsDlq", operated.message(order), **undelivered)
    status, document, text = operated.ops("dlq", "list", "--messages")
    assert [(each["dlq"], each["reason"], each["messages"]) for each in document["reasons"]] == [
        ("PaymentsDlq", POISON, 2),
        ("PaymentsDlq", "received too often", 1),
        ("SubscriptionsDlq", "not delivered by SNS: AWS.SimpleQueueService.NonExistentQueue", 1),
    ]
    [moved] = [each for each in document["messages"] if each["reason"] == "received too often"]
    assert (moved["order_id"], moved["attempt"]) == (order.order_id, 1)
    assert moved["event_type"] == "onecharge.order.placed"
    assert (status, document["notes"]) == (1, [])
    assert order.order_id in text
    assert len(operated.messages("PaymentsDlq")) == 3


def test_empty_dlqs_are_fine(operated: DlqStack) -> None:
    """Exit status 0."""
    status, document, text = operated.ops("dlq", "list")
    assert (status, document["reasons"], text.strip()) == (0, [], "the DLQs are empty")


def test_list_reads_more_than_one_batch_and_says_what_it_did_not_see(operated: DlqStack) -> None:
    """What another reader hides, or what is beyond the limit, is counted."""
    for _ in range(25):
        operated.send("PaymentsDlq", "{", reason=POISON)
    _, document, _ = operated.ops("dlq", "list")
    assert document["reasons"][0]["messages"] == 25
    _, limited, _ = operated.ops("dlq", "list", "--limit", "12")
    assert limited["reasons"][0]["messages"] == 12
    assert limited["notes"][0].startswith("PaymentsDlq: about 13 messages were not seen")
    other = Reading(operated.stack.sqs, operated.stack.resource("PaymentsDlq"), "PaymentsDlq", wait_seconds=0)
    hidden = next(other.batches())
    status, beside, _ = operated.ops("dlq", "list")
    assert beside["reasons"][0]["messages"] == 25 - len(hidden)
    assert (status, len(beside["notes"])) == (1, 1)


def test_list_chooses_by_queue_and_reason(operated: DlqStack) -> None:
    """Only the DLQ and the reason that are named."""
    operated.send("PaymentsDlq", "{", reason=POISON)
    operated.send("OrderUpdatesDlq", "{", reason=POISON)
    operated.send("OrderUpdatesDlq", "{}", reason="type: missing")
    _, document, _ = operated.ops("dlq", "list", "--queue", "OrderUpdatesDlq", "--reason", POISON)
    assert [(each["dlq"], each["messages"]) for each in document["reasons"]] == [("OrderUpdatesDlq", 1)]


# ---------------------------------------------------------------- redrive


def test_a_redriven_order_is_charged_once(operated: DlqStack) -> None:
    """A dry run changes nothing; --yes sends it back with its attributes, and the worker charges it."""
    order = operated.place()
    message_id = operated.send("PaymentsDlq", operated.message(order), event_type="onecharge.order.placed")
    status, document, _ = operated.ops("dlq", "redrive", "--message-id", message_id)
    assert (status, document["dry_run"], document["redriven"]) == (1, True, 1)
    assert (len(operated.messages("PaymentsDlq")), operated.messages("PaymentsQueue")) == (1, [])
    status, document, _ = operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    assert (status, document["dry_run"], document["redriven"], document["left"]) == (0, False, 1, 0)
    assert operated.messages("PaymentsDlq") == []
    [message] = operated.messages("PaymentsQueue")
    assert message["Body"] == operated.message(order)
    assert {name: each["StringValue"] for name, each in message["MessageAttributes"].items()} == {
        "event_type": "onecharge.order.placed"
    }
    operated.charge()
    assert operated.payment(order.order_id).state is PaymentState.SUCCEEDED
    assert operated.charges(order.order_id) == 1


def test_a_paid_order_is_not_redriven(operated: DlqStack) -> None:
    """Discarding it is offered instead."""
    order = operated.pay()
    message_id = operated.send("PaymentsDlq", operated.message(order))
    status, document, text = operated.ops("dlq", "redrive", "--message-id", message_id, "--yes")
    assert outcomes(document) == {message_id: "`dlq discard` it: the order is PAID: nothing to do"}
    assert (status, document["redriven"], document["left"]) == (1, 0, 1)
    assert "left in the DLQ: 1, `dlq discard` it: the order is PAID: nothing to do" in text
    assert (len(operated.messages("PaymentsDlq")), operated.messages("PaymentsQueue")) == (1, [])


@pytest.mark.parametrize("hours", [1, 25, 24 * 13])
def test_a_message_whose_row_is_lost_is_not_charged_again(operated: DlqStack, hours: float) -> None:
    """The order was charged so long ago and its row is lost: Stripe replays the create, or the lookup finds the charge.

    The stand-in forgets an idempotency key after 24 hours, as Stripe may.
    """
    with operated.hours_ago(hours):
        order = operated.place()
        operated.send("PaymentsQueue", operated.message(order))
        operated.charge()
    assert operated.charges(order.order_id) == 1
    operated.lose(order.order_id)
    operated.send("PaymentsDlq", operated.message(order))
    _, document, _ = operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    [message] = document["messages"]
    assert message["why"].startswith("the payment has no row; Stripe shows pi_")
    operated.charge()
    assert operated.payment(order.order_id).state is PaymentState.SUCCEEDED
    assert operated.charges(order.order_id) == 1
    assert len(operated.standin.ledger().charges) == 1


def test_the_protocol_itself_charges_an_old_message_once(operated: DlqStack) -> None:
    """Nobody is consulted: 30 copies of a message of 13 days ago, the row lost after each; one charge."""
    with operated.hours_ago(24 * 13):
        order = operated.pay()
    for _ in range(30):
        operated.lose(order.order_id)
        operated.send("PaymentsQueue", operated.message(order))
        operated.charge()
    assert operated.payment(order.order_id).state is PaymentState.SUCCEEDED
    assert operated.charges(order.order_id) == 1


def test_a_crash_between_send_and_delete_makes_a_harmless_duplicate(operated: DlqStack) -> None:
    """The message is still in the DLQ, and is redriven again: two deliveries, one charge."""
    order = operated.place()
    body = operated.message(order)
    operated.send("PaymentsDlq", body)
    operated.send("PaymentsQueue", body)  # What was sent before the crash.
    operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    assert len(operated.messages("PaymentsQueue")) == 2
    operated.charge()
    operated.charge()
    assert operated.charges(order.order_id) == 1


def test_what_cannot_be_deleted_is_said(operated: DlqStack) -> None:
    """It was sent, and is in the DLQ still: its next redrive is a duplicate."""
    order = operated.place()
    operated.send("PaymentsDlq", operated.message(order))

    class Undeletable:
        def __getattr__(self, name: str) -> Any:
            return getattr(operated.sqs, name)

        def delete_message(self, **_: Any) -> None:
            raise operated.sqs.exceptions.ReceiptHandleIsInvalid({"Error": {"Code": "x"}}, "DeleteMessage")

    operated.stack.__dict__["sqs"] = Undeletable()
    _, document, _ = operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    [outcome] = outcomes(document).values()
    assert outcome.endswith("; still in the DLQ: its next redrive is a harmless duplicate")
    assert (len(operated.messages("PaymentsDlq")), len(operated.messages("PaymentsQueue"))) == (1, 1)


def test_poison_stays_until_the_code_is_mended(operated: DlqStack) -> None:
    """Still unreadable: left, unless --force. What this version's code reads by now is sent back."""
    order = operated.place()
    poison = operated.send("PaymentsDlq", "{", reason=POISON)
    mended = operated.send("PaymentsDlq", operated.message(order), reason=POISON)
    _, document, _ = operated.ops("dlq", "redrive", "--reason", POISON, "--yes")
    assert outcomes(document)[poison].startswith("`dlq discard` it: still poison (message: json_invalid)")
    assert outcomes(document)[mended].startswith("redriven: the payment has no row; the order waits")
    operated.charge()
    assert operated.charges(order.order_id) == 1
    _, document, _ = operated.ops("dlq", "redrive", "--reason", POISON, "--yes", "--force")
    assert document["redriven"] == 1
    operated.charge()
    [again] = operated.messages("PaymentsDlq")
    assert again["MessageAttributes"]["reason"]["StringValue"] == POISON
    assert again["MessageAttributes"]["source_queue"]["StringValue"].endswith("-PaymentsQueue")


def test_poison_that_comes_back_at_once_is_not_chased(operated: DlqStack) -> None:
    """The function is faster than the command: each message is sent back once, and its return is said."""
    for _ in range(3):
        operated.send("PaymentsDlq", "{", reason=POISON)

    class FastFunction:
        """charge_order receives a message as soon as it is sent back."""

        def __getattr__(self, name: str) -> Any:
            return getattr(operated.sqs, name)

        def delete_message(self, **given: Any) -> Any:
            answer = operated.sqs.delete_message(**given)
            operated.charge()
            return answer

    operated.stack.__dict__["sqs"] = FastFunction()
    status, document, _ = operated.ops("dlq", "redrive", "--reason", POISON, "--force", "--yes")
    assert (status, document["redriven"]) == (1, 3)
    assert [note.endswith(f"was redriven, and came back: {POISON}") for note in document["notes"]] == [True] * 3
    assert len(operated.messages("PaymentsDlq")) == 3


def test_a_forged_message_is_not_redriven(operated: DlqStack) -> None:
    """A younger order would not be looked up, a larger amount would be charged: neither is what the order says."""
    with operated.hours_ago(25):
        order = operated.pay()
    operated.lose(order.order_id)
    operated.set_status(order, OrderStatus.PENDING)
    event = json.loads(operated.message(order))
    for change in ({"placed_at": "2026-11-21T00:00:00Z"}, {"amount_minor": 99900}, {"payment_method": "pm_other"}):
        forged = operated.send("PaymentsDlq", json.dumps({**event, "data": {**event["data"], **change}}))
        _, document, _ = operated.ops("dlq", "redrive", "--message-id", forged, "--yes", "--force")
        assert outcomes(document)[forged] == "it differs from the stored order: who has sent it?"
    assert operated.messages("PaymentsQueue") == []


def test_an_order_that_nobody_knows_is_not_redriven(operated: DlqStack) -> None:
    """Not even with --force: it would be charged for nobody."""
    order = operated.place()
    operated.lose(order.order_id, "OrdersTable")
    message_id = operated.send("PaymentsDlq", operated.message(order))
    _, document, _ = operated.ops("dlq", "redrive", "--message-id", message_id, "--yes", "--force")
    assert outcomes(document)[message_id].startswith("the order service has no such order")


def test_stripe_is_asked_before_an_undecided_order_is_redriven(operated: DlqStack) -> None:
    """If it does not answer, the message is left; --force sends it back, since the worker asks as well."""
    order = operated.place()
    message_id = operated.send("PaymentsDlq", operated.message(order))
    operated.standin.assign_api_key("sk_test_operated", None)
    _, document, _ = operated.ops("dlq", "redrive", "--message-id", message_id, "--yes")
    assert outcomes(document)[message_id].startswith("the payment has no row; Stripe could not be asked")
    _, document, _ = operated.ops("dlq", "redrive", "--message-id", message_id, "--yes", "--force")
    assert document["redriven"] == 1


def test_what_cannot_be_consulted_is_left(operated: DlqStack) -> None:
    """No queue takes it, its time is in the future, or its order cannot be read: each with its own reason."""
    order, broken = operated.place(), operated.place()
    event = json.loads(operated.message(order))
    future = json.dumps({**event, "data": {**event["data"], "placed_at": "2999-01-01T00:00:00Z"}})
    operated.set_status(order, OrderStatus.PAID)
    operated.set_status(broken, OrderStatus.PENDING)
    body = operated.message(broken)
    operated.dynamodb.update_item(
        TableName=operated.stack.resource("OrdersTable"),
        Key={"order_id": {"S": broken.order_id}},
        UpdateExpression="REMOVE amount_minor",
    )
    sent = {
        operated.send("SubscriptionsDlq", "{"): "neither a type nor an order can be read",
        operated.send("SubscriptionsDlq", '{"type": "other"}'): "no queue takes messages of the type other",
        operated.send("PaymentsDlq", future): "`dlq discard` it: still poison (its time is in the future)",
        operated.send("PaymentsDlq", body): "the item of its order or refund cannot be read",
    }
    _, document, _ = operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    found = outcomes(document)
    assert found.keys() == sent.keys()
    assert [found[each] for each in sent if not found[each].startswith(sent[each])] == []


def test_a_table_that_does_not_answer_changes_nothing(operated: DlqStack) -> None:
    """The message is left, with the error."""
    order = operated.place()
    message_id = operated.send("PaymentsDlq", operated.message(order))
    operated.dynamodb.delete_table(TableName=operated.stack.resource("PaymentsTable"))
    _, document, _ = operated.ops("dlq", "redrive", "--message-id", message_id, "--yes", "--force")
    assert outcomes(document)[message_id].startswith("it could not be consulted: ")
    assert len(operated.messages("PaymentsDlq")) == 1


def test_outcomes_and_cancellations_go_to_their_queues(operated: DlqStack) -> None:
    """An outcome that the order does not know; a cancellation that nobody wants is left."""
    order = operated.place()
    data = {"order_id": order.order_id, "attempt": 1, "amount_minor": 2500, "currency": "EUR", "occurred_at": T0}
    outcome = PaymentOutcomeEvent.of(
        EventType.PAYMENT_SUCCEEDED, PaymentOutcome.model_validate(data), correlation_id="c"
    ).model_dump_json()
    cancel = CancelRequestedEvent.of(order.present_attempt, correlation_id="c").model_dump_json()
    emitted = operated.send("SubscriptionsDlq", outcome)
    asked = operated.send("SubscriptionsDlq", cancel)
    _, document, _ = operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    assert outcomes(document) == {
        emitted: "redriven: the order is PENDING, and becomes PAID",
        asked: "the order is PENDING, and no cancellation of it is stored",
    }
    [message] = operated.messages("OrderUpdatesQueue")
    assert message["Body"] == outcome


def test_a_message_that_was_not_seen_is_said(operated: DlqStack) -> None:
    """An id that no DLQ shows; and no choice at all is refused."""
    status, document, _ = operated.ops("dlq", "redrive", "--message-id", "nobody", "--yes")
    assert (status, document["notes"]) == (1, ["no message nobody was seen"])
    with pytest.raises(Exception, match="which messages"):
        operated.ops("dlq", "redrive", "--yes")


def test_what_sns_could_not_deliver_goes_to_the_queue_of_its_type(operated: DlqStack) -> None:
    """Without the attributes that SNS has added, and out of its envelope if it has one."""
    order = operated.place()
    envelope = json.dumps({"Type": "Notification", "Message": operated.message(order)})
    operated.send("SubscriptionsDlq", envelope, RequestID="r", ErrorCode="E", ErrorMessage="m")
    _, document, _ = operated.ops("dlq", "redrive", "--reason", "not delivered by SNS: E", "--yes")
    assert document["redriven"] == 1
    [message] = operated.messages("PaymentsQueue")
    assert (message["Body"], message.get("MessageAttributes")) == (operated.message(order), None)


def test_on_fifo_a_second_redrive_within_five_minutes_loses_nothing(fifo: DlqStack) -> None:
    """Sent back, dead again, sent back: the group is the same, and the deduplication id another one.

    With the same one SQS would drop the message, which is then deleted from the DLQ: lost.
    """
    group = "ord_" + "a" * 32
    fifo.send("PaymentsDlq", "{", reason=POISON, group=group)
    deduplication_ids = set()
    for _ in range(3):
        _, document, _ = fifo.ops("dlq", "redrive", "--reason", POISON, "--yes", "--force")
        assert document["redriven"] == 1
        [message] = fifo.messages("PaymentsQueue")
        assert message["Attributes"]["MessageGroupId"] == group
        deduplication_ids.add(message["Attributes"]["MessageDeduplicationId"])
        fifo.charge()
        assert len(fifo.messages("PaymentsDlq")) == 1
    assert len(deduplication_ids) == 3


def test_on_fifo_one_dead_letter_is_one_message(fifo: DlqStack) -> None:
    """Sent back twice within five minutes, since a crash left it in the DLQ: SQS drops the second."""
    fifo.send("PaymentsDlq", "{", reason=POISON)
    with reading(fifo.stack, "PaymentsDlq") as opened:
        [[letter]] = opened.batches()
    first, second = (message_to_send(fifo.stack, letter) for _ in range(2))
    assert first["MessageDeduplicationId"] == second["MessageDeduplicationId"]


def test_on_fifo_a_whole_group_is_redriven_in_its_order(fifo: DlqStack) -> None:
    """More than the ten of a group that SQS shows at once: each is deleted before the next are received."""
    orders = [fifo.place() for _ in range(12)]
    for order in orders:
        fifo.send("PaymentsDlq", fifo.message(order), group="one")
    _, document, _ = fifo.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    assert (document["redriven"], document["notes"]) == (12, [])


# ---------------------------------------------------------------- discard


def test_a_discarded_message_is_recorded_first(operated: DlqStack, tmp_path: Path, capsys: Any) -> None:
    """With why, by whom, and the request that sends it again; one structured line is logged."""
    order = operated.pay()
    message_id = operated.send("PaymentsDlq", operated.message(order), event_type="onecharge.order.placed")
    words = ("dlq", "discard", "--message-id", message_id, "--because", "paid", "--record", str(tmp_path / "record"))
    status, document, _ = operated.ops(*words)
    assert (status, document["dry_run"], document["discarded"]) == (1, True, 1)
    assert not (tmp_path / "record").exists()
    status, document, _ = operated.ops(*words, "--yes")
    assert (status, document["discarded"]) == (0, 1)
    assert operated.messages("PaymentsDlq") == []
    [record] = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert (record["because"], record["message_id"], record["order_id"]) == ("paid", message_id, order.order_id)
    assert ":" in record["discarded_by"]
    operated.sqs.send_message(**record["send_again"])
    [message] = operated.messages("PaymentsQueue")
    assert message["Body"] == operated.message(order)
    [line] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["message"], line["message_id"], line["because"]) == ("message discarded", message_id, "paid")


def test_a_message_that_is_needed_is_not_discarded(operated: DlqStack, tmp_path: Path) -> None:
    """Its order is unfinished; --although-unfinished discards it."""
    order = operated.place()
    message_id = operated.send("PaymentsDlq", operated.message(order))
    words = ("dlq", "discard", "--message-id", message_id, "--because", "x", "--record", str(tmp_path / "r"), "--yes")
    status, document, _ = operated.ops(*words)
    assert outcomes(document)[message_id].startswith("`dlq redrive` it: ")
    assert (status, len(operated.messages("PaymentsDlq"))) == (1, 1)
    _, document, _ = operated.ops(*words, "--although-unfinished")
    assert (document["discarded"], operated.messages("PaymentsDlq")) == (1, [])


def test_what_cannot_be_recorded_is_not_discarded(operated: DlqStack, tmp_path: Path) -> None:
    """As on a full disk, or in a folder that is not there."""
    order = operated.pay()
    operated.send("PaymentsDlq", operated.message(order))
    words = ("--because", "x", "--record", str(tmp_path / "nowhere" / "record"), "--yes")
    _, document, _ = operated.ops("dlq", "discard", "--reason", "received too often", *words)
    assert document["discarded"] == 0
    assert len(operated.messages("PaymentsDlq")) == 1


@pytest.mark.parametrize(
    ("body", "secret"),
    [
        ('{"card": "\\u0034242424242424242"}', "242424"),
        ('{"card": "4242424242424242"}', "4242"),
        ('{"client_secret": "pi_1_secret_abc"}', "pi_1_secret_abc"),
        ("sk_test_abcdef", "sk_test_abcdef"),
    ],
)
def test_a_record_holds_no_secret(operated: DlqStack, tmp_path: Path, body: str, secret: str) -> None:
    """Card numbers, client secrets and API keys are cut out; then it cannot be sent again."""
    operated.send("PaymentsDlq", body, reason=POISON)
    operated.send("PaymentsDlq", "{", reason=POISON, given=body)
    words = ("--because", "x", "--record", str(tmp_path / "record"), "--yes")
    operated.ops("dlq", "discard", "--reason", POISON, *words)
    text = (tmp_path / "record").read_text()
    assert secret not in text
    assert [json.loads(line)["send_again"] for line in text.splitlines()] == [None, None]


def test_poison_of_an_unfinished_order_is_kept(operated: DlqStack, tmp_path: Path) -> None:
    """It cannot be read, but names an order that waits: a person checks first."""
    order = operated.place()
    event = json.loads(operated.message(order))
    del event["data"]["currency"]
    message_id = operated.send("PaymentsDlq", json.dumps(event), reason="data.currency: missing")
    words = ("--because", "x", "--record", str(tmp_path / "r"), "--yes")
    _, document, _ = operated.ops("dlq", "discard", "--message-id", message_id, *words)
    assert outcomes(document)[message_id].startswith(
        "still poison (onecharge.order.placed.data.currency: missing), and its order is PENDING"
    )
    operated.set_status(order, OrderStatus.PAID)
    _, document, _ = operated.ops("dlq", "discard", "--message-id", message_id, *words)
    assert document["discarded"] == 1


def test_stripe_is_never_asked_to_move_money(operated: DlqStack) -> None:
    """However the commands are used, they send Stripe nothing but GET requests."""
    order = operated.place()
    operated.send("PaymentsDlq", operated.message(order))
    operated.ops("dlq", "redrive", "--reason", "received too often", "--yes")
    assert not [name for name in operated.standin.ledger().counts if name.startswith("POST")]
