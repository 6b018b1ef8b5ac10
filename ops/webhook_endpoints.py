"""The webhook endpoint at Stripe: what it should be, what it is, and whether the stack takes what it sends."""

import hashlib
import hmac
import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import requests
import stripe

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES
from ops.connection import Stack
from ops.errors import Problem

if TYPE_CHECKING:
    from stripe.params import WebhookEndpointCreateParams, WebhookEndpointUpdateParams

EVERY_TYPE = "*"
_PAGE_SIZE = 100
PATIENCE_SECONDS = 90
"""Longer than a function keeps a secret that was refused (runtime/secrets.py, REREAD_SECONDS)."""
_PAUSE_SECONDS = 3


@dataclass(frozen=True)
class Endpoints:
    """The endpoints of one URL, through the stack's Stripe client."""

    client: stripe.StripeClient
    url: str
    description: str

    def present(self) -> list[stripe.WebhookEndpoint]:
        """Those that Stripe has for the URL, the newest first; more than one while a secret is rotated."""
        listed = self.client.v1.webhook_endpoints.list({"limit": _PAGE_SIZE})
        return [each for each in listed.auto_paging_iter() if each.url == self.url]

    def create(self) -> stripe.WebhookEndpoint:
        """A new one; only this response has its secret."""
        parameters: Any = {
            "url": self.url,
            "enabled_events": list(EVENT_TYPES),
            "api_version": STRIPE_VERSION,
            "description": self.description,
        }
        wanted: WebhookEndpointCreateParams = parameters
        return self.client.v1.webhook_endpoints.create(wanted)

    def correct(self, endpoint: stripe.WebhookEndpoint) -> None:
        """Give it our event types, and enable it."""
        parameters: Any = {"enabled_events": list(EVENT_TYPES), "disabled": False}
        wanted: WebhookEndpointUpdateParams = parameters
        self.client.v1.webhook_endpoints.update(endpoint.id, wanted)

    def disable(self, endpoint: stripe.WebhookEndpoint) -> None:
        """Stripe sends it nothing any more. It is kept: its deliveries can still be read."""
        self.client.v1.webhook_endpoints.update(endpoint.id, {"disabled": True})

    def delete(self, endpoint: stripe.WebhookEndpoint) -> None:
        """Only one that was made a moment ago, and whose secret nobody has."""
        self.client.v1.webhook_endpoints.delete(endpoint.id)


def differences(endpoint: stripe.WebhookEndpoint) -> list[str]:
    """What of an endpoint is not as it should be and can be corrected."""
    found = []
    if endpoint.status != "enabled":
        found.append(f"it is {endpoint.status}")
    given = set(endpoint.enabled_events)
    if missing := sorted(set(EVENT_TYPES) - given if EVERY_TYPE not in given else ()):
        found.append(f"it lacks {', '.join(missing)}")
    if needless := sorted(given - set(EVENT_TYPES)):
        found.append(f"it has, and needs not, {', '.join(needless)}")
    return found


def has_our_version(endpoint: stripe.WebhookEndpoint) -> bool:
    """The API version of an endpoint cannot be changed: a new one is needed (Stripe API reference)."""
    return endpoint.api_version == STRIPE_VERSION


# ---------------------------------------------------------------- its secret


def is_signing_secret(value: str) -> bool:
    """Whether it looks like one: what a stack is deployed with first is a placeholder."""
    return value.startswith("whsec_")


def create_with_secret(endpoints: Endpoints, store: Callable[[str], None]) -> stripe.WebhookEndpoint:
    """Create an endpoint and store its secret; if that fails, there is no new endpoint."""
    made = endpoints.create()
    if not made.secret:
        raise Problem(f"Stripe has returned no secret for {made.id}: nothing was stored")
    try:
        store(made.secret)
    except Exception:
        # Nobody will ever know its secret: every event that it sends would be refused.
        endpoints.delete(made)
        raise
    return made


def add_endpoint_arguments(parser: ArgumentParser) -> None:
    """Which endpoint, and how long the stack may take to accept its secret."""
    parser.add_argument("--url", help="where Stripe reaches POST /stripe/events (default: the stack's own URL)")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, metavar="SECONDS", help="default: 90")


def stack_takes(url: str, secret: str, *, patience_seconds: float) -> bool:
    """Whether the stack answers a request that this secret has signed, as Stripe would send it, within this time.

    The event is of a type that nobody handles: it changes nothing.
    """
    body = json.dumps({"id": "evt_ops_check", "object": "event", "type": "ops.check", "data": {"object": {}}})
    deadline = time.monotonic() + patience_seconds
    while True:
        timestamp = int(time.time())
        signed = hmac.new(secret.encode(), f"{timestamp}.{body}".encode(), hashlib.sha256).hexdigest()
        headers: Mapping[str, str] = {
            "Stripe-Signature": f"t={timestamp},v1={signed}",
            "Content-Type": "application/json",
        }
        try:
            if requests.post(url, data=body, headers=headers, timeout=30).status_code == HTTPStatus.OK:
                return True
        except requests.RequestException:
            pass
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE_SECONDS)


# ---------------------------------------------------------------- of a stack


@dataclass(frozen=True)
class WebhookOfStack:
    """A stack's endpoint, and the secret in Secrets Manager."""

    stack: Stack
    url: str

    @classmethod
    def of(cls, stack: Stack, url: str | None) -> "WebhookOfStack":
        """With this URL; without one, with the one that the stack's outputs name. Raises Problem."""
        if url is None and stack.is_local:
            raise Problem("the emulator's own name for its URL leads nowhere: --url API_URL/stripe/events names it")
        return cls(stack, url or stack.output("StripeEventsUrl"))

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(self.stack.stripe, self.url, f"{self.stack.name}, made by `python -m ops`")

    @property
    def secret_id(self) -> str:
        return self.stack.parameter("StripeWebhookSecretArn")

    def store(self, secret: str) -> None:
        """The former value becomes AWSPREVIOUS, which the functions accept for a day."""
        self.stack.client("secretsmanager").put_secret_value(SecretId=self.secret_id, SecretString=secret)
