"""One run places an order for every document that is due, the oldest day first, until its time is used up.

    DueDocuments ─► valid? ─► one transaction: the order stored, the document ORDERED ─► the Orders table's stream
                       └────► INVALID, with the reason

The next run continues with the documents that are not marked yet. Two concurrent runs are harmless.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from itertools import batched

from aws_lambda_powertools import Logger

from onecharge.orders.schema import new_order_item
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import is_outage
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.paging import ReadPage, paged
from onecharge.runtime.parallel import Parallel
from place_due_orders.documents import (
    DocumentChanged,
    DocumentState,
    DueDocument,
    DueDocumentStore,
    InvalidDocument,
    Item,
)

CATCH_UP_DAYS = 7
"""A document that no run ordered on its due date is still ordered for this many days."""

REPORTED_DAYS = 30
"""After that, a document is reported until this many days after its due date: a person decides."""

AT_ONCE = 4
"""How many documents are ordered in parallel. All documents of a day are in one partition of their table, which takes
1,000 write units a second, and each is two in a transaction. So 500 a second is the limit, whatever this number is."""

ONE_STEP_SECONDS = 15
"""The longest time that a page or a document takes: two requests with two tries of 3 s each, and the pauses between."""


def days_read(today: date) -> list[str]:
    """The due dates that a run orders, the oldest first, since the next run may be too late for it; then older ones."""
    ages = [*range(CATCH_UP_DAYS, -1, -1), *range(CATCH_UP_DAYS + 1, REPORTED_DAYS + 1)]
    return [(today - timedelta(days)).isoformat() for days in ages]


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
        days, about = days_read(today), {"today": today.isoformat()}
        if not self._order_all(days, self.documents.due):
            self.count("DueRunUnfinished")
            self.logger.warning("out of time: the next run continues", extra=about)
            return
        self.logger.info("run complete: everything due is ordered", extra=about)
        # The index does not have these. To find them takes reading all documents, so it is done last.
        self._order_all(days, self.documents.of_no_state)

    def _order_all(self, days: Sequence[str], read: ReadPage[str, Item, Item]) -> bool:
        """Order the documents of these days; returns whether there was time for all of them."""
        is_complete, missed = False, set[str | None]()
        for items, (part, _) in paged(days, read, has_time=self.has_time):
            for some in batched(items, AT_ONCE, strict=False):
                if not self.has_time():
                    return False
                found = {*self.parallel(partial(self._order_isolated, days[0]), some)}
                for due_date in filter(None, found - missed):
                    self._report("DueDateMissed", "due too long ago: order it or withdraw it", due_date)
                missed |= found
            is_complete = part == len(days)
        return is_complete

    def _order_isolated(self, oldest: str, item: Item) -> str | None:
        """Order one document; returns its due date if that is too long ago. Its failure does not block the others."""
        due_date = str(item["due_date"]["S"])
        try:
            return due_date if self._is_missed(item, is_too_late=due_date < oldest) else None
        except DocumentChanged:
            self.count("DueDocumentChanged")
        except Exception as error:
            self.count("DueDocumentFailed")
            if is_outage(error):
                about = {"due_date": due_date, "error": type(error).__name__}
                self.logger.warning("document failed: the next run retries it", extra=about)
            else:
                self.count(Alarm(Cause.UNEXPECTED_ERROR))
                about = {"due_date": due_date, "cause": Cause.UNEXPECTED_ERROR}
                self.logger.exception("document failed unexpectedly: the next run retries it", extra=about)
        return None

    def _is_missed(self, item: Item, *, is_too_late: bool) -> bool:
        """Order the document, or mark it as what it is; returns whether it is too late, and has no order.

        A restore may have made DUE again what was ordered. A person who enters it with a new due date orders it twice.
        """
        try:
            document = DueDocument.from_item(item)
        except InvalidDocument as invalid:
            self._mark_invalid(item, str(invalid))
            return False
        if is_too_late:
            before = self.documents.fingerprint_placed(document)
        else:
            before = self.documents.place(item, self._new_order_item(document))
        match before:
            case None if is_too_late:
                return True
            case None:
                self._log("DueOrderPlaced", "order placed for a due document", document)
            case document.fingerprint:
                self.documents.mark(item, {"state": DocumentState.ORDERED, "order_id": document.order_id})
                self._log("DueOrderReplayed", "order was placed before: document marked", document)
            case _:
                self._mark_invalid(item, "document: ordered_before_with_other_content")
        return False

    def _new_order_item(self, document: DueDocument) -> Item:
        return new_order_item(
            document.order_id,
            document.customer_id,
            document,
            amount_minor=document.amount_minor,
            correlation_id=f"{self.run_id}:{document.document_id}",
            # The due date, whenever it is ordered: an order placed again after a restore of the tables keeps its age,
            # by which the payment service decides whether to look up its other PaymentIntents.
            now=datetime.combine(date.fromisoformat(document.due_date), time.min, UTC),
            waiting_since=self.clock().isoformat(),
            document_id=document.document_id,
            due_date=document.due_date,
        )

    def _log(self, metric: str, message: str, document: DueDocument) -> None:
        self.count(metric)
        ids = {"order_id": document.order_id, "attempt": 1, "document_id": document.document_id}
        correlation_id = f"{self.run_id}:{document.document_id}"
        self.logger.info(message, extra={**ids, "due_date": document.due_date, "correlation_id": correlation_id})

    def _mark_invalid(self, item: Item, reason: str) -> None:
        self.documents.mark(item, {"state": DocumentState.INVALID, "reason": reason})
        # The line lacks the document's id, which may be the invalid part. The table has the document, as INVALID.
        self._report("DueDocumentInvalid", "document is INVALID: correct it", item["due_date"]["S"], reason=reason)

    def _report(self, metric: str, message: str, due_date: str, **about: str) -> None:
        self.count(metric)
        self.count(Alarm(Cause.DUE_DOCUMENT))
        self.logger.error(message, extra={"due_date": due_date, "cause": Cause.DUE_DOCUMENT, **about})
