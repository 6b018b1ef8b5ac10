"""charge_order: charges orders, fed by the payments queue. This file only puts the parts together.

SQS message ─► Consumer ─► payments/deliveries.py ─► claim ─► charge ─► finalize
               (runtime)
"""

from typing import Any

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent, event_adapter
from onecharge.payments.deliveries import OrderEvent, handle
from onecharge.payments.parts import PaymentParts
from onecharge.runtime.consumer import BatchResponse, Consumer
from onecharge.runtime.parts import Context, lambda_handler, part

ORDER_EVENT = event_adapter(OrderPlacedEvent, CancelRequestedEvent)
"""Every event on the payments queue."""


class ChargeOrderParts(PaymentParts):
    @part
    def consumer(self) -> Consumer[OrderEvent]:
        # A Stripe key that cannot be read is an outage: each message backs off.
        return Consumer.of(self, "PAYMENTS", ORDER_EVENT, lambda event: handle(event, self.tools()))


@lambda_handler(ChargeOrderParts)
def handler(parts: ChargeOrderParts, event: dict[str, Any], context: Context) -> BatchResponse:
    """Charge the orders of one batch; returns the messages that SQS is to deliver again."""
    return parts.consumer.consume(event)
