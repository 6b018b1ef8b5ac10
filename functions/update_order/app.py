"""update_order: from the payment service's events to the Orders table. This file only puts the parts together.

    SQS order-updates ─► onecharge.runtime.consumer ─► payment_outcomes.py ─► one conditional write
                                                       refund_outcomes.py  ─► one transaction

The allowed moves are in onecharge.orders.transitions; a stale or duplicate event changes nothing.
"""

from typing import Any

from onecharge.contract.events import PaymentOutcomeEvent, event_adapter
from onecharge.contract.refund_events import RefundOutcomeEvent
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import OrderStore
from onecharge.runtime.consumer import BatchResponse, Consumer, Disposition
from onecharge.runtime.parts import Context, Parts, lambda_handler, part
from update_order.payment_outcomes import update_order
from update_order.refund_outcomes import update_refund

PAYMENT_EVENT = event_adapter(PaymentOutcomeEvent, RefundOutcomeEvent)
"""Everything that the payment service publishes."""


class UpdateOrderParts(Parts):
    @part
    def orders(self) -> OrderStore:
        return OrderStore(self.dynamodb, self.environment["ORDERS_TABLE"])

    @part
    def refunds(self) -> OrderRefundStore:
        environment = self.environment
        return OrderRefundStore(self.dynamodb, environment["ORDER_REFUNDS_TABLE"], environment["ORDERS_TABLE"])

    @part
    def consumer(self) -> Consumer[PaymentOutcomeEvent | RefundOutcomeEvent]:
        return Consumer.of(self, "ORDER_UPDATES", PAYMENT_EVENT, self.handle)

    def handle(self, event: PaymentOutcomeEvent | RefundOutcomeEvent) -> Disposition:
        """Handle one delivery. Raises PoisonMessage."""
        orders, logger, count = self.orders, self.logger, self.counts
        if isinstance(event, PaymentOutcomeEvent):
            return update_order(event, orders=orders, logger=logger, count=count)
        return update_refund(event, orders=orders, refunds=self.refunds, logger=logger, count=count)


@lambda_handler(UpdateOrderParts)
def handler(parts: UpdateOrderParts, event: dict[str, Any], context: Context) -> BatchResponse:
    """Handle one batch of events; returns the messages that SQS is to deliver again."""
    return parts.consumer.consume(event)
