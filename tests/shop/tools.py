"""What charges and refunds work with, over fakes at the boundary."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools import Logger

from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.refund_tools import RefundTools
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from tests.shop.builders import BOUNDS, REFUNDS
from tests.support.silent import SILENT


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
    stripe: PaymentIntents,
    clock: Callable[[], float],
    *,
    logger: Logger = SILENT,
    count: Callable[[str], None] = SILENT,
    bounds: TimeBounds = BOUNDS,
    rate: Any = NO_RATE_LIMIT,
    requires_action_seconds: int = REQUIRES_ACTION_SECONDS,
) -> Tools:
    """The tools of a worker that begins now."""
    return Tools(
        payments=payments,
        stripe=stripe,
        rate=rate,
        clock=clock,
        logger=logger,
        count=count,
        lease_seconds=bounds.lease_seconds,
        deadline=bounds.deadline(clock()),
        requires_action_seconds=requires_action_seconds,
    )


def refund_tools_of(
    payments: PaymentStore,
    stripe: StripeGateway,
    clock: Callable[[], float],
    *,
    refunds: RefundStore | None = None,
    logger: Logger = SILENT,
    count: Callable[[str], None] = SILENT,
    bounds: TimeBounds = BOUNDS,
    rate: Any = NO_RATE_LIMIT,
) -> RefundTools:
    """The tools of a refund's worker that begins now."""
    return RefundTools(
        payments=payments,
        refunds=refunds or RefundStore(payments.client, REFUNDS),
        stripe=stripe,
        instruments=Instruments(clock, logger, count),
        rate=rate,
        lease_seconds=bounds.lease_seconds,
        deadline=bounds.deadline(clock()),
    )
