"""get_payment: one route of the orders API, answered by the payment service. This file only puts the parts together."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from get_payment.payment import ROUTE, Payments
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.stripe_client import StripeAccount
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import dynamodb_client
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.http_api import resolver_of
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger, self.counts = function_logger(), Counts()
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        payments = Payments(
            store=PaymentStore(dynamodb_client(), environment["PAYMENTS_TABLE"]),
            stripe=StripeAccount(environment, bounds=bounds, count=self.counts),
            logger=logger,
            count=self.counts,
        )
        self.resolver = resolver_of([ROUTE], payments, logger=logger, count=self.counts)


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one HTTP request."""
    return application.resolver.resolve(event, context)
