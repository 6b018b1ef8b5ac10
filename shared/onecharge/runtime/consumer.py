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
    its FIFO group has a failure: not handled    is visible immediately, so the order is kept     yes

Lambda deletes every message that the partial batch response does not report as failed. The others are delivered again,
until their receive count exceeds maxReceiveCount and SQS moves them to the DLQ.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter, ValidationError

from onecharge.contract.events import Event, reason_of
from onecharge.runtime.alarms import Cause, RowMissing
from onecharge.runtime.aws import BATCH_SIZE, is_outage, records_of
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parts import Parts
from onecharge.runtime.queues import Delivery, Queue
from onecharge.runtime.secrets import SecretUnavailable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

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
    """No retry can handle this message. Its text is the rule that the message breaks, and nothing of its content."""


def backoff_seconds(receive_count: int, *, jitter: float) -> int:
    """Exponential in the receive count, capped; the jitter (0 to 1) spreads it over its upper half."""
    ceiling = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(receive_count, 20))
    return round(ceiling * (0.5 + jitter / 2))


class Consumer[E: Event]:
    """Handles each record of a Lambda event, in parallel.

    Args:
        model: the event that the queue carries, or an adapter for a union of several; everything else is poison.
        handle: handles one event; must be idempotent. Called on several threads.
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
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._read = model.validate_json if isinstance(model, TypeAdapter) else model.model_validate_json
        self._handle = handle
        self._queue = queue
        self._logger = logger
        self._count = count
        self._jitter = jitter
        # As many as a batch has records, so that a batch takes as long as its slowest record.
        self._threads = ThreadPoolExecutor(max_workers=BATCH_SIZE, thread_name_prefix="record")

    @classmethod
    def of(cls, parts: Parts, queue: str, model: type[E] | TypeAdapter[E], handle: Callable[[E], Disposition]) -> Self:
        """The consumer of the queue whose addresses are in `{queue}_QUEUE_URL` and `{queue}_DLQ_URL`."""
        urls = (parts.environment[f"{queue}_{kind}_URL"] for kind in ("QUEUE", "DLQ"))
        sqs = Queue(lambda: parts.sqs, *urls)
        return cls(model=model, handle=handle, queue=sqs, logger=parts.logger, count=parts.counts)

    def consume(self, event: dict[str, Any]) -> BatchResponse:
        """Process a batch; returns the partial batch response.

        It names every message that failed, even if all of them did: raising would make the invocation fail, and Lambda
        would reduce the concurrency of the event source mapping. The messages of a FIFO group are processed one after
        the other, and all after the first failure are reported as failed, too (AWS Lambda Developer Guide, "Handling
        errors for an SQS event source").
        """
        groups = defaultdict[str, list[Delivery]](list)
        for delivery in map(Delivery.of, records_of(event, "aws:sqs", self._logger)):
            # Not by message id: a batch of a standard queue may hold a message twice.
            groups[(self._queue.is_fifo and delivery.group) or delivery.receipt_handle].append(delivery)
        failed = self._threads.map(self._failed_of_group, groups.values())
        return {"batchItemFailures": [{"itemIdentifier": each.message_id} for group in failed for each in group]}

    def _failed_of_group(self, group: Sequence[Delivery]) -> Sequence[Delivery]:
        """The first delivery of the group that fails, and all after it, which are not handled."""
        for position, delivery in enumerate(group):
            if not self._process_alone(delivery):
                for later in group[position + 1 :]:
                    message = "message returned to the queue: an earlier one of its group failed"
                    self._logger.info(message, extra={"message_id": later.message_id})
                    # While a message of a FIFO group is invisible, SQS delivers no other of the group.
                    self._change_visibility(later, 0)
                return group[position:]
        return ()

    def _process_alone(self, delivery: Delivery) -> bool:
        try:
            return self.process(delivery)
        except Exception:  # The other records of the batch are not to be delivered again because of this one.
            self._logger.exception("record failed unexpectedly", extra={"message_id": delivery.message_id})
            return False

    def process(self, delivery: Delivery) -> bool:
        """Process one delivery; returns whether its message can be deleted. All its log lines name it."""
        self._logger.thread_safe_append_keys(message_id=delivery.message_id, receive_count=delivery.receive_count)
        try:
            disposition = self._disposition_of(delivery)
            return isinstance(disposition, Done) or self._retry(delivery, disposition)
        except PoisonMessage as poison:
            return self._dead_letter(delivery, str(poison))
        finally:
            self._logger.thread_safe_clear_keys()

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
            cause = None
            if isinstance(error, SecretUnavailable):
                cause = Cause.STRIPE_ACCOUNT  # It was counted when the key was read.
            elif not is_outage(error):
                # The invocation succeeds, and the queue's age leaves out what is retried: no other alarm sees it.
                cause = Cause.ROW_LOST if isinstance(error, RowMissing) else Cause.UNEXPECTED_ERROR
                self._count(Alarm(cause))
            self._logger.exception("delivery failed unexpectedly", extra={"cause": cause} if cause else {})
            return BackOff()

    def _dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Whether the message reached the DLQ: if not, it stays in the queue, so that it is not lost."""
        try:
            self._queue.dead_letter(delivery, reason)
        except (BotoCoreError, ClientError):
            self._logger.exception("poison message could not be sent to the DLQ")
            return self._retry(delivery, BackOff())
        self._count("PoisonMessage")
        self._logger.error("poison message sent to the DLQ", extra={"reason": reason})
        return True

    def _retry(self, delivery: Delivery, when: RetryAfter | BackOff) -> Literal[False]:
        """The message is not done: it is visible again after its wait."""
        if isinstance(when, RetryAfter):
            self._change_visibility(delivery, when.seconds)
        else:
            seconds = backoff_seconds(delivery.receive_count, jitter=self._jitter())
            self._logger.info("message waits", extra={"message_id": delivery.message_id, "wait_seconds": seconds})
            self._change_visibility(delivery, seconds)
        return False

    def _change_visibility(self, delivery: Delivery, seconds: int) -> None:
        try:
            self._queue.change_visibility(delivery, seconds)
        except (BotoCoreError, ClientError) as error:
            # The visibility timeout that the message was received with applies instead.
            self._logger.warning(
                "visibility timeout could not be changed",
                extra={"message_id": delivery.message_id, "error": type(error).__name__},
            )
