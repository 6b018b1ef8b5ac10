"""What charges and refunds work with, over fakes at the boundary."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.charge import ChargeTools
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.reconcile import ReconcileTools
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.refund import RefundTools
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.time_bounds import TimeBounds
from tests.shop.builders import BOUNDS


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

    confirms = refunds = retrieves = creates


REQUIRES_ACTION_SECONDS = 12 * 3600
NO_RATE_LIMIT: Any = RateOf(FullBucket())


def charge_tools(
    store: PaymentStore,
    gateway: Any,
    instruments: Instruments,
    *,
    bounds: TimeBounds = BOUNDS,
    rate: Any = NO_RATE_LIMIT,
    look_up_placed_before: int = 0,
) -> ChargeTools:
    """What one delivery that begins now charges with."""
    return ChargeTools(
        store=store,
        gateway=gateway,
        instruments=instruments,
        rate=rate,
        lease_seconds=bounds.lease_seconds,
        deadline=bounds.deadline(instruments.clock()),
        look_up_placed_before=look_up_placed_before,
    )


def refund_tools(
    store: RefundStore,
    gateway: StripeRefunds,
    instruments: Instruments,
    *,
    bounds: TimeBounds = BOUNDS,
) -> RefundTools:
    """What one delivery that begins now refunds with."""
    return RefundTools(
        store=store,
        gateway=gateway,
        instruments=instruments,
        rate=NO_RATE_LIMIT,
        lease_seconds=bounds.lease_seconds,
        deadline=bounds.deadline(instruments.clock()),
    )


def reconcile_tools(
    charge: ChargeTools,
    refunds: RefundStore,
    *,
    requires_action_seconds: int = REQUIRES_ACTION_SECONDS,
) -> ReconcileTools:
    """What an event, or a row, is reconciled with from now on: with the charge's clock, deadline and Stripe client."""
    refund = RefundTools(
        store=refunds,
        gateway=StripeRefunds(charge.gateway.client),
        instruments=charge.instruments,
        rate=charge.rate,
        lease_seconds=charge.lease_seconds,
        deadline=charge.deadline,
    )
    return ReconcileTools(charge, refund, requires_action_seconds)
