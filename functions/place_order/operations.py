"""The API's operations, each said once: the resolver's routes and docs/openapi.json are both made from this table."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from pydantic import BaseModel

from place_order.answers import AcceptedOrder, AcceptedRefund, Order, OrderList, OrderWithRefunds
from place_order.orders import OrderRequest, PaymentRequest
from place_order.pages import OrdersQuery
from place_order.refunds import RefundRequest

IDEMPOTENCY_KEY_PATTERN = r"^[!-~]{1,255}$"
"""Visible ASCII without spaces, no longer than Stripe allows for its own keys."""

_BAD_REQUEST, _NOT_FOUND, _CONFLICT = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT


@dataclass(frozen=True)
class Operation:
    """One method of one path, what it takes and everything that it may answer."""

    handler: str
    """Name of the method of OrdersApi that answers it; the document's operationId."""
    method: str
    path: str
    """As OpenAPI and template.yaml write it: /orders/{order_id}."""
    summary: str
    status: HTTPStatus
    """Of the answer when all is well."""
    answer: type[BaseModel]
    problems: Mapping[HTTPStatus, tuple[str, ...]]
    """The kinds of problem that it is refused with, by status; EVERYWHERE comes on top."""
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    is_idempotent_by_key: bool = False
    """Takes the header Idempotency-Key, and says in Idempotent-Replayed that an earlier try was found."""
    makes_a_resource: bool = False
    """Answers with a Location."""

    @property
    def route(self) -> str:
        """The path as Powertools writes it: /orders/<order_id>."""
        return self.path.replace("{", "<").replace("}", ">")


EVERYWHERE: Mapping[HTTPStatus, tuple[str, ...]] = {
    HTTPStatus.INTERNAL_SERVER_ERROR: ("internal",),
    HTTPStatus.SERVICE_UNAVAILABLE: ("try-again",),
}
"""What any operation may come to when something of ours or of AWS's fails. Asking again is safe."""

_BAD_BODY = ("idempotency-key-missing", "card-number", "invalid-json", "invalid-request")

OPERATIONS = (
    Operation(
        "place_order",
        "POST",
        "/orders",
        "Place an order, once however often it is asked with the same key; its charge follows on its own.",
        HTTPStatus.ACCEPTED,
        AcceptedOrder,
        {_BAD_REQUEST: _BAD_BODY, HTTPStatus.UNPROCESSABLE_ENTITY: ("idempotency-key-reused",)},
        body=OrderRequest,
        is_idempotent_by_key=True,
        makes_a_resource=True,
    ),
    Operation(
        "list_orders",
        "GET",
        "/orders",
        "A customer's orders, the newest first, page by page; a moment behind what was just placed.",
        HTTPStatus.OK,
        OrderList,
        {_BAD_REQUEST: ("invalid-request",)},
        query=OrdersQuery,
    ),
    Operation(
        "get_order",
        "GET",
        "/orders/{order_id}",
        "Where an order stands, and what was refunded of it.",
        HTTPStatus.OK,
        OrderWithRefunds,
        {_NOT_FOUND: ("not-found",)},
    ),
    Operation(
        "pay_again",
        "POST",
        "/orders/{order_id}/payments",
        "Try another card, after the one before was declined; once however often it is asked with the same key.",
        HTTPStatus.ACCEPTED,
        AcceptedOrder,
        {_BAD_REQUEST: _BAD_BODY, _NOT_FOUND: ("not-found",), _CONFLICT: ("not-declined",)},
        body=PaymentRequest,
        is_idempotent_by_key=True,
    ),
    Operation(
        "cancel_order",
        "POST",
        "/orders/{order_id}/cancel",
        "Cancel an order unless it is paid; asked again, the answer is the same.",
        HTTPStatus.OK,
        Order,
        {_NOT_FOUND: ("not-found",), _CONFLICT: ("already-paid", "needs-review", "payment-in-progress")},
    ),
    Operation(
        "refund_order",
        "POST",
        "/orders/{order_id}/refunds",
        "Refund a part of what was paid, or all that is left; once however often it is asked with the same key.",
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
        makes_a_resource=True,
    ),
)
