"""reconcile: the payment service's scheduled reconciliation with Stripe. This file only puts the parts together."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onecharge.payments.instruments import Instruments
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.reconciliation import Reconciliation
from onecharge.payments.stripe_events import StripeEvents
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.parallel import Threads
from onecharge.runtime.secrets import SecretUnavailable
from reconcile.checkpoint import ReconcileCheckpoint
from reconcile.reconcile import ReconcileCharges

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

STEP_SECONDS = 20
"""One row, one event, one page: as much as a function with this timeout would have for it."""

AT_ONCE = 5
"""Rows, or events of different orders. Most of the time is Stripe's: with 200 to 300 ms for a PaymentIntent, five make
17 to 25 requests a second, and Stripe allows 25 of one kind by default."""


def bounds_of(function_timeout_seconds: int) -> TimeBounds:
    """Short timeouts for each step; but a lease that outlives the function, as every lease does."""
    return replace(TimeBounds.of(STEP_SECONDS), lease_seconds=TimeBounds.of(function_timeout_seconds).lease_seconds)


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._logger = function_logger()
        self.counts = Counts()
        self._threads = Threads(AT_ONCE)
        self._instruments = Instruments(time.time, self._logger, self.counts)
        bounds = bounds_of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        self._reconciliation = Reconciliation(environment, bounds=bounds, instruments=self._instruments)
        dynamodb = self._reconciliation.service.dynamodb
        self._processed = ProcessedEvents(dynamodb, environment["STRIPE_EVENTS_TABLE"])
        self._checkpoints = CheckpointStore(dynamodb, environment["PAYMENTS_STATE_TABLE"], ReconcileCheckpoint)

    def reconcile(self, context: "LambdaContext") -> None:
        """One run, which ends before the invocation does."""
        try:
            charges = self._reconciliation.service.charge_tools()
        except SecretUnavailable:
            self.counts("ReconcileInterrupted")
            self._logger.exception("the Stripe key cannot be read")
            return
        run = ReconcileCharges(
            store=charges.store,
            events=StripeEvents(charges.gateway.client),
            handler=self._reconciliation.event_handler(charges),
            is_processed=self._processed.contains,
            checkpoints=self._checkpoints,
            seconds_left=lambda: context.get_remaining_time_in_millis() / 1000,
            step_seconds=STEP_SECONDS,
            instruments=self._instruments,
            gauge=self.counts.gauge,
            at_once=AT_ONCE,
            parallel=self._threads,
        )
        run()


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Reconcile from where the last run stopped; what the schedule says does not matter."""
    application.reconcile(context)
