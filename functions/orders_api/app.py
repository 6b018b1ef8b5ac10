"""orders_api: the order service's HTTP API. This file only puts the parts together; routes.py lists the routes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics

from onecharge.orders.store import OrderStore
from onecharge.runtime.aws import aws_client, client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from orders_api.dependencies import Dependencies
from orders_api.payments import PaymentQuestions
from orders_api.refund_store import OrderRefundStore
from orders_api.routes import resolver_of

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts(Metrics())
        dynamodb, orders_table = aws_client("dynamodb", config=client_config()), environment["ORDERS_TABLE"]
        questions = partial(PaymentQuestions.waiting, environment["PAYMENT_QUESTIONS_FUNCTION"])
        dependencies = Dependencies(
            orders=OrderStore(dynamodb, orders_table),
            cancellations=questions(read_timeout_seconds=22),  # As long as payment_questions may take to cancel.
            client_secrets=questions(read_timeout_seconds=8),  # Otherwise the order is shown without it.
            refunds=OrderRefundStore(dynamodb, environment["ORDER_REFUNDS_TABLE"], orders_table),
            logger=function_logger(),
            count=self.counts,
            clock=partial(datetime.now, UTC),
        )
        self.resolver = resolver_of(dependencies)


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one HTTP request."""
    return application.resolver.resolve(event, context)
