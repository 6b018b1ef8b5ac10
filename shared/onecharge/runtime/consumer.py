"""A queue of CloudEvents, consumed: records in parallel, partial batch responses, poison straight to the DLQ.

What becomes of one delivery:

    cannot be parsed or validated  ──►  to the DLQ with the reason as an attribute, and done
    the handler says Done          ──►  done: Lambda deletes the message
    the handler says RetryAfter    ──►  invisible for that long, and reported as failed
    the handler says BackOff       ──►  the same, for longer with each receive
    the handler raises             ──►  the same

The records of a FIFO queue come in groups: those of one group are handled one after the other, and once one of them
is not done, the rest of its group is returned to the queue unhandled.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import (
    AsyncBatchProcessor,
    EventType,
    async_process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.parser import ValidationError
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter

from onecharge.contract.events import CloudEvent

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_sqs import SQSClient

BACKOFF_BASE_SECONDS = 2
BACKOFF_CAP_SECONDS = 900
"""The longest wait between two receives of a message. template.yaml's maxReceiveCount times this cap is how long
an outage may last before a payable order reaches the DLQ: more than a day."""


@dataclass(frozen=True)
class Delivery:
    """One delivery of one message: the same message may be delivered again, and under other ids."""

    message_id: str
    receipt_handle: str
    receive_count: int
    body: str
    group: str | None = None
    """The message group; on a FIFO queue every message has one."""

    @classmethod
    def of(cls, record: SQSRecord) -> "Delivery":
        return cls(
            message_id=record.message_id,
            receipt_handle=record.receipt_handle,
            receive_count=int(record.attributes.approximate_receive_count),
            body=record.body,
            group=record.attributes.message_group_id,
        )


@dataclass(frozen=True)
class Done:
    """The message has served its purpose and is deleted."""


@dataclass(frozen=True)
class RetryAfter:
    """The message is to be delivered again, not before so many seconds have passed."""

    seconds: int


@dataclass(frozen=True)
class BackOff:
    """The message is to be delivered again, later each time it has been received."""


Disposition = Done | RetryAfter | BackOff


class PoisonMessage(Exception):
    """The message can never be handled, however often it is delivered.

    `reason` names the rule that it breaks, and nothing of what it says: it is logged and shown.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def backoff_seconds(receive_count: int, *, jitter: float) -> int:
    """Exponential in the receive count, capped, and spread by the jitter (0 to 1) over its upper half."""
    ceiling = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(receive_count, 20))
    return round(ceiling * (0.5 + jitter / 2))


@dataclass(frozen=True)
class Queue:
    """The queue that the deliveries come from and its DLQ, through boto3's client."""

    client: "SQSClient"
    url: str
    dlq_url: str

    @property
    def is_fifo(self) -> bool:
        """Whether the queue is a FIFO queue, as its name says; then its DLQ is one too."""
        return self.url.endswith(".fifo")

    def hide(self, delivery: Delivery, seconds: int) -> None:
        """Keep the message invisible for so many seconds from now (SQS allows 12 hours)."""
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=delivery.receipt_handle, VisibilityTimeout=seconds
        )

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Put the message, unchanged, into the DLQ, with the reason and its former id as attributes.

        In a FIFO DLQ it stays in its group, and is there once even if it is sent twice.
        """
        place: dict[str, Any] = (
            {"MessageGroupId": delivery.group, "MessageDeduplicationId": delivery.message_id} if self.is_fifo else {}
        )
        self.client.send_message(
            QueueUrl=self.dlq_url,
            MessageBody=delivery.body,
            MessageAttributes={
                "reason": {"DataType": "String", "StringValue": reason},
                "original_message_id": {
                    "DataType": "String",
                    "StringValue": delivery.message_id,
                },
            },
            **place,
        )


class _NotDone(Exception):
    """Tells the batch processor to report the record as failed, so that SQS delivers it again."""


class _MessageGroups:
    """The message groups of one batch: their order, and which of them have failed."""

    def __init__(self) -> None:
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """A lock for each group, which is taken in the order of the records."""
        self.failed = set[str]()


class Consumer[Event: CloudEvent[Any]]:
    """Handles each record of a Lambda event with one function, in parallel.

    Args:
        model: the CloudEvent that the queue carries, or an adapter for one of several; anything else is poison.
        handle: what to do with one event; idempotent.
        queue: where the deliveries come from.
        logger: gets one line for each delivery, with order id, attempt and correlation id.
        count: counts one occurrence of the metric of that name; called on several threads.
        threads: as many as a batch has records, so that a batch takes the time of its slowest record.
        record_seconds: what one record needs at the most. With less time left in the invocation it is returned
            to the queue at once, rather than being cut off halfway.
    """

    def __init__(
        self,
        *,
        model: type[Event] | TypeAdapter[Event],
        handle: Callable[[Event], Disposition],
        queue: Queue,
        logger: Logger,
        count: Callable[[str], None],
        threads: ThreadPoolExecutor,
        record_seconds: float = 0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._model = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
        self._handle = handle
        self._queue = queue
        self._logger = logger
        self._jitter = jitter
        self._count = count
        self._threads = threads
        self._record_seconds = record_seconds

    def consume(self, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
        """Handle a batch; returns the ids of the messages that SQS is to deliver again."""
        return async_process_partial_response(
            event=event,
            record_handler=partial(self._process_in_order, _MessageGroups(), context),
            # A batch that failed as a whole is reported record by record too: raising would count as a crash of
            # the function, for which Lambda slows the polling of the whole queue down.
            processor=AsyncBatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False),
            context=context,
        )

    async def _process_in_order(self, groups: _MessageGroups, context: "LambdaContext", record: SQSRecord) -> None:
        """Deliver the record on a thread: at once, or when the records of its group before it are done with.

        Source: AWS Lambda Developer Guide, "Handling errors for an SQS event source": of a FIFO queue, what comes after
        the first failure is to be reported as well. SQS keeps the order within a group, so groups fail one by one.
        """
        delivery = Delivery.of(record)
        group = delivery.group if self._queue.is_fifo and delivery.group else delivery.message_id
        on_a_thread = partial(asyncio.get_running_loop().run_in_executor, self._threads)
        async with groups.locks[group]:
            if group in groups.failed:
                await on_a_thread(self._return_to_queue, delivery, "another of its group goes first")
                raise _NotDone
            groups.failed.add(group)  # Until it is known to be done, whatever happens.
            if not await on_a_thread(self._deliver_in_time, delivery, context):
                raise _NotDone
            groups.failed.remove(group)

    def _deliver_in_time(self, delivery: Delivery, context: "LambdaContext") -> bool:
        if context.get_remaining_time_in_millis() / 1000 < self._record_seconds:
            self._return_to_queue(delivery, "too little time left")
            return False
        return self.deliver(delivery)

    def _return_to_queue(self, delivery: Delivery, why: str) -> None:
        """Unhandled, and visible at once: as long as a message is invisible, nothing of its group is delivered."""
        self._count("MessageReturned")
        self._logger.info(f"message returned to the queue: {why}", extra={"message_id": delivery.message_id})
        self._hide(delivery, 0)

    def deliver(self, delivery: Delivery) -> bool:
        """Handle one delivery; returns whether its message is done with."""
        try:
            disposition = self._disposition_of(self._parse(delivery.body), delivery)
        except PoisonMessage as poison:
            return self._to_dlq(delivery, poison.reason)
        match disposition:
            case Done():
                return True
            case RetryAfter(seconds):
                self._hide(delivery, seconds)
                return False
            case BackOff():
                self._hide(delivery, self._backoff(delivery))
                return False

    def _parse(self, body: str) -> Event:
        try:
            return self._model.validate_json(body)
        except ValidationError as invalid:
            raise PoisonMessage(reason_of(invalid)) from None

    def _disposition_of(self, event: Event, delivery: Delivery) -> Disposition:
        try:
            return self._handle(event)
        except PoisonMessage:
            raise
        except Exception:
            # Whatever went wrong, nobody's order is failed for it: the message comes back.
            self._count("DeliveryFailed")
            self._logger.exception(
                "delivery failed unexpectedly",
                extra={
                    "order_id": event.subject,
                    "attempt": event.data.attempt,
                    "correlation_id": event.correlationid,
                    "message_id": delivery.message_id,
                    "receive_count": delivery.receive_count,
                },
            )
            return BackOff()

    def _backoff(self, delivery: Delivery) -> int:
        return backoff_seconds(delivery.receive_count, jitter=self._jitter())

    def _to_dlq(self, delivery: Delivery, reason: str) -> bool:
        """Whether the message reached the DLQ: if not it stays in the queue, so that nothing is lost."""
        try:
            self._queue.dead_letter(delivery, reason)
        except (BotoCoreError, ClientError):
            self._logger.exception("poison message could not be sent to the DLQ")
            self._hide(delivery, self._backoff(delivery))
            return False
        self._count("PoisonMessage")
        self._logger.error(
            "poison message sent to the DLQ",
            extra={"reason": reason, "message_id": delivery.message_id},
        )
        return True

    def _hide(self, delivery: Delivery, seconds: int) -> None:
        try:
            self._queue.hide(delivery, seconds)
        except (BotoCoreError, ClientError) as error:
            # The message then comes back after the queue's own visibility timeout: later, but it does.
            self._logger.warning(
                "visibility could not be changed",
                extra={"message_id": delivery.message_id, "error": type(error).__name__},
            )


_WITHOUT_A_TYPE = {"union_tag_not_found": "type: missing", "union_tag_invalid": "type: unknown"}
"""How pydantic calls it where a queue carries events of several types."""


def reason_of(invalid: ValidationError) -> str:
    """The first broken rule as `field: rule`, without repeating anything that the message says.

    Only fields of the contract are named: a consumer ignores all others, and never gets to see their names.
    """
    first = invalid.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] in _WITHOUT_A_TYPE:
        return _WITHOUT_A_TYPE[first["type"]]
    field = ".".join(str(part) for part in first["loc"]) or "message"
    return f"{field}: {first['type']}"
