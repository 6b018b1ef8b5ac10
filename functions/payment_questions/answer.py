"""The answers to the order service's questions (onecharge.contract.questions).

cancel ─────────► store the request ─► cancel at Stripe, as far as time allows ─► CANCELED, PAID, CANCELING, …
client_secret ──► the row: does this attempt require action? ─► retrieve the PaymentIntent ─► its secret, or none

An outage of Stripe's is no error of a cancellation: the request is stored first, and CANCELING says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from onecharge.contract.questions import CancelAnswer, CancelQuestion, ClientSecretAnswer, ClientSecretQuestion
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore


class ClientSecretUnknown(Exception):
    """Stripe does not answer, or not as this account: asking again is safe."""


@dataclass(frozen=True)
class AnswerQuestion:
    """Answers through a store and Stripe. Raises BotoCoreError or ClientError if DynamoDB gives no answer."""

    store: PaymentStore
    cancel: CancelPayment
    gateway: StripeGateway | None
    """None if the Stripe key cannot be read."""
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, question: CancelQuestion | ClientSecretQuestion) -> CancelAnswer | ClientSecretAnswer:
        """Answer one question; any question may be asked again.

        Raises:
            ClientSecretUnknown: there may be a secret, but Stripe does not say so now.
        """
        if isinstance(question, CancelQuestion):
            cancellation, _ = self.cancel(question.order, correlation_id=question.correlation_id)
            return CancelAnswer(cancellation=cancellation)
        return ClientSecretAnswer(client_secret=self._client_secret(question))

    def _client_secret(self, question: ClientSecretQuestion) -> str | None:
        payment = self.store.read(question.order_id)
        if (
            payment is None
            or payment.attempt != question.attempt
            or payment.state is not PaymentState.REQUIRES_ACTION
            or payment.payment_intent_id is None
            # The customer's page would confirm with it what is to be canceled.
            or payment.cancel_requested_at is not None
        ):
            return None
        response = self.gateway.retrieve(payment.payment_intent_id) if self.gateway else None
        if response is None or response.intent is None or response.failure:
            kind = response.failure.kind if response and response.failure else "the Stripe key cannot be read"
            self.count("ClientSecretUnknown")
            self.logger.warning(
                "client secret unknown: Stripe did not answer",
                extra={"order_id": question.order_id, "correlation_id": question.correlation_id, "why": kind},
            )
            raise ClientSecretUnknown
        return response.intent.client_secret if response.intent.requires_action else None
