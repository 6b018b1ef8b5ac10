"""The questions that the order service asks the payment service, and waits for: everything else goes by events.

The function payment_questions answers them. An error of the function means that the answer is unknown; every question
is idempotent, and can be asked again.

CancelQuestion          ─► CancelAnswer            cancel a payment  # optional: cancel
ClientSecretQuestion    ─► ClientSecretAnswer      let the customer authenticate  # optional: authentication
"""

from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from onecharge.contract.events import READ_FROM_JSON, Attempt, Contract, CorrelationId, OrderId, OrderPlaced


class Cancellation(StrEnum):
    """The result of a request to cancel a payment."""

    CANCELED = "CANCELED"
    """By Stripe's word: no PaymentIntent of the order can be charged any more."""
    PAID = "PAID"
    """The charge succeeded first."""
    CANCELING = "CANCELING"
    """The request is stored: nothing is confirmed from now on, and it becomes CANCELED or PAID by itself."""
    NEEDS_REVIEW = "NEEDS_REVIEW"
    """A person has to review the payment first."""


# optional: cancel
class CancelQuestion(Contract):
    """Cancel the payment of this order unless it is paid. The order has everything that charging it would need."""

    question: Literal["cancel"] = "cancel"
    order: OrderPlaced
    correlation_id: CorrelationId


class CancelAnswer(Contract):
    """The result."""

    cancellation: Cancellation


# end optional
# optional: authentication
class ClientSecretQuestion(Contract):
    """With which client secret can the customer's page confirm the payment? Only while it requires action."""

    question: Literal["client_secret"] = "client_secret"
    order_id: OrderId
    attempt: Attempt
    correlation_id: CorrelationId


class ClientSecretAnswer(Contract):
    """The secret is never stored and never logged (Stripe API reference, "PaymentIntent", `client_secret`)."""

    client_secret: str | None = Field(default=None, max_length=255, repr=False)
    """None if this attempt does not require action any more, or Stripe was not asked."""
    ask_again: bool = False
    """Stripe was not asked: its limit is reached. No error, or customers who ask often could raise an alarm."""


# end optional
# optional: cancel | authentication
def question_adapter(*models: type[Contract]) -> TypeAdapter[Any]:
    """Reads a question of any of these models; `question` says which."""
    if len(models) == 1:
        return TypeAdapter(models[0])
    union: Any = reduce(or_, models)
    return TypeAdapter(Annotated[union, Field(discriminator="question")], config=READ_FROM_JSON)


QUESTION = question_adapter(
    CancelQuestion,  # optional: cancel
    ClientSecretQuestion,  # optional: authentication
)
"""Every question that payment_questions answers."""
# end optional
