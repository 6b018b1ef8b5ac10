"""Stripe in memory, behind its SDK's client: what stands above it is the deployed gateway.

Keys are remembered and pruned, search lags, a request answered with a 500 may be executed later. tests/contract holds
it to the same behaviour as the SDK with the Stripe stand-in. Its ledger of charges is what the invariants are checked
against.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import stripe

from onecharge.payments.time_bounds import ABSENCE_GRACE_SECONDS, STRIPE_RETRIES
from tests.simulation.dynamodb import Io, NoFaults

KEY_RETENTION_SECONDS = 24 * 3600

STATUS_OF_CARD = {
    "pm_card_visa": "succeeded",
    "pm_card_visa_chargeDeclined": "requires_payment_method",
    "pm_card_threeDSecure2Required": "requires_action",
}
"""What Stripe does with a card, by the payment method's name."""

_BEFORE = ("drop before", "429", "503", "401")
_AROUND = ("500 before", "500 after", "500, charged later", "drop after", "time-out")
_HARSH_BEFORE = ("drop before", "429", "429 lock_timeout", "502", "503", "424", "401")
"""Nothing of these is stored under the key: the next request under it is the first."""
_LATE_SECONDS = {
    "500, charged 16 minutes later": 960,
    "500, charged an hour later": 3600,
    "500, charged a day later": 24 * 3600,
    "500, charged two days later": 2 * 24 * 3600,
}
_HARSH_AROUND = (*_AROUND, *_LATE_SECONDS, "502 stored", "503 stored", "424 stored", "429 stored")
_AROUND_REFUND = ("500 before", "500 after", "drop after", "time-out")
_TIME_OUT_SECONDS = 10
_EVENT_OF_STATUS = {
    "succeeded": "payment_intent.succeeded",
    "requires_payment_method": "payment_intent.payment_failed",
    "requires_action": "payment_intent.requires_action",
    "canceled": "payment_intent.canceled",
}


class _Metadata(dict[str, str]):
    def to_dict(self) -> dict[str, str]:
        return dict(self)


@dataclass
class PaymentIntent:
    """As the SDK shows it. It is `created` when Stripe received it, and can be seen from `appeared` on."""

    id: str
    amount: int
    currency: str
    payment_method: str
    metadata: _Metadata
    status: str
    created: int
    appeared: int
    last_payment_error: Any = None

    @property
    def order_id(self) -> str:
        return self.metadata["order_id"]


@dataclass(frozen=True)
class Refund:
    """As the SDK shows it."""

    id: str
    amount: int
    currency: str
    payment_intent: str
    metadata: _Metadata
    status: str = "succeeded"


@dataclass(frozen=True)
class Event:
    """What Stripe tells, and keeps for its list of events."""

    id: str
    type: str
    created: int
    data: Any


Answer = Callable[[], PaymentIntent | Refund]
"""What a request is answered with: returns or raises the same each time it is called."""


@dataclass
class Stored:
    """What a key stands for; no answer while its first request runs."""

    parameters: Mapping[str, Any]
    created: int
    answer: Answer | None = None


@dataclass(frozen=True)
class RollForward:
    """A request that Stripe answered with a 500, and will execute all the same."""

    due: int
    received: int
    parameters: Mapping[str, Any]


def _error(make: Callable[..., stripe.StripeError], status: int | None, **details: Any) -> Callable[[], Any]:
    def answer() -> Any:
        error = make("in memory", http_status=status)
        error.error = SimpleNamespace(**details)  # type: ignore[assignment]  # What the body of the answer says.
        raise error

    return answer


# These two want a parameter and a code as well.
_card_error = partial(stripe.CardError, param=None, code="card_declined")
_invalid_request = partial(stripe.InvalidRequestError, param=None)

_NO_ANSWER = _error(stripe.APIConnectionError, None)
_SERVER_ERROR = _error(stripe.APIError, 500, type="api_error")
_ANSWERS = {
    "drop before": _NO_ANSWER,
    "429": _error(stripe.RateLimitError, 429, type="invalid_request_error"),
    "429 lock_timeout": _error(stripe.RateLimitError, 429, type="invalid_request_error", code="lock_timeout"),
    "502": _error(stripe.APIError, 502, type="api_error"),
    "424": _error(stripe.APIError, 424, type="api_error"),
    "503": _error(stripe.APIError, 503, type="api_error"),
    "401": _error(stripe.AuthenticationError, 401, type="invalid_request_error"),
}
_KEY_IN_USE = _error(stripe.APIError, 409, code="idempotency_key_in_use", type="idempotency_error")
_OTHER_REQUEST = _error(stripe.IdempotencyError, 400, type="idempotency_error")
_NOT_FOUND = _error(_invalid_request, 404, type="invalid_request_error", code="resource_missing")
_ALREADY_REFUNDED = _error(_invalid_request, 400, type="invalid_request_error", code="charge_already_refunded")
_TOO_MUCH = _error(_invalid_request, 400, type="invalid_request_error", code=None)
_RETRIED = (None, 409, 500, 503)


@dataclass
class MemoryStripe:
    """Stripe's side: keys, PaymentIntents, events, and the ledger of charges."""

    io: Io = field(default_factory=NoFaults)
    keys: dict[str, Stored] = field(default_factory=dict)
    intents: list[PaymentIntent] = field(default_factory=list)
    charges: list[PaymentIntent] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rolling_forward: list[RollForward] = field(default_factory=list)
    search_lag_seconds: int = 0
    down: bool = False
    harsh: bool = False
    """More kinds of answers that say nothing, stored under the key or not, and late effects."""

    # ------------------------------------------------------------ one request

    def create(self, parameters: Mapping[str, Any], key: str) -> PaymentIntent:
        """POST /v1/payment_intents with confirm=true."""
        return self._under_key("create", parameters, key, _HARSH_AROUND if self.harsh else _AROUND, self._execute)

    def _under_key(
        self,
        name: str,
        parameters: Mapping[str, Any],
        key: str,
        faults: Sequence[str],
        execute: "Callable[[Mapping[str, Any], int, str | None], Answer]",
    ) -> Any:
        self.reach(name, _BEFORE)
        stored = self.keys.get(key)
        if stored is not None:
            if stored.answer is not None and self.harsh:
                self.io.met("stripe: stored answer replayed")
            if stored.answer is None:
                return _KEY_IN_USE()
            return stored.answer() if stored.parameters == parameters else _OTHER_REQUEST()
        stored = self.keys[key] = Stored(parameters, self.io.now())
        kind = self.io.fault(f"stripe {name}", faults)
        try:
            self.io.pause(f"stripe {name} in flight")
        finally:
            # Stripe goes on with what it has received, whether or not anybody still waits for it.
            stored.answer = execute(parameters, stored.created, kind)
        if kind == "time-out":
            self.io.pass_time(_TIME_OUT_SECONDS)
        self.io.pause(f"stripe {name} answered")
        return (_NO_ANSWER if kind in ("drop after", "time-out") else stored.answer)()

    def refund(self, parameters: Mapping[str, Any], key: str) -> Refund:
        """POST /v1/refunds."""
        refund: Refund = self._under_key("refund", parameters, key, _AROUND_REFUND, self._refund)
        return refund

    def _refund(self, parameters: Mapping[str, Any], received: int, kind: str | None) -> Answer:
        if kind == "500 before":
            return _SERVER_ERROR
        intent = next((each for each in self.intents if each.id == parameters["payment_intent"]), None)
        if intent is None:
            return _NOT_FOUND
        left = (intent.amount if intent.status == "succeeded" else 0) - self.refunded(intent.id)
        amount = parameters.get("amount", left)
        if amount > left:
            return _TOO_MUCH if left else _ALREADY_REFUNDED
        metadata = _Metadata(parameters.get("metadata", {}))
        refund = Refund(f"re_{len(self.refunds)}", amount, intent.currency, intent.id, metadata)
        self.refunds.append(refund)
        return _SERVER_ERROR if kind == "500 after" else lambda: refund

    def refunded(self, intent_id: str) -> int:
        """How much of it was given back."""
        return sum(refund.amount for refund in self.refunds if refund.payment_intent == intent_id)

    def list_refunds(self, intent_id: str) -> list[Refund]:
        """GET /v1/refunds: at once, and complete."""
        self.reach("refunds", _BEFORE)
        return [refund for refund in reversed(self.refunds) if refund.payment_intent == intent_id]

    def _execute(self, parameters: Mapping[str, Any], received: int, kind: str | None) -> Answer:
        if kind == "500, charged later":
            self.rolling_forward.append(RollForward(received + ABSENCE_GRACE_SECONDS, received, parameters))
        elif kind in _LATE_SECONDS:
            self.rolling_forward.append(RollForward(received + _LATE_SECONDS[kind], received, parameters))
        elif kind and kind.endswith(" stored"):
            return _ANSWERS[kind.removesuffix(" stored")]
        elif kind != "500 before":
            intent = self._made(parameters, received, appeared=self.io.now())
            answer = self._answer_of(self._confirmed(intent))
            return _SERVER_ERROR if kind == "500 after" else answer
        return _SERVER_ERROR

    def _made(self, parameters: Mapping[str, Any], received: int, *, appeared: int) -> PaymentIntent:
        intent = PaymentIntent(
            id=f"pi_{len(self.intents)}",
            amount=parameters["amount"],
            currency=parameters["currency"],
            payment_method=parameters["payment_method"],
            metadata=_Metadata(parameters.get("metadata", {})),
            status="requires_confirmation",
            created=received,
            appeared=appeared,
        )
        self.intents.append(intent)
        return intent

    def _confirmed(self, intent: PaymentIntent) -> PaymentIntent:
        self.becomes(intent, STATUS_OF_CARD[intent.payment_method])
        return intent

    def becomes(self, intent: PaymentIntent, status: str) -> None:
        """The PaymentIntent has this status from now on, and an event says so."""
        intent.status = status
        if status == "requires_payment_method":
            intent.last_payment_error = SimpleNamespace(code="card_declined", decline_code="generic_decline")
        if status == "succeeded":
            self.charges.append(intent)
        data = SimpleNamespace(object=replace(intent))
        self.events.append(Event(f"evt_{len(self.events)}", _EVENT_OF_STATUS[status], self.io.now(), data))

    def _answer_of(self, intent: PaymentIntent) -> Answer:
        if intent.status == "requires_payment_method":
            code = vars(intent.last_payment_error)
            return _error(_card_error, 402, type="card_error", payment_intent=replace(intent), **code)
        # What is replayed is what was answered, whatever has become of the PaymentIntent since.
        snapshot = replace(intent)
        return lambda: snapshot

    def confirm(self, intent_id: str) -> PaymentIntent:
        """POST /v1/payment_intents/{id}/confirm: its own states allow one success."""
        self.reach("confirm", _BEFORE)
        intent = self._intent(intent_id)
        if intent.status != "succeeded":
            self._confirmed(intent)
        self.io.pause("stripe confirm answered")
        return self._answer_of(intent)()

    def cancel(self, intent_id: str) -> PaymentIntent:
        """POST /v1/payment_intents/{id}/cancel."""
        self.reach("cancel", _BEFORE)
        intent = self._intent(intent_id)
        if intent.status in ("succeeded", "canceled"):
            return _error(_invalid_request, 400, code="payment_intent_unexpected_state", type="invalid_request_error")()
        self.becomes(intent, "canceled")
        self.io.pause("stripe cancel answered")
        return intent

    def search(self, query: str) -> list[PaymentIntent]:
        """GET /v1/payment_intents/search: by metadata, but late."""
        self.reach("search", _BEFORE)
        wanted = dict(re.findall(r"metadata\['(\w+)'\]:'([^']*)'", query))
        found = [intent for intent in self.intents if wanted.items() <= intent.metadata.items()]
        visible_until = self.io.now() - self.search_lag_seconds
        shown = [each for each in found if not self.search_lag_seconds or each.appeared <= visible_until]
        if len(shown) < len(found):
            self.io.met("stripe search: lags")
        return shown

    def list_created(self, created: Mapping[str, int]) -> list[PaymentIntent]:
        """GET /v1/payment_intents: at once, but by time alone."""
        self.reach("list", _BEFORE)
        return [each for each in self.intents if created["gte"] <= each.created <= created["lte"]]

    def retrieve(self, intent_id: str) -> PaymentIntent:
        """GET /v1/payment_intents/{id}."""
        self.reach("retrieve", _BEFORE)
        return self._intent(intent_id)

    def list_events(self, types: Sequence[str], created: Mapping[str, int], after: str | None) -> list[Event]:
        """GET /v1/events: newest first."""
        self.reach("events", _BEFORE)
        events = [each for each in reversed(self.events) if created["gte"] <= each.created < created["lt"]]
        ids = [event.id for event in events]
        return [each for each in events[ids.index(after) + 1 if after else 0 :] if each.type in types]

    def reach(self, where: str, kinds: Sequence[str]) -> None:
        """The request is on its way: it may not arrive, or be turned away."""
        self.io.pause(f"stripe {where}")
        kinds = _HARSH_BEFORE if self.harsh else kinds
        kind = "drop before" if self.down else self.io.fault(f"stripe {where}", kinds)
        if kind is not None:
            _ANSWERS[kind]()

    def _intent(self, intent_id: str) -> PaymentIntent:
        return next((each for each in self.intents if each.id == intent_id), None) or _NOT_FOUND()

    # ------------------------------------------------------------ what Stripe does by itself

    def time_has_passed(self) -> None:
        """Execute what had been answered with a 500, and forget keys of 24 hours, or not yet."""
        now = self.io.now()
        for late in [each for each in self.rolling_forward if each.due <= now]:
            self.rolling_forward.remove(late)
            self._confirmed(self._made(late.parameters, late.received, appeared=late.due))
        for key, stored in list(self.keys.items()):
            old = stored.answer is not None and now - stored.created >= KEY_RETENTION_SECONDS
            if old and self.io.happens("stripe: key pruned"):
                del self.keys[key]


def stripe_in_memory(stripe_: MemoryStripe, *, retries: int = STRIPE_RETRIES) -> Any:
    """A `stripe.StripeClient` over it, that sends again what the SDK sends again, under the same key."""

    def sent[Result](send: Callable[[], Result]) -> Result:
        for tries_left in reversed(range(retries + 1)):
            try:
                return send()
            except stripe.StripeError as error:
                if error.http_status not in _RETRIED or not tries_left:
                    raise
        raise AssertionError

    made = iter(range(10**9))

    def create(parameters: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> PaymentIntent:
        # Without a key the SDK makes one up, so that its own retries charge once (stripe-python, "Idempotency").
        key = (options or {}).get("idempotency_key") or f"made up {next(made)}"
        return sent(lambda: stripe_.create(parameters, key))

    def refund(parameters: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Refund:
        key = (options or {}).get("idempotency_key") or f"made up {next(made)}"
        return sent(lambda: stripe_.refund(parameters, key))

    def page(items: Sequence[Any]) -> Any:
        return SimpleNamespace(data=list(items), has_more=False)

    payment_intents = SimpleNamespace(
        create=create,
        confirm=lambda intent_id, *_: sent(lambda: stripe_.confirm(intent_id)),
        cancel=lambda intent_id, *_: sent(lambda: stripe_.cancel(intent_id)),
        retrieve=lambda intent_id: sent(lambda: stripe_.retrieve(intent_id)),
        search=lambda given: page(sent(lambda: stripe_.search(given["query"]))),
        list=lambda given: page(sent(lambda: stripe_.list_created(given["created"]))),
    )
    events = SimpleNamespace(
        list=lambda given: page(
            sent(lambda: stripe_.list_events(given["types"], given["created"], given.get("starting_after")))
        )
    )
    refunds = SimpleNamespace(
        create=refund, list=lambda given: page(sent(lambda: stripe_.list_refunds(given["payment_intent"])))
    )
    return SimpleNamespace(v1=SimpleNamespace(payment_intents=payment_intents, events=events, refunds=refunds))
