"""Answers the question to cancel a payment.

store the request ─► cancel at Stripe, as far as time allows ─► CANCELED, PAID, CANCELING, …

During an outage of Stripe the answer is CANCELING: the request is stored first.
"""

from dataclasses import dataclass

from onecharge.contract.questions import CancelAnswer, CancelQuestion
from onecharge.payments.charges.cancel import CancelPayment


@dataclass(frozen=True)
class AnswerCancel:
    """Answers through `cancel`. Raises BotoCoreError or ClientError if DynamoDB does not answer."""

    cancel: CancelPayment

    def __call__(self, question: CancelQuestion) -> CancelAnswer:
        """Answer one question. Idempotent."""
        cancellation, _ = self.cancel(question.order, correlation_id=question.correlation_id)
        return CancelAnswer(cancellation=cancellation)
