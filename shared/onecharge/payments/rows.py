"""What the Payments table stores: one row for each order, the current attempt to pay it, and what became of it.

          claim                                  finalize, or release
PENDING ────┤════════════ lease ═════════════════├──► SUCCEEDED │ DECLINED │ REQUIRES_ACTION │ CANCELED
            └ crashed worker: the lease expires, and the next delivery claims the row as another owner
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from onecharge.contract.events import OrderPlaced
from onecharge.contract.refund_events import is_refundable_despite
from onecharge.contract.states import PaymentState
from onecharge.payments.refund_rules import Sent
from onecharge.payments.stripe_responses import Deferred

FINAL = (PaymentState.SUCCEEDED, PaymentState.CANCELED)
"""No attempt follows. The other states are UNPAID: the payment can still be charged, and still be canceled."""

UNPAID = (PaymentState.PENDING, PaymentState.DECLINED, PaymentState.REQUIRES_ACTION)

OTHER_PARAMETERS = "Stripe knows the key with other parameters"
"""A PaymentIntent may exist that no key leads to: of the order as it was before it was lost, say."""
KEYS_USED_UP = "every key of the window replays a failure"


@dataclass(frozen=True)
class FrozenRequest:
    """What is charged, frozen by the first claim: no later message or deployment changes it."""

    order_id: str
    amount_minor: int
    currency: str
    customer_id: str
    placed_at: int
    """When the order was placed; epoch seconds."""

    @classmethod
    def of(cls, order: OrderPlaced) -> Self:
        placed_at = int(order.placed_at.timestamp())
        return cls(order.order_id, order.amount_minor, order.currency, order.customer_id, placed_at)


class Dispute(NamedTuple):
    """A charge's dispute."""

    dispute_id: str
    status: str

    @property
    def needs_response(self) -> bool:
        """Whether Stripe waits for evidence: of a dispute, of an inquiry before one, or of an appeal."""
        return self.status.endswith("needs_response")

    @property
    def took_nothing(self) -> bool:
        """Whether it left the money with us."""
        return is_refundable_despite(self.status)

    @staticmethod
    def that_counts(newest_first: "Iterable[Dispute]") -> "Dispute | None":
        """Of a payment's disputes the newest, rather one that takes or took money."""
        return min(newest_first, key=lambda each: each.took_nothing, default=None)


@dataclass(frozen=True, kw_only=True)
class Payment:
    """One row of the Payments table. docs/protocol.md, "The row", says what its attributes mean."""

    request: FrozenRequest
    attempt: int
    payment_method: str
    """The current attempt's; "" if the row was written again after a loss."""
    state: PaymentState
    payment_intent_id: str | None = None
    released_at: int | None = None
    cancel_requested_at: int | None = None
    held_because: str | None = None
    """OTHER_PARAMETERS or KEYS_USED_UP."""
    lease_owner: str | None = None
    lease_expires_at: int = 0
    revision: int = 0
    claimed_at: int = 0
    finalized_at: int | None = None
    last_emitted_at: int | None = None
    held_alarmed_at: int | None = None
    """When reconcile last raised the alarm that an operator has to release the order."""
    reason: str | None = None
    """Finalize.reason of the last final state."""
    amount_refunded_minor: int = 0
    dispute_id: str | None = None
    dispute_status: str | None = None
    refunds_sent: Mapping[str, Sent] = field(default_factory=dict)
    """What is known of the requests for each refund, by its id."""
    correlation_id: str = ""

    def create_key(self, shop: str, number: int) -> str:
        """An idempotency key of the row's window: a release begins another window, with other keys."""
        return f"{shop}:{self.request.order_id}:{self.released_at or 0}:{number}"

    def confirm_key(self, shop: str) -> str:
        """The one idempotency key of this attempt and PaymentIntent."""
        return f"{shop}:{self.request.order_id}:{self.attempt}:{self.payment_intent_id}"

    @property
    def dispute(self) -> Dispute | None:
        return Dispute(self.dispute_id, self.dispute_status or "") if self.dispute_id else None

    @property
    def log_fields(self) -> dict[str, Any]:
        """What every log line about the row carries."""
        return {"order_id": self.request.order_id, **self._named("attempt correlation_id payment_intent_id")}

    @property
    def shown(self) -> dict[str, Any]:
        """The row in a log line: what decides about claims and writes."""
        of_the_lease = self._named("state attempt revision lease_owner lease_expires_at finalized_at")
        return of_the_lease | self._named("payment_intent_id released_at cancel_requested_at")

    def _named(self, names: str) -> dict[str, Any]:
        return {name: value for name in names.split() if (value := getattr(self, name)) is not None}


# ---------------------------------------------------------------- what a claim and a write end with


@dataclass(frozen=True)
class Claimed:
    """The row is ours until its lease expires."""

    row: Payment


@dataclass(frozen=True)
class HeldByAnother:
    """Another delivery has the lease until then, in epoch seconds."""

    lease_expires_at: int
    row: Payment | None = None
    """As it refused the claim; None if it was lost meanwhile."""


@dataclass(frozen=True)
class AlreadyEnded:
    """The attempt has ended: this delivery is a duplicate."""

    row: Payment


@dataclass(frozen=True)
class Superseded:
    """A later attempt has taken the row over."""

    row: Payment


type Claim = Claimed | HeldByAnother | AlreadyEnded | Superseded


class WriteRefused(Exception):
    """Nothing was written: another worker has the row or has finalized it, or it is to be canceled."""


class Held(Deferred):
    """No PaymentIntent is created any more: the row waits for an operator's `release`, and its message is deleted."""
