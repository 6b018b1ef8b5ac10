"""POST /stripe/events: the route that Stripe's webhook endpoint calls. Stripe only needs to know whether to send again.

verify the signature ─┬─► handle the event ─┬─► 200
                      │                     └─► an outage: 503, and Stripe sends it again
                      └─► not from Stripe: 400, after the secret was read anew, in case that it was rotated
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import stripe
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response, content_types

from onecharge.payments.event_handler import OUTAGES, cause_of
from onecharge.payments.instruments import Instruments
from onecharge.runtime.alarms import Cause
from onecharge.runtime.http_api import Problem
from onecharge.runtime.metrics import Alarm
from stripe_webhook.signature import NotFromStripe, verified


class SigningSecrets(Protocol):
    """The endpoint's signing secret; runtime.secrets.Secret is one."""

    def with_previous(self) -> tuple[str, ...]:
        """Every secret that Stripe may sign with now."""

    def read_anew(self) -> bool:
        """Read it once more, unless that was done a short time ago; returns whether there are others now."""


class WebhookRoute:
    """The route.

    Args:
        receive: returns what handles a verified event, with the Stripe key as it is now.
    """

    def __init__(
        self,
        *,
        secret: SigningSecrets,
        receive: Callable[[], Callable[[stripe.Event], None]],
        instruments: Instruments,
    ) -> None:
        self._secret = secret
        self._receive = receive
        self._instruments = instruments
        self.resolver = APIGatewayHttpResolver()
        self.resolver.post("/stripe/events")(self.receive)
        self.resolver.exception_handler(NotFromStripe)(self._refuse)
        self.resolver.exception_handler([*OUTAGES])(self._unavailable)
        self.resolver.exception_handler(Exception)(self._failed)

    def receive(self) -> Response[dict[str, Any]]:
        """Handle one event."""
        event = self._verified(self._body(), self.resolver.current_event.headers.get("stripe-signature"))
        if event is None:
            self._instruments.count("EventIgnored")
            self._instruments.logger.info("thin event ignored", extra={"correlation_id": self._correlation_id()})
        else:
            self._receive()(event)
        return Response(HTTPStatus.OK.value, content_types.APPLICATION_JSON, {"received": True})

    def _verified(self, body: str, header: str | None) -> stripe.Event | None:
        try:
            return verified(body, header, self._secret.with_previous())
        except NotFromStripe:
            if not self._secret.read_anew():
                raise
            return verified(body, header, self._secret.with_previous())

    def _body(self) -> str:
        try:
            return self.resolver.current_event.decoded_body or ""
        except ValueError:  # Neither Base64 nor UTF-8.
            raise NotFromStripe from None

    def _refuse(self, _: NotFromStripe) -> Response[str]:
        self._instruments.count("SignatureRefused")
        self._instruments.logger.warning("signature refused", extra={"correlation_id": self._correlation_id()})
        return self._problem(HTTPStatus.BAD_REQUEST, "not-from-stripe", "The signature is not Stripe's.")

    def _unavailable(self, error: Exception) -> Response[str]:
        self._instruments.count("WebhookDeferred")
        cause = cause_of(error)
        if cause:
            self._instruments.count(Alarm(cause))
        self._instruments.logger.warning(
            "webhook deferred: Stripe sends it again",
            extra={"error": type(error).__name__, "cause": cause, "correlation_id": self._correlation_id()},
        )
        return self._problem(HTTPStatus.SERVICE_UNAVAILABLE, "try-again", "The event was not handled. Send it again.")

    def _failed(self, _: Exception) -> Response[str]:
        cause = Cause.UNEXPECTED_ERROR
        self._instruments.count(Alarm(cause))
        self._instruments.logger.exception(
            "request failed", extra={"cause": cause, "correlation_id": self._correlation_id()}
        )
        return self._problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The event was not handled. Send it again.")

    def _problem(self, status: HTTPStatus, kind: str, detail: str) -> Response[str]:
        return Problem(status, kind, detail).response(self._correlation_id())

    def _correlation_id(self) -> str:
        return self.resolver.current_event.request_context.request_id
