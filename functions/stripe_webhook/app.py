"""stripe_webhook: reconciles payments when Stripe sends an event. This file only puts the parts together.

POST /stripe/events ─► http_route.py ─► signature.py ─► payments/receive_event.py ─► payments/event_handler.py
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3

from onecharge.payments.instruments import Instruments
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.receive_event import ReceiveStripeEvent
from onecharge.payments.reconciliation import Reconciliation
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.secrets import Secret
from stripe_webhook.http_route import WebhookRoute

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts()
        instruments = Instruments(time.time, function_logger(), self.counts)
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        reconciliation = Reconciliation(environment, bounds=bounds, instruments=instruments)
        processed = ProcessedEvents(reconciliation.service.dynamodb, environment["STRIPE_EVENTS_TABLE"])
        # While a secret is rotated Stripe signs with both, or two endpoints send with one each.
        secretsmanager = boto3.client("secretsmanager", config=client_config())
        secret = Secret(secretsmanager, environment["STRIPE_WEBHOOK_SECRET_ARN"])
        receive = partial(ReceiveStripeEvent.of, reconciliation, processed)
        self.route = WebhookRoute(secret=secret, receive=receive, instruments=instruments)


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one HTTP request."""
    return application.route.resolver.resolve(event, context)
