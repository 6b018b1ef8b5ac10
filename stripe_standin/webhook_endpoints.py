"""Webhook endpoints. The secret is in the response to the create only; the API version cannot be changed.

There is no request that rolls a secret: Stripe's API has none either, only the Dashboard has. Source: Stripe API
reference, "Webhook Endpoints"; Stripe documentation, "Receive Stripe events in your webhook endpoint".
"""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, ClassVar

from stripe_standin.account import Account, digest, shown
from stripe_standin.errors import invalid
from stripe_standin.messages import Request
from stripe_standin.parameters import allow, boolean, values

EVERY_EVENT = "*"
EVENT_TYPES = frozenset(
    f"{resource}.{what}"
    for resource, names in {
        "charge": "captured expired failed pending refunded succeeded updated refund.updated",
        "charge.dispute": "closed created funds_reinstated funds_withdrawn updated",
        "customer": "created deleted updated",
        "payment_intent": "amount_capturable_updated canceled created partially_funded payment_failed processing "
        "requires_action succeeded",
        "payment_method": "attached automatically_updated detached updated",
        "payout": "canceled created failed paid reconciliation_completed updated",
        "radar.early_fraud_warning": "created updated",
        "refund": "created failed updated",
        "review": "closed opened",
    }.items()
    for what in names.split()
)
"""What an endpoint can enable: Stripe's event types about payments, of which the stand-in emits some."""
_EVENTS = r"enabled_events\[\d*\]"


@dataclass
class WebhookEndpoint:
    """A URL that Stripe sends events to."""

    named: ClassVar = ("webhook endpoint", "webhook_endpoint")
    id: str
    url: str
    enabled_events: list[str]
    secret: str
    created: int
    api_version: str | None = None
    description: str | None = None
    status: str = "enabled"

    def gets(self, event_type: str) -> bool:
        """Whether Stripe sends it events of this type."""
        return self.status == "enabled" and not {event_type, EVERY_EVENT}.isdisjoint(self.enabled_events)

    def as_json(self) -> dict[str, Any]:
        constant: dict[str, Any] = {
            "object": "webhook_endpoint",
            "application": None,
            "livemode": False,
            "metadata": {},
        }
        return {**constant, **shown(self, "id api_version created description enabled_events status url".split())}


def create(account: Account, request: Request) -> dict[str, Any]:
    """POST /v1/webhook_endpoints"""
    parameters = allow(request, "url|api_version|description", _EVENTS)
    if not parameters.get("url", "").startswith(("http://", "https://")):
        raise invalid("Invalid URL: An explicit scheme (such as https) must be provided.", param="url")
    id_ = account.ids.new("we")
    endpoint = WebhookEndpoint(
        id=id_,
        url=parameters["url"],
        enabled_events=_enabled_events(request),
        secret=f"whsec_{digest(id_)[:32]}",
        created=account.now,
        api_version=parameters.get("api_version"),
        description=parameters.get("description"),
    )
    account.all(WebhookEndpoint)[id_] = endpoint
    return {**endpoint.as_json(), "secret": endpoint.secret}


def update(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """POST /v1/webhook_endpoints/{id}"""
    parameters = allow(request, "description|disabled", _EVENTS)
    endpoint = account.find(WebhookEndpoint, identifier)
    if values(parameters, "enabled_events"):
        endpoint.enabled_events = _enabled_events(request)
    if "disabled" in parameters:
        endpoint.status = "disabled" if boolean(parameters, "disabled") else "enabled"
    endpoint.description = parameters.get("description", endpoint.description)
    return endpoint.as_json()


def delete(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """DELETE /v1/webhook_endpoints/{id}"""
    allow(request)
    del account.all(WebhookEndpoint)[account.find(WebhookEndpoint, identifier).id]
    return {"id": identifier, "object": "webhook_endpoint", "deleted": True}


def _enabled_events(request: Request) -> list[str]:
    events = values(request.parameters, "enabled_events")
    if not events:
        raise invalid("Missing required param: enabled_events.", param="enabled_events", code="parameter_missing")
    if unknown := set(events) - EVENT_TYPES - {EVERY_EVENT}:
        raise invalid(f"Invalid enabled_events: {', '.join(sorted(unknown))}", param="enabled_events")
    return events


def signature(payload: str, secret: str, timestamp: int) -> str:
    """The `Stripe-Signature` header: `t=…,v1=HMAC-SHA256(secret, "t.payload")`."""
    signed = hmac.new(secret.encode(), f"{timestamp}.{payload}".encode(), hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={signed}"
