"""One run places an order for every document that is due, the oldest day first, until its time is used up.

    DueDocuments ─► valid? ─► one transaction: the order stored, the document ORDERED ─► the Orders table's stream
                       └────► INVALID, with the reason

The next run continues with the documents that are not marked yet. Two concurrent runs are harmless.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from itertools import batched

from aws_lambda_powertools import Logger

from onecharge.orders.schema import new_order_item
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import is_outage
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import Parallel
from place_due_orders.documents import (
    DocumentChanged,
    DocumentState,
    DueDocument,
    DueDocumentStore,
    InvalidDocument,
    Item,
    Page,
    Placed,
    PlacedBefore,
)

CATCH_UP_DAYS = 7
"""A document that no run ordered on its due date is still ordered for this many days."""

REPORTED_DAYS = 30
"""After that, a document is reported until this many days after its due date: a person decides."""

AT_ONCE = 4
"""How many documents are ordered in parallel. All documents of a day are in one partition of their table, which takes
1,000 write units a second, and each is two in a transaction. So 500 a second is the limit, whatever this number is."""

PAGE_SIZE = 1000
"""Documents that one request reads. Each is written only if it has not changed since."""

ONE_STEP_SECONDS = 15
"""The longest time that a page or a document takes: two requests with two tries of 3 s each, and the pauses between."""


def days_ordered(today: date) -> list[str]:
    """The due dates that a run orders. The oldest is first, since the next run may be too late for it."""
    return [(today - timedelta(days)).isoformat() for days in range(CATCH_UP_DAYS, -1, -1)]


def days_reported(today: date) -> list[str]:
    """The due dates that are too old to be ordered without a person."""
    return [(today - timedelta(days)).isoformat() for days in range(CATCH_UP_DAYS + 1, REPORTED_DAYS + 1)]


class _OutOfTime(Exception):
    """Too little time is left in this invocation for another step."""


@dataclass(frozen=True)
class DueRun:
    """One run.

    `clock` gives the time in UTC, whose day is today; `has_time` says whether the time left is enough for another
    step; `run_id` begins the correlation id of every order that the run places.
    """

    documents: DueDocumentStore
    clock: Callable[[], datetime]
    has_time: Callable[[], bool]
    run_id: str
    logger: Logger
    count: Callable[[str], None]
    parallel: Parallel
    """Orders several documents in parallel."""

    def place_orders(self) -> None:
        """Order what is due. The next run retries what fails. Raises botocore's errors: the run has failed."""
        today = self.clock().date()
        try:
            for due_date in days_ordered(today):
                self._order_all(due_date, self.documents.due)
            for due_date in days_reported(today):
                self._report(due_date)
        except _OutOfTime:
            self.count("DueRunUnfinished")
            self.logger.warning("out of time: the next run continues", extra={"today": today.isoformat()})
            return
        self.logger.info("run complete: everything due is ordered", extra={"today": today.isoformat()})
        # The index does not have these. To find them takes reading all documents, so it is done last.
        with suppress(_OutOfTime):
            for due_date in days_ordered(today) + days_reported(today):
                self._order_all(due_date, self.documents.of_no_state)

    def _order_all(self, due_date: str, read: Callable[..., Page]) -> None:
        for items in batched(self._documents(due_date, read), AT_ONCE, strict=False):
            self._require_time()
            self.parallel(partial(self._order_isolated, due_date), items)

    def _documents(self, due_date: str, read: Callable[..., Page]) -> Iterator[Item]:
        after = None
        while True:
            self._require_time()
            page = read(due_date, after=after, limit=PAGE_SIZE)
            yield from page.items
            if page.next is None:
                return
            after = page.next

    def _require_time(self) -> None:
        if not self.has_time():
            raise _OutOfTime

    def _order_isolated(self, due_date: str, item: Item) -> None:
        """Order one document. Its failure does not block the others."""
        try:
            self._order(item, due_date)
        except Exception as error:
            self.count("DueDocumentFailed")
            if is_outage(error):
                about = {"due_date": due_date, "error": type(error).__name__}
                self.logger.warning("document failed: the next run retries it", extra=about)
                return
            self.count(Alarm(Cause.UNEXPECTED_ERROR))
            self.logger.exception(
                "document failed unexpectedly: the next run retries it",
                extra={"due_date": due_date, "cause": Cause.UNEXPECTED_ERROR},
            )

    def _order(self, item: Item, due_date: str) -> None:
        try:
            document = DueDocument.from_item(item)
        except InvalidDocument as invalid:
            self._invalid(item, due_date, invalid.reason)
            return
        match self.documents.place(item, self._new_order_item(document)):
            case Placed():
                self._placed("DueOrderPlaced", "order placed for a due document", document)
            case PlacedBefore() as before:
                self._placed_before(item, document, before)
            case DocumentChanged():
                self.count("DueDocumentChanged")

    def _placed_before(self, item: Item, document: DueDocument, before: PlacedBefore) -> None:
        if before.fingerprint != document.fingerprint:
            self._invalid(item, document.due_date, "document: ordered_before_with_other_content")
        elif self.documents.mark(item, {"state": DocumentState.ORDERED, "order_id": document.order_id}):
            self._placed("DueOrderReplayed", "order was placed before: document marked", document)

    def _new_order_item(self, document: DueDocument) -> Item:
        return new_order_item(
            document.order_id,
            document.customer_id,
            document,
            amount_minor=document.amount_minor,
            correlation_id=self._correlation_id(document),
            # The due date, whenever it is ordered: an order placed again after a restore of the tables keeps its age,
            # by which the payment service decides whether to look up its other PaymentIntents.
            now=datetime.combine(date.fromisoformat(document.due_date), time.min, UTC),
            waiting_since=self.clock().isoformat(),
            document_id=document.document_id,
            due_date=document.due_date,
        )

    def _correlation_id(self, document: DueDocument) -> str:
        return f"{self.run_id}:{document.document_id}"

    def _placed(self, metric: str, message: str, document: DueDocument) -> None:
        self.count(metric)
        self.logger.info(
            message,
            extra={
                "order_id": document.order_id,
                "attempt": 1,
                "correlation_id": self._correlation_id(document),
                "document_id": document.document_id,
                "due_date": document.due_date,
            },
        )

    def _invalid(self, item: Item, due_date: str, reason: str) -> None:
        if not self.documents.mark(item, {"state": DocumentState.INVALID, "reason": reason}):
            return
        self.count("DueDocumentInvalid")
        self.count(Alarm(Cause.DUE_DOCUMENT))
        # The line lacks the document's id, which may be the invalid part. The table has the document, as INVALID.
        self.logger.error(
            "document is INVALID: correct it",
            extra={"due_date": due_date, "reason": reason, "cause": Cause.DUE_DOCUMENT},
        )

    def _report(self, due_date: str) -> None:
        """Report the date, once, if a document of it has no order."""
        is_reported = False
        for item in self._documents(due_date, self.documents.due):
            self._require_time()
            if not self._is_missed(item, due_date) or is_reported:
                continue
            is_reported = True
            self.count("DueDateMissed")
            self.count(Alarm(Cause.DUE_DOCUMENT))
            self.logger.error(
                "due too long ago: order it or withdraw it", extra={"due_date": due_date, "cause": Cause.DUE_DOCUMENT}
            )

    def _is_missed(self, item: Item, due_date: str) -> bool:
        """Whether the document has no order, and could have one; otherwise it is marked as what it is.

        A restore may have made DUE again what was ordered. A person who enters it with a new due date orders it twice.
        """
        try:
            document = DueDocument.from_item(item)
        except InvalidDocument as invalid:
            self._invalid(item, due_date, invalid.reason)
            return False
        before = self.documents.order_of(document)
        if before:
            self._placed_before(item, document, before)
        return before is None
