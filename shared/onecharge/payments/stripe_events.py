"""Stripe's events, parsed alike whether a webhook delivers them or a scheduled run lists them.

An event is a hint: its type only says which PaymentIntent to look at, and what the event itself shows of it.
Source: Stripe documentation, "Types of events", "Connect webhooks", "List all events".
"""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import stripe

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.payments.disputes import Dispute
from onecharge.payments.payment_intents import metadata_of, read_intent
from onecharge.payments.stripe_responses import StripeIntent
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun

if TYPE_CHECKING:
    from stripe.params import EventListParams

_PAGE_SIZE = 100
_REQUIRES_ACTION = "payment_intent.requires_action"
EVENT_TYPES = (
    "payment_intent.succeeded",
    "payment_intent.payment_failed",
    "payment_intent.canceled",
    _REQUIRES_ACTION,
    "charge.refunded",
    "charge.dispute.created",
    "charge.dispute.updated",
    "charge.dispute.closed",
    "refund.updated",
    "refund.failed",
)
"""Every type that concerns us."""


@dataclass(frozen=True, kw_only=True)
class StripeEvent:
    """An event about a PaymentIntent, which may be another shop's."""

    event_id: str
    type: str
    created: int
    """Epoch seconds."""
    payment_intent_id: str
    shop: str = ""
    order_id: str | None = None
    """Whose the event's object says it is; None if it does not: a dispute, or a refund that a person made."""
    intent: StripeIntent | None = None
    """The PaymentIntent, if the event is one of it: as it was when Stripe created the event."""
    amount_refunded_minor: int | None = None
    """The charge's refunds so far, if the event says so."""
    stripe_refund_id: str | None = None
    """The refund's id, if the event is one of it."""
    dispute: Dispute | None = None
    """The dispute, if the event is one of it: as it was when Stripe created the event."""


def parse_event(event: Any) -> StripeEvent | None:
    """What an event says; None if its type or its account is not ours, or it is about no PaymentIntent.

    Args:
        event: a stripe.Event from Stripe's API, or from a webhook whose signature has been verified.
    """
    # `account` is a connected account's (Stripe documentation, "Connect webhooks").
    if event.type not in EVENT_TYPES or getattr(event, "account", None) is not None:
        return None
    made, is_of_intent = event.data.object, event.type.startswith("payment_intent.")
    intent_id = made.id if is_of_intent else _id_of(getattr(made, "payment_intent", None))
    if intent_id is None:
        return None
    # Anyone may write a refund's or a dispute's metadata; a charge has its PaymentIntent's.
    metadata = metadata_of(made) if is_of_intent or event.type == "charge.refunded" else {}
    order_id = metadata.get("order_id", "")
    is_of_order = re.match(ORDER_ID_PATTERN, order_id) is not None
    return StripeEvent(
        event_id=event.id,
        type=event.type,
        created=event.created,
        payment_intent_id=intent_id,
        shop=metadata.get("shop", ""),
        order_id=order_id if is_of_order else None,
        intent=read_intent(made) if is_of_intent and is_of_order else None,
        amount_refunded_minor=made.amount_refunded if event.type == "charge.refunded" else None,
        stripe_refund_id=made.id if event.type.startswith("refund.") else None,
        dispute=Dispute(made.id, made.status) if event.type.startswith("charge.dispute.") else None,
    )


def _id_of(expandable: Any) -> str | None:
    """The id of an expandable field, whether Stripe sent the id or the expanded object."""
    return expandable if expandable is None or isinstance(expandable, str) else str(expandable.id)


# ---------------------------------------------------------------- what a scheduled run lists, and webhooks


_LISTED_TYPES = [each for each in EVENT_TYPES if each != _REQUIRES_ACTION]
"""The scheduled run does not list the other one: the worker that confirmed has had this answer."""


def list_events(
    client: stripe.StripeClient, *, since: int, until: int, after: str | None
) -> tuple[list[StripeEvent], str | None]:
    """One page of the events that concern us, newest first, and the cursor of the next page; None on the last one.

    Args:
        since, until: epoch seconds; `until` is not included.
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
    return [event for event in parsed if event], page.data[-1].id if page.has_more else None


@dataclass(frozen=True, kw_only=True)
class ReconcileCheckpoint(Checkpoint):
    """How far reconcile has come; operators see it, and set it back after a restore."""

    job: ClassVar[str] = "reconcile"

    since: int = 0
    """Stripe's events before this time are applied; epoch seconds."""


def is_signing_secret(stored: str) -> bool:
    """Whether the stored value can be an endpoint's signing secret. Anybody can guess the placeholder before it."""
    return re.fullmatch(r"whsec_\w+", stored) is not None


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
