"""The questions that the order service asks the payment service, and waits for (onecharge.contract.questions).

Everything else goes by events. The function payment_questions answers, invoked synchronously.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.config import Config
from pydantic import BaseModel, ValidationError

from onecharge.runtime.aws import aws_client
from orders_api.http import Unavailable

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class AnswerUnknown(Unavailable):
    """The payment service failed, or did not answer in time. Asking again is safe."""


@dataclass(frozen=True)
class PaymentQuestions:
    """The function payment_questions, through botocore's client."""

    client: "LambdaClient"
    function: str

    @classmethod
    def waiting(cls, function: str, *, read_timeout_seconds: int) -> "PaymentQuestions":
        """Waits so long for an answer. One try: the API's client retries, and gets the same answer."""
        config = Config(connect_timeout=1, read_timeout=read_timeout_seconds, retries={"total_max_attempts": 1})
        return cls(aws_client("lambda", config=config), function)

    def ask[Answer: BaseModel](self, question: BaseModel, answer: type[Answer]) -> Answer:
        """Ask one question of the contract; `answer` is the model of its answer.

        Raises AnswerUnknown, and BotoCoreError or ClientError if Lambda does not answer.
        """
        invoked = self.client.invoke(FunctionName=self.function, Payload=question.model_dump_json().encode())
        if invoked.get("FunctionError"):  # Whatever the payload says of the error.
            raise AnswerUnknown
        try:
            return answer.model_validate_json(invoked["Payload"].read())
        except ValidationError:
            raise AnswerUnknown from None
