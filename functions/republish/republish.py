"""What waits for an outcome is published again: a round through all of it, a bounded piece of it in each run.

Streams forget after 24 hours, and give a record up after so many tries; the stored item forgets nothing. Published is
the same event under the same id, so that whoever has handled it already recognizes a duplicate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.runtime.topics import OrderServiceEvent, Topic
from republish.checkpoints import Checkpoint, CheckpointStore
from republish.waiting import (
    DAY_SECONDS,
    FIRST_WAIT_SECONDS,
    Key,
    Source,
    Waiting,
    republications_due,
)

ITEMS_MAX = 10_000
_ITEMS_A_PAGE = 100


class TransientPublishFailure(Exception):
    """SNS refused some of a page, and not because of its content: the next run begins with that page."""


@dataclass(frozen=True)
class RepublishOrders:
    """One run; `clock` gives the time in epoch seconds, `has_time` says whether there is enough for one page more."""

    sources: Sequence[Source]
    topic: Topic
    checkpoints: CheckpointStore
    clock: Callable[[], float]
    has_time: Callable[[], bool]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self) -> None:
        """Continue where the last run stopped. After a failure the next run continues from the last checkpoint."""
        try:
            checkpoint = self._present_round()
            for _ in range(ITEMS_MAX // _ITEMS_A_PAGE):
                if checkpoint.source is None or not self.has_time():
                    break
                checkpoint = self._page(self.sources[checkpoint.source], checkpoint)
            self.logger.info("republication run ended", extra={"source": checkpoint.source, "after": checkpoint.after})
        except (TransientPublishFailure, BotoCoreError, ClientError) as error:
            self.count("RepublishInterrupted")
            self.logger.warning("interrupted: the next run continues", extra={"error": type(error).__name__})

    def _present_round(self) -> Checkpoint:
        now = int(self.clock())
        last = self.checkpoints.read()
        if last is None:
            return Checkpoint(round_at=now)
        is_over = last.source is None or last.source >= len(self.sources)
        return Checkpoint(round_at=now, round_before_at=last.round_at) if is_over else last

    def _page(self, source: Source, checkpoint: Checkpoint) -> Checkpoint:
        keys, last = source.page(
            until=checkpoint.round_at - FIRST_WAIT_SECONDS, after=checkpoint.after, limit=_ITEMS_A_PAGE
        )
        self._publish([event for key in keys if (event := self._due(source, key, checkpoint)) is not None])
        checkpoint = replace(checkpoint, after=last) if last else self._next_source(checkpoint)
        self.checkpoints.write(checkpoint)
        return checkpoint

    def _next_source(self, checkpoint: Checkpoint) -> Checkpoint:
        following = (checkpoint.source or 0) + 1
        return replace(checkpoint, source=following if following < len(self.sources) else None, after=None)

    def _due(self, source: Source, key: Key, checkpoint: Checkpoint) -> OrderServiceEvent | None:
        try:
            waiting = source.read(key)
        except (KeyError, TypeError, ValueError) as error:  # Whatever is wrong with the one, the others are published.
            self._report_unpublishable(key["order_id"], type(error).__name__)
            return None
        if waiting is None:
            return None
        is_stuck = checkpoint.round_at - waiting.since >= DAY_SECONDS
        if is_stuck:
            self.count("WaitingForADay")
            self.count("Alarm")
        due = republications_due(checkpoint.round_at - waiting.since)
        if due <= republications_due(checkpoint.round_before_at - waiting.since):
            return None
        self._log(waiting, int(checkpoint.round_at - waiting.since), is_stuck=is_stuck)
        return waiting.event

    def _log(self, waiting: Waiting, waiting_seconds: int, *, is_stuck: bool) -> None:
        (self.logger.error if is_stuck else self.logger.info)(
            "still waiting for an outcome: published again",
            extra={
                "event_type": waiting.event.type,
                "order_id": waiting.event.data.order_id,
                "attempt": waiting.event.data.attempt,
                "correlation_id": waiting.event.correlationid,
                "waiting_seconds": waiting_seconds,
            },
        )

    def _publish(self, events: Sequence[OrderServiceEvent]) -> None:
        failures = self.topic.publish(events)
        for _ in range(len(events) - len(failures)):
            self.count("Republished")
        for each in failures:
            if each.is_permanent:
                self._report_unpublishable(each.event.subject, each.code)
        if not all(each.is_permanent for each in failures):
            raise TransientPublishFailure

    def _report_unpublishable(self, order_id: str, error: str) -> None:
        """Does not block the others; reported in every round."""
        self.count("Alarm")
        self.logger.error(
            "unpublishable: no retry helps, correct the item", extra={"order_id": order_id, "error": error}
        )
