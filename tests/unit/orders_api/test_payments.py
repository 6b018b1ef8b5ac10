"""The questions to the payment service are those of the contract, and a failure is never an answer."""

from io import BytesIO
from typing import Any

import pytest

from onecharge.contract.questions import (
    QUESTION,
    Cancellation,
    CancelQuestion,
    ClientSecretQuestion,
)
from onecharge.orders.schema import StoredOrder
from orders_api.cancel_order import ask_to_cancel
from orders_api.client_secret import ask_for_client_secret
from orders_api.payments import AnswerUnknown, PaymentQuestions
from testing.orders_api import Client


class Lambda:
    """Invoke of boto3's client: it responds with this payload, or says that the function failed."""

    def __init__(self, payload: str, *, failed: bool = False) -> None:
        self.payload, self.failed = payload, failed
        self.invoked: list[tuple[str, bytes]] = []

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        self.invoked.append((FunctionName, Payload))
        failure = {"FunctionError": "Unhandled"} if self.failed else {}
        return {"StatusCode": 200, "Payload": BytesIO(self.payload.encode()), **failure}

    @property
    def questions(self) -> PaymentQuestions:
        return PaymentQuestions(self, "payment-questions")  # type: ignore[arg-type]  # The one method.


@pytest.fixture
def order(client: Client) -> StoredOrder:
    return client.orders.find(client.placed()) or pytest.fail("no order")


def test_a_cancel_question_has_the_order(order: StoredOrder) -> None:
    """All that the payment service needs, even if it has never heard of the order."""
    function = Lambda('{"cancellation": "CANCELING"}')
    assert ask_to_cancel(function.questions, order) is Cancellation.CANCELING
    [(name, payload)] = function.invoked
    question = CancelQuestion(order=order.present_attempt, correlation_id=order.correlation_id)
    assert (name, QUESTION.validate_json(payload)) == ("payment-questions", question)


def test_a_client_secret_question_has_the_attempt(order: StoredOrder) -> None:
    """A field that a newer payment service answers with is ignored."""
    function = Lambda('{"client_secret": "s", "new_field": 1}')
    assert ask_for_client_secret(function.questions, order).client_secret == "s"
    [(_, payload)] = function.invoked
    assert QUESTION.validate_json(payload) == ClientSecretQuestion(
        order_id=order.order_id, attempt=1, correlation_id=order.correlation_id
    )


@pytest.mark.parametrize(
    "function",
    [Lambda('{"cancellation": "CANCELED"}', failed=True), Lambda('{"errorMessage": "x"}'), Lambda("")],
    ids=["FunctionError", "another answer", "nothing"],
)
def test_the_payload_of_a_failed_cancellation_is_not_an_answer(order: StoredOrder, function: Lambda) -> None:
    """Whatever it is."""
    with pytest.raises(AnswerUnknown):
        ask_to_cancel(function.questions, order)


def test_the_payload_of_a_failed_function_is_not_a_client_secret(order: StoredOrder) -> None:
    """Nor is it taken for "there is none"."""
    with pytest.raises(AnswerUnknown):
        ask_for_client_secret(Lambda('{"client_secret": null}', failed=True).questions, order)
