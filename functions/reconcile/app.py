"""reconcile: the payment service's scheduled reconciliation with Stripe. This file puts the parts together."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.events import ChargeEventRecorder
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.charges.reconciler import Reconciler
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.refunds.canceled_orders import CanceledOrderRefunds
from onecharge.payments.refunds.events import RefundEventHandler
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.stripe_account import StripeAccount
from onecharge.payments.stripe_events import StripeEventHandler
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from reconcile.checkpoint import ReconcileCheckpoint
from reconcile.reconcile import ReconcileCharges

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

STEP_SECONDS = 20
"""One row, one event, one page: as much as a function with this timeout would have for it."""


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = Logger()
        self.counts = Counts(Metrics())
        dynamodb = boto3.client("dynamodb", config=config)
        self._store = PaymentStore(dynamodb, environment["PAYMENTS_TABLE"])
        self._refunds = RefundStore(dynamodb, environment["REFUNDS_TABLE"])
        self._processed = ProcessedEvents(dynamodb, environment["STRIPE_EVENTS_TABLE"])
        self._checkpoints = CheckpointStore(dynamodb, environment["RECONCILIATION_TABLE"], ReconcileCheckpoint)
        self._requires_action_seconds = int(environment["REQUIRES_ACTION_SECONDS"])
        function = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        # Short waits for each row; but a lease that outlives the function, as every lease does.
        self._bounds = replace(TimeBounds.of(STEP_SECONDS), lease_seconds=function.lease_seconds)
        self._stripe = StripeAccount(environment, config=config, bounds=self._bounds)

    def reconcile(self, context: "LambdaContext") -> None:
        """One run, which ends before the invocation does."""
        try:
            gateway = self._stripe.gateway()
        except GetParameterError:
            self.counts("ReconcileInterrupted")
            self.counts("Alarm")
            self._logger.exception("the Stripe key cannot be read")
            return
        reconciler = self._reconciler(gateway)
        ReconcileCharges(
            store=self._store,
            gateway=gateway,
            reconciler=reconciler,
            events=self._events(gateway, reconciler),
            processed=self._processed,
            checkpoints=self._checkpoints,
            clock=time.time,
            seconds_left=lambda: context.get_remaining_time_in_millis() / 1000,
            step_seconds=STEP_SECONDS,
            logger=self._logger,
            count=self.counts,
            gauge=self.counts.gauge,
        )()

    def _events(self, gateway: StripeGateway, reconciler: Reconciler) -> StripeEventHandler:
        refunds = StripeRefunds(gateway.client)
        return StripeEventHandler(
            reconciler=reconciler,
            charges=ChargeEventRecorder(self._store, gateway, refunds, self._logger, self.counts),
            refunds=RefundEventHandler(
                store=self._refunds,
                gateway=refunds,
                clock=time.time,
                logger=self._logger,
                count=self.counts,
            ),
        )

    def _reconciler(self, gateway: StripeGateway) -> Reconciler:
        worker = PaymentWorker(
            store=self._store, gateway=gateway, clock=time.time, logger=self._logger, count=self.counts
        )
        cancel = CancelPayment(
            store=self._store,
            worker=worker,
            bounds=self._bounds,
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )
        return Reconciler(
            store=self._store,
            gateway=gateway,
            cancel=cancel,
            refund_canceled_order=self._refund_canceled_order,
            requires_action_seconds=self._requires_action_seconds,
            bounds=self._bounds,
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )

    def _refund_worker(self) -> RefundWorker:
        return RefundWorker(
            store=self._refunds,
            gateway=StripeRefunds(self._stripe.gateway().client),
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )

    def _refund_canceled_order(self, payment: Payment, intent: FoundIntent) -> None:
        CanceledOrderRefunds(worker=self._refund_worker(), bounds=self._bounds, clock=time.time)(payment, intent)


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Reconcile from where the last run stopped; what the schedule says does not matter."""
    application.reconcile(context)
