"""refund_charge: makes refunds, fed by the refunds queue. This file only puts the parts together.

SQS message ─► Consumer ─► payments/refund.py ─► Stripe ─► SNS payment-events
"""

from typing import Any

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.payments.parts import SyncParts
from onecharge.payments.refund import refund
from onecharge.runtime.consumer import BatchResponse, Consumer
from onecharge.runtime.parts import Context, lambda_handler, part
from onecharge.runtime.queues import Queue


class RefundChargeParts(SyncParts):
    @part
    def consumer(self) -> Consumer[RefundRequestedEvent]:
        return Consumer(
            model=RefundRequestedEvent,
            # A Stripe key that cannot be read is an outage: each message backs off.
            handle=lambda event: refund(event, self.tools()),
            queue=Queue(lambda: self.sqs, self.environment["REFUNDS_QUEUE_URL"], self.environment["REFUNDS_DLQ_URL"]),
            logger=self.logger,
            count=self.counts,
        )


@lambda_handler(RefundChargeParts)
def handler(parts: RefundChargeParts, event: dict[str, Any], context: Context) -> BatchResponse:
    """Make the refunds of one batch; returns the messages that SQS is to deliver again."""
    return parts.consumer.consume(event, context)
