"""One scheduled run: publishes again what waits for an outcome, a bounded part of the present round.

    checkpoint ─► the source's next page ─► read each item ─► publish those that are due ─► checkpoint …

A DynamoDB stream keeps its records for 24 hours, and Lambda discards one after MaximumRetryAttempts; the stored item
remains. Its event is published with the same content and the same id, so that a consumer recognizes a duplicate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.contract.events import Event
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.topics import Topic
from republish.waiting import (
    DAY_SECONDS,
    FIRST_WAIT_SECONDS,
    Key,
    Source,
    Waiting,
    republications_due,
)

ITEMS_MAX = 10_000
"""Items that one run reads, at the most."""
_ITEMS_A_PAGE = 100


@dataclass(frozen=True, kw_only=True)
class RepublishCheckpoint(Checkpoint):
    """How far the present round through the sources has come. Times are whole epoch seconds."""

    job: ClassVar[str] = "republish"

    round_at: int
    """When the round began. Whether an item is due is judged by this time, however many runs the round takes."""
    round_before_at: int = 0
    """When the round before it began; 0 if there was none."""
    source: int = 0
    """The index of the source that is being read; their number once the round is completed."""
    after: Mapping[str, str] | None = None
    """The last key of that source that was read: the cursor; None to begin with the oldest."""


class TransientPublishFailure(Exception):
    """SNS did not accept a part of a page, and may accept it later: the next run begins with that page."""


@dataclass(frozen=True)
class RepublishOrders:
    """One run; `clock` gives the time in epoch seconds, `has_time` says whether there is enough for another page."""

    sources: Sequence[Source]
    topic: Topic
    checkpoints: CheckpointStore[RepublishCheckpoint]
    clock: Callable[[], float]
    has_time: Callable[[], bool]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self) -> None:
        """Continue from the checkpoint. After a failure the next run continues from the last that was written."""
        try:
            checkpoint = self._present_round()
            for _ in range(ITEMS_MAX // _ITEMS_A_PAGE):
                if self._is_completed(checkpoint) or not self.has_time():
                    break
                checkpoint = self._page(self.sources[checkpoint.source], checkpoint)
            self.logger.info("republication run ended", extra={"source": checkpoint.source, "after": checkpoint.after})
        except ConcurrentRun:
            self.count("ConcurrentRun")
            self.logger.info("another run continues")
        except (TransientPublishFailure, BotoCoreError, ClientError) as error:
            self.count("RepublishInterrupted")
            self.logger.warning("interrupted: the next run continues", extra={"error": type(error).__name__})

    def _present_round(self) -> RepublishCheckpoint:
        now = int(self.clock())
        last = self.checkpoints.read()
        if last is None:
            return RepublishCheckpoint(round_at=now)
        if not self._is_completed(last):
            return last
        return RepublishCheckpoint(version=last.version, round_at=now, round_before_at=last.round_at)

    def _is_completed(self, checkpoint: RepublishCheckpoint) -> bool:
        return checkpoint.source >= len(self.sources)

    def _page(self, source: Source, checkpoint: RepublishCheckpoint) -> RepublishCheckpoint:
        """Publish what is due of one page; returns the checkpoint after it, which is written."""
        keys, last = source.page(
            until=checkpoint.round_at - FIRST_WAIT_SECONDS, after=checkpoint.after, limit=_ITEMS_A_PAGE
        )
        self._publish([event for key in keys if (event := self._due(source, key, checkpoint)) is not None])
        return self.checkpoints.write(
            replace(checkpoint, after=last) if last else replace(checkpoint, source=checkpoint.source + 1, after=None)
        )

    def _due(self, source: Source, key: Key, checkpoint: RepublishCheckpoint) -> Event | None:
        """The event of the item, if it still waits and its next republication is due."""
        waiting = self._read(source, key)
        if waiting is None:
            return None
        waiting_seconds = checkpoint.round_at - waiting.since
        is_stuck = waiting_seconds >= DAY_SECONDS
        if is_stuck:
            self.count("WaitingForADay")
            self.count(Alarm(Cause.OVERDUE))
        before_seconds = checkpoint.round_before_at - waiting.since
        if republications_due(waiting_seconds) <= republications_due(before_seconds):
            return None
        self._log(waiting, int(waiting_seconds), is_stuck=is_stuck)
        return waiting.event

    def _read(self, source: Source, key: Key) -> Waiting | None:
        try:
            return source.read(key)
        except (KeyError, TypeError, ValueError) as error:  # One invalid item does not block the others.
            self._report_unpublishable(key["order_id"], type(error).__name__)
            return None

    def _log(self, waiting: Waiting, waiting_seconds: int, *, is_stuck: bool) -> None:
        (self.logger.error if is_stuck else self.logger.info)(
            "still waiting for an outcome: publishing again",
            extra={
                "event_type": waiting.event.type,
                "order_id": waiting.event.data.order_id,
                "attempt": waiting.event.data.attempt,
                "correlation_id": waiting.event.correlationid,
                "waiting_seconds": waiting_seconds,
            },
        )

    def _publish(self, events: Sequence[Event]) -> None:
        failures = self.topic.publish(events)
        for _ in range(len(events) - len(failures)):
            self.count("Republished")
        for each in failures:
            if each.is_permanent:
                self._report_unpublishable(each.event.subject, each.code)
        if not all(each.is_permanent for each in failures):
            raise TransientPublishFailure

    def _report_unpublishable(self, order_id: str, error: str) -> None:
        """Raises the alarm in every round, until somebody has corrected the item; the others are published."""
        self.count(Alarm(Cause.UNPUBLISHABLE))
        self.logger.error(
            "unpublishable: no retry helps, correct the item",
            extra={"order_id": order_id, "error": error, "cause": Cause.UNPUBLISHABLE},
        )
