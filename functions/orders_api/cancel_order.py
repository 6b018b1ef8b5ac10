"""POST /orders/{order_id}/cancel: cancel an order unless it is paid.

    the order's status ─► ask the payment service (onecharge.contract.questions) ─► one conditional write ─► response
      PAID, NEEDS_REVIEW                                 PAID, NEEDS_REVIEW                                  409
      CANCELED                                           CANCELED                                            200
      any other                                          CANCELING: it finishes asynchronously               202

While CANCELING, the stored item publishes CancelRequested, so that the cancellation finishes without another request.
"""

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus

from onecharge.contract.questions import CancelAnswer, Cancellation, CancelQuestion
from onecharge.contract.states import OrderStatus
from onecharge.orders.cancellations import CANCELLATIONS
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStatusConflict, OrderStore
from orders_api.dependencies import Dependencies
from orders_api.http import JsonResponse, Request, Route, conflict
from orders_api.payments import PaymentQuestions
from orders_api.responses import Order, order_view

_REFUSED: Mapping[str, tuple[str, str]] = {
    Cancellation.PAID: ("already-paid", "The order is paid. It can be refunded, not canceled."),
    Cancellation.NEEDS_REVIEW: ("needs-review", "A person is reviewing this payment."),
}
"""Why an order is not canceled, by the payment service's answer, which is also the order's status."""

_DECIDED = frozenset({OrderStatus.PAID, OrderStatus.NEEDS_REVIEW, OrderStatus.CANCELED})
"""With these the payment service is not asked; an order that changes meanwhile has one of them."""


def cancel_order(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Cancel the order unless it is paid. Idempotent; each request asks again until it is finished."""
    order = deps.find_order_of(request.customer_id, order_id)
    if order.status not in _DECIDED:
        order = _canceled(deps, order)
    if order.status in _REFUSED:
        raise conflict(*_REFUSED[order.status])
    is_finished = order.status is OrderStatus.CANCELED
    return request.respond(
        HTTPStatus.OK if is_finished else HTTPStatus.ACCEPTED,
        order_view(order),
        {"X-Correlation-Id": order.correlation_id},
    )


def _canceled(deps: Dependencies, order: StoredOrder) -> StoredOrder:
    """The order as the payment service's answer leaves it, or as an outcome left it that was written before."""
    cancellation = ask_to_cancel(deps.cancellations, order)
    if cancellation in _REFUSED:
        raise conflict(*_REFUSED[cancellation])
    try:
        canceled = store_cancellation(deps.orders, order, OrderStatus(cancellation), now=deps.clock())
    except OrderStatusConflict as conflicting:
        return conflicting.order
    is_finished = canceled.status is OrderStatus.CANCELED
    deps.count("OrderCanceled" if is_finished else "OrderCanceling")
    deps.log("order canceled" if is_finished else "cancellation stored: it finishes asynchronously", canceled)
    return canceled


def ask_to_cancel(questions: PaymentQuestions, order: StoredOrder) -> Cancellation:
    """Cancel the payment of this order unless it is paid. Raises as PaymentQuestions.ask."""
    question = CancelQuestion(order=order.present_attempt, correlation_id=order.correlation_id)
    return questions.ask(question, CancelAnswer).cancellation


def store_cancellation(orders: OrderStore, order: StoredOrder, status: OrderStatus, *, now: datetime) -> StoredOrder:
    """Write that the order is CANCELING or CANCELED, as the payment service has answered for all its attempts.

    Raises NoSuchOrder, OrderStatusConflict.
    """
    is_finished = status is OrderStatus.CANCELED
    # The time of the first request: it has waited since then.
    requested = {"cancel_requested_at": "if_not_exists(cancel_requested_at, :now)"}
    item = orders.move(
        order.order_id,
        CANCELLATIONS[status],
        at=now,
        of=order.customer_id,
        changes={} if is_finished else requested,
        values={} if is_finished else {":now": now.isoformat()},
    )
    return StoredOrder.from_item(item)


ROUTE = Route(
    cancel_order,
    "POST",
    "/orders/{order_id}/cancel",
    "Cancel an order unless it is paid. 202: the cancellation is stored, nothing is confirmed from now on, and the "
    "order becomes CANCELED or PAID by itself. Idempotent.",
    HTTPStatus.OK,
    Order,
    {HTTPStatus.NOT_FOUND: ("not-found",), HTTPStatus.CONFLICT: ("already-paid", "needs-review")},
    is_sometimes_accepted=True,
)
