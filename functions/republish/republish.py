"""One scheduled run: publishes again what waits for an outcome, a bounded part of the present round.

    checkpoint ─► a shard's next page ─► due by the index? ─► read these items ─► still due? publish it ─► checkpoint …

A DynamoDB stream keeps its records for 24 hours, and Lambda discards one that is 23 hours old; the stored item remains.
Its event is published with the same content and the same id, so that a consumer recognizes a duplicate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import batched
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from onecharge.contract.events import Event
from onecharge.contract.refund_events import RefundState
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.republication import (
    DAY_SECONDS,
    FIRST_WAIT_SECONDS,
    RepublishCheckpoint,
    republications_due,
)
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import WAITING
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import ALL_SHARDS, from_item, read_items
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.paging import paged
from onecharge.runtime.parallel import Parallel
from onecharge.runtime.topics import ENTRIES_MAX, Topic

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Item = Mapping[str, Any]
"""An item in DynamoDB's JSON."""

ITEMS_A_PAGE = 500
"""Entries of the index that are read, published and left behind together: a run that is cut off repeats as many."""


@dataclass(frozen=True)
class Source:
    """One table whose items wait."""

    index: WaitingIndex
    event_of: Callable[[Item], Event | None]
    """Returns None if the item does not wait any more. Raises ValueError if it breaks the schema."""


def waiting_orders(client: "DynamoDBClient", table: str) -> Source:
    """The orders that the payment service ends by itself (onecharge.orders.transitions)."""

    def event_of(item: Item) -> Event | None:
        order = StoredOrder.from_item(item)
        # REQUIRES_ACTION asks again about the current attempt.
        return order.event() or order.placed_event() if order.status in WAITING else None

    return Source(WaitingIndex(client, table, "waiting_since"), event_of)


def waiting_refunds(client: "DynamoDBClient", table: str) -> Source:
    """The refunds that are PENDING."""

    def event_of(item: Item) -> Event | None:
        refund = StoredRefund.from_item(item)
        return refund.requested_event() if refund.status is RefundState.PENDING else None

    return Source(WaitingIndex(client, table, "requested_at"), event_of)


class TransientPublishFailure(Exception):
    """SNS did not accept a part of a page, and may accept it later: the next run begins with that page."""


@dataclass(frozen=True)
class Republisher:
    """Publishes again what waits; `clock` gives the time in epoch seconds."""

    sources: Sequence[Source]
    topic: Topic
    checkpoints: CheckpointStore[RepublishCheckpoint]
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]
    parallel: Parallel
    """Publishes several batches of a page in parallel."""

    def run(self, has_time: Callable[[], bool]) -> None:
        """Continue from the checkpoint. After a failure the next run continues from the last that was written.

        Raises TransientPublishFailure, ReadsThrottled, and botocore's errors: two failed runs in a row are an alarm.

        Args:
            has_time: whether there is enough for another page.
        """
        try:
            checkpoint = self._present_round()
            start = checkpoint.part, checkpoint.after_entry
            for events, (part, after) in paged(self._parts, partial(self._page, checkpoint), start, has_time=has_time):
                self._publish(events)
                checkpoint = self.checkpoints.write(replace(checkpoint, part=part, after_entry=after))
            self.logger.info("republication run ended", extra={"round_completed": self._is_completed(checkpoint)})
        except ConcurrentRun:
            self.count("ConcurrentRun")
            self.logger.info("another run continues")

    def _present_round(self) -> RepublishCheckpoint:
        last = self.checkpoints.read() or RepublishCheckpoint(round_at=0, part=len(self._parts))
        if not self._is_completed(last):
            return last
        return RepublishCheckpoint(version=last.version, round_at=int(self.clock()), round_before_at=last.round_at)

    def _is_completed(self, checkpoint: RepublishCheckpoint) -> bool:
        return checkpoint.part >= len(self._parts)

    @property
    def _parts(self) -> Sequence[tuple[Source, str]]:
        return [(source, shard) for source in self.sources for shard in ALL_SHARDS]

    def _page(
        self, checkpoint: RepublishCheckpoint, part: tuple[Source, str], *, after: Mapping[str, str] | None
    ) -> tuple[list[Event], Mapping[str, str] | None]:
        """Returns what is due of one page, and the cursor of the next. Raises ReadsThrottled."""
        source, shard = part
        until = checkpoint.round_at - FIRST_WAIT_SECONDS
        entries, last = source.index.page(shard, until=until, after=after, limit=ITEMS_A_PAGE)
        # The index is eventually consistent: what is due by it is read consistently, a hundred with one request.
        worth = [entry for entry in entries if _is_worth_reading(source, entry, checkpoint)]
        keys = [{name: each[name] for name in each.keys() & {"order_id", "refund_id"}} for each in worth]
        items = read_items(source.index.client, source.index.table, keys)
        return [event for item in items if (event := self._due(source, item, checkpoint)) is not None], last

    def _due(self, source: Source, item: Item, checkpoint: RepublishCheckpoint) -> Event | None:
        """The event of the item, if it still waits and its next republication is due."""
        try:
            event, since = source.event_of(item), source.index.since_of(from_item(item))
        except ValueError as error:  # One invalid item does not block the others.
            self._report_unpublishable(item["order_id"]["S"], type(error).__name__)
            return None
        if event is None:
            return None
        is_stuck = _is_stuck(since, checkpoint)
        if is_stuck:
            self.count(Alarm(Cause.OVERDUE))
        if not _is_due(since, checkpoint):
            return None
        about = {"event_type": event.type, "waiting_seconds": int(checkpoint.round_at - since), **event.log_fields}
        about |= {"cause": Cause.OVERDUE} if is_stuck else {}
        log = self.logger.error if is_stuck else self.logger.info
        log("still waiting for an outcome: publishing again", extra=about)
        return event

    def _publish(self, events: Sequence[Event]) -> None:
        batches = batched(events, ENTRIES_MAX, strict=False)
        failures = [failure for failed in self.parallel(self.topic.publish, batches) for failure in failed]
        for _ in range(len(events) - len(failures)):
            self.count("Republished")
        for each in failures:
            if each.is_permanent:
                self._report_unpublishable(each.event.subject, each.code)
        if not all(each.is_permanent for each in failures):
            raise TransientPublishFailure

    def _report_unpublishable(self, order_id: str, error: str) -> None:
        """Raise the alarm, in every round until the item is corrected. The others are published."""
        self.count(Alarm(Cause.UNEXPECTED_ERROR))
        self.logger.error(
            "unpublishable: no retry helps, correct the item",
            extra={"order_id": order_id, "error": error, "cause": Cause.UNEXPECTED_ERROR},
        )


def _is_worth_reading(source: Source, entry: Mapping[str, Any], checkpoint: RepublishCheckpoint) -> bool:
    """Whether the item may be due, or stuck; or breaks the schema, which raises the alarm in every round."""
    try:
        since = source.index.since_of(entry)
    except ValueError:
        return True
    return entry.get("status") not in WAITING or _is_due(since, checkpoint) or _is_stuck(since, checkpoint)


def _is_stuck(since: float, checkpoint: RepublishCheckpoint) -> bool:
    return checkpoint.round_at - since >= DAY_SECONDS


def _is_due(since: float, checkpoint: RepublishCheckpoint) -> bool:
    """Whether a republication became due between the previous round and this one."""
    return republications_due(checkpoint.round_at - since) > republications_due(checkpoint.round_before_at - since)
