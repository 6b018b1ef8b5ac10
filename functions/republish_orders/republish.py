"""Orders that stayed PENDING are published again: a round through all of them, a bounded piece of it each run.

Streams forget after 24 hours, and give a record up after so many tries; the stored order forgets nothing. What is
published is the same event under the same id, so whoever has it already is done with it at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.dynamodb import from_item
from onecharge.events import OrderPlacedEvent
from onecharge.orders import attempt_placed_at, order_placed
from onecharge.topics import Topic
from republish_orders.pending import DAY_SECONDS, FIRST_WAIT_SECONDS, OrderKey, PendingOrders, times_due
from republish_orders.progress import Progress, ProgressStore

ORDERS_MAX = 10_000
_ORDERS_A_PAGE = 100


class NotTaken(Exception):
    """SNS refused some of a page, and not because of what it says: the next run begins with that page."""


@dataclass(frozen=True)
class RepublishOrders:
    """One run; `clock` gives the time in epoch seconds, `has_time` says whether there is enough for one page more."""

    orders: PendingOrders
    topic: Topic
    progress: ProgressStore
    clock: Callable[[], float]
    has_time: Callable[[], bool]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self) -> None:
        """Go on where the last run stopped. Whatever goes wrong is left to the next run, from the last page kept."""
        try:
            progress = self._present_round()
            for _ in range(ORDERS_MAX // _ORDERS_A_PAGE):
                if not self.has_time():
                    break
                progress = self._page(progress)
                if progress.after is None:
                    break
            self.logger.info("went through the pending orders", extra={"order_id": progress.after_order_id})
        except (NotTaken, BotoCoreError, ClientError) as error:
            self.count("RepublishInterrupted")
            self.logger.warning("interrupted: the next run goes on", extra={"error": type(error).__name__})

    def _present_round(self) -> Progress:
        now = int(self.clock())
        last = self.progress.read()
        if last is None:
            return Progress(round_at=now)
        return last if last.after else Progress(round_at=now, round_before_at=last.round_at)

    def _page(self, progress: Progress) -> Progress:
        keys, last = self.orders.page(
            placed_until=progress.round_at - FIRST_WAIT_SECONDS,
            after=progress.after,
            limit=_ORDERS_A_PAGE,
        )
        self._publish([event for key in keys if (event := self._due(key, progress)) is not None])
        order_id, placed_at = last or (None, None)
        progress = replace(progress, after_order_id=order_id, after_placed_at=placed_at)
        self.progress.write(progress)
        return progress

    def _due(self, key: OrderKey, progress: Progress) -> OrderPlacedEvent | None:
        item = self.orders.read(key)
        if item is None:
            return None
        try:
            order = from_item(item)
            event, since = order_placed(order), attempt_placed_at(order).timestamp()
        except Exception as error:  # Whatever is wrong with the one, the others are published.
            self._can_never_be(key[0], type(error).__name__)
            return None
        stuck = progress.round_at - since >= DAY_SECONDS
        if stuck:
            self.count("PendingForADay")
            self.count("Alarm")
        if times_due(progress.round_at - since) <= times_due(progress.round_before_at - since):
            return None
        (self.logger.error if stuck else self.logger.info)(
            "still pending",
            extra={
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
                "pending_seconds": int(progress.round_at - since),
            },
        )
        return event

    def _publish(self, events: Sequence[OrderPlacedEvent]) -> None:
        refused = self.topic.publish(events)
        for _ in range(len(events) - len(refused)):
            self.count("OrderRepublished")
        for each in refused:
            if each.for_good:
                self._can_never_be(each.event.subject, each.code)
        if not all(each.for_good for each in refused):
            raise NotTaken

    def _can_never_be(self, order_id: str, error: str) -> None:
        """One such order holds up no other, and it is told of in every round."""
        self.count("Alarm")
        self.logger.error("can never be published", extra={"order_id": order_id, "error": error})
