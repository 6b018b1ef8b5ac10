"""What the order service asks the payment service and waits for: a cancellation, and a client secret.

Everything else goes by events. One function answers both, invoked with the question's JSON; an error of the function
means that the answer is unknown, and asking again is safe.
"""

from enum import StrEnum
from typing import Annotated, Literal

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


class CancelQuestion(Contract):
    """Cancel the payment of this order unless it is paid. The order says all that a payment of it would have needed."""

    question: Literal["cancel"] = "cancel"
    order: OrderPlaced
    correlation_id: CorrelationId


class CancelAnswer(Contract):
    """What became of it."""

    cancellation: Cancellation


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


Question = Annotated[CancelQuestion | ClientSecretQuestion, Field(discriminator="question")]
QUESTION: TypeAdapter[CancelQuestion | ClientSecretQuestion] = TypeAdapter(Question)
