"""refund_charge: makes refunds, fed by the refunds queue. This file only puts the parts together.

SQS message ─► Consumer ─► payments/refund.py ─► Stripe ─► SNS payment-events
"""

from typing import Any

from onecharge.contract.refund_events import RefundRequestedEvent
from onecharge.payments.parts import SyncParts
from onecharge.payments.refund import refund
from onecharge.runtime.consumer import BatchResponse, Consumer
from onecharge.runtime.parts import Context, lambda_handler, part


class RefundChargeParts(SyncParts):
    @part
    def consumer(self) -> Consumer[RefundRequestedEvent]:
        # A Stripe key that cannot be read is an outage: each message backs off.
        return Consumer.of(self, "REFUNDS", RefundRequestedEvent, lambda event: refund(event, self.tools()))


@lambda_handler(RefundChargeParts)
def handler(parts: RefundChargeParts, event: dict[str, Any], context: Context) -> BatchResponse:
    """Make the refunds of one batch; returns the messages that SQS is to deliver again."""
    return parts.consumer.consume(event)
