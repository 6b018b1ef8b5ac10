"""What the order service asks the payment service and waits for; everything else goes by events.

One function answers, invoked with the question's JSON. An error of the function means that the answer is unknown, and
asking again is safe.
"""

from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from onecharge.contract.events import Attempt, Contract, CorrelationId, OrderId, OrderPlaced


class Cancellation(StrEnum):
    """The answer to a cancellation."""

    CANCELED = "CANCELED"
    """Stripe says that no PaymentIntent of the order can be charged any more."""
    PAID = "PAID"
    """The charge won."""
    CANCELING = "CANCELING"
    """The request is stored: nothing is confirmed from now on. It ends as CANCELED or PAID by itself."""
    NEEDS_REVIEW = "NEEDS_REVIEW"
    """A person has to look at the payment first."""


# optional: cancel
class CancelQuestion(Contract):
    """Cancel the payment of this order unless it is paid. The order says all that a payment of it would have needed."""

    question: Literal["cancel"] = "cancel"
    order: OrderPlaced
    correlation_id: CorrelationId


class CancelAnswer(Contract):
    """What became of it."""

    cancellation: Cancellation


# end optional
# optional: authentication
class ClientSecretQuestion(Contract):
    """With which secret does the customer's page confirm the payment? Only while it requires action."""

    question: Literal["client_secret"] = "client_secret"
    order_id: OrderId
    attempt: Attempt
    correlation_id: CorrelationId


class ClientSecretAnswer(Contract):
    """The secret is stored nowhere and logged nowhere (Stripe API reference, "PaymentIntent", `client_secret`)."""

    client_secret: str | None = Field(default=None, max_length=255, repr=False)
    """None if this attempt requires no action any more."""


# end optional
# optional: cancel | authentication
def _adapter(*questions: type[Contract]) -> TypeAdapter[Any]:
    """Reads one of these questions from JSON; its field `question` says which."""
    if len(questions) == 1:
        return TypeAdapter(questions[0])
    union: Any = reduce(or_, questions)
    return TypeAdapter(Annotated[union, Field(discriminator="question")])


QUESTION = _adapter(
    CancelQuestion,  # optional: cancel
    ClientSecretQuestion,  # optional: authentication
)
"""Every question that the payment service answers."""
# end optional
