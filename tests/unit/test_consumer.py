"""A queue consumed: partial batch responses, poison straight to the DLQ, and waits that grow."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from threading import Barrier
from typing import Any
from uuid import uuid4

import boto3
import pytest

from onecharge.contract.events import OrderPlacedEvent
from onecharge.runtime.consumer import (
    BACKOFF_CAP_SECONDS,
    BackOff,
    Consumer,
    Disposition,
    Done,
    PoisonMessage,
    Queue,
    RetryAfter,
    backoff_seconds,
)
from testing.harness import LambdaContext, Log, Sample


@dataclass
class Sqs:
    """A queue and its DLQ in moto, filled and received from as Lambda does."""

    client: Any
    queue: Queue

    def receive(self, *bodies: str, groups: str = "") -> dict[str, Any]:
        """Send the bodies, into the groups if the queue is FIFO, receive them, and wrap them as Lambda's event."""
        for body, group in zip_longest(bodies, groups):
            place = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid4())} if group else {}
            self.client.send_message(QueueUrl=self.queue.url, MessageBody=body, **place)
        answer = self.client.receive_message(
            QueueUrl=self.queue.url, MaxNumberOfMessages=10, AttributeNames=["All"], VisibilityTimeout=60
        )
        return {
            "Records": [
                {
                    "messageId": message["MessageId"],
                    "receiptHandle": message["ReceiptHandle"],
                    "body": message["Body"],
                    "attributes": message["Attributes"],
                    "messageAttributes": {},
                    "eventSource": "aws:sqs",
                }
                for message in answer.get("Messages", [])
            ]
        }

    def visible(self) -> int:
        """How many messages of the queue could be received now."""
        wanted = "ApproximateNumberOfMessages"
        answer = self.client.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=[wanted])
        return int(answer["Attributes"][wanted])

    def dead_letters(self) -> list[tuple[str, str]]:
        answer = self.client.receive_message(
            QueueUrl=self.queue.dlq_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return [
            (message["Body"], message["MessageAttributes"]["reason"]["StringValue"])
            for message in answer.get("Messages", [])
        ]


@pytest.fixture
def sqs(aws: None) -> Sqs:
    client = boto3.client("sqs")
    urls = [client.create_queue(QueueName=name)["QueueUrl"] for name in ("payments", "payments-dlq")]
    return Sqs(client, Queue(client, *urls))


@pytest.fixture
def fifo(aws: None) -> Sqs:
    client = boto3.client("sqs")
    attributes = {"FifoQueue": "true"}
    names = ("payments.fifo", "payments-dlq.fifo")
    urls = [client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"] for name in names]
    return Sqs(client, Queue(client, *urls))


@pytest.fixture
def body(sample: Sample) -> str:
    return str(sample("charge_order/order_placed")["Records"][0]["body"])


Consume = Callable[..., list[str]]


@pytest.fixture
def consume(request: pytest.FixtureRequest, log: Log, lambda_context: LambdaContext) -> Consume:
    """Consumes a batch with a handler; gives the ids of the messages that SQS is to deliver again."""
    queue: Queue = request.getfixturevalue("fifo" if "fifo" in request.fixturenames else "sqs").queue

    def run(
        event: dict[str, Any], handle: Callable[[OrderPlacedEvent], Disposition], record_seconds: float = 0
    ) -> list[str]:
        with ThreadPoolExecutor(10) as threads:
            consumer = Consumer(
                model=OrderPlacedEvent,
                handle=handle,
                queue=queue,
                logger=log.logger,
                count=lambda name: None,
                threads=threads,
                jitter=lambda: 1.0,
                record_seconds=record_seconds,
            )
            answer = consumer.consume(event, lambda_context)  # type: ignore[arg-type]
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    return run


def test_only_what_is_not_done_is_delivered_again(sqs: Sqs, consume: Consume, body: str) -> None:
    """A partial batch response names those messages, and no other."""
    outcomes: list[Disposition] = [Done(), RetryAfter(7), BackOff(), Done()]
    event = sqs.receive(*[body] * 4)
    with_outcomes = iter(outcomes)
    failed = consume(event, lambda _: next(with_outcomes))
    assert len(failed) == 2
    assert set(failed) < {record["messageId"] for record in event["Records"]}


def test_a_batch_that_failed_as_a_whole_is_reported_and_not_raised(sqs: Sqs, consume: Consume, body: str) -> None:
    """It is no crash of the function, for which Lambda would slow the whole queue down."""
    event = sqs.receive(body, body)
    assert sorted(consume(event, lambda _: BackOff())) == sorted(record["messageId"] for record in event["Records"])


@pytest.mark.parametrize(
    ("disposition", "seconds"), [(RetryAfter(7), 7), (RetryAfter(0), 0), (BackOff(), backoff_seconds(1, jitter=1))]
)
def test_a_message_stays_invisible_for_as_long_as_it_is_to_wait(
    sqs: Sqs, consume: Consume, body: str, monkeypatch: pytest.MonkeyPatch, disposition: Disposition, seconds: int
) -> None:
    """Through ChangeMessageVisibility, message by message."""
    hidden: list[int] = []
    monkeypatch.setattr(Queue, "hide", lambda _, delivery, seconds: hidden.append(seconds))
    consume(sqs.receive(body), lambda _: disposition)
    assert hidden == [seconds]


def test_an_unexpected_error_fails_no_order(sqs: Sqs, consume: Consume, body: str, log: Log) -> None:
    """The message comes back, the others are not touched, and one line says whose order it was."""
    handled = iter([ZeroDivisionError(), None])

    def handle(event: OrderPlacedEvent) -> Disposition:
        if (error := next(handled)) is not None:
            raise error
        return Done()

    assert len(consume(sqs.receive(body, body), handle)) == 1
    assert [line["order_id"] for line in log.lines] == [json.loads(body)["subject"]]


def poison(body: str, **data: Any) -> str:
    event = json.loads(body)
    return json.dumps({**event, "data": {**event["data"], **data}})


POISON = {
    "no JSON": (lambda body: "4242424242424242 {", "message: json_invalid"),
    "empty": (lambda body: "{}", "id: missing"),
    "fraction": (lambda body: poison(body, amount_minor=10.5), "data.amount_minor: int_type"),
    "negative": (lambda body: poison(body, amount_minor=-1), "data.amount_minor: greater_than_equal"),
    "currency": (lambda body: poison(body, currency="XXX"), "data.currency: unknown_currency"),
    "other type": (lambda body: body.replace("order.placed", "order.eaten"), "type: literal_error"),
    "other subject": (lambda body: poison(body, order_id="ord_" + "0" * 32), "message: value_error"),
}


@pytest.mark.parametrize(("spoil", "reason"), POISON.values(), ids=POISON.keys())
def test_poison_goes_straight_to_the_dlq(
    sqs: Sqs, consume: Consume, body: str, log: Log, spoil: Callable[[str], str], reason: str
) -> None:
    """At its first receive, unchanged, with the reason; and the log repeats nothing of what it says."""
    spoiled = spoil(body)
    assert consume(sqs.receive(spoiled), lambda _: pytest.fail("handled")) == []
    assert sqs.dead_letters() == [(spoiled, reason)]
    assert "42424242" not in log.text


def test_a_consumer_ignores_fields_that_it_does_not_know(sqs: Sqs, consume: Consume, body: str, log: Log) -> None:
    """A newer producer may be deployed first: in the envelope or in the data, its fields make no message poison."""
    newer = json.dumps({**json.loads(poison(body, **{"4242424242424242": 1})), "traceparent": "00-1"})
    handled: list[OrderPlacedEvent] = []

    def handle(event: OrderPlacedEvent) -> Disposition:
        handled.append(event)
        return Done()

    assert consume(sqs.receive(newer), handle) == []
    assert handled == [OrderPlacedEvent.model_validate_json(body)]
    assert sqs.dead_letters() == []
    assert "42424242" not in log.text


def test_a_handler_can_find_poison_too(sqs: Sqs, consume: Consume, body: str) -> None:
    """For rules that the contract alone cannot tell."""

    def handle(_: OrderPlacedEvent) -> Disposition:
        raise PoisonMessage("data.placed_at: in the future")

    assert consume(sqs.receive(body), handle) == []
    assert sqs.dead_letters() == [(body, "data.placed_at: in the future")]


def test_poison_that_cannot_reach_the_dlq_is_not_lost(sqs: Sqs, consume: Consume) -> None:
    """It stays in the queue."""
    sqs.client.delete_queue(QueueUrl=sqs.queue.dlq_url)
    event = sqs.receive("{}")
    assert consume(event, lambda _: Done()) == [event["Records"][0]["messageId"]]


def test_the_records_of_a_batch_run_at_the_same_time(sqs: Sqs, consume: Consume, body: str) -> None:
    """Ten records meet at a barrier that only ten at once can pass."""
    barrier = Barrier(10, timeout=20)

    def handle(_: OrderPlacedEvent) -> Disposition:
        barrier.wait()
        return Done()

    assert consume(sqs.receive(*[body] * 10), handle) == []


def test_a_record_that_cannot_be_finished_is_returned_to_the_queue(
    sqs: Sqs, consume: Consume, body: str, lambda_context: LambdaContext
) -> None:
    """At once and untouched, rather than being cut off halfway; the next worker finds it visible."""
    left = lambda_context.get_remaining_time_in_millis() / 1000
    event = sqs.receive(body)
    assert consume(event, lambda _: pytest.fail("handled"), left + 1) == [event["Records"][0]["messageId"]]
    assert consume(sqs.receive(), lambda _: Done(), left) == []


# ---------------------------------------------------------------- FIFO


def of(body: str, place: int) -> str:
    """The event of another order, which its amount tells."""
    return poison(body, amount_minor=place + 100)


def test_the_records_of_a_group_are_handled_one_after_the_other(fifo: Sqs, consume: Consume, body: str) -> None:
    """In order, while the records of other groups run beside them: two of different groups meet in the middle."""
    places = [0, 1, 2, 3, 4, 5]
    handled: list[int] = []
    running: list[int] = []
    together = Barrier(2, timeout=20)

    def handle(event: OrderPlacedEvent) -> Disposition:
        place = event.data.amount_minor - 100
        group = place % 2
        assert group not in running, "two of one group at once"
        running.append(group)
        together.wait()
        handled.append(place)
        running.remove(group)
        return Done()

    event = fifo.receive(*[of(body, place) for place in places], groups="ababab")
    assert consume(event, handle) == []
    assert [place for place in handled if place % 2 == 0] == [0, 2, 4]
    assert [place for place in handled if place % 2 == 1] == [1, 3, 5]


@pytest.mark.parametrize("failure", [RetryAfter(600), BackOff(), None])
def test_after_the_first_failure_of_a_group_its_rest_is_returned_to_the_queue(
    fifo: Sqs, consume: Consume, body: str, failure: Disposition | None
) -> None:
    """Unhandled, and visible at once: what is invisible holds up its group. Other groups are not touched."""
    handled: list[int] = []

    def handle(event: OrderPlacedEvent) -> Disposition:
        place = event.data.amount_minor - 100
        handled.append(place)
        if place != 2:
            return Done()
        if failure is None:
            raise ZeroDivisionError
        return failure

    event = fifo.receive(*[of(body, place) for place in range(6)], groups="abaaab")
    failed = consume(event, handle)
    by_body = {record["messageId"]: record["body"] for record in event["Records"]}
    assert sorted(by_body[each] for each in failed) == [of(body, place) for place in (2, 3, 4)]
    assert sorted(handled) == [0, 1, 2, 5]
    assert fifo.visible() == 2


def test_poison_leaves_its_group_and_holds_up_nobody(fifo: Sqs, consume: Consume, body: str) -> None:
    """It is in the FIFO DLQ, in its group, once though it be sent there twice."""
    event = fifo.receive("{}", of(body, 1), groups="aa")
    handled: list[int] = []

    def handle(event: OrderPlacedEvent) -> Disposition:
        handled.append(event.data.amount_minor - 100)
        return Done()

    assert consume(event, handle) == []
    assert handled == [1]
    event["Records"] = event["Records"][:1]
    assert consume(event, handle) == []
    assert fifo.dead_letters() == [("{}", "id: missing")]


def test_a_standard_queue_knows_no_groups(sqs: Sqs, consume: Consume, body: str) -> None:
    """A group id is there for fair queues only: its records run at the same time all the same."""
    event = sqs.receive(*[body] * 10)
    for record in event["Records"]:
        record["attributes"]["MessageGroupId"] = "a"
    barrier = Barrier(10, timeout=20)

    def handle(_: OrderPlacedEvent) -> Disposition:
        barrier.wait()
        return Done()

    assert consume(event, handle) == []


def test_waits_grow_and_are_capped() -> None:
    """Exponentially, spread by a jitter over the upper half, never beyond the cap."""
    assert [backoff_seconds(count, jitter=1) for count in (1, 2, 3)] == [4, 8, 16]
    assert backoff_seconds(3, jitter=0) == 8
    assert backoff_seconds(1000, jitter=1) == BACKOFF_CAP_SECONDS
