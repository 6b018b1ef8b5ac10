"""refund_charge: makes refunds, fed by the refunds queue. This file only puts the parts together.

SQS message ─► Consumer ─► RefundCharge ─► RefundStore: claim ─► RefundWorker ─► Turn ────────► Stripe ─► finalize
               (runtime)   refund.py       payments/refunds/store.py  …/worker.py  stripe_limit.py
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.service import Refunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.service import PaymentService
from onecharge.payments.stripe_limit import SharedRate
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import Turn
from onecharge.runtime.aws import aws_client, impatient_config
from onecharge.runtime.consumer import Batch, Disposition, Handle, queue_consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from refund_charge.refund import RefundCharge

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext

REQUESTS_OF_A_REFUND = 3
"""To Stripe, at most, unless something was refunded by hand meanwhile: a lookup before, the refund, a lookup after."""


class Application:
    """Everything that outlives an invocation: clients with their connections, threads, derived time bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        self.counts = Counts(Metrics())
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        instruments = Instruments(time.time, logger, self.counts)
        self._service = PaymentService(environment, bounds=bounds, instruments=instruments)
        self._store = RefundStore(self._service.dynamodb, environment["REFUNDS_TABLE"])
        impatient = aws_client("dynamodb", config=impatient_config())
        self._rate = SharedRate.of(
            environment, "refund_charge", requests=REQUESTS_OF_A_REFUND, client=impatient, instruments=instruments
        )
        self.consumer = queue_consumer(
            model=RefundRequestedEvent,
            handler=self._handler,
            queue_url=environment["REFUNDS_QUEUE_URL"],
            dlq_url=environment["REFUNDS_DLQ_URL"],
            logger=logger,
            count=self.counts,
            record_seconds=bounds.record_seconds,
        )

    def _handler(self, batch: Batch[RefundRequestedEvent]) -> Handle[RefundRequestedEvent]:
        """What handles the events of one batch."""
        turns = self._rate.turns(batch.at_once, seconds_left=batch.seconds_left, bounds=self._service.bounds)

        def handle_one(event: RefundRequestedEvent) -> Disposition:
            with turns.turn() as turn:
                # With the Stripe key as it is now. A key that cannot be read is an outage: each message backs off.
                return self._refund_charge(turn)(event)

        return handle_one

    def _refund_charge(self, turn: Turn) -> RefundCharge:
        bounds, instruments = self._service.bounds, self._service.instruments
        # One client for the whole delivery: a lookup proves nothing about another account.
        refunds = Refunds(self._store, self._service.stripe.client(), bounds, instruments, turn)
        return RefundCharge(refunds, self._service.store)


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Make the refunds of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
