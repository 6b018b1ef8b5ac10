"""The API's responses about orders: the routes build these, and docs/openapi.json is generated from them."""

from typing import Annotated, Literal

from pydantic import Field

from onecharge.contract.events import OrderId
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.http_api import ResponseModel
from orders_api.declines import message_for

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]

_CONFIRM = (
    "The customer has to confirm this payment at their bank (3-D Secure). Their page gets the client secret from "
    "GET /orders/{order_id}/payment, and passes it to Stripe.js: stripe.handleNextAction. Otherwise the order becomes "
    "CANCELED after some hours. It can also be canceled now."
)


class AcceptedOrder(ResponseModel):
    """The order is stored, and is charged asynchronously."""

    order_id: OrderId
    status: Literal[OrderStatus.PENDING]
    amount: int = Field(description="In the minor unit of the currency.")
    currency: str


class AttemptView(ResponseModel):
    """One attempt to pay the order, with one card."""

    attempt: int
    status: OrderStatus = Field(description="CANCELED also where another attempt has paid the order.")
    decline_code: str | None = Field(
        default=None, description="Stripe's decline code, for the shop; only with PAYMENT_DECLINED."
    )
    message: str | None = Field(default=None, description="The decline in words for the customer.")


class OrderView(ResponseModel):
    """The status of an order."""

    order_id: OrderId
    status: OrderStatus
    amount: int = Field(description="In the minor unit of the currency.")
    currency: str
    placed_at: Timestamp
    paid_at: Timestamp | None = Field(default=None, description="Only with PAID.")
    next_step: str | None = Field(
        default=None, description="Only with REQUIRES_ACTION: what the customer has to do, and how, for developers."
    )
    cancel_reason: str | None = Field(
        default=None,
        description="Only with CANCELED, unless a person canceled it: `expired`, if the customer did not confirm the "
        "payment in time, or `not_chargeable`, if Stripe does not charge this amount.",
    )
    attempts: list[AttemptView] = Field(description="The oldest first.")
    amount_refunded: int = Field(description="What Stripe has refunded, also by hand in its Dashboard.")
    dispute_status: str | None = Field(
        default=None, description="Stripe's status of the newest dispute, such as `needs_response` or `lost`."
    )


class OrderList(ResponseModel):
    """A page of a customer's orders, the newest first."""

    orders: list[OrderView]
    next_cursor: str | None = Field(description="Where the next page begins; null on the last one.")


def accepted_order(order: StoredOrder) -> AcceptedOrder:
    """The response to POST: PENDING. A retry gets the response of its first try, whatever the order's status is now."""
    return AcceptedOrder(
        order_id=order.order_id, status=OrderStatus.PENDING, amount=order.amount_minor, currency=order.currency
    )


def order_view(order: StoredOrder) -> OrderView:
    """The order as its customer sees it."""
    requires_action = order.status is OrderStatus.REQUIRES_ACTION
    some = {
        "next_step": _CONFIRM.format(order_id=order.order_id) if requires_action else None,
        "paid_at": order.paid_at,
        "cancel_reason": order.cancel_reason,
        "dispute_status": order.dispute_status,
    }
    return OrderView(
        order_id=order.order_id,
        status=order.status,
        amount=order.amount_minor,
        currency=order.currency,
        placed_at=order.placed_at,
        attempts=_attempts(order),
        amount_refunded=order.stripe_refunded_minor,
        **{name: value for name, value in some.items() if value},
    )


def _attempts(order: StoredOrder) -> list[AttemptView]:
    """The attempts that have ended, and the present one, which has the order's status unless another one has paid."""
    shown = []
    for number, outcome in sorted(order.outcomes.items()):
        if outcome.status is OrderStatus.PAID:
            shown.append(AttemptView(attempt=number, status=outcome.status))
        elif outcome.status is OrderStatus.PAYMENT_DECLINED:
            why = {"decline_code": outcome.decline_code, "message": message_for(outcome.decline_code)}
            shown.append(AttemptView(attempt=number, status=outcome.status, **why))
    if all(each.attempt != order.attempt for each in shown):
        is_superseded = order.paid_attempt not in (None, order.attempt)
        status = OrderStatus.CANCELED if is_superseded else order.status
        shown.append(AttemptView(attempt=order.attempt, status=status))
    return shown
