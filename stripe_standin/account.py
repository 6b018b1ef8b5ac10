"""One Stripe account: its objects, its idempotency keys and its events."""

import operator
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, Protocol

from stripe_standin.errors import missing
from stripe_standin.keys import IdempotencyKeys
from stripe_standin.messages import Request

API_VERSION = "2026-10-28.endive"
"""The account's default API version, which the objects follow; stripe-python 16.1 pins the same one."""


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def shown(object_: object, names: Iterable[str]) -> dict[str, Any]:
    """The attributes that the API shows under their own names."""
    return {name: getattr(object_, name) for name in names}


class Object(Protocol):
    """An object of an account, as Stripe's API shows it."""

    named: ClassVar[tuple[str, str]]
    """How the error for an unknown id names the object and the parameter."""

    def as_json(self) -> dict[str, Any]: ...


@dataclass
class Schedule:
    """Actions at a later time, such as a refund that succeeds days later. Only `run` executes them."""

    acts_at: float | None = None
    """When the running action was due: the clock may be past it. None while no action runs."""
    _actions: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def add(self, due: float, action: Callable[[], object]) -> None:
        self._actions.append((due, action))

    def run(self, now: float) -> None:
        """Run the actions that are due, earliest first, and the due actions that they add."""
        while self._actions and (first := min(self._actions, key=operator.itemgetter(0)))[0] <= now:
            self._actions.remove(first)
            self.acts_at = first[0]
            try:
                first[1]()
            finally:
                self.acts_at = None


@dataclass
class Ids:
    """Generates ids: the same requests give the same ids."""

    _counts: Counter[str] = field(default_factory=Counter)

    def new(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}_{digest(f'{kind}:{self._counts[kind]}')[:24]}"


class CountedIds(Ids):
    """Ids that are easy to read: pi_0, pi_1."""

    def new(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}_{self._counts[kind] - 1}"


@dataclass
class Behavior:
    """Settings for what Stripe's documentation leaves open, and for delays (README.md, "Unverified")."""

    takes_cards: bool = True
    """Whether card payments are active: otherwise they are filtered out of `allowed_payment_method_types`."""
    late_refund_seconds: float = 600.0
    """When a refund of pm_card_refundFail fails."""
    stores_refused_refunds: bool = True
    """Whether a key replays that there is too little left to refund. Otherwise a retry may be executed."""


@dataclass
class Account:
    """All objects of one account. An API key of another account sees none of them."""

    id: str
    clock: Callable[[], float]
    ids: Ids
    behavior: Behavior
    schedule: Schedule
    keys: IdempotencyKeys = field(default_factory=IdempotencyKeys)
    events: list[dict[str, Any]] = field(default_factory=list)
    ledger: list[str] = field(default_factory=list)
    """The charge of each time that money was taken, in order."""
    received_at: int = 0
    """When the current request arrived: earlier than now if it is executed late."""
    executing: Request | None = None
    """The request that causes the current events; None while Stripe acts by itself."""
    cards_of: "Account | None" = None
    """An account whose PaymentMethods this one takes, each as a card of its own: what cloning is for at Stripe (Stripe
    documentation, "Share PaymentMethods across connected accounts")."""
    _objects: dict[type, dict[str, Any]] = field(default_factory=dict)

    def all[Kind](self, kind: type[Kind]) -> dict[str, Kind]:
        """The account's objects of one class, by id, oldest first. Each class is declared above this module."""
        return self._objects.setdefault(kind, {})

    def find[Kind: Object](self, kind: type[Kind], identifier: str) -> Kind:
        """Raises ApiError: 404, the account has no such object."""
        if identifier not in self.all(kind):
            raise missing(kind.named[0], identifier, kind.named[1])
        return self.all(kind)[identifier]

    @property
    def now(self) -> int:
        return int(self.clock())

    def emit(self, type_: str, object_: dict[str, Any], previous: dict[str, Any] | None = None) -> None:
        """Emit an event with a snapshot of the object. Source: Stripe API reference, "The Event object"."""
        data = {"object": object_} if previous is None else {"object": object_, "previous_attributes": previous}
        request = {name: getattr(self.executing, name, None) for name in ("id", "idempotency_key")}
        about = {"api_version": API_VERSION, "created": self.now, "livemode": False, "pending_webhooks": 0}
        event = {"id": self.ids.new("evt"), "object": "event", "type": type_, "data": data, "request": request}
        self.events.append(event | about)
