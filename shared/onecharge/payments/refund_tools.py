"""What a refund is made with, on one delivery or one Stripe event."""

from collections.abc import Callable
from dataclasses import dataclass

from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.rows import ReleaseLease
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_rate import StripeRate


@dataclass(frozen=True)
class RefundTools:
    """Both tables, Stripe, a clock with logger and metrics, and the time until which they are used."""

    payments: PaymentStore
    refunds: RefundStore
    stripe: StripeGateway
    instruments: Instruments
    rate: StripeRate
    lease_seconds: int
    deadline: float
    """Epoch seconds, after which no further request to Stripe is begun."""

    def require_time(self) -> None:
        """Raises ReleaseLease if no request to Stripe may be begun anymore."""
        if self.instruments.clock() >= self.deadline:
            raise ReleaseLease("too little time left")

    def wait_for_token(self, take: Callable[[float], bool]) -> None:
        """Wait for Stripe's rate limit. Raises ReleaseLease if there is no token before the deadline."""
        if not take(self.deadline):
            raise ReleaseLease("Stripe's rate limit is reached")
        self.require_time()
