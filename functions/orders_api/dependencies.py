"""What the routes work with. app.py puts it together; a test puts fakes into it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from aws_lambda_powertools import Logger

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.runtime.metrics import Counts
from orders_api.payments import PaymentQuestions
from orders_api.refund_store import OrderRefundStore


@dataclass(frozen=True)
class Dependencies:
    """The stores, the payment service, and what is observed; `clock` gives the present time in UTC."""

    orders: OrderStore
    cancellations: PaymentQuestions
    client_secrets: PaymentQuestions
    refunds: OrderRefundStore
    logger: Logger
    count: Counts
    clock: Callable[[], datetime]

    def find_order_of(self, customer_id: str, order_id: str) -> StoredOrder:
        """The customer's order as it is. Raises NoSuchOrder, also if it is another customer's."""
        require_order_id(order_id)
        return _found(self.orders.find_of(customer_id, order_id))

    def find_any_order(self, order_id: str) -> StoredOrder:
        """The order as it is, for the staff. Raises NoSuchOrder."""
        require_order_id(order_id)
        return _found(self.orders.find(order_id))

    def log(self, message: str, order: StoredOrder) -> None:
        self.logger.info(
            message,
            extra={"order_id": order.order_id, "attempt": order.attempt, "correlation_id": order.correlation_id},
        )


def _found(order: StoredOrder | None) -> StoredOrder:
    if order is None:
        raise NoSuchOrder
    return order


def require_order_id(order_id: str) -> None:
    """Raises NoSuchOrder if no order can have this id."""
    if not re.fullmatch(ORDER_ID_PATTERN, order_id):
        raise NoSuchOrder
