"""Stripe's events, parsed alike whether a webhook delivers them or a scheduled run lists them.

An event is a hint: it may come late, several times, out of order or never. Its type only says which PaymentIntent to
look at, and what the event itself shows of it; sync.py says what follows.
Source: Stripe documentation, "Types of events", "Connect webhooks", "List all events".
"""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import stripe

from onecharge.payments.charge_rules import StripeIntent
from onecharge.payments.refund_rules import StripeRefund
from onecharge.payments.stripe_objects import id_of, order_id_of, read_intent, read_refund
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun

if TYPE_CHECKING:
    from stripe.params import EventListParams

_PAGE_SIZE = 100
_REQUIRES_ACTION = "payment_intent.requires_action"
_WARNING = "radar.early_fraud_warning.created"
EVENT_TYPES = (
    "payment_intent.succeeded",
    "payment_intent.payment_failed",
    "payment_intent.canceled",
    _REQUIRES_ACTION,
    "charge.refunded",
    "charge.dispute.created",
    "charge.dispute.updated",
    "charge.dispute.closed",
    _WARNING,
    "review.opened",
    "review.closed",
    "refund.updated",
    "refund.failed",
)
"""Every type that concerns us."""
_LISTED_TYPES = [each for each in EVENT_TYPES if each != _REQUIRES_ACTION]
"""The scheduled run does not list the other one: the worker that confirmed has had this answer."""


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


class RowChanged(EventDeferred):
    """Another worker has written the row since it was read: it is compared again."""


TRIES = 3
"""How often a row is compared that others keep writing, before the event is deferred."""


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
    intent: StripeIntent | None = None
    """The PaymentIntent, if the event is one of it: as it was when Stripe created the event."""
    refund: StripeRefund | None = None
    """The refund, if the event is one of it."""
    amount_refunded_minor: int | None = None
    """The charge's refunds so far, if the event says so."""

    @property
    def is_warning(self) -> bool:
        """Whether the card's issuer warns of the charge."""
        return self.type == _WARNING

    @property
    def is_about_fraud(self) -> bool:
        """The same, or Stripe has opened or closed the charge's review."""
        return self.is_warning or self.type.startswith("review.")

    @property
    def is_about_doubts(self) -> bool:
        """Whether the charge is disputed, or may be fraud."""
        return self.is_about_fraud or self.type.startswith("charge.dispute.")


def parse_event(event: Any) -> StripeEvent | None:
    """What an event says; None if its type, its account or its PaymentIntent is not ours.

    Args:
        event: a stripe.Event from Stripe's API, or from a webhook whose signature has been verified.
    """
    # `account` is a connected account's (Stripe documentation, "Connect webhooks").
    if event.type not in EVENT_TYPES or getattr(event, "account", None) is not None:
        return None
    made, order_id = event.data.object, order_id_of(event.data.object)
    is_of_intent = event.type.startswith("payment_intent.")
    if is_of_intent and order_id is None:
        return None
    return StripeEvent(
        event_id=event.id,
        type=event.type,
        created=event.created,
        order_id=order_id,
        payment_intent_id=made.id if is_of_intent else id_of(getattr(made, "payment_intent", None)),
        intent=read_intent(made) if is_of_intent else None,
        refund=read_refund(made) if event.type.startswith("refund.") else None,
        amount_refunded_minor=made.amount_refunded if event.type == "charge.refunded" else None,
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
        "types": _LISTED_TYPES,
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
