"""GET /orders/{order_id}: the status of an order, read consistently."""

from http import HTTPStatus
from typing import Any

from orders_api.client_secret import ClientSecret, client_secret_of
from orders_api.dependencies import Dependencies
from orders_api.http import JsonResponse, Request, Route
from orders_api.refund_order import Refunds, refunds_of
from orders_api.responses import Order, order_view


class OrderDetails(Order):
    """The status of an order, with what only this route shows."""

    client_secret: ClientSecret = None
    refunds: Refunds


def get_order(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Show the order, with the details that only this route shows."""
    order = deps.find_order_of(request.customer_id, order_id)
    details: dict[str, Any] = {}
    details |= client_secret_of(order, deps)
    details |= refunds_of(order, deps)
    shown = OrderDetails(**order_view(order).model_dump(exclude_unset=True), **details)
    return request.respond(HTTPStatus.OK, shown, {"X-Correlation-Id": order.correlation_id})


ROUTE = Route(
    get_order,
    "GET",
    "/orders/{order_id}",
    "Get an order: its status and its attempts, and its details.",
    HTTPStatus.OK,
    OrderDetails,
    {HTTPStatus.NOT_FOUND: ("not-found",)},
)
