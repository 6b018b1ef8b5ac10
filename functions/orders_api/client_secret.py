"""The client secret with which the customer's page authenticates a payment, while the order is REQUIRES_ACTION.

Each request asks the payment service for it (onecharge.contract.questions); it is never stored or logged.
"""

from typing import Annotated

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import Field

from onecharge.contract.questions import ClientSecretAnswer, ClientSecretQuestion
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from orders_api.dependencies import Dependencies
from orders_api.payments import AnswerUnknown, PaymentQuestions

ClientSecret = Annotated[
    str | None,
    Field(
        repr=False,
        description="With it the customer's page confirms the payment at Stripe. Shown only while REQUIRES_ACTION. It "
        "is fetched for each request and stored nowhere: if the payment service does not answer, the order is shown "
        "without it. Retry shortly.",
    ),
]


def client_secret_of(order: StoredOrder, deps: Dependencies) -> dict[str, str]:
    """The field `client_secret` of the response; nothing if there is no secret, or if it is unknown at present."""
    if order.status is not OrderStatus.REQUIRES_ACTION:
        return {}
    try:
        answer = ask_for_client_secret(deps.client_secrets, order)
    except (BotoCoreError, ClientError, AnswerUnknown) as error:
        deps.count("ClientSecretUnavailable")
        deps.logger.warning(
            "client secret unavailable: the payment service did not answer",
            extra={"order_id": order.order_id, "error": type(error).__name__},
        )
        return {}
    if answer.ask_again:
        deps.count("ClientSecretUnavailable")
    return {"client_secret": answer.client_secret} if answer.client_secret else {}


def ask_for_client_secret(questions: PaymentQuestions, order: StoredOrder) -> ClientSecretAnswer:
    """The secret of the order's present attempt. Raises as PaymentQuestions.ask."""
    question = ClientSecretQuestion(order_id=order.order_id, attempt=order.attempt, correlation_id=order.correlation_id)
    return questions.ask(question, ClientSecretAnswer)
