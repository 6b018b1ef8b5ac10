"""The SQS consumer: partial batch responses, visibility timeouts, backoff, poison straight to the DLQ."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from threading import Barrier
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from onecharge.contract.events import OrderPlacedEvent
from onecharge.runtime.alarms import Cause, RowMissing
from onecharge.runtime.consumer import (
    BACKOFF_CAP_SECONDS,
    BackOff,
    Consumer,
    Disposition,
    Done,
    PoisonMessage,
    RetryAfter,
    backoff_seconds,
)
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.queues import Queue
from onecharge.runtime.secrets import SecretUnavailable
from tests.support.harness import LambdaContext, Log, Sample, received


@dataclass
class Sqs:
    """A queue and its DLQ in moto, and receives as the event source mapping of Lambda makes them."""

    client: Any
    queue: Queue

    def receive_of_groups(self, *bodies: str, groups: str) -> dict[str, Any]:
        """Send messages into message groups of a FIFO queue, and receive a batch of them."""
        for body, group in zip(bodies, groups, strict=True):
            place = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid4())}
            self.client.send_message(QueueUrl=self.queue.url, MessageBody=body, **place)
        return self.receive()

    def receive(self, *bodies: str) -> dict[str, Any]:
        """Send messages, and receive a batch of them as Lambda's event."""
        for body in bodies:
            self.client.send_message(QueueUrl=self.queue.url, MessageBody=body)
        answer = self.client.receive_message(
            QueueUrl=self.queue.url,
            MaxNumberOfMessages=10,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
            VisibilityTimeout=60,
        )
        return received(answer.get("Messages", []))

    def visible(self) -> int:
        """How many messages of the queue are visible."""
        name = "ApproximateNumberOfMessages"
        attributes = self.client.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=[name])["Attributes"]
        return int(attributes[name])

    def dead_letters(self) -> list[tuple[str, str]]:
        """Body and reason of each message in the DLQ."""
        received = self.client.receive_message(
            QueueUrl=self.queue.dlq_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return [
            (message["Body"], message["MessageAttributes"]["reason"]["StringValue"])
            for message in received.get("Messages", [])
        ]


@pytest.fixture
def sqs(aws: None) -> Sqs:
    client = boto3.client("sqs")
    urls = [client.create_queue(QueueName=name)["QueueUrl"] for name in ("payments", "payments-dlq")]
    return Sqs(client, Queue(lambda: client, *urls))


@pytest.fixture
def fifo(aws: None) -> Sqs:
    client = boto3.client("sqs")
    names = ("payments.fifo", "payments-dlq.fifo")
    urls = [client.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"] for name in names]
    return Sqs(client, Queue(lambda: client, *urls))


@pytest.fixture
def body(sample: Sample) -> str:
    return str(sample("charge_order/order_placed")["Records"][0]["body"])


Consume = Callable[..., list[str]]
QUEUES = ("sqs", "fifo")


@pytest.fixture
def consume(request: pytest.FixtureRequest, log: Log, lambda_context: LambdaContext) -> Consume:
    """Consumes a batch with a handler; returns the message ids that the partial batch response reports as failed."""
    queue: Queue = request.getfixturevalue(next(name for name in QUEUES if name in request.fixturenames)).queue

    def run(
        event: dict[str, Any],
        handle: Callable[[OrderPlacedEvent], Disposition],
        record_seconds: float = 0,
        **other: Any,
    ) -> list[str]:
        given: dict[str, Any] = {
            "model": OrderPlacedEvent,
            "handle": handle,
            "count": lambda name: None,
            **other,
        }
        consumer = Consumer(
            **given,
            queue=queue,
            logger=log.logger,
            jitter=lambda: 1.0,
            record_seconds=record_seconds,
        )
        response = consumer.consume(event, lambda_context)
        return [str(failure["itemIdentifier"]) for failure in response["batchItemFailures"]]

    return run


def test_the_partial_batch_response_names_only_what_is_not_done(sqs: Sqs, consume: Consume, body: str) -> None:
    """Lambda deletes the other messages of the batch."""
    outcomes: list[Disposition] = [Done(), RetryAfter(7), BackOff(), Done()]
    event = sqs.receive(*[body] * 4)
    with_outcomes = iter(outcomes)
    failed = consume(event, lambda _: next(with_outcomes))
    assert len(failed) == 2
    assert set(failed) < {record["messageId"] for record in event["Records"]}


def test_a_batch_that_failed_as_a_whole_is_reported_and_not_raised(sqs: Sqs, consume: Consume, body: str) -> None:
    """The invocation succeeds: Lambda reduces concurrency when invocations fail."""
    event = sqs.receive(body, body)
    assert sorted(consume(event, lambda _: BackOff())) == sorted(record["messageId"] for record in event["Records"])


@pytest.mark.parametrize(
    ("disposition", "seconds"), [(RetryAfter(7), 7), (RetryAfter(0), 0), (BackOff(), backoff_seconds(1, jitter=1))]
)
def test_the_disposition_sets_the_visibility_timeout(
    sqs: Sqs, consume: Consume, body: str, monkeypatch: pytest.MonkeyPatch, disposition: Disposition, seconds: int
) -> None:
    """Of each message by itself, with ChangeMessageVisibility."""
    timeouts: list[int] = []
    monkeypatch.setattr(Queue, "change_visibility", lambda _, delivery, seconds: timeouts.append(seconds))
    consume(sqs.receive(body), lambda _: disposition)
    assert timeouts == [seconds]


def test_an_unexpected_error_fails_only_its_own_delivery(sqs: Sqs, consume: Consume, body: str, log: Log) -> None:
    """SQS delivers the message again, the rest of the batch succeeds, and its log lines name order and delivery."""
    handled = iter([ZeroDivisionError(), None])

    def handle(event: OrderPlacedEvent) -> Disposition:
        if (error := next(handled)) is not None:
            raise error
        return Done()

    assert len(consume(sqs.receive(body, body), handle)) == 1
    failed, waits = log.lines
    assert failed["order_id"] == waits["order_id"] == json.loads(body)["subject"]
    assert failed["message_id"] == waits["message_id"]
    assert failed["receive_count"] == waits["receive_count"] == 1
    assert waits["wait_seconds"] == backoff_seconds(1, jitter=1)


@pytest.mark.parametrize(
    ("error", "causes"),
    [
        (KeyError("state"), [Cause.UNEXPECTED_ERROR]),
        (RowMissing(), [Cause.ROW_LOST]),
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem"), [Cause.UNEXPECTED_ERROR]),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem"), []),
        (EndpointConnectionError(endpoint_url=""), []),
        (SecretUnavailable(), []),
    ],
    ids=["our code", "a lost row", "a missing right", "throttled", "no connection", "a key that raised its own alarm"],
)
def test_an_error_that_no_retry_helps_is_an_alarm(
    sqs: Sqs, consume: Consume, body: str, log: Log, error: Exception, causes: list[Cause]
) -> None:
    """Nothing else tells it for a day: the invocation succeeds, and a queue's age leaves out what is retried."""
    counted: list[str] = []

    def handle(_: OrderPlacedEvent) -> Disposition:
        raise error

    consume(sqs.receive(body), handle, count=counted.append)
    assert [each.cause for each in counted if isinstance(each, Alarm)] == causes
    told = [Cause.STRIPE_ACCOUNT] if isinstance(error, SecretUnavailable) else causes
    assert log.lines[0].get("cause") == next(iter(told), None)


def test_every_line_of_a_delivery_names_it_and_no_other(sqs: Sqs, consume: Consume, body: str, log: Log) -> None:
    """Lines that a handler writes too; a thread that handles another message afterwards has forgotten the first."""

    def handle(event: OrderPlacedEvent) -> Disposition:
        log.logger.info("handled")
        return Done()

    consume(sqs.receive(*[body] * 5), handle)
    assert len({line["message_id"] for line in log.lines if line["message"] == "handled"}) == 5
    log.logger.info("outside")
    assert "message_id" not in log.lines[-1]


def test_an_error_of_the_consumer_itself_fails_only_its_own_record(
    sqs: Sqs, consume: Consume, body: str, log: Log
) -> None:
    """An error of its queue that nobody foresaw: the rest of the batch is not delivered again."""

    def fail(**_: object) -> None:
        raise ZeroDivisionError

    sqs.client.meta.events.register("before-call.sqs.ChangeMessageVisibility", fail)
    dispositions = iter([RetryAfter(1), Done(), Done()])
    event = sqs.receive(body, body, body)
    assert len(consume(event, lambda _: next(dispositions))) == 1
    assert [line["message"] for line in log.lines] == ["record failed unexpectedly"]


def with_data(body: str, **data: Any) -> str:
    event = json.loads(body)
    return json.dumps({**event, "data": {**event["data"], **data}})


POISON = {
    "no JSON": (lambda body: "4242424242424242 {", "message: json_invalid"),
    "empty": (lambda body: "{}", "id: missing"),
    "fraction": (lambda body: with_data(body, amount_minor=10.5), "data.amount_minor: int_type"),
    "negative": (lambda body: with_data(body, amount_minor=-1), "data.amount_minor: greater_than_equal"),
    "currency": (lambda body: with_data(body, currency="XXX"), "data.currency: unknown_currency"),
    "other type": (lambda body: body.replace("order.placed", "order.eaten"), "type: literal_error"),
    "other subject": (lambda body: with_data(body, order_id="ord_" + "0" * 32), "message: value_error"),
}


@pytest.mark.parametrize(("spoil", "reason"), POISON.values(), ids=POISON.keys())
def test_poison_goes_straight_to_the_dlq(
    sqs: Sqs, consume: Consume, body: str, log: Log, spoil: Callable[[str], str], reason: str
) -> None:
    """At its first receive, unchanged, with the reason. The log repeats nothing of its content."""
    spoiled = spoil(body)
    assert consume(sqs.receive(spoiled), lambda _: pytest.fail("handled")) == []
    assert sqs.dead_letters() == [(spoiled, reason)]
    assert "42424242" not in log.text


def test_a_dead_letter_has_what_is_needed_to_send_it_back(sqs: Sqs, consume: Consume) -> None:
    """Where it came from, its id, time and receive count there, and the attributes that it had; at most ten."""
    given = {f"given_{index}": {"DataType": "String", "StringValue": "x"} for index in range(8)}
    sent = sqs.client.send_message(QueueUrl=sqs.queue.url, MessageBody="{", MessageAttributes=given)
    event = sqs.receive()
    [record] = event["Records"]
    assert consume(event, lambda _: pytest.fail("handled")) == []
    received = sqs.client.receive_message(QueueUrl=sqs.queue.dlq_url, MessageAttributeNames=["All"])
    [dead] = received["Messages"]
    attributes = {name: each["StringValue"] for name, each in dead["MessageAttributes"].items()}
    sent_at = datetime.fromisoformat(attributes.pop("original_sent_at"))
    assert round(sent_at.timestamp() * 1000) == int(record["attributes"]["SentTimestamp"])
    assert attributes == {
        "reason": "message: json_invalid",
        "source_queue": sqs.queue.url.rpartition("/")[2],
        "original_message_id": sent["MessageId"],
        "original_receive_count": "1",
        **{f"given_{index}": "x" for index in range(5)},
    }


def test_a_consumer_ignores_fields_that_it_does_not_know(sqs: Sqs, consume: Consume, body: str, log: Log) -> None:
    """In the envelope and in the data: a newer producer can be deployed before its consumers."""
    newer = json.dumps({**json.loads(with_data(body, **{"4242424242424242": 1})), "traceparent": "00-1"})
    handled: list[OrderPlacedEvent] = []

    def handle(event: OrderPlacedEvent) -> Disposition:
        handled.append(event)
        return Done()

    assert consume(sqs.receive(newer), handle) == []
    assert handled == [OrderPlacedEvent.model_validate_json(body)]
    assert sqs.dead_letters() == []
    assert "42424242" not in log.text


def test_a_handler_can_raise_poison_too(sqs: Sqs, consume: Consume, body: str) -> None:
    """For rules that the schema of the event cannot express."""

    def handle(_: OrderPlacedEvent) -> Disposition:
        raise PoisonMessage("data.placed_at: in the future")

    assert consume(sqs.receive(body), handle) == []
    assert sqs.dead_letters() == [(body, "data.placed_at: in the future")]


def test_poison_that_cannot_reach_the_dlq_is_not_lost(sqs: Sqs, consume: Consume) -> None:
    """The message stays in the queue and is reported as failed."""
    sqs.client.delete_queue(QueueUrl=sqs.queue.dlq_url)
    event = sqs.receive("{}")
    assert consume(event, lambda _: Done()) == [event["Records"][0]["messageId"]]


@pytest.mark.parametrize("group", [{}, {"MessageGroupId": "a"}], ids=["no group", "a group"])
def test_the_records_of_a_batch_run_at_the_same_time(
    sqs: Sqs, consume: Consume, body: str, group: dict[str, str]
) -> None:
    """Ten records wait for each other at a barrier. On a standard queue a message group serves fair queues only."""
    event = sqs.receive(*[body] * 10)
    for record in event["Records"]:
        record["attributes"] |= group
    barrier = Barrier(10, timeout=60)

    def handle(_: OrderPlacedEvent) -> Disposition:
        barrier.wait()
        return Done()

    assert consume(event, handle) == []


def test_a_record_that_cannot_be_finished_is_returned_to_the_queue(
    sqs: Sqs, consume: Consume, body: str, lambda_context: LambdaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unhandled, if the invocation could time out before it is handled. It backs off: what took the time may again."""
    timeouts: list[int] = []
    monkeypatch.setattr(Queue, "change_visibility", lambda _, delivery, seconds: timeouts.append(seconds))
    left = lambda_context.get_remaining_time_in_millis() / 1000
    event = sqs.receive(body)
    assert consume(event, lambda _: pytest.fail("handled"), left + 1) == [event["Records"][0]["messageId"]]
    event["Records"][0]["attributes"]["ApproximateReceiveCount"] = "6"
    consume(event, lambda _: pytest.fail("handled"), left + 1)
    assert timeouts == [backoff_seconds(1, jitter=1), backoff_seconds(6, jitter=1)]


def test_a_message_that_our_own_model_fails_on_fails_alone(sqs: Sqs, consume: Consume, body: str) -> None:
    """An error other than a ValidationError is ours: the message stays in its queue, and the others are handled."""

    class Fragile(OrderPlacedEvent):
        def model_post_init(self, _: Any) -> None:
            if self.data.amount_minor == 200:
                raise ZeroDivisionError

    event = sqs.receive(body, with_data(body, amount_minor=200), body)
    failed = consume(event, lambda _: Done(), model=Fragile)
    assert failed == [event["Records"][1]["messageId"]]
    assert sqs.dead_letters() == []


# ---------------------------------------------------------------- FIFO


def numbered(body: str, number: int) -> str:
    """The event with an amount that identifies it."""
    return with_data(body, amount_minor=number + 100)


def number_of(event: OrderPlacedEvent) -> int:
    return event.data.amount_minor - 100


def test_the_messages_of_a_group_are_handled_in_order(fifo: Sqs, consume: Consume, body: str) -> None:
    """One after the other, in parallel with other groups: each waits at a barrier for one of the other group."""
    handled: list[int] = []
    running: list[int] = []
    barrier = Barrier(2, timeout=60)

    def handle(event: OrderPlacedEvent) -> Disposition:
        number = number_of(event)
        group = number % 2
        assert group not in running, "two of one group at the same time"
        running.append(group)
        barrier.wait()
        handled.append(number)
        running.remove(group)
        return Done()

    event = fifo.receive_of_groups(*[numbered(body, number) for number in range(6)], groups="ababab")
    assert consume(event, handle) == []
    assert [number for number in handled if number % 2 == 0] == [0, 2, 4]
    assert [number for number in handled if number % 2 == 1] == [1, 3, 5]


@pytest.mark.parametrize("failure", [RetryAfter(600), BackOff(), None])
def test_after_the_first_failure_of_a_group_its_rest_is_returned_to_the_queue(
    fifo: Sqs, consume: Consume, body: str, failure: Disposition | None
) -> None:
    """Unhandled and visible immediately, since an invisible message blocks its group. Other groups succeed."""
    handled: list[int] = []

    def handle(event: OrderPlacedEvent) -> Disposition:
        handled.append(number_of(event))
        if number_of(event) != 2:
            return Done()
        if failure is None:
            raise ZeroDivisionError
        return failure

    event = fifo.receive_of_groups(*[numbered(body, number) for number in range(6)], groups="abaaab")
    for record in event["Records"]:
        record["attributes"]["ApproximateReceiveCount"] = "9"  # Then BackOff takes minutes, and this test does not.
    failed = consume(event, handle)
    by_body = {record["messageId"]: record["body"] for record in event["Records"]}
    assert sorted(by_body[each] for each in failed) == [numbered(body, number) for number in (2, 3, 4)]
    assert sorted(handled) == [0, 1, 2, 5]
    assert fifo.visible() == 2


def test_poison_does_not_block_its_group(fifo: Sqs, consume: Consume, body: str) -> None:
    """It is in the FIFO DLQ once, although a second delivery sends it there again."""
    event = fifo.receive_of_groups("{}", numbered(body, 1), groups="aa")
    handled: list[int] = []

    def handle(event: OrderPlacedEvent) -> Disposition:
        handled.append(number_of(event))
        return Done()

    assert consume(event, handle) == []
    assert handled == [1]
    event["Records"] = event["Records"][:1]
    assert consume(event, handle) == []
    assert fifo.dead_letters() == [("{}", "id: missing")]


def test_backoff_is_exponential_and_capped() -> None:
    """Jitter spreads it over its upper half."""
    assert [backoff_seconds(count, jitter=1) for count in (1, 2, 3)] == [4, 8, 16]
    assert backoff_seconds(3, jitter=0) == 8
    assert backoff_seconds(1000, jitter=1) == BACKOFF_CAP_SECONDS
