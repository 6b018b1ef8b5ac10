"""What the payment service works with, on one delivery, one Stripe event or one row."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import stripe
from aws_lambda_powertools import Logger

from onecharge.contract.events import Event
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import Payment, PaymentStore
from onecharge.payments.stripe_errors import classify
from onecharge.payments.stripe_rate import StripeRate
from onecharge.payments.stripe_responses import Deferred, StripeIntent
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm


def _nothing(event: Event) -> None:
    raise NotImplementedError(f"this function publishes nothing: {event}")


@dataclass(frozen=True)
class Tools:
    """The table, Stripe, a clock, a logger, metrics, and the time until which they are used."""

    payments: PaymentStore
    stripe: PaymentIntents
    rate: StripeRate
    clock: Callable[[], float]
    """The time in epoch seconds."""
    logger: Logger
    count: Callable[[str], None]
    """Counts one occurrence of the metric of that name; called on several threads."""
    lease_seconds: int
    deadline: float
    """Epoch seconds, after which no further request to Stripe is begun."""
    requires_action_seconds: int
    """How long a customer may take to authenticate."""
    publish: Callable[[Event], None] = _nothing
    """Publishes the outcome of a refund. Raises Deferred, and botocore's errors."""

    def fetch_intent(self, payment_intent_id: str, *, is_disputed: bool = False) -> StripeIntent:
        """The PaymentIntent as it is now, with the refunds and the dispute of its charge. Raises Deferred.

        Args:
            is_disputed: whether an event says so: its charge may not say so yet.
        """
        self.require_time()
        intent = self.stripe.retrieve(payment_intent_id).shown()
        return self._with_dispute(replace(intent, is_disputed=intent.is_disputed or is_disputed))

    def _with_dispute(self, intent: StripeIntent) -> StripeIntent:
        if intent.is_disputed:
            self.require_time()
        try:
            return self.stripe.with_dispute_that_counts(intent)
        except stripe.StripeError as error:
            raise classify(error).deferred from error

    def require_time(self) -> None:
        """Raises Deferred if no request to Stripe may be begun anymore."""
        if self.clock() >= self.deadline:
            raise Deferred("too little time left")

    # ------------------------------------------------------------ cancellations, time, alarms and logs

    def cancel(self, intent: StripeIntent, reason: str = "requested_by_customer") -> StripeIntent:
        """Cancel the PaymentIntent; returns its state afterwards, which may be `succeeded`. Raises Deferred."""
        self.require_time()
        return self._with_dispute(self.stripe.cancel(intent.payment_intent_id, reason).shown())

    @property
    def shop(self) -> str:
        return self.stripe.shop

    def now(self) -> int:
        """The time in whole epoch seconds, as it is stored."""
        return int(self.clock())

    def wait_for_token(self, take: Callable[[float], bool]) -> None:
        """Wait for Stripe's rate limit. Raises Deferred if there is no token before the deadline."""
        if not take(self.deadline):
            raise Deferred("Stripe's rate limit is reached")
        self.require_time()

    def alarm(self, cause: Cause, message: str, row: Payment | None, intent: StripeIntent | None, **about: Any) -> None:
        """Report what happened although it should not, or what no rule can correct."""
        if row:
            about |= {**row.log_fields, "state": row.state}
        if intent:
            about |= {"payment_intent_id": intent.payment_intent_id, "status_at_stripe": intent.status}
        self.log(message, alarm=cause, **about)

    def log(self, message: str, *, alarm: Cause | None = None, **details: Any) -> None:
        """Write one log line with these details, without those that are None; an alarm is an error that is counted."""
        if alarm:
            self.count(Alarm(alarm))
        write = self.logger.error if alarm else self.logger.info
        given = {"cause": alarm, **details}
        write(message, extra={name: value for name, value in given.items() if value is not None})
