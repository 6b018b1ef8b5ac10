"""reconcile: the payment service's scheduled reconciliation with Stripe. This file only puts the parts together."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onecharge.payments.instruments import Instruments
from onecharge.payments.reconcile_checkpoint import ReconcileCheckpoint
from onecharge.payments.service import PaymentService
from onecharge.payments.stripe_events import Received
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.parallel import Threads
from reconcile.run import IN_PARALLEL, STEP_SECONDS, ReconcileRun

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


def bounds_of(function_timeout_seconds: int) -> TimeBounds:
    """Short timeouts for each step. The lease must outlive the function, as always."""
    return replace(TimeBounds.of(STEP_SECONDS), lease_seconds=TimeBounds.of(function_timeout_seconds).lease_seconds)


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts()
        self._threads = Threads(IN_PARALLEL)
        self._instruments = Instruments(time.time, function_logger(), self.counts)
        bounds = bounds_of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        self._service = PaymentService(environment, bounds=bounds, instruments=self._instruments)
        table = environment["PAYMENTS_STATE_TABLE"]
        self._state = CheckpointStore(self._service.dynamodb, table, ReconcileCheckpoint)
        self._received = CheckpointStore(self._service.dynamodb, table, Received)

    def reconcile(self, context: "LambdaContext") -> None:
        """One run, which ends before the invocation does."""
        ReconcileRun(
            make_tools=self._service.tools,
            instruments=self._instruments,
            state=self._state,
            received=self._received,
            seconds_left=lambda: context.get_remaining_time_in_millis() / 1000,
            gauge=self.counts.gauge,
            parallel=self._threads,
        ).run()


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Reconcile from where the last run stopped; what the schedule says does not matter."""
    application.reconcile(context)
