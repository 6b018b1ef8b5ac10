"""POST /orders/{order_id}/refunds: refund a part of what was paid, or all that is left.

request ─► validate ─► one transaction: the refund stored, its amount reserved on the order ─► 202 PENDING
                              └─ the table's stream ─► publish_events ─► SNS ─► refund_charge
"""

from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from onecharge.contract.events import OrderId
from onecharge.contract.money import AmountMinor
from onecharge.contract.refunds import RefundStatus
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import KeyReused
from onecharge.runtime.http_api import JsonResponse, Problem, Request, ResponseModel, Route, try_again
from orders_api.http import BAD_BODY, REPLAYED, Dependencies, conflict, key_and_body, key_reused, parse
from orders_api.refund_store import ExceedsRefundable, NotPaid, OrderChanged
from orders_api.responses import Timestamp

SCOPE = "onecharge/refund"
"""What the access token of the staff allows. They refund any customer's order; a customer refunds none."""

_TRIES = 3
"""How often the order may be changed by other requests meanwhile, before the client is asked to retry."""


class RefundRequest(BaseModel):
    """The body of POST /orders/{order_id}/refunds. The amount is an integer, in the order's minor unit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    amount: AmountMinor | None = None
    """Left out, it is all that is left."""


class Refund(ResponseModel):
    """A refund of an order, whole or in part."""

    refund_id: str
    status: RefundStatus
    amount: int = Field(description="In the minor unit of the order's currency.")
    requested_at: Timestamp


Refunds = Annotated[list[Refund], Field(description="The oldest first.")]


class AcceptedRefund(Refund):
    """The amount is reserved, and is refunded asynchronously."""

    order_id: OrderId
    currency: str


def refund_order(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Reserve the amount, idempotent by the key; it is refunded asynchronously."""
    key, body = key_and_body(request)
    wanted = parse(RefundRequest, body or "{}", expected="The body does not name an amount that can be refunded.")
    try:
        refund, is_new = _request_refund(request, deps, order_id, wanted, key)
    except (NotPaid, ExceedsRefundable, KeyReused, PydanticCustomError, OrderChanged) as refused:
        raise _problem_of(refused) from None
    deps.count("RefundRequested" if is_new else "RefundReplayed")
    deps.logger.info(
        "refund requested" if is_new else "response replayed: refund requested before",
        extra={
            "order_id": order_id,
            "refund_id": refund.refund_id,
            "requested_by": request.caller.subject,
            "correlation_id": refund.correlation_id,
        },
    )
    # A retry gets the response of the first try, whatever the refund's status is by now.
    shown = {**_view(refund), "status": RefundStatus.PENDING}
    accepted = AcceptedRefund(**shown, order_id=order_id, currency=refund.currency)
    headers = {"X-Correlation-Id": refund.correlation_id, "Location": f"/orders/{order_id}"}
    return request.respond(HTTPStatus.ACCEPTED, accepted, headers | ({} if is_new else REPLAYED))


def _request_refund(
    request: Request, deps: Dependencies, order_id: str, wanted: RefundRequest, key: str
) -> tuple[StoredRefund, bool]:
    """Read the order and store the refund, again if the order is changed in between. Raises as the store."""
    for _ in range(_TRIES):
        order = deps.find_order(order_id)
        try:
            return deps.refunds.request(
                order, wanted.amount, key, correlation_id=request.correlation_id, now=deps.clock()
            )
        except OrderChanged:
            continue
    raise OrderChanged


def _problem_of(refused: Exception) -> Problem:
    match refused:
        case NotPaid(status=status):
            return conflict("not-paid", f"The order is {status}: only what is PAID can be refunded.")
        case ExceedsRefundable():
            return conflict("more-than-is-left", "The amount is more than is left of what was paid.")
        case KeyReused():
            return key_reused(
                "This Idempotency-Key was used for a refund of another amount. Use a new key for a new refund."
            )
        case PydanticCustomError():
            return Problem(HTTPStatus.BAD_REQUEST, "invalid-request", refused.message())
        case _:
            return try_again("The order is being changed. Retry with the same Idempotency-Key.")


def refunds_of(order: StoredOrder, deps: Dependencies) -> list[Refund]:
    """The refunds of the order, the oldest first. Only a paid order has any."""
    refunds = deps.refunds.of_order(order.order_id) if order.status is OrderStatus.PAID else []
    return [Refund(**_view(refund)) for refund in refunds]


def _view(refund: StoredRefund) -> dict[str, Any]:
    return {
        "refund_id": refund.refund_id,
        "status": refund.status,
        "amount": refund.amount_minor,
        "requested_at": refund.requested_at,
    }


ROUTE = Route(
    refund_order,
    "POST",
    "/orders/{order_id}/refunds",
    "Refund a part of what was paid, or all that is left: for the staff, of any customer's order. Idempotent by "
    "Idempotency-Key; refunded asynchronously.",
    HTTPStatus.ACCEPTED,
    AcceptedRefund,
    {
        HTTPStatus.BAD_REQUEST: BAD_BODY,
        HTTPStatus.NOT_FOUND: ("not-found",),
        HTTPStatus.CONFLICT: ("not-paid", "more-than-is-left"),
        HTTPStatus.UNPROCESSABLE_ENTITY: ("idempotency-key-reused",),
    },
    body=RefundRequest,
    is_idempotent_by_key=True,
    returns_location=True,
    scope=SCOPE,
)
