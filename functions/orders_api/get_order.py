"""GET /orders/{order_id}: the status of an order, read consistently."""

from http import HTTPStatus

from onecharge.runtime.http_api import JsonResponse, Request, Route
from orders_api.http import Dependencies
from orders_api.refund_order import Refunds, refunds_of
from orders_api.responses import OrderView, order_view


class OrderDetails(OrderView):
    """The status of an order, with what only this route shows."""

    refunds: Refunds


def get_order(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Show the order, and its refunds."""
    order = deps.find_order(order_id, of=request.customer_id)
    shown = OrderDetails(**order_view(order).model_dump(exclude_unset=True), refunds=refunds_of(order, deps))
    return request.respond(HTTPStatus.OK, shown, {"X-Correlation-Id": order.correlation_id})


ROUTE = Route(
    get_order,
    "GET",
    "/orders/{order_id}",
    "Get an order: its status, its attempts and its refunds.",
    HTTPStatus.OK,
    OrderDetails,
    {HTTPStatus.NOT_FOUND: ("not-found",)},
)
