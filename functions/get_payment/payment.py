"""GET /orders/{order_id}/payment: the client secret with which the customer's page authenticates a payment.

    the payment's row ─► is it this customer's, and does it require action? ─► retrieve the PaymentIntent ─► its secret

The secret is retrieved for each request, and never stored or logged (Stripe API reference, "PaymentIntent",
`client_secret`).
"""

from collections.abc import Callable
from http import HTTPStatus

from aws_lambda_powertools import Logger
from pydantic import Field

from onecharge.contract.events import OrderId
from onecharge.contract.states import PaymentState
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import PaymentStore
from onecharge.runtime.http_api import HttpApi, JsonResponse, ResponseModel, order_not_found, respond, try_again


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


def payment_api(
    payments: PaymentStore, stripe: Callable[[], PaymentIntents], logger: Logger, count: Callable[[str], None]
) -> HttpApi:
    """The route. `stripe` uses the Stripe key as it is now, and raises SecretUnavailable."""
    app = HttpApi(logger, count)

    @app.get("/orders/<order_id>/payment")
    def get_payment(order_id: str) -> JsonResponse:
        request, payment = app.authenticated(order_id), payments.read(order_id)
        if payment is None or payment.request.customer_id != request.subject:
            raise order_not_found()
        intent = None
        # What is to be canceled is PENDING: with the secret, the customer's page could confirm it.
        if payment.state is PaymentState.REQUIRES_ACTION:
            response = stripe().retrieve(str(payment.payment_intent_id))
            if response.failure:
                # Stripe does not answer, or the API key is another account's.
                count("ClientSecretUnknown")
                why = {"order_id": order_id, "correlation_id": payment.correlation_id, "why": response.failure.kind}
                logger.warning("client secret unknown: Stripe did not answer", extra=why)
                raise try_again("Stripe does not answer. Retry shortly.")
            intent = response.intent
        secret = intent.client_secret if intent and intent.status == "requires_action" else None
        shown = PaymentView(order_id=order_id, client_secret=secret, stripe_status=intent.status if intent else None)
        return respond(HTTPStatus.OK, shown, payment.correlation_id)

    return app
