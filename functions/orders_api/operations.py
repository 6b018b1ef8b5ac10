"""The API's operations, each said once: the resolver's routes and docs/openapi.json are both made from this table."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from pydantic import BaseModel

from orders_api.orders import OrderRequest, PaymentRequest
from orders_api.pagination import OrdersQuery
from orders_api.refunds import RefundRequest
from orders_api.responses import AcceptedOrder, AcceptedRefund, Order, OrderList, OrderWithRefunds

IDEMPOTENCY_KEY_PATTERN = r"^[!-~]{1,255}$"
"""Visible ASCII without spaces, no longer than Stripe allows for its own keys."""

_BAD_REQUEST, _NOT_FOUND, _CONFLICT = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT


@dataclass(frozen=True)
class Operation:
    """One method of one path: its input, and every response that it may have."""

    handler: str
    """Name of the method of OrdersApi that handles it; the document's operationId."""
    method: str
    path: str
    """As OpenAPI and template.yaml write it: /orders/{order_id}."""
    summary: str
    status: HTTPStatus
    """Of the response when all is well."""
    response: type[BaseModel]
    problems: Mapping[HTTPStatus, tuple[str, ...]]
    """The kinds of problem that it is refused with, by status, besides COMMON_PROBLEMS."""
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    is_idempotent_by_key: bool = False
    """Takes the header Idempotency-Key; Idempotent-Replayed marks the replay of an earlier response."""
    returns_location: bool = False
    """Has the header Location."""
    is_sometimes_accepted: bool = False
    """May also respond 202, with the same model: taken, and finished asynchronously."""

    @property
    def route(self) -> str:
        """The path as Powertools writes it: /orders/<order_id>."""
        return self.path.replace("{", "<").replace("}", ">")


COMMON_PROBLEMS: Mapping[HTTPStatus, tuple[str, ...]] = {
    HTTPStatus.INTERNAL_SERVER_ERROR: ("internal",),
    HTTPStatus.SERVICE_UNAVAILABLE: ("try-again",),
}
"""What any operation may respond when something of ours or of AWS's fails. Retrying is safe."""

_BAD_BODY = ("idempotency-key-missing", "card-number", "invalid-json", "invalid-request")

OPERATIONS = (
    Operation(
        "place_order",
        "POST",
        "/orders",
        "Create an order. Idempotent by Idempotency-Key; charged asynchronously.",
        HTTPStatus.ACCEPTED,
        AcceptedOrder,
        {_BAD_REQUEST: _BAD_BODY, HTTPStatus.UNPROCESSABLE_ENTITY: ("idempotency-key-reused",)},
        body=OrderRequest,
        is_idempotent_by_key=True,
        returns_location=True,
    ),
    Operation(
        "list_orders",
        "GET",
        "/orders",
        "List a customer's orders, the newest first, page by page. Eventually consistent.",
        HTTPStatus.OK,
        OrderList,
        {_BAD_REQUEST: ("invalid-request",)},
        query=OrdersQuery,
    ),
    Operation(
        "get_order",
        "GET",
        "/orders/{order_id}",
        "Get the status of an order, and its refunds.",
        HTTPStatus.OK,
        OrderWithRefunds,
        {_NOT_FOUND: ("not-found",)},
    ),
    Operation(
        "pay_again",
        "POST",
        "/orders/{order_id}/payments",
        "Make another attempt to pay a declined order, with another card. Idempotent by Idempotency-Key: one that has "
        "made an attempt never makes another.",
        HTTPStatus.ACCEPTED,
        AcceptedOrder,
        {
            _BAD_REQUEST: _BAD_BODY,
            _NOT_FOUND: ("not-found",),
            _CONFLICT: ("not-declined", "attempts-exhausted", "payment-method-refused"),
            HTTPStatus.UNPROCESSABLE_ENTITY: ("idempotency-key-reused",),
        },
        body=PaymentRequest,
        is_idempotent_by_key=True,
    ),
    Operation(
        "cancel_order",
        "POST",
        "/orders/{order_id}/cancel",
        "Cancel an order unless it is paid. 202: the cancellation is stored, nothing is confirmed from now on, and the "
        "order becomes CANCELED or PAID by itself. Idempotent.",
        HTTPStatus.OK,
        Order,
        {_NOT_FOUND: ("not-found",), _CONFLICT: ("already-paid", "needs-review")},
        is_sometimes_accepted=True,
    ),
    Operation(
        "refund_order",
        "POST",
        "/orders/{order_id}/refunds",
        "Refund a part of what was paid, or all that is left. Idempotent by Idempotency-Key; refunded asynchronously.",
        HTTPStatus.ACCEPTED,
        AcceptedRefund,
        {
            _BAD_REQUEST: _BAD_BODY,
            _NOT_FOUND: ("not-found",),
            _CONFLICT: ("not-paid", "more-than-is-left"),
            HTTPStatus.UNPROCESSABLE_ENTITY: ("idempotency-key-reused",),
        },
        body=RefundRequest,
        is_idempotent_by_key=True,
        returns_location=True,
    ),
)
