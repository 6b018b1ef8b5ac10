"""place_due_orders: invoices and subscriptions that are due, on a schedule. This file only puts the parts together."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics

from onecharge.runtime.aws import aws_client, client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.parallel import Threads
from place_due_orders.due import ONE_STEP_SECONDS, PlaceDueOrders
from place_due_orders.store import DueDocumentStore

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

AT_ONCE = 4
"""Documents. All of a day are in one partition of their table, which takes 1,000 write units a second, and each is two
in a transaction: 500 a second is the end of it, however many are ordered at once."""


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._logger = function_logger()
        self._threads = Threads(AT_ONCE)
        self.counts = Counts(Metrics())
        dynamodb = aws_client("dynamodb", config=client_config())
        self._documents = DueDocumentStore(dynamodb, environment["DUE_DOCUMENTS_TABLE"], environment["ORDERS_TABLE"])

    def place_due_orders(self, context: "LambdaContext") -> None:
        """One run, which ends before the invocation does."""
        PlaceDueOrders(
            documents=self._documents,
            clock=partial(datetime.now, UTC),
            has_time=lambda: context.get_remaining_time_in_millis() / 1000 >= ONE_STEP_SECONDS,
            at_once=AT_ONCE,
            parallel=self._threads,
            run_id=context.aws_request_id,
            logger=self._logger,
            count=self.counts,
        )()


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Order what is due by now; the content of the schedule's event is ignored."""
    application.place_due_orders(context)
