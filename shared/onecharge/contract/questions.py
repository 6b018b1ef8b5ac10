"""The questions that the order service asks the payment service, and waits for: everything else goes by events.

The function payment_questions answers them. An error of the function means that the answer is unknown; every question
is idempotent, and can be asked again.

CancelQuestion          ─► CancelAnswer            cancel a payment
ClientSecretQuestion    ─► ClientSecretAnswer      let the customer authenticate
"""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from onecharge.contract.events import Attempt, Contract, CorrelationId, OrderId, OrderPlaced, adapter_of


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


class CancelQuestion(Contract):
    """Cancel the payment of this order unless it is paid. The order has everything that charging it would need."""

    question: Literal["cancel"] = "cancel"
    order: OrderPlaced
    correlation_id: CorrelationId


class CancelAnswer(Contract):
    """The result."""

    cancellation: Cancellation


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


QUESTION = adapter_of(
    CancelQuestion,
    ClientSecretQuestion,
    discriminator="question",
)
"""Every question that payment_questions answers."""
