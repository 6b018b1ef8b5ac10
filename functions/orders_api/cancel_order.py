"""POST /orders/{order_id}/cancel: cancel an order unless it is paid.

    the order's status                                     ─► one conditional write ─► response
      PENDING, REQUIRES_ACTION, PAYMENT_DECLINED                CANCELING                202
      CANCELING, CANCELED                                       none                     202, 200
      PAID                                                      none                     409

The stored item publishes CancelRequested. The payment service cancels at Stripe, which decides the race with a charge,
and the outcome makes the order CANCELED or PAID.
"""

from datetime import datetime
from http import HTTPStatus

from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStatusConflict, OrderStore
from onecharge.orders.transitions import CANCEL
from onecharge.runtime.http_api import JsonResponse, Request, respond
from orders_api.http import Dependencies, conflict
from orders_api.responses import order_view


def cancel_order(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Cancel an order unless it is paid. 202: it is stored, and the order becomes CANCELED or PAID. Idempotent."""
    order, is_new = request_cancellation(deps.orders, request.subject, order_id, now=deps.clock())
    if is_new:
        deps.log("cancellation requested", order)
    elif order.status is OrderStatus.PAID:
        raise conflict("already-paid", "The order is paid. It can be refunded, not canceled.")
    status = HTTPStatus.OK if order.status is OrderStatus.CANCELED else HTTPStatus.ACCEPTED
    return respond(status, order_view(order), order.correlation_id)


def request_cancellation(
    orders: OrderStore, customer_id: str, order_id: str, *, now: datetime
) -> tuple[StoredOrder, bool]:
    """Write that the order is CANCELING, if its status allows it; returns the order, and whether that was written.

    Raises NoSuchOrder, OrderStatusConflict.
    """
    try:
        item = orders.move(
            order_id,
            CANCEL,
            at=now,
            of=customer_id,
            changes={"cancel_requested_at": ":now"},
            values={":now": now.isoformat()},
        )
    except OrderStatusConflict as conflicting:
        if conflicting.status in CANCEL.origins:  # What was not stored is not answered as accepted.
            raise
        return conflicting.order, False
    return StoredOrder.from_item(item), True
