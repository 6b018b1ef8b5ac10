"""The payment service, asked synchronously: cancel this payment; which secret confirms it? All else goes by events."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from onecharge.contract.events import OrderPlacedEvent
from onecharge.contract.questions import (
    CancelAnswer,
    Cancellation,
    CancelQuestion,
    ClientSecretAnswer,
    ClientSecretQuestion,
)

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class CancellationUnknown(Exception):
    """The payment service failed, or did not answer in time. Asking again is safe."""


class ClientSecretUnknown(Exception):
    """The payment service failed. Asking again is safe."""


@dataclass(frozen=True)
class Payments:
    """The one function that answers questions, through boto3's clients: one waits longer than the other."""

    for_cancellations: "LambdaClient"
    for_client_secrets: "LambdaClient"
    function: str

    def cancel(self, order: OrderPlacedEvent) -> Cancellation:
        """Cancel the payment of this order unless it is paid. Raises CancellationUnknown, and botocore's errors."""
        question = CancelQuestion(order=order.data, correlation_id=order.correlationid)
        payload = self._ask(self.for_cancellations, question)
        try:
            return CancelAnswer.model_validate_json(payload or b"").cancellation
        except ValidationError:
            raise CancellationUnknown from None

    def client_secret(self, order: OrderPlacedEvent) -> str | None:
        """The secret of the order's present attempt. Raises ClientSecretUnknown, and botocore's errors."""
        question = ClientSecretQuestion(
            order_id=order.data.order_id, attempt=order.data.attempt, correlation_id=order.correlationid
        )
        payload = self._ask(self.for_client_secrets, question)
        try:
            return ClientSecretAnswer.model_validate_json(payload or b"").client_secret
        except ValidationError:
            raise ClientSecretUnknown from None

    def _ask(self, client: "LambdaClient", question: BaseModel) -> bytes | None:
        """The JSON of the answer; None if the function failed, whatever the payload says of the error."""
        answer = client.invoke(FunctionName=self.function, Payload=question.model_dump_json().encode())
        return None if answer.get("FunctionError") else answer["Payload"].read()
