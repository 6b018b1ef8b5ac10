"""Stripe's events: parsed alike, whether a webhook delivers them or a scheduled run lists them.

payment_intent.*         ─► PaymentIntentEvent   a PaymentIntent of ours changed
charge.*                 ─► ChargeEvent          a charge was refunded or disputed
refund.updated, .failed  ─► RefundEvent          a refund changed after it was made

Source: Stripe documentation, "Types of events", "Connect webhooks", "List all events".
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.payments.charges.gateway import found_intent
from onecharge.payments.charges.protocol import FoundIntent
from onecharge.payments.stripe_responses import metadata_of, order_id_of

if TYPE_CHECKING:
    from stripe.params import EventListParams

_EVENTS = "/v1/events"
_PAGE_SIZE = 100


class EventDeferred(Exception):
    """The event cannot be handled now: Stripe, or the scheduled run, is to deliver it again."""


class ChargeEventType(StrEnum):
    """What may happen to a charge after it was made, by the type of Stripe's event."""

    REFUNDED = "charge.refunded"
    DISPUTE_CREATED = "charge.dispute.created"
    DISPUTE_UPDATED = "charge.dispute.updated"
    DISPUTE_CLOSED = "charge.dispute.closed"


class RefundEventType(StrEnum):
    """What may happen to a refund after it was made."""

    UPDATED = "refund.updated"
    FAILED = "refund.failed"


_LISTED_INTENT_TYPES = ("payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled")
_LISTED_TYPES = (*_LISTED_INTENT_TYPES, *ChargeEventType, *RefundEventType)
_INTENT_TYPES = (*_LISTED_INTENT_TYPES, "payment_intent.requires_action")
EVENT_TYPES = (*_INTENT_TYPES, *ChargeEventType, *RefundEventType)
"""Every type that concerns us."""


@dataclass(frozen=True)
class PaymentIntentEvent:
    """A PaymentIntent of ours, as it was when Stripe created the event."""

    event_id: str
    order_id: str
    intent: FoundIntent

    @property
    def payment_intent_id(self) -> str:
        return self.intent.payment_intent_id


@dataclass(frozen=True)
class ChargeEvent:
    """A charge was refunded or disputed. `order_id` is None if the event's object does not name it."""

    event_id: str
    type: ChargeEventType
    payment_intent_id: str | None
    order_id: str | None
    dispute_status: str | None = None


@dataclass(frozen=True)
class RefundEvent:
    """A refund changed at Stripe. `refund_id` is ours, or None for a refund that was made by hand."""

    event_id: str
    type: RefundEventType
    stripe_refund_id: str
    status: str
    order_id: str | None
    refund_id: str | None
    payment_intent_id: str | None
    failure_reason: str | None = None


StripeEvent = PaymentIntentEvent | ChargeEvent | RefundEvent


@dataclass(frozen=True)
class EventPage:
    """Events, newest first. `next` is the cursor of the next page; None on the last one."""

    events: list[StripeEvent]
    next: str | None


@dataclass(frozen=True)
class StripeEvents:
    """Stripe's list of events, which it keeps for 30 days, through one StripeClient."""

    client: stripe.StripeClient

    def list_events(self, *, since: int, until: int, after: str | None) -> EventPage:
        """One page of the events that concern us, from `since` up to, not including, `until`.

        Args:
            since, until: epoch seconds.
            after: the cursor, which is the id of the previous page's last event.
        """
        parameters: EventListParams = {
            "types": list(_LISTED_TYPES),
            "created": {"gte": since, "lt": until},
            "limit": _PAGE_SIZE,
        }
        if after:
            parameters["starting_after"] = after
        page = self.client.v1.events.list(parameters)
        parsed = [parse_event(event) for event in page.data]
        return EventPage([event for event in parsed if event], page.data[-1].id if page.has_more else None)

    def retrieve_event(self, event_id: str) -> StripeEvent | None:
        """The event, as `parse_event` reads it."""
        return parse_event(self.client.v1.events.retrieve(event_id))


def parse_event(event: Any) -> StripeEvent | None:
    """What an event says; None if its type, its account or its PaymentIntent is not ours.

    `event` is a stripe.Event from Stripe's API, or from a webhook whose signature has been verified.
    """
    if getattr(event, "account", None) is not None:
        # Of a connected account (Stripe documentation, "Connect webhooks").
        return None
    if event.type in _INTENT_TYPES:
        return _payment_intent_event(event)
    if event.type in list(ChargeEventType):
        return _charge_event(event)
    if event.type in list(RefundEventType):
        return _refund_event(event)
    return None


def _payment_intent_event(event: Any) -> PaymentIntentEvent | None:
    order_id = order_id_of(event.data.object)
    return PaymentIntentEvent(event.id, order_id, found_intent(event.data.object)) if order_id else None


def _charge_event(event: Any) -> ChargeEvent:
    made = event.data.object
    is_dispute = event.type != ChargeEventType.REFUNDED
    return ChargeEvent(
        event.id,
        ChargeEventType(event.type),
        payment_intent_id=getattr(made, "payment_intent", None),
        order_id=order_id_of(made),
        dispute_status=made.status if is_dispute else None,
    )


def _refund_event(event: Any) -> RefundEvent:
    made = event.data.object
    return RefundEvent(
        event.id,
        RefundEventType(event.type),
        stripe_refund_id=made.id,
        status=made.status or "none",
        order_id=order_id_of(made),
        refund_id=metadata_of(made).get("refund_id"),
        payment_intent_id=getattr(made, "payment_intent", None),
        failure_reason=getattr(made, "failure_reason", None),
    )
