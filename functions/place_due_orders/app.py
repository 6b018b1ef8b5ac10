"""place_due_orders: invoices and subscriptions that are due, on a schedule. This file only puts the parts together."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from onecharge.runtime.aws import dynamodb_client
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.parallel import Threads
from place_due_orders.documents import DueDocumentStore
from place_due_orders.due import AT_ONCE, ONE_STEP_SECONDS, DueRun

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._logger, self.counts = function_logger(), Counts()
        self._threads = Threads(AT_ONCE)
        dynamodb = dynamodb_client()
        self._documents = DueDocumentStore(dynamodb, environment["DUE_DOCUMENTS_TABLE"], environment["ORDERS_TABLE"])

    def place_due_orders(self, context: "LambdaContext") -> None:
        """One run, which ends before the invocation does."""
        DueRun(
            documents=self._documents,
            clock=partial(datetime.now, UTC),
            has_time=lambda: context.get_remaining_time_in_millis() / 1000 >= ONE_STEP_SECONDS,
            run_id=context.aws_request_id,
            logger=self._logger,
            count=self.counts,
            parallel=self._threads,
        ).place_orders()


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Order what is due by now; the content of the schedule's event is ignored."""
    application.place_due_orders(context)
