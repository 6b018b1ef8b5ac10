"""One Stripe account: everything that it holds, and the events about it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from local.stripe_standin.keys import IdempotencyKeys
from local.stripe_standin.messages import Request
from local.stripe_standin.schedule import Schedule

if TYPE_CHECKING:
    from local.stripe_standin.charges import Charge
    from local.stripe_standin.disputes import Dispute
    from local.stripe_standin.payment_intents import PaymentIntent
    from local.stripe_standin.payment_methods import PaymentMethod
    from local.stripe_standin.refunds import Refund

API_VERSION = "2026-10-28.endive"
"""The version whose objects these are: an account's default, and the one that stripe-python pins."""


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@dataclass
class Ids:
    """New ids: equal seeds and requests give equal ones."""

    seed: int = 0
    _made: Counter[str] = field(default_factory=Counter)

    def new(self, kind: str) -> str:
        self._made[kind] += 1
        return f"{kind}_{digest(f'{self.seed}:{kind}:{self._made[kind]}')[:24]}"


@dataclass
class Behavior:
    """How Stripe behaves where its documentation leaves it open, or where it takes its time."""

    search_lag_seconds: float = 0.0
    confirms_max: int | None = None
    """How often a PaymentIntent may be confirmed ("a variable upper limit"); one more cancels it. None: no limit."""
    refunds_settle_seconds: float = 600.0
    """After this time a refund of pm_card_pendingRefund succeeds, and one of pm_card_refundFail fails."""
    declines_use_up_payment_methods: bool = False
    """Whether a declined payment, as well as a successful one, uses up a payment method without a customer."""
    customers_exist: bool = True
    """Whether every id that begins with cus_ is a customer of the account; otherwise none is."""


@dataclass
class Account:
    """What one account holds. Nothing in it is seen with a key of another account."""

    id: str
    clock: Callable[[], float]
    ids: Ids
    behavior: Behavior
    schedule: Schedule
    keys: IdempotencyKeys = field(default_factory=IdempotencyKeys)
    payment_intents: "dict[str, PaymentIntent]" = field(default_factory=dict)
    payment_methods: "dict[str, PaymentMethod]" = field(default_factory=dict)
    charges: "dict[str, Charge]" = field(default_factory=dict)
    refunds: "dict[str, Refund]" = field(default_factory=dict)
    disputes: "dict[str, Dispute]" = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    executing: Request | None = None
    """The request that what happens now is due to; None for what Stripe does by itself."""

    @property
    def now(self) -> int:
        return int(self.clock())

    def emit(self, type_: str, made: dict[str, Any], previous: dict[str, Any] | None = None) -> None:
        """An event with the object as it is now. Source: Stripe API reference, "The Event object"."""
        data = {"object": made} if previous is None else {"object": made, "previous_attributes": previous}
        request = self.executing
        self.events.append(
            {
                "id": self.ids.new("evt"),
                "object": "event",
                "api_version": API_VERSION,
                "created": self.now,
                "data": data,
                "livemode": False,
                "pending_webhooks": 0,
                "request": {
                    "id": request.id if request else None,
                    "idempotency_key": request.idempotency_key if request else None,
                },
                "type": type_,
            }
        )
