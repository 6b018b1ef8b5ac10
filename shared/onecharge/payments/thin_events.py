"""Thin events name the object that changed, and do not show it: it is retrieved, and the event parsed like any other.

    {"object": "v2.core.event", "type": "v1.payment_intent.succeeded", "related_object": {"type": …, "id": …}, …}

Stripe sends them to an endpoint that was made for them. Source: Stripe documentation, "How events work".
"""

from datetime import datetime
from types import SimpleNamespace
from typing import Any

from onecharge.payments.stripe_events import EVENT_TYPES, EventDeferred
from onecharge.payments.tools import Tools

THIN_EVENT = "v2.core.event"
_PREFIX = "v1."


def concerns_us(event: Any) -> bool:
    """Whether its type is one that is handled, and its account is ours: `context` is a connected account's."""
    type_ = event.type.removeprefix(_PREFIX)
    return type_ != event.type and type_ in EVENT_TYPES and getattr(event, "context", None) is None


def with_related_object(event: Any, tools: Tools) -> Any:
    """The event as `parse_event` reads it, with its object as it is now: one request, within Stripe's rate limit.

    Raises:
        EventDeferred: the rate limit is reached.
        stripe.StripeError: Stripe did not answer, or refused.
    """
    related, v1 = event.related_object, tools.stripe.client.v1
    resources: dict[str, Any] = {
        "payment_intent": v1.payment_intents,
        "charge": v1.charges,
        "dispute": v1.disputes,
        "radar.early_fraud_warning": v1.radar.early_fraud_warnings,
        "refund": v1.refunds,
        "review": v1.reviews,
    }
    if not tools.rate.retrieves.take(tools.deadline):
        raise EventDeferred("Stripe's rate limit is reached")
    return SimpleNamespace(
        id=event.id,
        type=event.type.removeprefix(_PREFIX),
        created=int(datetime.fromisoformat(event.created).timestamp()),
        data=SimpleNamespace(object=resources[related.type].retrieve(related.id)),
    )
