"""GET /orders/{order_id}: the status of an order, read consistently."""

from http import HTTPStatus

from pydantic import Field

from onecharge.runtime.http_api import JsonResponse, Request, ResponseModel, respond
from orders_api.http import STAFF_SCOPE, Dependencies
from orders_api.refund_order import Refunds, refunds_of
from orders_api.responses import OrderView, order_view


class ItemView(ResponseModel):
    """A line of an order, at the price that it had when the order was placed."""

    sku: str
    quantity: int
    unit_amount: int = Field(description="In the minor unit of the order's currency.")
    amount: int = Field(description="Of all pieces, in the minor unit of the order's currency.")


class OrderDetails(OrderView):
    """The status of an order, with what only this route shows."""

    items: list[ItemView]
    refunds: Refunds
    customer_id: str | None = Field(default=None, description="Only for the staff: whose order it is.")


def get_order(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Get an order: its status, its items, its attempts and its refunds. The staff gets any customer's."""
    is_for_staff = STAFF_SCOPE in request.scopes
    order = deps.find_order(order_id, of=None if is_for_staff else request.subject)
    if is_for_staff:
        deps.log("order read by the staff", order, read_by=request.subject)
    shown = order_view(order).model_dump(exclude_unset=True)
    shown["items"] = [ItemView(**item.model_dump(), amount=item.amount_minor) for item in order.items]
    shown["refunds"] = refunds_of(order, deps)
    if is_for_staff:
        shown["customer_id"] = order.customer_id
    return respond(HTTPStatus.OK, OrderDetails(**shown), order.correlation_id)
