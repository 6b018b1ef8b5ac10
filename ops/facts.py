"""What is known about one order at one moment: plain data. gather.py reads it, diagnosis.py judges it.

Times are epoch seconds, amounts minor units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import stripe

from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.refunds.protocol import FoundRefund, Refund
from onecharge.payments.stripe_responses import Failure
from ops.dlq_letters import DeadLetter
from ops.failed_records import FailedRecord
from reconcile.run import ReconcileCheckpoint
from republish.republish import RepublishCheckpoint


@dataclass(frozen=True, kw_only=True)
class IntentFacts:
    """A PaymentIntent of the order, with what happened to it, in Stripe's objects."""

    intent: FoundIntent
    created: int
    canceled_at: int | None = None
    charges: Sequence[stripe.Charge] = ()
    refunds: Sequence[stripe.Refund] = ()
    disputes: Sequence[stripe.Dispute] = ()

    @property
    def is_refunded(self) -> bool:
        """In full, by refunds that have not failed."""
        kept = [each.amount for each in self.refunds if each.status not in ("failed", "canceled")]
        return sum(kept) >= self.intent.amount_minor


@dataclass(frozen=True, kw_only=True)
class StripeFacts:
    """What Stripe shows of the order."""

    intents: Sequence[IntentFacts] = ()
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
class RefundFacts:
    """One refund, by its id; the order service, the payment service or Stripe has it."""

    refund_id: str
    requested: StoredRefund | None = None
    """The order service's item."""
    row: Refund | None = None
    """The payment service's."""
    found: Sequence[FoundRefund] = ()
    """Stripe's refunds of this id."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """An event source mapping: a function reads a stream or a queue."""

    source: str
    """The logical id of the table or queue."""
    uuid: str
    is_enabled: bool = True
    last_result: str = ""
    """Of Lambda's last read, such as `OK`, or `PROBLEM: Function call failed`."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is the same for every order of the stack; dead letters and failed records of all orders."""

    now: int
    dead_letters: Sequence[DeadLetter] = ()
    are_dead_letters_complete: bool = True
    """Whether every message of the DLQs was seen."""
    failed_records: Sequence[FailedRecord] = ()
    sources: Sequence[Source] = ()
    republish: RepublishCheckpoint | None = None
    reconcile: ReconcileCheckpoint | None = None
    requires_action_seconds: int = 43_200

    def source(self, logical_id: str) -> Source | None:
        """What reads this table's stream or this queue."""
        return next((each for each in self.sources if each.source == logical_id), None)


@dataclass(frozen=True, kw_only=True)
class Facts(Surroundings):
    """All that is known about one order; dead letters and failed records are its own."""

    order_id: str
    order: StoredOrder | None = None
    order_error: str | None = None
    """Why the order's item cannot be read: it breaks the schema."""
    payment: Payment | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    """The payment's row with all its attributes; `payment` has those that the protocol reads."""
    stripe: StripeFacts = StripeFacts()
    refunds: Sequence[RefundFacts] = ()
