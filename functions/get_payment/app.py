"""get_payment: one route of the orders API, answered by the payment service. This file only puts the parts together."""

from typing import Any

from get_payment.payment import payment_api
from onecharge.payments.parts import PaymentParts
from onecharge.runtime.http_api import HttpApi
from onecharge.runtime.parts import Context, lambda_handler, part


class GetPaymentParts(PaymentParts):
    @part
    def resolver(self) -> HttpApi:
        return payment_api(self.payments, self.payment_intents, self.logger, self.counts)


@lambda_handler(GetPaymentParts)
def handler(parts: GetPaymentParts, event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Answer one HTTP request."""
    return parts.resolver.resolve(event, context)
