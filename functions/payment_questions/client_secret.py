"""Answers the question for a client secret, with which the customer's page can authenticate the payment.

the row: does this attempt require action? ─► retrieve the PaymentIntent ─► its client secret, or none
"""

from collections.abc import Callable
from dataclasses import dataclass

from onecharge.contract.questions import ClientSecretAnswer, ClientSecretQuestion
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments


class ClientSecretUnknown(Exception):
    """Stripe does not answer, or the API key is another account's: asking again is safe."""


@dataclass(frozen=True)
class AnswerClientSecret:
    """Answers through a store and Stripe. Raises BotoCoreError or ClientError if DynamoDB does not answer."""

    store: PaymentStore
    gateway: StripeGateway | None
    """None if the Stripe key cannot be read."""
    instruments: Instruments
    may_ask: Callable[[], bool] = lambda: True
    """Whether Stripe's limit has room for one question more (payments/stripe_limit.py)."""

    def __call__(self, question: ClientSecretQuestion) -> ClientSecretAnswer:
        """Answer one question. Idempotent.

        Raises:
            ClientSecretUnknown: there may be a secret, but Stripe does not return it now.
        """
        payment = self.store.read(question.order_id)
        if (
            payment is None
            or payment.attempt != question.attempt
            or payment.state is not PaymentState.REQUIRES_ACTION
            or payment.payment_intent_id is None
            # With the secret, the customer's page could confirm a PaymentIntent that is to be canceled.
            or payment.cancel_requested_at is not None
        ):
            return ClientSecretAnswer()
        if not self.may_ask():
            self.instruments.count("StripeLimitReached")
            return ClientSecretAnswer(ask_again=True)
        response = self.gateway.retrieve(payment.payment_intent_id) if self.gateway else None
        if response is None or response.intent is None or response.failure:
            kind = response.failure.kind if response and response.failure else "the Stripe key cannot be read"
            raise self._unknown(question, kind)
        return ClientSecretAnswer(
            client_secret=response.intent.client_secret if response.intent.requires_action else None
        )

    def _unknown(self, question: ClientSecretQuestion, why: str) -> ClientSecretUnknown:
        self.instruments.count("ClientSecretUnknown")
        self.instruments.logger.warning(
            "client secret unknown: Stripe did not answer",
            extra={"order_id": question.order_id, "correlation_id": question.correlation_id, "why": why},
        )
        return ClientSecretUnknown()
