"""POST /stripe/events: the route that Stripe's webhook endpoint calls. Stripe only needs to know whether to send again.

verify the signature ─┬─► parse, apply ─┬─► 200, also for another shop's event
                      │                 └─► an outage, or an event of the other mode: 503, and Stripe sends it again
                      ├─► not from Stripe: 400, after the secret was read again, in case that it was rotated
                      └─► no signing secret is stored: 503 and an alarm
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

import stripe
from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import Response, content_types
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from onecharge.payments.apply import apply
from onecharge.payments.stripe_events import NewestReceived, is_signing_secret, parse_event
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import OUTAGES, cause_of
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.http_api import HttpApi, JsonResponse, Problem, try_again
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.secrets import Secret, logged_as

SIGNATURE_SECONDS = 300
"""How old a signature may be (Stripe documentation, "Webhooks", "Preventing replay attacks"). Each delivery has its own
signature, also if Stripe sends an event again."""


class NotFromStripe(Exception):
    """The signature is missing, too old, or not of this body and secret. The response does not say which."""


@dataclass(frozen=True, kw_only=True)
class WebhookRoute:
    """The route, and its dependencies."""

    secret: Secret
    """The endpoint's signing secret, `whsec_…`."""
    make_tools: Callable[[], Tools]
    """Makes the tools for one event, with a deadline from now. Raises SecretUnavailable."""
    is_live: Callable[[], bool]
    """Whether our API key is one of live mode. Raises SecretUnavailable."""
    newest: NewestReceived
    logger: Logger
    count: Callable[[str], None]

    @cached_property
    def resolver(self) -> HttpApi:
        app = HttpApi(self.logger, self.count)

        @app.post("/stripe/events")
        def receive() -> JsonResponse:
            self._accept(self._verified(app.current_event))
            return Response(HTTPStatus.OK.value, content_types.APPLICATION_JSON, {"received": True})

        @app.exception_handler(NotFromStripe)  # type: ignore[untyped-decorator]  # Powertools' has no types.
        def refuse(_: NotFromStripe) -> Response[str]:
            self.count("SignatureRefused")
            self.logger.warning("signature refused", extra={"correlation_id": app.correlation_id})
            detail = "The signature is not Stripe's."
            return Problem(HTTPStatus.BAD_REQUEST, "not-from-stripe", detail).response(app.correlation_id)

        @app.exception_handler([*OUTAGES])  # type: ignore[untyped-decorator]
        def defer(error: Exception) -> Response[str]:
            self.count("WebhookDeferred")
            cause = cause_of(error)
            if cause:
                self.count(Alarm(cause))
            why = str(error) if isinstance(error, Deferred) else None
            about = {"error": logged_as(error), "why": why, "cause": cause, "correlation_id": app.correlation_id}
            self.logger.warning("webhook deferred: Stripe sends it again", extra=about)
            return try_again("The event was not applied. Send it again.").response(app.correlation_id)

        return app

    def _accept(self, event: Any) -> None:
        """Apply an event that concerns us. Raises sync.OUTAGES."""
        parsed = parse_event(event)
        if parsed is None:
            # Refused, it would be sent again for days. Stripe shows by the id what its endpoint sends needlessly.
            self.count("EventIgnored")
            message = "event ignored: its type or account is not ours, or it has no PaymentIntent"
            self.logger.info(message, extra={"event_id": event.id})
            return
        is_live = self.is_live()
        if getattr(event, "livemode", is_live) != is_live:
            # With this key nothing of the event can be read. It is not dropped: the key may be the wrong one.
            self.count("EventOfOtherMode")
            raise Deferred("event of the other mode: live, or of a sandbox", alarm=Cause.STRIPE_ACCOUNT)
        self.newest.saw(parsed)
        apply(parsed, self.make_tools())
        self.count("EventProcessed")
        about = {"event_id": parsed.event_id, "event_type": parsed.type, "order_id": parsed.order_id}
        self.logger.info("event processed", extra={**about, "payment_intent_id": parsed.payment_intent_id})

    # ------------------------------------------------------------ whether Stripe has sent it

    def _verified(self, request: APIGatewayProxyEventV2) -> stripe.Event:
        """The event in the request. Raises NotFromStripe, and Deferred if no signing secret is stored."""
        header = request.headers.get("stripe-signature")
        try:
            body = request.decoded_body or ""
        except ValueError:  # Neither Base64 nor UTF-8.
            raise NotFromStripe from None
        try:
            return verified(body, header, self._signing_secret())
        except NotFromStripe:
            if not self.secret.read_again():
                raise
            return verified(body, header, self._signing_secret())

    def _signing_secret(self) -> str:
        found = self.secret.current()
        if not is_signing_secret(found) and self.secret.read_again():
            found = self.secret.current()
        if not is_signing_secret(found):
            raise Deferred("no signing secret is stored", alarm=Cause.STRIPE_ACCOUNT)
        return found


def verified(body: str, signature: str | None, secret: str) -> stripe.Event:
    """The event in the body of a webhook. Raises NotFromStripe: nothing in the body can be trusted.

    Args:
        body: as it was received: serialized again it would have another signature.
        signature: the header Stripe-Signature, `t=…,v1=…`; with a secret that is being rolled, one for each.
    """
    try:
        stripe.WebhookSignature.verify_header(body, signature, secret, SIGNATURE_SECONDS)
        return stripe.Event.construct_from(json.loads(body), None)
    except (stripe.SignatureVerificationError, ValueError, TypeError):
        # ValueError: the body is not JSON. TypeError: the signature is not ASCII, and cannot be compared. The library's
        # error holds the body and the signature, so it is not chained.
        raise NotFromStripe from None
