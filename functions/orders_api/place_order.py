"""POST /orders: an order starts here.

    request ─► refuse card numbers ─► validate ─► one conditional write ─► 202 PENDING
                                                        └─ the table's stream ─► publish_events ─► SNS ─► charge_order

The order's id derives from the customer and the idempotency key (onecharge.orders.ids), so a retry finds the order that
the first try stored. The function does nothing else: the stored item is the outbox (onecharge.orders.schema).
"""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from onecharge.contract.events import PaymentMethodId
from onecharge.contract.money import MAX_AMOUNT_MINOR, AmountMinor, Currency, require_chargeable, require_minimum
from onecharge.orders.ids import digest_of, fingerprint_of, order_id_of
from onecharge.orders.schema import StoredOrder, new_order_item
from onecharge.orders.store import OrderStore
from onecharge.runtime.http_api import JsonResponse, Request, Route
from orders_api.http import BAD_BODY, REPLAYED, Dependencies, key_and_body, key_reused, parse
from orders_api.responses import AcceptedOrder, accepted_order


class OrderLine(BaseModel):
    """One line of an order."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sku: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,64}$")]
    quantity: Annotated[int, Field(ge=1, le=10_000)]
    unit_amount: AmountMinor


class OrderRequest(BaseModel):
    """The body of POST /orders. Amounts are integers, in the minor unit of the currency."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    currency: Currency
    payment_method: PaymentMethodId
    items: Annotated[list[OrderLine], Field(min_length=1, max_length=100)]

    @property
    def amount_minor(self) -> int:
        return sum(line.quantity * line.unit_amount for line in self.items)

    @property
    def fingerprint(self) -> str:
        """See fingerprint_of."""
        return fingerprint_of(self)

    @model_validator(mode="after")
    def _amount_can_be_charged(self) -> Self:
        if self.amount_minor > MAX_AMOUNT_MINOR:
            raise PydanticCustomError("amount_too_large", "The order's amount is larger than can be charged at once")
        require_chargeable(self.amount_minor, self.currency)
        require_minimum(self.amount_minor, self.currency)
        return self


def place_order(request: Request, deps: Dependencies) -> JsonResponse:
    """Store the order, idempotent by its key; it is charged asynchronously."""
    key, body = key_and_body(request)
    wanted = parse(OrderRequest, body, expected="The body does not describe an order that can be charged.")
    order, is_new = store_order(
        deps.orders, request.customer_id, wanted, key, correlation_id=request.correlation_id, now=deps.clock()
    )
    deps.count("OrderPlaced" if is_new else "OrderReplayed")
    deps.log("order placed" if is_new else "response replayed: order placed before", order)
    headers = {"X-Correlation-Id": order.correlation_id, "Location": f"/orders/{order.order_id}"}
    return request.respond(HTTPStatus.ACCEPTED, accepted_order(order), headers | ({} if is_new else REPLAYED))


def store_order(
    orders: OrderStore, customer_id: str, wanted: OrderRequest, key: str, *, correlation_id: str, now: datetime
) -> tuple[StoredOrder, bool]:
    """Store the order, or find the one that an earlier try stored; returns also whether it is new.

    Raises Problem if the customer used this key for an order with another body.
    """
    item = new_order_item(
        order_id_of(customer_id, key),
        customer_id,
        wanted,
        correlation_id=correlation_id,
        now=now,
        items=[line.model_dump() for line in wanted.items],
        attempt_keys={digest_of(key): wanted.fingerprint},
    )
    # One conditional write: attribute_not_exists(order_id).
    earlier = orders.put_if_new(item)
    if earlier is None:
        return StoredOrder.from_item(item), True
    if earlier.fingerprint != wanted.fingerprint:
        raise key_reused("This Idempotency-Key was used for an order with another body. Use a new key for a new order.")
    return earlier, False


ROUTE = Route(
    place_order,
    "POST",
    "/orders",
    "Create an order. Idempotent by Idempotency-Key; charged asynchronously.",
    HTTPStatus.ACCEPTED,
    AcceptedOrder,
    {HTTPStatus.BAD_REQUEST: BAD_BODY, HTTPStatus.UNPROCESSABLE_ENTITY: ("idempotency-key-reused",)},
    body=OrderRequest,
    is_idempotent_by_key=True,
    returns_location=True,
)
