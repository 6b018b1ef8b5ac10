"""reconcile in one process: scheduled runs one by one, with template.yaml's tables, over a Stripe in memory."""

from collections import Counter
from dataclasses import dataclass, field

import boto3

from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.stripe_events import StripeEvents
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.parallel import Parallel, one_after_another
from reconcile.checkpoint import ReconcileCheckpoint
from reconcile.reconcile import ReconcileCharges
from testing.harness import Log, create_table
from testing.payment_service import PaymentService

RUN_SECONDS = 240.0
STEP_SECONDS = 20.0


@dataclass
class ReconcileHarness:
    """The payment service, and its scheduled run."""

    payments: PaymentService
    checkpoints: CheckpointStore[ReconcileCheckpoint]
    log: Log
    gauges: dict[str, float] = field(default_factory=dict)
    seconds_a_request: float = 0
    """What each request to Stripe takes of the invocation's time."""
    at_once: int = 1
    parallel: Parallel = one_after_another

    @property
    def processed(self) -> ProcessedEvents:
        return ProcessedEvents(boto3.client("dynamodb"), "stripe-events")

    def run(self, *, after_seconds: int = 0) -> Counter[str]:
        """One run so much later; returns what it has counted."""
        self.payments.now += after_seconds
        self.payments.counted.clear()
        already = len(self.payments.stripe.asked)

        def seconds_left() -> float:
            return RUN_SECONDS - (len(self.payments.stripe.asked) - already) * self.seconds_a_request

        ReconcileCharges(
            store=self.payments.store,
            events=StripeEvents(self.payments.gateway.client),
            handler=self.payments.events,
            is_processed=self.processed.contains,
            checkpoints=self.checkpoints,
            seconds_left=seconds_left,
            step_seconds=STEP_SECONDS,
            instruments=self.payments.instruments,
            gauge=self.gauges.__setitem__,
            at_once=self.at_once,
            parallel=self.parallel,
        )()
        return Counter(self.payments.counted)

    @property
    def checkpoint(self) -> ReconcileCheckpoint:
        checkpoint = self.checkpoints.read()
        assert checkpoint is not None
        return checkpoint


def reconcile_harness(log: Log) -> ReconcileHarness:
    """Over the AWS that boto3's clients reach: create the tables first."""
    dynamodb = boto3.client("dynamodb")
    create_table(dynamodb, "payments", "PaymentsTable")
    create_table(dynamodb, "refunds", "RefundsTable")
    create_table(dynamodb, "stripe-events", "StripeEventsTable")
    create_table(dynamodb, "payments-state", "PaymentsStateTable")
    return ReconcileHarness(
        PaymentService(dynamodb, log.logger),
        CheckpointStore(dynamodb, "payments-state", ReconcileCheckpoint),
        log,
    )
