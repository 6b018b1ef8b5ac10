"""POST /stripe/events: the route that Stripe's webhook endpoint calls. Stripe only needs to know whether to send again.

verify the signature ─┬─► parse, apply ─┬─► 200, also for another shop's event
                      │                 └─► an outage, or an event of the other mode: 503, and Stripe sends it again
                      ├─► not from Stripe: 400, after the secret was read again, in case that it was rotated
                      └─► no signing secret is stored: 503 and an alarm
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import stripe
from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response, content_types

from onecharge.payments.stripe_events import NewestReceived, StripeEvent, is_signing_secret, parse_event
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import OUTAGES, cause_of
from onecharge.runtime.alarms import Cause
from onecharge.runtime.http_api import NOTHING_HERE, Problem
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.secrets import logged_as

SIGNATURE_SECONDS = 300
"""How old a signature may be (Stripe documentation, "Webhooks", "Preventing replay attacks"). Each delivery has its own
signature, also if Stripe sends an event again."""


class SigningSecret(Protocol):
    """The endpoint's signing secret; runtime.secrets.Secret is one."""

    def current(self) -> str:
        """The secret that is stored."""

    def read_again(self) -> bool:
        """Read it once more, unless that was done a short time ago; returns whether there is another one now."""


class NotFromStripe(Exception):
    """The signature is missing, too old, or not of this body and secret. The response does not say which."""


class WebhookRoute:
    """The route.

    Args:
        apply: makes our rows say what Stripe says after an event. Raises sync.OUTAGES.
        is_live: whether our API key is one of live mode. Raises SecretUnavailable.
    """

    def __init__(
        self,
        *,
        secret: SigningSecret,
        apply: Callable[[StripeEvent], None],
        is_live: Callable[[], bool],
        newest: NewestReceived,
        logger: Logger,
        count: Callable[[str], None],
    ) -> None:
        self._secret, self._apply, self._is_live, self._newest = secret, apply, is_live, newest
        self._logger, self._count = logger, count
        self.resolver = APIGatewayHttpResolver()
        self.resolver.post("/stripe/events")(self.receive)
        self.resolver.not_found(lambda _: NOTHING_HERE.response(self._correlation_id()))
        self.resolver.exception_handler(NotFromStripe)(self._refuse)
        self.resolver.exception_handler([*OUTAGES])(self._unavailable)
        self.resolver.exception_handler(Exception)(self._failed)

    def receive(self) -> Response[dict[str, Any]]:
        """Apply one event."""
        event: Any = self._verified()
        parsed = parse_event(event)
        if parsed is None:
            # Refused, it would be sent again for days. Stripe shows by the id what its endpoint sends needlessly.
            self._count("EventIgnored")
            message = "event ignored: its type or account is not ours, or it has no PaymentIntent"
            self._logger.info(message, extra={"event_id": event.id})
        else:
            self._require_our_mode(event)
            self._newest.saw(parsed)
            self._apply(parsed)
            self._count("EventProcessed")
            about = {"event_id": parsed.event_id, "event_type": parsed.type, "order_id": parsed.order_id}
            self._logger.info("event processed", extra={**about, "payment_intent_id": parsed.payment_intent_id})
        return Response(HTTPStatus.OK.value, content_types.APPLICATION_JSON, {"received": True})

    def _verified(self) -> stripe.Event:
        header = self.resolver.current_event.headers.get("stripe-signature")
        try:
            body = self.resolver.current_event.decoded_body or ""
        except ValueError:  # Neither Base64 nor UTF-8.
            raise NotFromStripe from None
        try:
            return verified(body, header, self._signing_secret())
        except NotFromStripe:
            if not self._secret.read_again():
                raise
            return verified(body, header, self._signing_secret())

    def _signing_secret(self) -> str:
        """The endpoint's signing secret. Raises Deferred if what is stored is not one."""
        found = self._secret.current()
        if not is_signing_secret(found) and self._secret.read_again():
            found = self._secret.current()
        if not is_signing_secret(found):
            raise Deferred("no signing secret is stored", alarm=Cause.STRIPE_ACCOUNT)
        return found

    def _require_our_mode(self, event: Any) -> None:
        """Raises Deferred if the event is live and our key is not, or the other way round.

        The endpoint, or the key, is of another environment: with this key nothing of the event can be read. It is not
        dropped, since the key may be the wrong one.
        """
        is_live = self._is_live()
        if getattr(event, "livemode", is_live) != is_live:
            self._count("EventOfOtherMode")
            raise Deferred("event of the other mode: live, or of a sandbox", alarm=Cause.STRIPE_ACCOUNT)

    # ------------------------------------------------------------ what is answered otherwise

    def _refuse(self, _: NotFromStripe) -> Response[str]:
        self._count("SignatureRefused")
        self._logger.warning("signature refused", extra={"correlation_id": self._correlation_id()})
        return self._problem(HTTPStatus.BAD_REQUEST, "not-from-stripe", "The signature is not Stripe's.")

    def _unavailable(self, error: Exception) -> Response[str]:
        self._count("WebhookDeferred")
        cause = cause_of(error)
        if cause:
            self._count(Alarm(cause))
        self._logger.warning(
            "webhook deferred: Stripe sends it again",
            extra={
                "error": logged_as(error),
                "why": str(error) if isinstance(error, Deferred) else None,
                "cause": cause,
                "correlation_id": self._correlation_id(),
            },
        )
        return self._problem(HTTPStatus.SERVICE_UNAVAILABLE, "try-again", "The event was not applied. Send it again.")

    def _failed(self, _: Exception) -> Response[str]:
        cause = Cause.UNEXPECTED_ERROR
        self._count(Alarm(cause))
        about = {"cause": cause, "correlation_id": self._correlation_id()}
        self._logger.exception("request failed", extra=about)
        return self._problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The event was not applied. Send it again.")

    def _problem(self, status: HTTPStatus, kind: str, detail: str) -> Response[str]:
        return Problem(status, kind, detail).response(self._correlation_id())

    def _correlation_id(self) -> str:
        return self.resolver.current_event.request_context.request_id


# ---------------------------------------------------------------- the signature


def verified(body: str, signature: str | None, secret: str) -> stripe.Event:
    """The event in the body of a webhook.

    Args:
        body: as it was received: serialized again it would have another signature.
        signature: the header Stripe-Signature, `t=…,v1=…`; with a secret that is being rolled, one for each.
        secret: the endpoint's signing secret, `whsec_…`.

    Raises:
        NotFromStripe: nothing in the body can be trusted.
    """
    try:
        stripe.WebhookSignature.verify_header(body, signature, secret, SIGNATURE_SECONDS)
        return stripe.Event.construct_from(json.loads(body), None)
    except (stripe.SignatureVerificationError, ValueError, TypeError):
        # ValueError: the body is not JSON. TypeError: the signature is not ASCII, and cannot be compared. The library's
        # error holds the body and the signature, so it is not chained.
        raise NotFromStripe from None
