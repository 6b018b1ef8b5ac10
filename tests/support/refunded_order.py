"""One paid order and its refunds, in tables in memory, and the order service's functions that write them."""

from dataclasses import dataclass, replace
from typing import Any, Self

from onecharge.contract.refund_events import RefundOutcome, RefundOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.refund_store import OrderRefundStore, left_minor
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import from_item, to_item
from orders_api.http import Dependencies
from orders_api.refund_order import RefundRequest, request_refund
from tests.support.fixed_prices import price_of
from tests.support.harness import create_table
from tests.support.one_order import NOW, REQUEST, OneOrder
from tests.support.silent import SILENT
from update_order.refund_outcomes import update_refund

DONE = Done()


@dataclass(frozen=True)
class RefundedOrder(OneOrder):
    """Of 2,500; `refund` is the staff's request, `outcome` what the payment service tells."""

    refunds_table: str = ""

    @classmethod
    def placed(cls) -> Self:
        """The order is paid."""
        shop = super().placed()
        shop.set_status(OrderStatus.PAID)
        return replace(shop, refunds_table=create_table(shop.client, "order-refunds", "OrderRefundsTable"))

    @property
    def refunds(self) -> OrderRefundStore:
        return OrderRefundStore(self.client, self.refunds_table, self.table)

    def refund(self, amount: int | None, key: str) -> StoredRefund:
        deps = Dependencies(self.orders, self.refunds, "s", {}, price_of, SILENT, SILENT, lambda: NOW)
        return request_refund(REQUEST, deps, self.order_id, RefundRequest(amount=amount), key)[0]

    def tell(self, event: RefundOutcomeEvent, becomes: Disposition) -> bool:
        """Handle the event of an outcome; returns whether it changed the refund."""
        self.counted.clear()
        count, before = self.counted.append, self.refunds.of_order(self.order_id)
        assert update_refund(event, orders=self.orders, refunds=self.refunds, logger=SILENT, count=count) == becomes
        return self.refunds.of_order(self.order_id) != before

    def outcome(
        self,
        refund: StoredRefund,
        kind: str,
        *,
        revision: int = 1,
        total: int = 0,
        dispute: str | None = None,
        becomes: Disposition = DONE,
    ) -> bool:
        """Handle an outcome: `refused`, `made`, or `returned` by a bank."""
        data = RefundOutcome(
            **refund.model_dump(include={"order_id", "refund_id", "attempt", "amount_minor", "currency"}),
            stripe_refund_id=None if kind == "refused" else "re_1",
            failure_code=None if kind == "made" else kind,
            amount_refunded_minor=total,
            dispute_status=dispute,
            revision=revision,
            occurred_at=NOW,
        )
        return self.tell(RefundOutcomeEvent.of(data, correlation_id="c"), becomes)

    def stored(self, refund: StoredRefund) -> dict[str, Any]:
        """The refund's item, in plain Python values."""
        key = to_item({"order_id": refund.order_id, "refund_id": refund.refund_id})
        return from_item(self.client.get_item(TableName=self.refunds_table, Key=key, ConsistentRead=True)["Item"])

    def put_back(self, order: StoredOrder) -> None:
        """The order's sums are as they were, whatever happened since."""
        sums = ("stripe_refunded_minor", "payment_revision", "refunds_revision")
        self.set_status(order.status, **{name: getattr(order, name) for name in sums})

    @property
    def left(self) -> int:
        return left_minor(self.order, self.refunds.of_order(self.order_id))
