"""What the payment service works with, over fakes at the boundary."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools import Logger

from onecharge.contract.events import Event
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import PaymentStore
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.metrics import Counts
from tests.shop.builders import BOUNDS
from tests.support.silent import SILENT

REQUIRES_ACTION_SECONDS = 12 * 3600


class _NoLimit:
    """Stripe's rate limit, which is never reached."""

    @property
    def creates(self) -> Any:
        return self

    confirms = refunds = creates

    def take(self, _: float) -> bool:
        return True


NO_RATE_LIMIT: Any = _NoLimit()


class CountsTo(Counts):
    """Metrics that a test reads."""

    def __init__(self, count: Callable[[str], None], gauge: Callable[[str, float], None] = SILENT) -> None:
        self._count, self._gauge = count, gauge

    def __call__(self, name: str) -> None:
        self._count(name)

    def gauge(self, name: str, seconds: float) -> None:
        self._gauge(name, seconds)


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
    publish: Callable[[Event], None] = SILENT,
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
        publish=publish,
    )
