"""reconcile_charges: the payment service's own auditor, on a schedule. This file only puts the parts together."""

import os
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from onecharge.aws import client_config
from onecharge.metrics import Counts
from onecharge.payments.ledger import Ledger
from onecharge.payments.settling import Settler
from onecharge.payments.stripe_account import StripeAccount
from onecharge.payments.time_bounds import TimeBounds
from reconcile_charges.progress import ProgressStore
from reconcile_charges.reconcile import ReconcileCharges

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_ONE_STEP = TimeBounds.of(30)
"""One event, or one row, gets as much time as one delivery does in charge_order."""


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = Logger()
        self.counts = Counts(Metrics())
        dynamodb = boto3.client("dynamodb", config=config)
        self._ledger = Ledger(dynamodb, environment["CHARGES_TABLE"])
        self._progress = ProgressStore(dynamodb, environment["RECONCILIATION_TABLE"])
        self._stripe = StripeAccount(environment, config=config, bounds=_ONE_STEP)
        self._bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))

    def reconcile(self, context: "LambdaContext") -> None:
        """One run, which ends before the invocation does."""
        gateway = self._stripe.gateway()
        settler = Settler(
            ledger=self._ledger,
            gateway=gateway,
            lease_seconds=self._bounds.lease_seconds,
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )
        ReconcileCharges(
            ledger=self._ledger,
            gateway=gateway,
            settler=settler,
            progress=self._progress,
            clock=time.time,
            has_time=lambda: context.get_remaining_time_in_millis() / 1000 >= _ONE_STEP.record_seconds,
            logger=self._logger,
            count=self.counts,
        )()


@cache
def _application() -> Application:
    return Application(os.environ)


def handler(event: dict[str, Any], context: "LambdaContext") -> None:
    """Hold the ledger against Stripe from where the last run stopped; what the schedule says does not matter."""
    application = _application()
    try:
        application.reconcile(context)
    finally:
        application.counts.flush()
