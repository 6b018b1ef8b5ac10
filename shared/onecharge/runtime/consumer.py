"""Consumes an SQS queue of events: in parallel, with partial batch responses, poison messages straight to the DLQ.

What happens with one delivery:

    result                                       the message                                      reported as failed
    ───────────────────────────────────────────  ───────────────────────────────────────────────  ──────────────────
    the body is not a valid event                is sent to the DLQ with the reason               no
    the handler raises PoisonMessage             is sent to the DLQ with the reason               no
    the handler returns Done                                                                      no
    the handler returns RetryAfter(seconds)      is invisible for that long                       yes
    the handler returns BackOff                  is invisible: longer with each receive           yes
    the handler raises another error             the same; an alarm, unless it is an outage       yes
    too little time is left: not handled         the same                                         yes
    its FIFO group has a failure: not handled    is visible immediately, so the order is kept     yes

Lambda deletes every message that the partial batch response does not report as failed. The others are delivered again,
until their receive count exceeds maxReceiveCount and SQS moves them to the DLQ.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter, ValidationError

from onecharge.contract.events import Event, reason_of
from onecharge.runtime.alarms import Cause, RowMissing
from onecharge.runtime.aws import BATCH_SIZE, is_outage
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.queues import Delivery, Queue
from onecharge.runtime.secrets import SecretUnavailable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext

type BatchResponse = PartialItemFailureResponse
"""The messages that SQS is to deliver again (AWS Lambda Developer Guide, "Using Lambda with SQS")."""

BACKOFF_BASE_SECONDS = 2
BACKOFF_CAP_SECONDS = 900
"""The longest backoff. Multiplied by maxReceiveCount in template.yaml, it is how long an outage can last before SQS
moves a payable order to the DLQ: more than a day."""


@dataclass(frozen=True)
class Done:
    """The event is handled: Lambda deletes the message."""


@dataclass(frozen=True)
class RetryAfter:
    """Deliver the message again, after these seconds."""

    seconds: int


@dataclass(frozen=True)
class BackOff:
    """Deliver the message again, after a wait that grows with its receive count."""


Disposition = Done | RetryAfter | BackOff
"""What a handler decides about a message."""


class PoisonMessage(Exception):
    """No retry can handle this message.

    `reason` names the rule that the message breaks, and repeats nothing of its content: it is logged and shown.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def backoff_seconds(receive_count: int, *, jitter: float) -> int:
    """Exponential in the receive count, capped; the jitter (0 to 1) spreads it over its upper half."""
    ceiling = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(receive_count, 20))
    return round(ceiling * (0.5 + jitter / 2))


class Consumer[E: Event]:
    """Handles each record of a Lambda event, in parallel.

    Args:
        model: the event that the queue carries, or an adapter for a union of several; everything else is poison.
        handle: handles one event; must be idempotent. Called on several threads.
        queue: the event source.
        logger: gets a line for each message that is poison, returned or fails unexpectedly.
        count: counts one occurrence of the metric of that name; called on several threads.
        record_seconds: the longest that one record can take. A record that is begun with less time left in the
            invocation could be cut off halfway: it is returned to the queue instead.
        jitter: a random number from 0 to 1.
    """

    def __init__(
        self,
        *,
        model: type[E] | TypeAdapter[E],
        handle: Callable[[E], Disposition],
        queue: Queue,
        logger: Logger,
        count: Callable[[str], None],
        record_seconds: float = 0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._read = model.validate_json if isinstance(model, TypeAdapter) else model.model_validate_json
        self._handle = handle
        self._queue = queue
        self._logger = logger
        self._count = count
        self._record_seconds = record_seconds
        self._jitter = jitter
        # As many as a batch has records, so that a batch takes as long as its slowest record.
        self._threads = ThreadPoolExecutor(max_workers=BATCH_SIZE, thread_name_prefix="record")

    def consume(self, event: dict[str, Any], context: "LambdaContext") -> BatchResponse:
        """Process a batch; returns the partial batch response.

        It names every message that failed, even if all of them did: raising would make the invocation fail, and Lambda
        would reduce the concurrency of the event source mapping. Lambda deletes the messages that are not named (AWS
        Lambda Developer Guide, "Handling errors for an SQS event source").
        """
        deliveries = [Delivery.of(record) for record in event["Records"]]
        process = partial(self._process_in_time, context)
        if self._queue.is_fifo:
            done = self._process_in_group_order(process, deliveries)
        else:
            done = list(self._threads.map(process, deliveries))
        failed = [each.message_id for each, is_done in zip(deliveries, done, strict=True) if not is_done]
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}

    def _process_in_group_order(
        self, process: Callable[[Delivery], bool], deliveries: Sequence[Delivery]
    ) -> Sequence[bool]:
        """Process each message group on a thread, one delivery after the other; returns which of all succeeded.

        Source: AWS Lambda Developer Guide, "Handling errors for an SQS event source": on a FIFO queue, report every
        message after the first failure as failed too. SQS keeps the order within a group, so groups fail separately.
        """
        groups = defaultdict[str, list[Delivery]](list)
        for each in deliveries:
            groups[each.group or each.message_id].append(each)
        beginnings = self._threads.map(partial(self._process_until_one_fails, process), groups.values())
        succeeded = {each.message_id for beginning in beginnings for each in beginning}
        return [each.message_id in succeeded for each in deliveries]

    def _process_until_one_fails(
        self, process: Callable[[Delivery], bool], group: Sequence[Delivery]
    ) -> Sequence[Delivery]:
        """The beginning of the group that succeeded; the rest is returned to the queue."""
        for position, each in enumerate(group):
            if not process(each):
                for later in group[position + 1 :]:
                    self._log_returned(later, "an earlier message of its group failed")
                    # While a message of a FIFO group is invisible, SQS delivers no other of the group.
                    self._change_visibility(later, 0)
                return group[:position]
        return group

    def _process_in_time(self, context: "LambdaContext", delivery: Delivery) -> bool:
        try:
            if context.get_remaining_time_in_millis() / 1000 < self._record_seconds:
                # What has taken the time may take it again: if it were visible now, it would be received repeatedly.
                self._log_returned(delivery, "too little time is left in the invocation")
                self._back_off(delivery)
                return False
            return self.process(delivery)
        except Exception:  # The other records of the batch are not to be delivered again because of this one.
            self._logger.exception("record failed unexpectedly", extra={"message_id": delivery.message_id})
            return False

    def process(self, delivery: Delivery) -> bool:
        """Process one delivery; returns whether its message can be deleted. All its log lines name it."""
        self._logger.thread_safe_append_keys(message_id=delivery.message_id, receive_count=delivery.receive_count)
        try:
            return self._dispose_of(delivery)
        finally:
            self._logger.thread_safe_clear_keys()

    def _dispose_of(self, delivery: Delivery) -> bool:
        try:
            disposition = self._disposition_of(delivery)
        except PoisonMessage as poison:
            return self._dead_letter(delivery, poison.reason)
        match disposition:
            case Done():
                return True
            case RetryAfter(seconds):
                self._change_visibility(delivery, seconds)
                return False
            case BackOff():
                self._back_off(delivery)
                return False

    def _disposition_of(self, delivery: Delivery) -> Disposition:
        try:
            event = self._read(delivery.body)
        except ValidationError as invalid:
            raise PoisonMessage(reason_of(invalid)) from None
        self._logger.thread_safe_append_keys(**event.log_fields)
        try:
            return self._handle(event)
        except PoisonMessage:
            raise
        except Exception as error:  # No order fails because of an error of ours: SQS delivers the message again.
            self._count("DeliveryFailed")
            about = {}
            if isinstance(error, SecretUnavailable):
                about = {"cause": Cause.STRIPE_ACCOUNT}  # It was counted when the key was read.
            elif not is_outage(error):
                # The invocation succeeds, and the queue's age leaves out what is retried: no other alarm sees it.
                cause = Cause.ROW_LOST if isinstance(error, RowMissing) else Cause.UNEXPECTED_ERROR
                self._count(Alarm(cause))
                about = {"cause": cause}
            self._logger.exception("delivery failed unexpectedly", extra=about)
            return BackOff()

    def _dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Whether the message reached the DLQ: if not, it stays in the queue, so that it is not lost."""
        try:
            self._queue.dead_letter(delivery, reason)
        except (BotoCoreError, ClientError):
            self._logger.exception("poison message could not be sent to the DLQ")
            self._back_off(delivery)
            return False
        self._count("PoisonMessage")
        self._logger.error("poison message sent to the DLQ", extra={"reason": reason})
        return True

    def _log_returned(self, delivery: Delivery, reason: str) -> None:
        self._count("MessageReturned")
        self._logger.info(f"message returned to the queue: {reason}", extra={"message_id": delivery.message_id})

    def _back_off(self, delivery: Delivery) -> None:
        seconds = backoff_seconds(delivery.receive_count, jitter=self._jitter())
        self._logger.info("message waits", extra={"message_id": delivery.message_id, "wait_seconds": seconds})
        self._change_visibility(delivery, seconds)

    def _change_visibility(self, delivery: Delivery, seconds: int) -> None:
        try:
            self._queue.change_visibility(delivery, seconds)
        except (BotoCoreError, ClientError) as error:
            # The visibility timeout that the message was received with applies instead.
            self._logger.warning(
                "visibility timeout could not be changed",
                extra={"message_id": delivery.message_id, "error": type(error).__name__},
            )
