"""The SQS consumer: partial batch responses, visibility timeouts, backoff, poison straight to the DLQ."""

import json
from collections.abc import Callable, Sequence
from threading import Barrier
from typing import Any

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
from tests.support.harness import Log, Sample

FIRST_WAIT = backoff_seconds(1, jitter=1)
NO_RIGHT = ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem")
THROTTLED = ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem")
POISON = PoisonMessage("data.placed_at: in the future")

Result = Disposition | Exception


def with_data(body: str, **data: Any) -> str:
    event = json.loads(body)
    return json.dumps({**event, "data": {**event["data"], **data}})


class Consumed:
    """A consumer over an SQS that notes what it is asked for."""

    def __init__(self, sample: Sample, log: Log) -> None:
        [self.record] = sample("charge_order/order_placed")["Records"]
        self.body, self.log = str(self.record["body"]), log
        self.waits: dict[str, int] = {}
        """The visibility timeout that each message was given."""
        self.dead, self.counted, self.handled = list[dict[str, Any]](), list[str](), list[int]()
        """What was sent to the DLQ, what was counted, and the amounts of the orders that were handled."""
        self.unavailable: Exception | None = None
        """What a request to SQS raises."""

    def change_message_visibility(self, *, QueueUrl: str, ReceiptHandle: str, VisibilityTimeout: int) -> None:
        self.waits[ReceiptHandle] = VisibilityTimeout
        if self.unavailable:
            raise self.unavailable

    def send_message(self, **message: Any) -> None:
        if self.unavailable:
            raise self.unavailable
        self.dead.append(message)

    def records(self, *bodies: str, groups: str = "") -> list[dict[str, Any]]:
        """Messages 0, 1, …, each in the group of its letter."""
        return [
            {
                **{**self.record, "messageId": str(number), "receiptHandle": str(number), "body": body},
                "attributes": self.record["attributes"] | ({"MessageGroupId": groups[number]} if groups else {}),
            }
            for number, body in enumerate(bodies)
        ]

    def consume(
        self,
        records: Sequence[dict[str, Any]],
        result_of: Callable[[int], Result] = lambda _: Done(),
        *,
        fifo: bool = False,
    ) -> str:
        """The ids of the messages that failed, joined. A handler's result follows from the amount of its order."""
        client: Any = self
        queue = Queue(lambda: client, *(f"https://sqs/{name}{'.fifo' * fifo}" for name in ("payments", "payments-dlq")))

        def handle(event: OrderPlacedEvent) -> Disposition:
            result = result_of(event.data.amount_minor)
            self.handled.append(event.data.amount_minor)
            if isinstance(result, Exception):
                raise result
            return result

        consumer = Consumer(
            model=OrderPlacedEvent,
            handle=handle,
            queue=queue,
            logger=self.log.logger,
            count=self.counted.append,
            jitter=lambda: 1.0,
        )
        response = consumer.consume({"Records": list(records)})
        return "".join(sorted(str(each["itemIdentifier"]) for each in response["batchItemFailures"]))

    def numbered(self, number: int, groups: str = "") -> list[dict[str, Any]]:
        """So many messages, whose amounts count from 100 on."""
        return self.records(*(with_data(self.body, amount_minor=100 + each) for each in range(number)), groups=groups)


@pytest.fixture
def sqs(sample: Sample, log: Log) -> Consumed:
    return Consumed(sample, log)


@pytest.mark.parametrize(
    ("result", "wait", "cause", "is_dead"),
    [
        (Done(), None, None, False),
        (RetryAfter(7), 7, None, False),
        (RetryAfter(0), 0, None, False),
        (BackOff(), FIRST_WAIT, None, False),
        (POISON, None, None, True),
        (KeyError("state"), FIRST_WAIT, Cause.UNEXPECTED_ERROR, False),
        (NO_RIGHT, FIRST_WAIT, Cause.UNEXPECTED_ERROR, False),
        (RowMissing(), FIRST_WAIT, Cause.ROW_LOST, False),
        (THROTTLED, FIRST_WAIT, None, False),
        (EndpointConnectionError(endpoint_url=""), FIRST_WAIT, None, False),
        (SecretUnavailable(), FIRST_WAIT, Cause.STRIPE_ACCOUNT, False),
    ],
    ids=repr,
)
def test_every_result_of_a_handler(
    sqs: Consumed, result: Result, wait: int | None, cause: Cause | None, is_dead: bool
) -> None:
    """Lambda deletes what is not named as failed. What no retry helps is an alarm: the invocation succeeds, and a
    queue's age leaves out what is retried. An unreadable key has raised its own when it was read."""
    assert sqs.consume(sqs.records(sqs.body), lambda _: result) == ("" if wait is None else "0")
    assert sqs.waits == ({} if wait is None else {"0": wait})
    assert [each["MessageAttributes"]["reason"]["StringValue"] for each in sqs.dead] == [str(POISON)] * is_dead
    raised = [cause] if cause and not isinstance(result, SecretUnavailable) else []
    assert [each.cause for each in sqs.counted if isinstance(each, Alarm)] == raised
    assert [line["cause"] for line in sqs.log.lines if "cause" in line] == ([cause] if cause else [])
    assert all(line["order_id"] == json.loads(sqs.body)["subject"] for line in sqs.log.lines)
    assert all((line["message_id"], line["receive_count"]) == ("0", 1) for line in sqs.log.lines)


def test_a_batch_may_hold_a_message_twice(sqs: Consumed) -> None:
    """On a standard queue. Both copies back off: neither makes the message visible immediately."""
    first, second = sqs.records(sqs.body, sqs.body)
    sqs.consume([first, second | {"messageId": first["messageId"]}], lambda _: BackOff())
    assert sqs.waits == {"0": FIRST_WAIT, "1": FIRST_WAIT}


def test_only_what_is_not_done_fails(sqs: Consumed) -> None:
    """Neither an error of a handler nor one of the consumer itself has another message delivered again; a batch of
    failures is reported, too, and not raised. A line of a thread names its present message alone."""
    results: dict[int, Result] = {101: RetryAfter(7), 102: ZeroDivisionError()}
    assert sqs.consume(sqs.numbered(4), lambda amount: results.get(amount, Done())) == "12"
    assert sqs.consume(sqs.numbered(2), lambda _: BackOff()) == "01"
    sqs.unavailable = ZeroDivisionError()
    assert sqs.consume(sqs.numbered(3), lambda amount: RetryAfter(1) if amount == 100 else Done()) == "0"
    assert sqs.log.lines[-1]["message"] == "record failed unexpectedly"
    sqs.log.logger.info("outside")
    assert "order_id" not in sqs.log.lines[-1]


def done_together(number: int) -> Callable[[int], Result]:
    """Each handler waits until so many run."""
    barrier = Barrier(number, timeout=60)

    def result(_: int) -> Result:
        barrier.wait()
        return Done()

    return result


@pytest.mark.parametrize("groups", ["", "aaaaaaaaaa"])
def test_the_records_of_a_batch_run_at_the_same_time(sqs: Consumed, groups: str) -> None:
    """Ten of them. On a standard queue a message group serves fair queues only."""
    assert sqs.consume(sqs.numbered(10, groups), done_together(10)) == ""


# ---------------------------------------------------------------- poison


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda body: "4242424242424242 {", "message: json_invalid"),
        (lambda body: "{}", "id: missing"),
        (lambda body: with_data(body, amount_minor=10.5), "data.amount_minor: int_type"),
        (lambda body: with_data(body, amount_minor=4155, currency="KWD"), "data: amount_not_chargeable"),
        (lambda body: with_data(body, currency="XXX"), "data.currency: unknown_currency"),
        (lambda body: body.replace("order.placed", "order.eaten"), "type: literal_error"),
    ],
)
def test_poison_goes_straight_to_the_dlq(sqs: Consumed, spoil: Callable[[str], str], reason: str) -> None:
    """At its first receive, unchanged, with the reason and what is needed to send it back. The log repeats nothing of
    its content. If the DLQ cannot be reached, it stays in the queue."""
    [record] = sqs.records(spoil(sqs.body))
    assert (sqs.consume([record]), sqs.handled) == ("", [])
    [dead] = sqs.dead
    attributes = {name: each["StringValue"] for name, each in dead["MessageAttributes"].items()}
    assert (dead["QueueUrl"], dead["MessageBody"]) == ("https://sqs/payments-dlq", record["body"])
    assert attributes == {
        "reason": reason,
        "source_queue": "payments",
        "original_message_id": "0",
        "original_sent_at": "2026-11-01T09:00:00+00:00",
        "original_receive_count": "1",
    }
    assert "42424242" not in sqs.log.text
    assert sqs.counted == ["PoisonMessage"]
    sqs.unavailable = THROTTLED
    assert sqs.consume([record]) == "0"


def test_only_what_breaks_the_schema_is_poison(sqs: Consumed) -> None:
    """Fields of a newer producer are ignored, in the envelope and in the data."""
    newer = json.dumps({**json.loads(with_data(sqs.body, **{"4242424242424242": 1})), "traceparent": "00-1"})
    assert OrderPlacedEvent.model_validate_json(newer) == OrderPlacedEvent.model_validate_json(sqs.body)
    assert (sqs.consume(sqs.records(newer)), len(sqs.handled), sqs.dead) == ("", 1, [])
    assert "42424242" not in sqs.log.text


# ---------------------------------------------------------------- FIFO


def test_the_messages_of_a_group_are_handled_in_order(sqs: Consumed) -> None:
    """One after the other, in parallel with other groups: each waits at a barrier for one of the other group."""
    assert sqs.consume(sqs.numbered(6, "ababab"), done_together(2), fifo=True) == ""
    assert [each for each in sqs.handled if each % 2 == 0] == [100, 102, 104]
    assert sorted(sqs.handled) == [100, 101, 102, 103, 104, 105]


@pytest.mark.parametrize("failure", [RetryAfter(600), BackOff(), ZeroDivisionError(), POISON], ids=repr)
def test_after_the_first_failure_of_a_group_its_rest_is_returned(sqs: Consumed, failure: Result) -> None:
    """Unhandled and visible immediately, since an invisible message blocks its group. The other group succeeds.

    Poison is no failure: it stays in its group, and is in the DLQ once, although it is sent there twice.
    """
    failed = sqs.consume(sqs.numbered(7, "abababa"), lambda amount: failure if amount == 102 else Done(), fifo=True)
    if failure is POISON:
        assert (failed, sorted(sqs.handled)) == ("", [*range(100, 107)])
        assert [(each["MessageGroupId"], each["MessageDeduplicationId"]) for each in sqs.dead] == [("a", "2")]
        return
    assert (failed, sorted(sqs.handled)) == ("246", [100, 101, 102, 103, 105])
    assert {each: wait for each, wait in sqs.waits.items() if each != "2"} == {"4": 0, "6": 0}


def test_backoff_is_exponential_and_capped() -> None:
    """Jitter spreads it over its upper half."""
    assert [backoff_seconds(count, jitter=1) for count in (1, 2, 3)] == [4, 8, 16]
    assert backoff_seconds(3, jitter=0) == 8
    assert backoff_seconds(1000, jitter=1) == BACKOFF_CAP_SECONDS
