"""cancel_charge: invoked by the order service, and answered at once. This file only puts the parts together."""

import os
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from cancel_charge.cancel import CancelCharge
from onecharge.aws import client_config
from onecharge.events import OrderPlacedEvent
from onecharge.metrics import Counts
from onecharge.payments.ledger import Ledger
from onecharge.payments.stripe_account import StripeAccount
from onecharge.payments.time_bounds import TimeBounds

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = Logger()
        self.counts = Counts(Metrics())
        self._ledger = Ledger(boto3.client("dynamodb", config=config), environment["CHARGES_TABLE"])
        self._bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        self._stripe = StripeAccount(environment, config=config, bounds=self._bounds)

    def cancel(self, event: OrderPlacedEvent) -> dict[str, str]:
        """What became of it."""
        cancel_charge = CancelCharge(
            ledger=self._ledger,
            gateway=self._stripe.gateway(),
            lease_seconds=self._bounds.lease_seconds,
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )
        return {"cancellation": cancel_charge(event)}


@cache
def _application() -> Application:
    return Application(os.environ)


def handler(event: dict[str, Any], context: "LambdaContext") -> dict[str, str]:
    """Cancel the attempt that the event, an `onecharge.order.placed`, asks to charge; an error means: ask again."""
    application = _application()
    try:
        return application.cancel(OrderPlacedEvent.model_validate(event))
    finally:
        application.counts.flush()
