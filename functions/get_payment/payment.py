"""GET /orders/{order_id}/payment: the client secret with which the customer's page authenticates a payment.

    the payment's row ─► is it this customer's, and does it require action? ─► retrieve the PaymentIntent ─► its secret

The secret is retrieved for each request, and never stored or logged (Stripe API reference, "PaymentIntent",
`client_secret`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from aws_lambda_powertools import Logger
from pydantic import Field

from onecharge.contract.events import OrderId
from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import StripeIntent
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.rows import Payment
from onecharge.runtime.http_api import JsonResponse, Request, ResponseModel, Route, order_not_found, try_again


class PaymentView(ResponseModel):
    """What the customer's page needs to finish the payment."""

    order_id: OrderId
    client_secret: str | None = Field(
        repr=False,
        description="The page confirms the payment at Stripe with it. Null unless the order is REQUIRES_ACTION.",
    )
    stripe_status: str | None = Field(
        description="The PaymentIntent's status while the order is REQUIRES_ACTION, else null. `succeeded` and "
        "`processing`: the bank has confirmed the payment, and the order becomes PAID when Stripe's event arrives.",
    )

    @classmethod
    def of(cls, order_id: str, intent: StripeIntent | None) -> Self:
        """None: the payment does not require action."""
        secret = intent.client_secret if intent and intent.status == "requires_action" else None
        return cls(order_id=order_id, client_secret=secret, stripe_status=intent.status if intent else None)


class ClientSecretUnknown(Exception):
    """Stripe does not answer, or the API key is another account's; says which. Asking again is safe."""


@dataclass(frozen=True)
class Payments:
    """The Payments table, which is only read, and Stripe."""

    store: PaymentStore
    stripe: Callable[[], PaymentIntents]
    """With the Stripe key as it is now. Raises SecretUnavailable."""
    logger: Logger
    count: Callable[[str], None]


def get_payment(request: Request, payments: Payments, order_id: str) -> JsonResponse:
    """Show the client secret to the order's customer, while the payment requires action."""
    payment = payments.store.read(order_id)
    if payment is None or payment.request.customer_id != request.customer_id:
        raise order_not_found()
    try:
        intent = intent_to_confirm(payment, payments.stripe)
    except ClientSecretUnknown as unknown:
        payments.count("ClientSecretUnknown")
        payments.logger.warning(
            "client secret unknown: Stripe did not answer",
            extra={"order_id": order_id, "correlation_id": payment.correlation_id, "why": str(unknown)},
        )
        raise try_again("Stripe does not answer. Retry shortly.") from None
    view = PaymentView.of(order_id, intent)
    return request.respond(HTTPStatus.OK, view, {"X-Correlation-Id": payment.correlation_id})


def intent_to_confirm(payment: Payment, stripe: Callable[[], PaymentIntents]) -> StripeIntent | None:
    """The PaymentIntent as it is now; None if the current attempt does not require action.

    Raises:
        ClientSecretUnknown: there may be a secret, but Stripe does not return it now.
    """
    if (
        payment.state is not PaymentState.REQUIRES_ACTION
        or payment.payment_intent_id is None
        # With the secret, the customer's page could confirm a PaymentIntent that is to be canceled.
        or payment.cancel_requested_at is not None
    ):
        return None
    response = stripe().retrieve(payment.payment_intent_id)
    if response.intent is None or response.failure:
        raise ClientSecretUnknown(response.failure.kind if response.failure else "no PaymentIntent")
    return response.intent


ROUTE = Route(
    get_payment,
    "GET",
    "/orders/{order_id}/payment",
    "Get what the customer's page needs to authenticate the payment, while the order is REQUIRES_ACTION. Limited to a "
    "few requests a second, since each one asks Stripe.",
    HTTPStatus.OK,
    PaymentView,
    {HTTPStatus.NOT_FOUND: ("not-found",)},
)
