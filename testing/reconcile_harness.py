"""reconcile in one process: scheduled runs one by one, with template.yaml's tables, over a Stripe in memory."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import boto3

from onecharge.payments.stripe_events import Received
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.parallel import Parallel, one_after_another
from reconcile.run import ReconcileCheckpoint, ReconcileRun
from testing.harness import Log, create_table
from testing.payment_service import PaymentService

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RUN_SECONDS = 240.0


@dataclass
class ReconcileHarness:
    """The payment service, and its scheduled run."""

    payments: PaymentService
    checkpoints: CheckpointStore[ReconcileCheckpoint]
    received: CheckpointStore[Received]
    log: Log
    gauges: dict[str, float] = field(default_factory=dict)
    seconds_a_request: float = 0
    """What each request to Stripe takes of the invocation's time."""
    parallel: Parallel = one_after_another

    def run(self, *, after_seconds: int = 0) -> Counter[str]:
        """One run so much later; returns what it has counted."""
        self.payments.now += after_seconds
        self.payments.counted.clear()
        already = len(self.payments.stripe.asked)

        def seconds_left() -> float:
            return RUN_SECONDS - (len(self.payments.stripe.asked) - already) * self.seconds_a_request

        ReconcileRun(
            make_tools=self.payments.reconcile_tools,
            instruments=self.payments.instruments,
            state=self.checkpoints,
            received=self.received,
            seconds_left=seconds_left,
            gauge=self.gauges.__setitem__,
            parallel=self.parallel,
        ).run()
        return Counter(self.payments.counted)

    @property
    def checkpoint(self) -> ReconcileCheckpoint:
        checkpoint = self.checkpoints.read()
        assert checkpoint is not None
        return checkpoint


def reconcile_harness(log: Log) -> ReconcileHarness:
    """Over the AWS that boto3's clients reach: create the tables first."""
    dynamodb: DynamoDBClient = boto3.client("dynamodb")
    create_table(dynamodb, "payments", "PaymentsTable")
    create_table(dynamodb, "refunds", "RefundsTable")
    create_table(dynamodb, "payments-state", "PaymentsStateTable")
    return ReconcileHarness(
        PaymentService(dynamodb, log.logger),
        CheckpointStore(dynamodb, "payments-state", ReconcileCheckpoint),
        CheckpointStore(dynamodb, "payments-state", Received),
        log,
    )
