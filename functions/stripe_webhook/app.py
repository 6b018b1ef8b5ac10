"""stripe_webhook: POST /stripe/events, where Stripe sends its webhooks.

POST /stripe/events ─► verify the signature ─► reconcile or record ─► 200, or 503 for Stripe to send it again
"""

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import boto3
import stripe
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response, content_types
from aws_lambda_powertools.utilities.parameters import SecretsProvider

from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.events import ChargeEventRecorder
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.charges.reconciler import Reconciler, StripeUnavailable
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.refunds.canceled_orders import CanceledOrderRefunds
from onecharge.payments.refunds.events import RefundEventHandler
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.stripe_account import StripeAccount
from onecharge.payments.stripe_events import OUTAGES, StripeEventHandler
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from onecharge.runtime.problems import Problem
from stripe_webhook.receive import ReceiveStripeEvent
from stripe_webhook.signature import NotFromStripe, verified

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

WEBHOOK_SECRET_MAX_AGE_SECONDS = 300
"""How long a rolled secret may go unnoticed. Stripe signs with the old one as well for as long as was chosen, and
sends again for days what was refused meanwhile."""


class StripeEventsApi:
    """The route; `secret` gives the signing secret as it is now, `receive` what handles an event."""

    def __init__(
        self,
        *,
        secret: Callable[[], str],
        receive: Callable[[], Callable[[stripe.Event], None]],
        logger: Logger,
        counts: Callable[[str], None],
    ) -> None:
        self._secret = secret
        self._receive = receive
        self._logger = logger
        self._counts = counts
        self.resolver = APIGatewayHttpResolver()
        self.resolver.post("/stripe/events")(self.receive)
        self.resolver.exception_handler(NotFromStripe)(self._refuse)
        self.resolver.exception_handler([*OUTAGES])(self._unavailable)
        self.resolver.exception_handler(Exception)(self._failed)

    def receive(self) -> Response[dict[str, Any]]:
        """Handle one event; Stripe only wants to know whether it has to send it again."""
        event = verified(self._body(), self.resolver.current_event.headers.get("stripe-signature"), self._secret())
        if event is None:
            self._counts("EventIgnored")
            self._logger.info("thin event ignored", extra={"correlation_id": self._correlation_id()})
        else:
            self._receive()(event)
        return Response(HTTPStatus.OK.value, content_types.APPLICATION_JSON, {"received": True})

    def _body(self) -> str:
        try:
            return self.resolver.current_event.decoded_body or ""
        except ValueError:  # It is no Base64, or no UTF-8.
            raise NotFromStripe from None

    def _refuse(self, _: NotFromStripe) -> Response[str]:
        self._counts("SignatureRefused")
        self._logger.warning("signature refused", extra={"correlation_id": self._correlation_id()})
        return self._problem(HTTPStatus.BAD_REQUEST, "not-from-stripe", "This is no event that Stripe has signed.")

    def _unavailable(self, error: Exception) -> Response[str]:
        self._counts("WebhookDeferred")
        account = isinstance(error, stripe.AuthenticationError | stripe.PermissionError)
        if account or (isinstance(error, StripeUnavailable) and error.needs_a_person):
            self._counts("Alarm")
        self._logger.warning(
            "webhook deferred: Stripe sends it again",
            extra={"error": type(error).__name__, "correlation_id": self._correlation_id()},
        )
        return self._problem(HTTPStatus.SERVICE_UNAVAILABLE, "try-again", "The event has to be sent again.")

    def _failed(self, _: Exception) -> Response[str]:
        self._counts("Alarm")
        self._logger.exception("request failed", extra={"correlation_id": self._correlation_id()})
        return self._problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The event has to be sent again.")

    def _problem(self, status: HTTPStatus, kind: str, detail: str) -> Response[str]:
        return Problem(status, kind, detail).response(self._correlation_id())

    def _correlation_id(self) -> str:
        return self.resolver.current_event.request_context.request_id


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = Logger()
        self.counts = Counts(Metrics())
        self._bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        dynamodb = boto3.client("dynamodb", config=config)
        self._store = PaymentStore(dynamodb, environment["PAYMENTS_TABLE"])
        self._refunds = RefundStore(dynamodb, environment["REFUNDS_TABLE"])
        self._processed = ProcessedEvents(dynamodb, environment["STRIPE_EVENTS_TABLE"])
        self._requires_action_seconds = int(environment["REQUIRES_ACTION_SECONDS"])
        self._stripe = StripeAccount(environment, config=config, bounds=self._bounds)
        self._secrets = SecretsProvider(boto3_client=boto3.client("secretsmanager", config=config))
        self._secret_arn = environment["STRIPE_WEBHOOK_SECRET_ARN"]
        self.api = StripeEventsApi(secret=self._secret, receive=self._receive, logger=self._logger, counts=self.counts)

    def _secret(self) -> str:
        return str(self._secrets.get(self._secret_arn, max_age=WEBHOOK_SECRET_MAX_AGE_SECONDS)).strip()

    def _receive(self) -> ReceiveStripeEvent:
        gateway = self._stripe.gateway()
        refunds = StripeRefunds(gateway.client)
        events = StripeEventHandler(
            reconciler=self._reconciler(gateway),
            charges=ChargeEventRecorder(self._store, gateway, refunds, self._logger, self.counts),
            refunds=RefundEventHandler(
                store=self._refunds,
                gateway=refunds,
                clock=time.time,
                logger=self._logger,
                count=self.counts,
            ),
        )
        return ReceiveStripeEvent(
            events=events, processed=self._processed, clock=time.time, logger=self._logger, count=self.counts
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
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one HTTP request."""
    return application.api.resolver.resolve(event, context)
