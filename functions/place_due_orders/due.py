"""One run: everything that is due is ordered, the oldest day first, as far as the time goes.

    DueDocuments ─► valid? ─► one transaction: the order stored, the document ORDERED ─► (the order's stream)
                       └────► INVALID, with the reason

Where a run ends the next one goes on, since what it finds is what is not marked. Two at once do no harm.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.orders.schema import new_order_item
from place_due_orders.documents import DocumentState, DueDocument, InvalidDocument
from place_due_orders.tables import DocumentChanged, DueDocuments, Item, Placed, PlacedBefore

CATCH_UP_DAYS = 7
"""So many days after its due date a document is still ordered, if no run did it before."""

REPORTED_DAYS = 30
"""Up to so many days after its due date a document that was never ordered is reported, for a person to decide on."""

PAGE_SIZE = 1000
"""Documents that one request reads. By its turn one may have changed: each is written only if it is as it was read."""

ONE_STEP_SECONDS = 15
"""What a page or a document needs at the most: two requests of two tries of 3 s each, and the pauses between them."""


def days_ordered(today: date) -> list[str]:
    """The due dates of what a run orders, the oldest first: that one falls out of the window next."""
    return [(today - timedelta(days)).isoformat() for days in range(CATCH_UP_DAYS, -1, -1)]


def days_reported(today: date) -> list[str]:
    """The due dates of what is too late to be ordered unasked."""
    return [(today - timedelta(days)).isoformat() for days in range(CATCH_UP_DAYS + 1, REPORTED_DAYS + 1)]


class _OutOfTime(Exception):
    """Too little time is left in this invocation for another step."""


@dataclass(frozen=True)
class PlaceDueOrders:
    """One run.

    `clock` gives the time in UTC, whose day is today; `has_time` says whether there is enough for one step more;
    `run_id` begins the correlation id of every order that the run places.
    """

    documents: DueDocuments
    clock: Callable[[], datetime]
    has_time: Callable[[], bool]
    run_id: str
    logger: Logger
    count: Callable[[str], None]
    page_size: int = PAGE_SIZE

    def __call__(self) -> None:
        """Order what is due. Whatever goes wrong is left to the next run."""
        today = self.clock().date()
        try:
            for due_date in days_ordered(today):
                for item in self._not_done(due_date):
                    self._order_alone(item, due_date)
            for due_date in days_reported(today):
                self._report(due_date)
            self.logger.info("all that is due is ordered", extra={"today": today.isoformat()})
        except _OutOfTime:
            self.count("DueRunUnfinished")
            self.logger.warning("out of time: the next run goes on", extra={"today": today.isoformat()})
        except (BotoCoreError, ClientError) as error:
            self.count("DueRunInterrupted")
            self.logger.warning("interrupted: the next run goes on", extra={"error": type(error).__name__})

    def _not_done(self, due_date: str) -> Iterator[Item]:
        after = None
        while True:
            self._require_time()
            page = self.documents.page(due_date, after=after, limit=self.page_size)
            for item in page.items:
                self._require_time()
                yield item
            if page.next is None:
                return
            after = page.next

    def _require_time(self) -> None:
        if not self.has_time():
            raise _OutOfTime

    def _order_alone(self, item: Item, due_date: str) -> None:
        """Whatever becomes of this document, the others have their turn."""
        try:
            self._order(item, due_date)
        except (BotoCoreError, ClientError) as error:
            self.count("DueDocumentFailed")
            self.logger.warning(
                "document failed: the next run tries again",
                extra={"due_date": due_date, "error": type(error).__name__},
            )
        except Exception:
            self.count("DueDocumentFailed")
            self.count("Alarm")
            self.logger.exception("document failed unexpectedly", extra={"due_date": due_date})

    def _order(self, item: Item, due_date: str) -> None:
        try:
            document = DueDocument.of(item)
        except InvalidDocument as invalid:
            self._invalid(item, due_date, invalid.reason)
            return
        correlation_id = f"{self.run_id}:{document.document_id}"
        order = new_order_item(
            document.order_id,
            document,
            correlation_id=correlation_id,
            # The same whenever it is ordered: if tables are restored, and it is ordered anew, it is looked up.
            now=datetime.combine(date.fromisoformat(due_date), time.min, UTC),
            attempt_placed_at=self.clock().isoformat(),
            document_id=document.document_id,
            due_date=due_date,
        )
        match self.documents.place(item, order):
            case Placed():
                self._placed("DueOrderPlaced", "order of a due document placed", document, correlation_id)
            case PlacedBefore(fingerprint) if fingerprint == document.fingerprint:
                if self.documents.mark(item, {"state": DocumentState.ORDERED, "order_id": document.order_id}):
                    self._placed("DueOrderReplayed", "order found, placed before", document, correlation_id)
            case PlacedBefore():
                self._invalid(item, due_date, "document: ordered_before_with_other_content")
            case DocumentChanged():
                self.count("DueDocumentChanged")

    def _placed(self, metric: str, message: str, document: DueDocument, correlation_id: str) -> None:
        self.count(metric)
        self.logger.info(
            message,
            extra={
                "order_id": document.order_id,
                "attempt": 1,
                "correlation_id": correlation_id,
                "document_id": document.document_id,
                "due_date": document.due_date,
            },
        )

    def _invalid(self, item: Item, due_date: str, reason: str) -> None:
        if not self.documents.mark(item, {"state": DocumentState.INVALID, "reason": reason}):
            return
        self.count("DueDocumentInvalid")
        self.count("Alarm")
        # Not even its id is logged, which may be what is wrong with it: the table has it, as INVALID.
        self.logger.error("no order can be made of a document", extra={"due_date": due_date, "reason": reason})

    def _report(self, due_date: str) -> None:
        if next(self._not_done(due_date), None) is not None:
            self.count("DueDateMissed")
            self.count("Alarm")
            self.logger.error("due too long ago to be ordered unasked", extra={"due_date": due_date})
