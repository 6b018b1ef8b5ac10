"""reconcile: the payment service's scheduled reconciliation with Stripe. This file only puts the parts together."""

from typing import Any

from onecharge.payments.parts import SyncParts
from onecharge.payments.stripe_events import Received, ReconcileCheckpoint
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.parallel import Threads
from onecharge.runtime.parts import Context, lambda_handler, part
from reconcile.run import IN_PARALLEL, STEP_SECONDS, ReconcileRun


class ReconcileParts(SyncParts):
    @part
    def bounds(self) -> TimeBounds:
        return TimeBounds(STEP_SECONDS)

    @part
    def threads(self) -> Threads:
        return Threads(IN_PARALLEL)


@lambda_handler(ReconcileParts)
def handler(parts: ReconcileParts, event: dict[str, Any], context: Context) -> None:
    """Reconcile from where the last run stopped; what the schedule says does not matter."""
    ReconcileRun(
        make_tools=parts.tools,
        state=parts.checkpoints(ReconcileCheckpoint),
        received=parts.checkpoints(Received),
        seconds_left=lambda: context.get_remaining_time_in_millis() / 1000,
        logger=parts.logger,
        counts=parts.counts,
        parallel=parts.threads,
    ).run()
