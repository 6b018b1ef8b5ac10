"""The answers to the order service's questions (onecharge.contract.questions).

# optional: cancel
cancel ─────────► store the request ─► cancel at Stripe, as far as time allows ─► CANCELED, PAID, CANCELING, …
# end optional
# optional: authentication
client_secret ──► the row: does this attempt require action? ─► retrieve the PaymentIntent ─► its secret, or none
# end optional

During an outage of Stripe a cancellation is answered too: the request is stored first, and the answer is CANCELING.
"""

from dataclasses import dataclass

from onecharge.contract.events import Contract
from onecharge.contract.questions import CancelAnswer, CancelQuestion, ClientSecretAnswer, ClientSecretQuestion
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments


class ClientSecretUnknown(Exception):
    """Stripe does not answer, or the API key is another account's: asking again is safe."""


@dataclass(frozen=True)
class AnswerQuestion:
    """Answers through a store and Stripe. Raises BotoCoreError or ClientError if DynamoDB does not answer."""

    store: PaymentStore
    cancel: CancelPayment
    gateway: StripeGateway | None
    """None if the Stripe key cannot be read."""
    instruments: Instruments

    def __call__(self, question: Contract) -> Contract:
        """Answer one question. Idempotent. Raises ClientSecretUnknown."""
        # optional: cancel
        if isinstance(question, CancelQuestion):
            cancellation, _ = self.cancel(question.order, correlation_id=question.correlation_id)
            return CancelAnswer(cancellation=cancellation)
        # end optional
        # optional: authentication
        if isinstance(question, ClientSecretQuestion):
            return ClientSecretAnswer(client_secret=self._client_secret(question))
        # end optional
        raise TypeError(f"not a question: {type(question).__name__}")

    # optional: authentication
    def _client_secret(self, question: ClientSecretQuestion) -> str | None:
        payment = self.store.read(question.order_id)
        if (
            payment is None
            or payment.attempt != question.attempt
            or payment.state is not PaymentState.REQUIRES_ACTION
            or payment.payment_intent_id is None
            # With the secret, the customer's page could confirm a PaymentIntent that is to be canceled.
            or payment.cancel_requested_at is not None
        ):
            return None
        response = self.gateway.retrieve(payment.payment_intent_id) if self.gateway else None
        if response is None or response.intent is None or response.failure:
            kind = response.failure.kind if response and response.failure else "the Stripe key cannot be read"
            self.instruments.count("ClientSecretUnknown")
            self.instruments.logger.warning(
                "client secret unknown: Stripe did not answer",
                extra={"order_id": question.order_id, "correlation_id": question.correlation_id, "why": kind},
            )
            raise ClientSecretUnknown
        return response.intent.client_secret if response.intent.requires_action else None

    # end optional
