"""Stripe's events, parsed alike whether a webhook delivers them or a scheduled run lists them.

payment_intent.*          PaymentIntentEvent    a PaymentIntent of ours changed
charge.refunded           ChargeRefundedEvent   a charge was refunded, in part or in full
charge.dispute.*          DisputeEvent          a charge was disputed, or its dispute changed
radar.*, review.*         FraudEvent            the issuer warns of a charge, or its review was opened or closed
refund.updated, .failed   RefundEvent           a refund changed after it was made

An event is a hint: it may come late, several times, out of order or never. apply_event.py says what follows from it.
Source: Stripe documentation, "Types of events", "Connect webhooks", "List all events".
"""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import stripe

from onecharge.payments.charge_rules import StripeIntent
from onecharge.payments.stripe_objects import found_intent, found_refund, metadata_of, order_id_of
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun

if TYPE_CHECKING:
    from stripe.params import EventListParams

_PAGE_SIZE = 100
_LISTED_INTENT_TYPES = ("payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled")
_INTENT_TYPES = (*_LISTED_INTENT_TYPES, "payment_intent.requires_action")
_CHARGE_REFUNDED = "charge.refunded"
_DISPUTE_TYPES = ("charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed")
WARNING_CREATED = "radar.early_fraud_warning.created"
_FRAUD_TYPES = (WARNING_CREATED, "review.opened", "review.closed")
_REFUND_TYPES = ("refund.updated", "refund.failed")
_OTHER_TYPES = (_CHARGE_REFUNDED, *_DISPUTE_TYPES, *_FRAUD_TYPES, *_REFUND_TYPES)
_LISTED_TYPES = (*_LISTED_INTENT_TYPES, *_OTHER_TYPES)
EVENT_TYPES = (*_INTENT_TYPES, *_OTHER_TYPES)
"""Every type that concerns us."""


def is_signing_secret(stored: str) -> bool:
    """Whether the stored value can be an endpoint's signing secret. Anybody can guess the placeholder that it replaces.

    Source: Stripe documentation, "Resolve webhook signature verification errors".
    """
    return re.fullmatch(r"whsec_\w+", stored) is not None


class EventDeferred(Exception):
    """The event cannot be applied now: Stripe sends it again, or the scheduled run reads it again.

    Args:
        cause: why this does not resolve by itself, if so.
    """

    def __init__(self, why: str, *, cause: Cause | None = None) -> None:
        super().__init__(why)
        self.cause = cause


# ---------------------------------------------------------------- what an event says


@dataclass(frozen=True, kw_only=True)
class StripeEvent:
    """An event about one of our payments, or about a charge that may be one."""

    event_id: str
    type: str
    created: int
    """Epoch seconds."""
    order_id: str | None
    """None if the event's object does not name it."""
    payment_intent_id: str | None


@dataclass(frozen=True, kw_only=True)
class PaymentIntentEvent(StripeEvent):
    """A PaymentIntent of ours, as it was when Stripe created the event."""

    order_id: str
    intent: StripeIntent


@dataclass(frozen=True, kw_only=True)
class ChargeRefundedEvent(StripeEvent):
    """A charge was refunded."""

    amount_refunded_minor: int
    """The charge's refunds so far."""


@dataclass(frozen=True, kw_only=True)
class DisputeEvent(StripeEvent):
    """A charge was disputed, or its dispute changed: all disputes of its PaymentIntent are read."""


@dataclass(frozen=True, kw_only=True)
class FraudEvent(StripeEvent):
    """The card's issuer warns of a charge, or Stripe has opened or closed its review: Stripe is asked for both."""


@dataclass(frozen=True, kw_only=True)
class RefundEvent(StripeEvent):
    """A refund changed after it was made."""

    stripe_refund_id: str
    status: str
    refund_id: str | None
    """Ours; None for a refund that was made by hand."""
    pending_reason: str | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the money is back on Stripe's side."""
        return self.status in ("failed", "canceled")


def parse_event(event: Any) -> StripeEvent | None:
    """What an event says; None if its type, its account or its PaymentIntent is not ours.

    Args:
        event: a stripe.Event from Stripe's API, or from a webhook whose signature has been verified.
    """
    # `account` is a connected account's (Stripe documentation, "Connect webhooks").
    if event.type not in EVENT_TYPES or getattr(event, "account", None) is not None:
        return None
    made = event.data.object
    about: dict[str, Any] = {
        "event_id": event.id,
        "type": event.type,
        "created": event.created,
        "order_id": order_id_of(made),
        "payment_intent_id": getattr(made, "payment_intent", None),
    }
    if event.type in _INTENT_TYPES:
        about |= {"payment_intent_id": made.id}
        return PaymentIntentEvent(**about, intent=found_intent(made)) if about["order_id"] else None
    if event.type == _CHARGE_REFUNDED:
        return ChargeRefundedEvent(**about, amount_refunded_minor=made.amount_refunded)
    if event.type in _DISPUTE_TYPES:
        return DisputeEvent(**about)
    if event.type in _FRAUD_TYPES:
        return FraudEvent(**about)
    refund_id = metadata_of(made).get("refund_id")
    found = found_refund(made)
    return RefundEvent(
        **about,
        stripe_refund_id=made.id,
        status=found.status,
        refund_id=refund_id,
        pending_reason=found.pending_reason,
    )


# ---------------------------------------------------------------- Stripe's list of events


@dataclass(frozen=True)
class EventPage:
    """Events, newest first. `next` is the cursor of the next page; None on the last one."""

    events: list[StripeEvent]
    next: str | None


def list_events(client: stripe.StripeClient, *, since: int, until: int, after: str | None) -> EventPage:
    """One page of the events that concern us, from `since` up to, not including, `until`.

    Stripe keeps events for 30 days.

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
    page = client.v1.events.list(parameters)
    parsed = [parse_event(event) for event in page.data]
    return EventPage([event for event in parsed if event], page.data[-1].id if page.has_more else None)


def retrieve_event(client: stripe.StripeClient, event_id: str) -> StripeEvent | None:
    """The event, as `parse_event` reads it."""
    return parse_event(client.v1.events.retrieve(event_id))


# ---------------------------------------------------------------- the newest event that was received

RECEIVED_STEP_SECONDS = 60
"""The stored time may be older than the newest event that was received, by this much at most."""


@dataclass(frozen=True, kw_only=True)
class Received(Checkpoint):
    """How new the newest event is that webhooks have delivered: so the scheduled run notices that they are silent."""

    job: ClassVar[str] = "webhook"

    newest_event_at: int = 0


class NewestReceived:
    """Stores the time of the newest event, at most once a minute in each execution environment."""

    def __init__(self, state: CheckpointStore[Received]) -> None:
        self._state = state
        self._stored_at = 0

    def saw(self, event: StripeEvent) -> None:
        """Store the event's time, unless one of the same minute is stored. Raises botocore's errors."""
        if event.created < self._stored_at + RECEIVED_STEP_SECONDS:
            return
        received = self._state.read() or Received()
        if received.newest_event_at < event.created:
            with suppress(ConcurrentRun):  # Another environment stores its own: the next event tries again.
                received = self._state.write(replace(received, newest_event_at=event.created))
        self._stored_at = received.newest_event_at
