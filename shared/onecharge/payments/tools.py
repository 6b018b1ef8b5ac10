"""What the payment service works with, on one delivery, one event of Stripe's or one row."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.answers import ANSWERS
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import Payment, StripeIntent
from onecharge.payments.instruments import Instruments
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.rows import ReleaseLease
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_rate import StripeRate
from onecharge.payments.stripe_responses import Failure
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm


@dataclass(frozen=True)
class Tools:
    """Both tables, Stripe, a clock with logger and metrics, and until when they are used."""

    payments: PaymentStore
    refunds: RefundStore
    stripe: StripeGateway
    instruments: Instruments
    rate: StripeRate
    lease_seconds: int
    deadline: float
    """Epoch seconds, after which no further request to Stripe is begun."""
    look_up_placed_before: Callable[[], int]
    """Epoch seconds. An order that was placed earlier is looked up at any age: after a restore of both services' tables
    it may have been placed again, so that its age is unknown. Raises botocore's errors."""
    requires_action_seconds: int
    """How long a customer may take to authenticate."""

    # ------------------------------------------------------------ time

    def has_time(self) -> bool:
        """Whether another request to Stripe may be begun."""
        return self.instruments.clock() < self.deadline

    def require_time(self) -> None:
        """Raises ReleaseLease if no request to Stripe may be begun anymore."""
        if not self.has_time():
            raise ReleaseLease("too little time left")

    def wait_for_token(self, take: Callable[[float], bool]) -> None:
        """Wait for Stripe's rate limit. Raises ReleaseLease if there is no token before the deadline."""
        if not take(self.deadline):
            raise ReleaseLease("Stripe's rate limit is reached")
        self.require_time()

    # ------------------------------------------------------------ an order's age

    def keys_may_be_forgotten(self, row: Payment) -> bool:
        """Whether the order may have a PaymentIntent that its idempotency keys do not lead to. Raises ReleaseLease."""
        return row.key_was_misused or row.request.is_old(self.instruments.now()) or self.may_be_placed_again(row)

    def may_be_placed_again(self, row: Payment) -> bool:
        """Whether the order may be older than it says: both services had lost it, and its client placed it again.

        Raises ReleaseLease if that cannot be read.
        """
        try:
            return row.request.placed_at < self.look_up_placed_before()
        except (ClientError, BotoCoreError) as error:
            raise ReleaseLease("not read: whether the order may be placed again") from error

    # ------------------------------------------------------------ reports

    def write_payment_intent(self, row: Payment, payment_intent_id: str, generation: int) -> Payment:
        """Store the PaymentIntent's id; returns the row. Raises WriteRefused."""
        written = self.payments.write_payment_intent(row, payment_intent_id, generation)
        self.instruments.log("PaymentIntent stored", alarm=None, **written.log_fields, generation=generation)
        return written

    def raise_alarm(self, row: Payment, failure: Failure) -> None:
        """Report a response that does not stop the work, but that a person has to see."""
        cause = ANSWERS[failure.kind].charge_alarm
        self.instruments.log(failure.kind, alarm=cause, **row.log_fields, stripe_request_id=failure.request_id)

    def report(
        self, metric: str, cause: Cause, message: str, *about: Payment | StripeIntent | None, **details: object
    ) -> None:
        """Raise an alarm: something happened that should not, or that no rule can correct."""
        for each in about:
            match each:
                case Payment():
                    details |= {**each.log_fields, "state": each.state}
                case StripeIntent():
                    details |= {"payment_intent_id": each.payment_intent_id, "status_at_stripe": each.status}
        self.instruments.count(metric)
        self.instruments.log(message, alarm=cause, **details)

    def noting_alarms(self) -> tuple["Tools", list[Alarm]]:
        """The same tools, and a list that gets every alarm which they raise."""
        alarms: list[Alarm] = []

        def count(metric: str) -> None:
            if isinstance(metric, Alarm):
                alarms.append(metric)
            self.instruments.count(metric)

        return replace(self, instruments=replace(self.instruments, count=count)), alarms
