"""What is known about one order at one moment: plain data. gather.py reads it; timeline.py and diagnosis.py judge it.

Times are epoch seconds, amounts minor units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onecharge.orders.schema import StoredOrder
from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.stripe_responses import Failure
from ops.refund_facts import RefundFacts
from reconcile.checkpoint import ReconcileCheckpoint
from republish.republish import RepublishCheckpoint


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One confirm that reached the card's issuer, as Stripe shows it."""

    charge_id: str
    status: str
    amount_minor: int
    created: int
    failure_code: str | None = None


@dataclass(frozen=True, kw_only=True)
class StripeRefund:
    """A refund at Stripe, ours or made by hand."""

    stripe_refund_id: str
    status: str
    amount_minor: int
    created: int
    refund_id: str | None = None
    """Ours, from the metadata; None if it was made by hand."""
    failure_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Dispute:
    """A dispute of a charge."""

    dispute_id: str
    status: str
    reason: str
    amount_minor: int
    created: int
    respond_by: int | None = None


@dataclass(frozen=True, kw_only=True)
class IntentFacts:
    """A PaymentIntent of the order, with what happened to it."""

    intent: FoundIntent
    created: int
    canceled_at: int | None = None
    charges: tuple[Charge, ...] = ()
    refunds: tuple[StripeRefund, ...] = ()
    disputes: tuple[Dispute, ...] = ()

    @property
    def is_refunded(self) -> bool:
        """In full, by refunds that have not failed."""
        kept = [each.amount_minor for each in self.refunds if each.status not in ("failed", "canceled")]
        return sum(kept) >= self.intent.amount_minor


@dataclass(frozen=True, kw_only=True)
class StripeFacts:
    """What Stripe shows of the order."""

    intents: tuple[IntentFacts, ...] = ()
    failure: Failure | None = None
    """Why Stripe did not show it; what was read before is in `intents`."""
    is_complete: bool = True
    """Whether the lookup has seen every PaymentIntent of the order."""

    @property
    def succeeded(self) -> list[IntentFacts]:
        return [each for each in self.intents if each.intent.status == "succeeded"]

    def of(self, payment_intent_id: str | None) -> IntentFacts | None:
        """The PaymentIntent of this id."""
        return next((each for each in self.intents if each.intent.payment_intent_id == payment_intent_id), None)


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A message about the order in a DLQ."""

    queue: str
    """Its logical id."""
    sent_at: int
    message_id: str = ""
    event_type: str | None = None
    """None if the body is no event."""
    reason: str | None = None
    """Why a function sent it there; None if SQS or SNS moved it there."""


@dataclass(frozen=True, kw_only=True)
class FailedRecord:
    """A stream record of the order that could not be published (failed_records.py)."""

    key: str
    """Of the object in the FailedRecordsBucket."""
    table: str
    """Its logical id, or its name if the stack has none of it."""
    since: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """An event source mapping: a function that reads a stream or a queue."""

    source: str
    """The logical id of the table or queue."""
    function: str
    """The logical id of the function."""
    uuid: str
    is_enabled: bool = True
    last_result: str = ""
    """Of Lambda's last read, such as `OK`, or `PROBLEM: Function call failed`."""


@dataclass(frozen=True, kw_only=True)
class UnprocessedEvent:
    """An event of Stripe's about the order that the webhook did not process."""

    event_id: str
    type: str
    created: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All of it."""

    now: int
    order_id: str
    order: StoredOrder | None = None
    order_error: str | None = None
    """Why the order's item cannot be read: it breaks the schema."""
    payment: Payment | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    """The payment's row with all its attributes; `payment` has those that the protocol reads."""
    stripe: StripeFacts = StripeFacts()
    dead_letters: tuple[DeadLetter, ...] = ()
    are_dead_letters_complete: bool = True
    """Whether every message of the DLQs was seen."""
    failed_records: tuple[FailedRecord, ...] = ()
    sources: tuple[Source, ...] = ()
    republish: RepublishCheckpoint | None = None
    reconcile: ReconcileCheckpoint | None = None
    requires_action_seconds: int = 43_200
    refunds: tuple[RefundFacts, ...] = ()
    unprocessed_events: tuple[UnprocessedEvent, ...] = ()

    def source(self, logical_id: str) -> Source | None:
        """Who reads this table's stream or this queue."""
        return next((each for each in self.sources if each.source == logical_id), None)
