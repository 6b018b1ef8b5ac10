"""The API's responses: the handlers build these, and docs/openapi.json is generated from them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from onecharge.contract.events import OrderId
from onecharge.contract.states import OrderStatus, RefundStatus

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def _may_grow(schema: dict[str, Any]) -> None:
    del schema["additionalProperties"]


class ResponseModel(BaseModel):
    """A field that is not described cannot be sent, and an invalid response is logged without its content.

    To clients this is no promise: a response may get more fields, which the document must not rule out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, json_schema_extra=_may_grow)


class AcceptedOrder(ResponseModel):
    """The order is stored, and is charged asynchronously."""

    order_id: OrderId
    status: Literal[OrderStatus.PENDING]
    amount: int = Field(description="In the minor unit of the currency.")
    currency: str


class Attempt(ResponseModel):
    """One attempt to pay the order, with one card."""

    attempt: int
    status: OrderStatus = Field(description="CANCELED also where another attempt has paid the order.")
    decline_code: str | None = Field(
        default=None, description="Stripe's decline code, for the shop; only with PAYMENT_DECLINED."
    )
    advice_code: str | None = Field(
        default=None,
        description="Stripe's advice, for the shop; only with PAYMENT_DECLINED: `confirm_card_data`, "
        "`do_not_try_again` (the same payment method is refused from then on) or `try_again_later`.",
    )
    message: str | None = Field(default=None, description="The decline in words for the customer.")


class Order(ResponseModel):
    """The status of an order."""

    order_id: OrderId
    status: OrderStatus
    amount: int = Field(description="In the minor unit of the currency.")
    currency: str
    placed_at: Timestamp
    attempts: list[Attempt] = Field(description="The oldest first.")
    amount_refunded: int = Field(description="What is refunded or being refunded, here or by hand at Stripe.")
    dispute_status: str | None = Field(
        default=None, description="Stripe's status of the newest dispute, such as `needs_response`, `won` or `lost`."
    )
    client_secret: str | None = Field(
        default=None,
        repr=False,
        description="With it the customer's page confirms the payment at Stripe. Only GET /orders/{order_id} shows it, "
        "and only while REQUIRES_ACTION. It is fetched for each request and stored nowhere: if the payment service "
        "does not answer, the order is shown without it. Retry shortly.",
    )


class Refund(ResponseModel):
    """A refund of an order, whole or in part."""

    refund_id: str
    status: RefundStatus
    amount: int = Field(description="In the minor unit of the order's currency.")
    requested_at: Timestamp


class OrderWithRefunds(Order):
    """The status of an order, and its refunds."""

    refunds: list[Refund] = Field(description="The oldest first.")


class AcceptedRefund(Refund):
    """The amount is reserved, and is refunded asynchronously."""

    order_id: OrderId
    currency: str


class OrderList(ResponseModel):
    """A page of a customer's orders, the newest first."""

    orders: list[Order]
    next_cursor: str | None = Field(description="Where the next page begins; null on the last one.")


class InvalidPart(ResponseModel):
    """One field of the request that breaks the contract."""

    pointer: str = Field(description="A JSON Pointer into the body (RFC 6901), or the name of a query parameter.")
    detail: str


class ProblemDetails(ResponseModel):
    """Why the request was refused (RFC 9457); it never repeats what was sent."""

    type: str
    title: str
    status: int
    detail: str
    correlation_id: str
    errors: list[InvalidPart] = Field(default=[], description="Only where the type is `invalid-request`.")
