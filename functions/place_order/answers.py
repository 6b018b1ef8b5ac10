"""What the API answers with: the handlers build these, and docs/openapi.json is generated from them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from onecharge.events import OrderId
from onecharge.states import OrderStatus, RefundStatus

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def _may_grow(schema: dict[str, Any]) -> None:
    del schema["additionalProperties"]


class Answer(BaseModel):
    """A field that is not described cannot be answered, and what is wrong with an answer is logged without it.

    To clients this is no promise: an answer may get more fields, which the document must not rule out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, json_schema_extra=_may_grow)


class AcceptedOrder(Answer):
    """The order is stored, and will be charged."""

    order_id: OrderId
    status: Literal[OrderStatus.PENDING]
    amount: int = Field(description="In the minor unit of the currency.")
    currency: str


class Attempt(Answer):
    """One attempt to pay the order, with one card."""

    attempt: int
    status: OrderStatus
    decline_code: str | None = Field(default=None, description="Stripe's, for the shop; only where it was declined.")
    message: str | None = Field(default=None, description="The decline in words for the customer.")


class Order(Answer):
    """Where an order stands."""

    order_id: OrderId
    status: OrderStatus
    amount: int = Field(description="In the minor unit of the currency.")
    currency: str
    placed_at: Timestamp
    attempts: list[Attempt] = Field(description="The oldest first.")
    amount_refunded: int = Field(description="What is refunded, or being refunded.")
    client_secret: str | None = Field(
        default=None,
        repr=False,
        description="Only while REQUIRES_ACTION: with it the customer's page confirms the payment at Stripe.",
    )


class Refund(Answer):
    """A refund of an order, whole or in part."""

    refund_id: str
    status: RefundStatus
    amount: int = Field(description="In the minor unit of the order's currency.")
    requested_at: Timestamp


class OrderWithRefunds(Order):
    """Where an order stands, and what was refunded of it."""

    refunds: list[Refund] = Field(description="The oldest first.")


class AcceptedRefund(Refund):
    """The amount is reserved, and will be refunded."""

    order_id: OrderId
    currency: str


class OrderList(Answer):
    """A page of a customer's orders, the newest first."""

    orders: list[Order]
    next_cursor: str | None = Field(description="Where the next page begins; null on the last one.")


class InvalidPart(Answer):
    """One place at which the request breaks the contract."""

    pointer: str = Field(description="A JSON Pointer into the body (RFC 6901), or the name of a query parameter.")
    detail: str


class ProblemDetails(Answer):
    """Why the request was refused (RFC 9457); it never repeats what was sent."""

    type: str
    title: str
    status: int
    detail: str
    correlation_id: str
    errors: list[InvalidPart] = Field(default=[], description="Only where the type is `invalid-request`.")
