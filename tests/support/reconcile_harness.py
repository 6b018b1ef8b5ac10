"""reconcile in one process: scheduled runs one by one, with template.yaml's tables, over Stripe in process."""

from collections import Counter
from dataclasses import dataclass, field

import boto3

from onecharge.payments.reconcile_checkpoint import ReconcileCheckpoint
from onecharge.payments.stripe_events import Received
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.parallel import Parallel, one_after_another
from reconcile.run import ReconcileRun
from tests.support.harness import Log, create_table
from tests.support.payment_service import PaymentService
from tests.support.scripted_stripe import ASKS_FOR_ACTION

RUN_SECONDS = 240.0


@dataclass
class Reconciled(PaymentService):
    """The payment service, and its scheduled run."""

    log: Log = field(kw_only=True)
    gauges: dict[str, float] = field(default_factory=dict)
    seconds_a_request: float = 0
    """What each request to Stripe takes of the invocation's time."""
    parallel: Parallel = one_after_another

    def __post_init__(self) -> None:
        super().__post_init__()
        self.checkpoints = CheckpointStore(self.dynamodb, "payments-state", ReconcileCheckpoint)
        self.received = CheckpointStore(self.dynamodb, "payments-state", Received)

    def run(self, *, after_seconds: int = 0) -> Counter[str]:
        """One run so much later; returns what it has counted."""
        self.now += after_seconds
        self.counted.clear()
        already = len(self.stripe.requests)
        ReconcileRun(
            make_tools=self.reconcile_tools,
            instruments=self.instruments,
            state=self.checkpoints,
            received=self.received,
            seconds_left=lambda: RUN_SECONDS - (len(self.stripe.requests) - already) * self.seconds_a_request,
            gauge=self.gauges.__setitem__,
            parallel=self.parallel,
        ).run()
        return Counter(self.counted)

    def pay_at_the_bank(self, names: str) -> None:
        """The customers of these orders authenticate: Stripe has an event of each, which no row shows."""
        for name in names:
            self.charge(name, card=ASKS_FOR_ACTION)
            self.stripe.show(str(self.row(name).payment_intent_id), "succeeded")

    @property
    def checkpoint(self) -> ReconcileCheckpoint:
        checkpoint = self.checkpoints.read()
        assert checkpoint is not None
        return checkpoint


def reconciled(log: Log) -> Reconciled:
    """Over the AWS that boto3's clients reach, with its tables."""
    dynamodb = boto3.client("dynamodb")
    tables = {"payments": "PaymentsTable", "refunds": "RefundsTable", "payments-state": "PaymentsStateTable"}
    for name, logical_id in tables.items():
        create_table(dynamodb, name, logical_id)
    return Reconciled(dynamodb, log.logger, log=log)
