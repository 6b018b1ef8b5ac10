"""place_due_orders: invoices and subscriptions that are due, on a schedule. This file only puts the parts together."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from onecharge.runtime.functions import Context, lambda_handler
from onecharge.runtime.parallel import Threads
from onecharge.runtime.parts import Parts, part
from place_due_orders.documents import DueDocumentStore
from place_due_orders.due import AT_ONCE, ONE_STEP_SECONDS, DueRun


class PlaceDueOrdersParts(Parts):
    @part
    def documents(self) -> DueDocumentStore:
        return DueDocumentStore(
            self.dynamodb, self.environment["DUE_DOCUMENTS_TABLE"], self.environment["ORDERS_TABLE"]
        )

    @part
    def threads(self) -> Threads:
        return Threads(AT_ONCE)


@lambda_handler(PlaceDueOrdersParts)
def handler(parts: PlaceDueOrdersParts, event: dict[str, Any], context: Context) -> None:
    """Order what is due by now, until the time is used up; the content of the schedule's event is ignored."""
    DueRun(
        documents=parts.documents,
        clock=partial(datetime.now, UTC),
        has_time=lambda: context.get_remaining_time_in_millis() / 1000 >= ONE_STEP_SECONDS,
        run_id=context.aws_request_id,
        logger=parts.logger,
        count=parts.counts,
        parallel=parts.threads,
    ).place_orders()
