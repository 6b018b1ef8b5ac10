"""One paid order and its refunds, in tables in memory, and the order service's functions that write them."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

from onecharge.contract.events import EventType
from onecharge.contract.refund_events import RefundOutcome, RefundOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.consumer import Done
from onecharge.runtime.dynamodb import from_item, to_item
from orders_api.http import Dependencies
from orders_api.refund_order import RefundRequest, request_refund
from tests.support.fixed_prices import price_of
from tests.support.harness import create_table
from tests.support.one_order import NOW, OneOrder
from tests.support.silent import SILENT
from update_order.refund_outcomes import update_refund


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
        wanted = RefundRequest(amount=amount)
        return request_refund(deps, self.order_id, wanted, key, requested_by="me", correlation_id="c", now=NOW)[0]

    def tell(self, event: RefundOutcomeEvent) -> bool:
        """Handle the event of an outcome; returns whether it changed the refund."""
        self.counted.clear()
        count = self.counted.append
        assert update_refund(event, orders=self.orders, refunds=self.refunds, logger=SILENT, count=count) == Done()
        return self.counted != ["RefundUpdateIgnored"]

    def outcome(
        self,
        refund: StoredRefund,
        kind: str,
        *,
        revision: int = 1,
        total: int = 0,
        seconds: int = 0,
        dispute: str | None = None,
    ) -> bool:
        """Handle an outcome: `refused`, `held` for too little balance, `made`, or `returned` by a bank."""
        is_made = kind in ("held", "made")
        data = RefundOutcome(
            **refund.model_dump(include={"order_id", "refund_id", "attempt", "amount_minor", "currency"}),
            stripe_refund_id=None if kind == "refused" else "re_1",
            failure_code=None if is_made else kind,
            pending_reason="insufficient_funds" if kind == "held" else None,
            amount_refunded_minor=total,
            dispute_status=dispute,
            revision=revision,
            occurred_at=NOW + timedelta(seconds=seconds),
        )
        event_type: Any = EventType.REFUND_SUCCEEDED if is_made else EventType.REFUND_FAILED
        return self.tell(RefundOutcomeEvent.of(event_type, data, correlation_id="c"))

    def stored(self, refund: StoredRefund) -> dict[str, Any]:
        """The refund's item, in plain Python values."""
        key = to_item({"order_id": refund.order_id, "refund_id": refund.refund_id})
        return from_item(self.client.get_item(TableName=self.refunds_table, Key=key, ConsistentRead=True)["Item"])

    def put_back(self, order: StoredOrder) -> None:
        """The order's sums are as they were, whatever happened since."""
        sums = ("pending_refunds_minor", "stripe_refunded_minor", "payment_revision", "refunds_revision")
        self.set_status(order.status, **{name: getattr(order, name) for name in sums})

    @property
    def left(self) -> int:
        return self.order.left_minor
