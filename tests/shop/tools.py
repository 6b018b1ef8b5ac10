"""What charges and refunds work with, over fakes at the boundary."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import Payment
from onecharge.payments.instruments import Instruments
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from tests.shop.builders import BOUNDS, REFUNDS


class Cancellation(StrEnum):
    """How far a request to cancel has come."""

    CANCELED = "CANCELED"
    PAID = "PAID"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    CANCELING = "CANCELING"


def cancellation_of(payment: Payment) -> Cancellation:
    """How far the cancellation of this payment has come."""
    closed = {
        PaymentState.CANCELED: "CANCELED",
        PaymentState.SUCCEEDED: "PAID",
        PaymentState.NEEDS_REVIEW: "NEEDS_REVIEW",
    }
    return Cancellation(closed.get(payment.state, "CANCELING"))


class FullBucket:
    """A token bucket that is never empty."""

    def take(self, until: float) -> bool:
        return True


@dataclass(frozen=True)
class RateOf:
    """Stripe's rate limit, with the same bucket for each endpoint."""

    bucket: Any

    @property
    def creates(self) -> Any:
        return self.bucket

    confirms = refunds = creates


REQUIRES_ACTION_SECONDS = 12 * 3600
NO_RATE_LIMIT: Any = RateOf(FullBucket())


def tools_of(
    payments: PaymentStore,
    stripe: Any,
    instruments: Instruments,
    *,
    refunds: RefundStore | None = None,
    bounds: TimeBounds = BOUNDS,
    rate: Any = NO_RATE_LIMIT,
    look_up_placed_before: Callable[[], int] = lambda: 0,
    requires_action_seconds: int = REQUIRES_ACTION_SECONDS,
) -> Tools:
    """What is worked with from now on."""
    return Tools(
        payments=payments,
        refunds=refunds or RefundStore(payments.client, REFUNDS),
        stripe=stripe,
        instruments=instruments,
        rate=rate,
        lease_seconds=bounds.lease_seconds,
        deadline=bounds.deadline(instruments.clock()),
        look_up_placed_before=look_up_placed_before,
        requires_action_seconds=requires_action_seconds,
    )
