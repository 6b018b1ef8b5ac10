"""The payment service, asked: can this order still be canceled? Everything else it learns from events."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecharge.events import OrderPlacedEvent

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

CANCELED, PAID, IN_PROGRESS, NEEDS_REVIEW = "CANCELED", "PAID", "IN_PROGRESS", "NEEDS_REVIEW"
"""What cancel_charge answers."""


class NoAnswer(Exception):
    """The payment service could not tell; asking again is safe."""


@dataclass(frozen=True)
class Payments:
    """cancel_charge through boto3's client, invoked and waited for."""

    client: "LambdaClient"
    cancel_charge_function: str

    def cancel(self, event: OrderPlacedEvent) -> str:
        """Cancel what the event would charge, or say why not. Raises NoAnswer."""
        answer = self.client.invoke(FunctionName=self.cancel_charge_function, Payload=event.model_dump_json().encode())
        if "FunctionError" in answer:
            raise NoAnswer
        return str(json.loads(answer["Payload"].read())["cancellation"])
