"""refund_charge: the payment service's function, fed by the refunds queue. This file only puts the parts together."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.stripe_account import StripeAccount
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
from onecharge.runtime.consumer import queue_consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from refund_charge.refund import RefundCharge

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that outlives an invocation: clients with their connections, threads, derived time bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = Logger()
        self.counts = Counts(Metrics())
        self._bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        dynamodb = boto3.client("dynamodb", config=config)
        self._payments = PaymentStore(dynamodb, environment["PAYMENTS_TABLE"])
        self._refunds = RefundStore(dynamodb, environment["REFUNDS_TABLE"])
        self._stripe = StripeAccount(environment, config=config, bounds=self._bounds)
        self.consumer = queue_consumer(
            model=RefundRequestedEvent,
            # With the Stripe key as it is now. A key that cannot be read is an outage: each message backs off.
            handle=lambda event: self._refund_charge()(event),
            queue_url=environment["REFUNDS_QUEUE_URL"],
            dlq_url=environment["REFUNDS_DLQ_URL"],
            logger=self._logger,
            count=self.counts,
            record_seconds=self._bounds.record_seconds,
        )

    def _refund_charge(self) -> RefundCharge:
        worker = RefundWorker(
            store=self._refunds,
            # One client for the whole delivery: a lookup says nothing about another account.
            gateway=StripeRefunds(self._stripe.gateway().client),
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )
        return RefundCharge(
            payments=self._payments,
            worker=worker,
            bounds=self._bounds,
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Make the refunds of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
