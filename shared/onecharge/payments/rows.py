"""What the Payments table stores: one row for each order, the current attempt to pay it, and what became of it.

          claim                                  finalize, or release
PENDING ────┤════════════ lease ═════════════════├──► SUCCEEDED │ DECLINED │ REQUIRES_ACTION │ CANCELED
            └ crashed worker: the lease expires, and the next delivery claims the row as another owner
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from onecharge.contract.events import OrderPlaced
from onecharge.contract.states import PaymentState
from onecharge.payments.refund_rules import Sent
from onecharge.runtime.alarms import Cause

FINAL = (PaymentState.SUCCEEDED, PaymentState.CANCELED)
"""No attempt follows. The other states are UNPAID: the payment can still be charged, and still be canceled."""

UNPAID = (PaymentState.PENDING, PaymentState.DECLINED, PaymentState.REQUIRES_ACTION)


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


OTHER_PARAMETERS = "Stripe knows the key with other parameters"
"""A PaymentIntent may exist that no key leads to: of the order as it was before it was lost, say."""
KEYS_USED_UP = "every key of the window replays a failure"


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
        """Whether it left the money with us: it was won, or is an inquiry before a dispute."""
        return self.status == "won" or self.status.startswith("warning_")

    @staticmethod
    def that_counts(newest_first: "Iterable[Dispute]") -> "Dispute | None":
        """Of a payment's disputes the newest, rather one that takes or took money."""
        return min(newest_first, key=lambda each: each.took_nothing, default=None)


@dataclass(frozen=True, kw_only=True)
class Payment:
    """One row of the Payments table."""

    request: FrozenRequest
    attempt: int
    payment_method: str
    """The current attempt's; "" if the row was written again after a loss."""
    state: PaymentState
    payment_intent_id: str | None = None
    released_at: int | None = None
    """When an operator let a PaymentIntent be created once more; epoch seconds, by Stripe's clock."""
    cancel_requested_at: int | None = None
    """Every later claim cancels and never confirms. The present owner may still confirm: Stripe decides that race."""
    held_because: str | None = None
    """Why nothing is created any more although the window is open: OTHER_PARAMETERS or KEYS_USED_UP."""
    lease_owner: str | None = None
    lease_expires_at: int = 0
    revision: int = 0
    """Grows with every write."""
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
    def log_fields(self) -> dict[str, object]:
        """What every log line about the row carries."""
        return {
            "order_id": self.request.order_id,
            "attempt": self.attempt,
            "correlation_id": self.correlation_id,
            "payment_intent_id": self.payment_intent_id,
        }

    @property
    def shown(self) -> dict[str, object]:
        """The row in a log line: what decides about claims and writes."""
        fields: dict[str, object] = {
            "state": self.state,
            "attempt": self.attempt,
            "revision": self.revision,
            "lease_owner": self.lease_owner,
            "lease_expires_at": self.lease_expires_at,
            "finalized_at": self.finalized_at,
            "payment_intent_id": self.payment_intent_id,
            "released_at": self.released_at,
            "cancel_requested_at": self.cancel_requested_at,
        }
        return {name: value for name, value in fields.items() if value is not None}


# ---------------------------------------------------------------- the results of a claim


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


class ReleaseLease(Exception):
    """Nothing more can be done now: the lease is released, and the log says why.

    Args:
        alarm: why a person has to see it, if so.
        kept: attributes to write to the row with it, such as Stripe's error message.
    """

    def __init__(self, why: str, *, alarm: Cause | None = None, kept: Mapping[str, str | int] | None = None) -> None:
        super().__init__(why)
        self.why, self.alarm, self.kept = why, alarm, kept or {}


class Held(ReleaseLease):
    """No PaymentIntent is created any more: the row waits for an operator's `release`, and its message is deleted."""
