"""Stripe in memory, behind its SDK's client: the gateway above it is the deployed one.

Keys are remembered and pruned, search lags, a request that was answered with a 500 may be executed now, later or
never, and PaymentIntents have Stripe's own states: whenever a request takes effect, they decide what it does.
tests/contract holds it to the same behaviour as the SDK with the Stripe stand-in. Its ledger of charges is what the
invariants are checked against.

    reach ─► the key: replay, 409 or 400 ─► in flight ─► the effect, now, later or never ─► stored ─► answered
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, NoReturn

import stripe
from requests.structures import CaseInsensitiveDict

from onecharge.payments.time_bounds import STRIPE_RETRIES
from tests.shop.dynamodb import Io, NoFaults

KEY_RETENTION_SECONDS = 24 * 3600
DAY_SECONDS = 24 * 3600
BY_CUSTOMER = "the customer's page"
CONFIRMS_MAX = 100
"""Stripe has such a limit, and does not say which (Stripe API reference, "Confirm a PaymentIntent")."""


# ---------------------------------------------------------------- cards


@dataclass(frozen=True)
class Issuer:
    """What the issuer of a card says when a PaymentIntent is confirmed with it."""

    code: str | None = None
    """Of the decline; None if it pays."""
    decline_code: str | None = None
    advice_code: str | None = None
    asks_for_authentication: bool = False
    refunds_fail: bool = False


CARDS: Mapping[str, Issuer] = {
    "pm_card_visa": Issuer(),
    "pm_card_mastercard": Issuer(),
    "pm_card_refundFail": Issuer(refunds_fail=True),
    "pm_card_visa_chargeDeclined": Issuer("card_declined", "generic_decline", "try_again_later"),
    "pm_card_visa_chargeDeclinedInsufficientFunds": Issuer("card_declined", "insufficient_funds", "try_again_later"),
    "pm_card_visa_chargeDeclinedLostCard": Issuer("card_declined", "lost_card", "do_not_try_again"),
    "pm_card_chargeDeclinedExpiredCard": Issuer("expired_card", "expired_card", "confirm_card_data"),
    "pm_card_threeDSecure2Required": Issuer(asks_for_authentication=True),
    "pm_card_authenticationRequired": Issuer(asks_for_authentication=True),
}
"""By the payment method's name; any other does not exist."""


# ---------------------------------------------------------------- what a fault does


@dataclass(frozen=True)
class Effect:
    """What Stripe does with a request that it has received: when it is executed, and what its key replays."""

    executed_after_seconds: int | None = 0
    """None: never."""
    status: int | None = None
    """Of the error that is stored under the key in the place of the real answer; None for the real answer."""
    answered: bool = True
    """False: the real answer is stored, and lost on its way."""
    is_stored: bool = True
    """False: the key keeps nothing, and the request that is executed later is the first under it."""


_LATER_SECONDS = 900
_AROUND: Mapping[str, Effect] = {
    "500 before": Effect(None, 500),
    "500 after": Effect(0, 500),
    "500, executed later": Effect(_LATER_SECONDS, 500),
    "drop after": Effect(answered=False),
    "time-out": Effect(answered=False),
}
_AROUND_HARSH: Mapping[str, Effect] = {
    **_AROUND,
    "500, executed an hour later": Effect(3600, 500),
    "500, executed a day later": Effect(DAY_SECONDS, 500),
    "500, executed two days later": Effect(2 * DAY_SECONDS, 500),
    "502 stored": Effect(None, 502),
    "502 stored, executed": Effect(0, 502),
    "503 stored": Effect(None, 503),
    "503 stored, executed an hour later": Effect(3600, 503),
    "424 stored": Effect(None, 424),
    "429 stored": Effect(None, 429),
    "403 stored": Effect(None, 403),
}
_PROCESSING = {"processing": None, "500, processing": 500}
_CANCELED_BY_STRIPE = "canceled by Stripe"
_CONFIRM_HARSH = (*_PROCESSING, _CANCELED_BY_STRIPE)
"""Beside the effects: the PaymentIntent is decided later, or is one confirm beyond Stripe's limit."""
_AROUND_REFUND: Mapping[str, Effect] = {
    **_AROUND_HARSH,
    "500, executed 20 hours later": Effect(20 * 3600, 500),
    "502, executed 20 hours later": Effect(20 * 3600, 502, is_stored=False),
}
"""The protocol of refunds assumes that a request which no key stores is executed before its key would be forgotten."""
_BALANCE_TOO_LOW = "balance too low"
_REFUND_HARSH = ("pending", _BALANCE_TOO_LOW)
_BEFORE = ("drop before", "429", "503", "401")
_BEFORE_HARSH = ("drop before", "429", "429 lock_timeout", "502", "503", "424", "401")
"""Nothing of these is stored under the key: the next request under it is the first."""
REFUND_FAULTS = frozenset((*_BEFORE_HARSH, *_AROUND_REFUND, *_REFUND_HARSH))
"""All that a request to refund may meet."""
_DECIDED_AFTER_SECONDS = 3600
_TIME_OUT_SECONDS = 10
_EVENT_OF_STATUS = {
    "succeeded": "payment_intent.succeeded",
    "requires_payment_method": "payment_intent.payment_failed",
    "requires_action": "payment_intent.requires_action",
    "processing": "payment_intent.processing",
    "canceled": "payment_intent.canceled",
}
_FINAL = ("succeeded", "canceled")
REASONS_BY_HAND = ("fraudulent", "duplicate", "void_invoice", "expired", "failed_invoice", None)
"""With which a person may cancel a PaymentIntent in the Dashboard, beside those that we use ourselves."""


# ---------------------------------------------------------------- what the SDK shows


class Metadata(dict[str, str]):
    """As the SDK shows them: items and attributes, but none of a dictionary's methods except by `to_dict`."""

    def to_dict(self) -> dict[str, str]:
        return dict(self)

    def _refuse(self, *_: object) -> NoReturn:
        raise AttributeError("a StripeObject is no dict: use to_dict()")

    get = items = values = pop = setdefault = _refuse

    def includes(self, wanted: Mapping[str, str]) -> bool:
        return wanted.items() <= dict.items(self)


class _Nested(dict[str, Any]):
    """An object within another."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


_HEADERS = {"Request-Id": "req_1", "Stripe-Version": "memory"}
_FIRST = SimpleNamespace(code=200, headers=CaseInsensitiveDict(_HEADERS))
_REPLAYED = SimpleNamespace(code=200, headers=CaseInsensitiveDict({**_HEADERS, "Idempotent-Replayed": "true"}))


@dataclass
class PaymentIntent:
    """As the SDK shows it. It is `created` when Stripe received it, and can be seen from `appeared` on."""

    id: str
    amount: int
    currency: str
    metadata: Metadata
    created: int
    appeared: int
    client_secret: str
    status: str = "requires_payment_method"
    payment_method: str | None = None
    latest_charge: str | None = None
    last_payment_error: Any = None
    cancellation_reason: str | None = None
    payment_method_types: Sequence[str] = ("card",)
    object: str = "payment_intent"
    livemode: bool = False
    last_response: Any = field(default=None, compare=False, repr=False)
    # What Stripe alone knows:
    account: int = 0
    confirms: int = 0
    confirmed_under: list[str] = field(default_factory=list)
    """The keys of the confirms that were executed while it could be confirmed, in order; BY_CUSTOMER for the page's."""
    decided_at: int | None = None
    """When one that is `processing` will be decided."""
    processing_failed: bool = False
    was_canceled_by_hand: bool = False

    @property
    def order_id(self) -> str:
        return self.metadata["order_id"]


@dataclass
class Refund:
    """As the SDK shows it."""

    id: str
    amount: int
    currency: str
    payment_intent: str
    metadata: Metadata
    status: str = "succeeded"
    created: int = 0
    charge: str | None = None
    failure_reason: str | None = None
    pending_reason: str | None = None
    object: str = "refund"
    last_response: Any = field(default=None, compare=False, repr=False)
    decided_at: int | None = field(default=None, repr=False)

    @property
    def is_live(self) -> bool:
        """Whether the money is with the customer, or on its way."""
        return self.status not in ("failed", "canceled")


@dataclass
class Dispute:
    """As the SDK shows it. It does not name its order."""

    id: str
    payment_intent: str
    status: str
    created: int
    metadata: Metadata = field(default_factory=Metadata)
    object: str = "dispute"


@dataclass(frozen=True)
class Event:
    """What Stripe sends, and keeps for its list of events."""

    id: str
    type: str
    created: int
    data: Any
    seen_by: int = 0
    """The account whose event it is. (`account` is what Stripe calls a connected one, in events of those.)"""


def thin(event: Event) -> Any:
    """The event as an endpoint for thin events gets it (Stripe documentation, "How events work", "Thin events")."""
    thing = event.data.object
    return SimpleNamespace(
        id=f"{event.id}_thin",
        object="v2.core.event",
        type=f"v1.{event.type}",
        created=datetime.fromtimestamp(event.created, UTC).isoformat().replace("+00:00", "Z"),
        context=None,
        related_object=SimpleNamespace(id=thing.id, type=thing.object, url=f"/v1/{thing.object}s/{thing.id}"),
    )


# ---------------------------------------------------------------- answers

_ERRORS = {401: stripe.AuthenticationError, 403: stripe.PermissionError, 429: stripe.RateLimitError}


def sdk_error(status: int | None, *, replay: bool = False, **details: Any) -> stripe.StripeError:
    """As stripe-python raises it (`_APIRequestor.specific_v1_api_error`); without a status, there is no answer."""
    if status is None:
        return stripe.APIConnectionError("in memory", should_retry=True)
    type_ = {402: "card_error"}.get(status, "api_error" if status >= 500 else "invalid_request_error")
    body = {"type": type_, "message": "message", **details}
    response = _REPLAYED if replay else _FIRST
    given: Any = {"http_status": status, "json_body": {"error": body}, "headers": response.headers}
    if status in (400, 404) and body["type"] == "idempotency_error":
        return stripe.IdempotencyError(body["message"], **given)
    if status in (400, 402, 404):
        kind = stripe.CardError if status == 402 else stripe.InvalidRequestError
        return kind(body["message"], param=body.get("param"), code=body.get("code"), **given)
    return _ERRORS.get(status, stripe.APIError)(body["message"], **given)


@dataclass(frozen=True)
class Answer:
    """What a request is answered with: the same each time, as it was then; only the headers of a replay differ."""

    status: int | None
    body: Any = None
    """The object; of an error, its details."""
    stored: bool = True
    """Whether a key repeats it: validation and conflicts are not remembered."""

    @property
    def is_refusal(self) -> bool:
        """Whether it says that nothing was executed, and not why the PaymentIntent forbids it."""
        return self.status in (400, 403, 404) and "payment_intent" not in self.body

    def give(self, *, replayed: bool = False) -> Any:
        if self.status != 200:
            raise sdk_error(self.status, replay=replayed, **self.body)
        shown = copy(self.body)
        shown.last_response = _REPLAYED if replayed else _FIRST
        return shown


def _failed(status: int | None, *, stored: bool = True, **details: Any) -> Answer:
    return Answer(status, details, stored)


_NO_ANSWER = _failed(None)
_TURNED_AWAY = {
    "drop before": _NO_ANSWER,
    "429": _failed(429, code="rate_limit"),
    "429 lock_timeout": _failed(429, code="lock_timeout"),
    "502": _failed(502),
    "503": _failed(503),
    "424": _failed(424),
    "401": _failed(401),
}
_KEY_IN_USE = _failed(409, code="idempotency_key_in_use", type="idempotency_error")
_OTHER_REQUEST = _failed(400, type="idempotency_error")
_NOT_FOUND = _failed(404, stored=False, code="resource_missing", param="intent")
_NO_SUCH_CARD = _failed(400, stored=False, code="resource_missing", param="payment_method")
_INCOMPATIBLE = _failed(400, stored=False, code="payment_intent_incompatible_payment_method")
_NO_SEARCH = _failed(400, stored=False)
_ALREADY_REFUNDED = _failed(400, stored=False, code="charge_already_refunded")
_INVALID = _failed(400, code="parameter_unknown", param="x")
_TOO_MUCH = _failed(
    400, stored=False, param="amount", message="Refund amount is greater than unrefunded amount on charge"
)
_TOO_LITTLE_BALANCE = _failed(400, code="balance_insufficient")
"""Its execution had begun: the key stores the refusal."""


def _unexpected_state(intent: PaymentIntent, *, stored: bool = True) -> Answer:
    return _failed(400, stored=stored, code="payment_intent_unexpected_state", payment_intent=copy(intent))


@dataclass
class Stored:
    """A key's request and its stored response; none while the first request runs."""

    request: tuple[str, Mapping[str, Any]]
    created: int
    answer: Answer | None = None
    refusals_replayed: int = 0


@dataclass(frozen=True)
class RollForward:
    """A request that Stripe has answered with an error, and will execute all the same."""

    due: int
    key: str
    execute: Callable[[], object]


# ---------------------------------------------------------------- Stripe


@dataclass
class MemoryStripe:
    """Stripe's side: keys, PaymentIntents, events, and the ledger of charges."""

    io: Io = field(default_factory=NoFaults)
    keys: dict[tuple[int, str], Stored] = field(default_factory=dict)
    intents: list[PaymentIntent] = field(default_factory=list)
    failed_charges: dict[str, Any] = field(default_factory=dict)
    """By their ids, as `latest_charge` is expanded."""
    charges: list[PaymentIntent] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)
    disputes: list[Dispute] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rolling_forward: list[RollForward] = field(default_factory=list)
    search_lag_seconds: int = 0
    has_search: bool = True
    """Accounts in India have none."""
    takes_cards: bool = True
    """Whether card payments are active for the account; otherwise a new PaymentIntent silently takes none."""
    down: bool = False
    refuses_until: int = 0
    """Until then what would create or confirm a PaymentIntent is refused as invalid, as after a faulty deploy."""
    keys_store_refusals: bool = False
    harsh: bool = False
    """More kinds of answers that say nothing, stored under the key or not; late effects; processing."""
    account: int = 0
    """Which account the API key is of: objects and keys of the other cannot be seen, money is taken in both."""
    names_cards: bool = True
    """Whether a decline names the payment method as it was sent: a test card becomes a payment method of its own."""
    only_faults: frozenset[str] | None = None
    """If given, no others happen."""
    page_max: int = 100
    """How many objects a page of a list has at most, however many were asked for."""
    forgotten: set[str] = field(default_factory=set)
    """The keys that were pruned."""
    executed_late: set[str] = field(default_factory=set)
    """The keys whose requests were executed after they had been answered with an error."""
    made: int = 0
    acts_at: int | None = None
    """When what Stripe does by itself was due: world time may have jumped past it."""

    # ------------------------------------------------------------ requests that change something

    def create(self, parameters: Mapping[str, Any], key: str) -> PaymentIntent:
        """POST /v1/payment_intents; with `confirm` it is confirmed in the same request."""
        received = self.io.now()
        confirms = bool(parameters.get("confirm"))

        def execute(kind: str | None) -> Answer:
            card = parameters.get("payment_method")
            if card is not None and card not in CARDS:
                return _NO_SUCH_CARD
            intent = self._made(parameters, received)
            return self._confirm(intent, parameters, kind, under=key) if confirms else Answer(200, copy(intent))

        more = _CONFIRM_HARSH if confirms else ()
        intent: PaymentIntent = self._post("create", "/v1/payment_intents", parameters, key, execute, more)
        return intent

    def confirm(self, intent_id: str, parameters: Mapping[str, Any], key: str) -> PaymentIntent:
        """POST /v1/payment_intents/{id}/confirm: its own states allow one success."""
        account = self.account

        def execute(kind: str | None) -> Answer:
            intent = self._find(intent_id, account)
            return _NOT_FOUND if intent is None else self._confirm(intent, parameters, kind, under=key)

        path = f"/v1/payment_intents/{intent_id}/confirm"
        intent: PaymentIntent = self._post("confirm", path, parameters, key, execute, _CONFIRM_HARSH)
        return intent

    def cancel(self, intent_id: str, parameters: Mapping[str, Any], key: str) -> PaymentIntent:
        """POST /v1/payment_intents/{id}/cancel: from then on nobody can confirm it."""
        account = self.account

        def execute(_: str | None) -> Answer:
            intent = self._find(intent_id, account)
            if intent is None:
                return _NOT_FOUND
            if intent.status in (*_FINAL, "processing"):
                return _unexpected_state(intent, stored=False)
            intent.cancellation_reason = parameters.get("cancellation_reason")
            self.becomes(intent, "canceled")
            return Answer(200, copy(intent))

        path = f"/v1/payment_intents/{intent_id}/cancel"
        intent: PaymentIntent = self._post("cancel", path, parameters, key, execute)
        return intent

    def refund(self, parameters: Mapping[str, Any], key: str) -> Refund:
        """POST /v1/refunds."""
        refund: Refund = self._post(
            "refund", "/v1/refunds", parameters, key, partial(self._refund, parameters), _REFUND_HARSH, _AROUND_REFUND
        )
        return refund

    def _post(
        self,
        name: str,
        path: str,
        parameters: Mapping[str, Any],
        key: str,
        execute: Callable[[str | None], Answer],
        more: Sequence[str] = (),
        harsh: Mapping[str, Effect] = _AROUND_HARSH,
    ) -> Any:
        """One request under its key, which the whole account shares."""
        self.reach(name)
        if self._refuses(name) and not self.keys_store_refusals:
            self.io.met("a request is refused as invalid")
            _INVALID.give()
        under = (self.account, key)
        stored = self.keys.get(under)
        if stored is not None:
            return self._again(stored, path, parameters)
        stored = self.keys[under] = Stored((path, dict(parameters)), self.io.now())
        effects = harsh if self.harsh else _AROUND
        kind = self._fault(name, (*effects, *more) if self.harsh else tuple(effects))
        effect = effects.get(kind or "", Effect())
        try:
            self.io.pause(f"stripe {name} in flight")
        finally:
            # Stripe goes on with what it has received, whether or not anybody still waits for it.
            is_refused = self._refuses(name)
            answer = _INVALID if is_refused else self._take_effect(effect, execute, kind, stored, under)
            if answer.stored:
                stored.answer = answer
            else:
                self.keys.pop(under, None)
        if kind == "time-out":
            self.io.pass_time(_TIME_OUT_SECONDS)
        self.io.pause(f"stripe {name} answered")
        return (answer if effect.answered else _NO_ANSWER).give()

    def _refuses(self, name: str) -> bool:
        return name in ("create", "confirm") and self.io.now() < self.refuses_until

    def _again(self, stored: Stored, path: str, parameters: Mapping[str, Any]) -> Any:
        if stored.answer is None:
            return _KEY_IN_USE.give()
        if stored.request != (path, parameters):
            return _OTHER_REQUEST.give()
        if self.harsh:
            self.io.met("stripe: stored answer replayed")
        if stored.answer.is_refusal:
            stored.refusals_replayed += 1
        return stored.answer.give(replayed=True)

    def _take_effect(
        self,
        effect: Effect,
        execute: Callable[[str | None], Answer],
        kind: str | None,
        stored: Stored,
        under: tuple[int, str],
    ) -> Answer:
        if effect.executed_after_seconds == 0:
            answer = execute(kind)
            return answer if effect.status is None or not answer.stored else _failed(effect.status)
        if effect.executed_after_seconds is not None:
            due = stored.created + effect.executed_after_seconds
            late = partial(execute, None) if effect.is_stored else partial(self._execute_first, execute, stored, under)
            self.rolling_forward.append(RollForward(due, under[1], late))
        assert effect.status is not None
        return _failed(effect.status, stored=effect.is_stored)

    def _execute_first(self, execute: Callable[[str | None], Answer], stored: Stored, under: tuple[int, str]) -> None:
        """Execute what no key has stored, unless another request came under its key meanwhile."""
        if under not in self.keys:
            answer = execute(None)
            if answer.stored:
                self.keys[under] = replace(stored, created=self._now(), answer=answer)

    # ------------------------------------------------------------ the PaymentIntent's own states

    def _made(self, parameters: Mapping[str, Any], received: int) -> PaymentIntent:
        intent_id = f"pi_{len(self.intents)}"
        card = parameters.get("payment_method")
        intent = PaymentIntent(
            id=intent_id,
            amount=parameters["amount"],
            currency=parameters["currency"],
            metadata=Metadata(parameters.get("metadata", {})),
            created=received,
            appeared=self._now(),
            client_secret=f"{intent_id}_secret_{received}",
            status="requires_confirmation" if card else "requires_payment_method",
            payment_method=card,
            payment_method_types=("card",) if self.takes_cards else (),
            account=self.account,
        )
        self.intents.append(intent)
        self._emit("payment_intent.created", intent)
        return intent

    def _confirm(self, intent: PaymentIntent, parameters: Mapping[str, Any], kind: str | None, *, under: str) -> Answer:
        if intent.status in (*_FINAL, "processing"):
            return _unexpected_state(intent)
        card = parameters.get("payment_method") or intent.payment_method
        if card is None:
            return _unexpected_state(intent, stored=False)
        if card not in CARDS:
            return _NO_SUCH_CARD
        if "card" not in intent.payment_method_types:
            return _INCOMPATIBLE
        intent.confirms += 1
        intent.confirmed_under.append(under)
        if intent.confirms > CONFIRMS_MAX or kind == _CANCELED_BY_STRIPE:
            self.cancel_by_itself(intent)
            return _unexpected_state(intent)
        intent.payment_method = card
        issuer = CARDS[card]
        if issuer.asks_for_authentication and not parameters.get("off_session"):
            self.becomes(intent, "requires_action")
            return Answer(200, copy(intent))
        self._reaches_the_issuer(intent)
        if kind in _PROCESSING:
            intent.decided_at = self._now() + _DECIDED_AFTER_SECONDS
            self.becomes(intent, "processing")
            status = _PROCESSING[kind]
            return _failed(status) if status else Answer(200, copy(intent))
        if issuer.asks_for_authentication:
            return self._declined(intent, Issuer("authentication_required", "authentication_required"))
        if issuer.code:
            return self._declined(intent, issuer)
        self.becomes(intent, "succeeded")
        return Answer(200, copy(intent))

    def _reaches_the_issuer(self, intent: PaymentIntent) -> None:
        self.made += 1
        intent.latest_charge = f"ch_{self.made}"

    def _declined(self, intent: PaymentIntent, issuer: Issuer) -> Answer:
        error = self._payment_error(intent, issuer)
        self.becomes(intent, "requires_payment_method", error)
        return _failed(402, **vars(error), payment_intent=copy(intent))

    def _payment_error(self, intent: PaymentIntent, issuer: Issuer) -> SimpleNamespace:
        card = intent.payment_method
        self.made += 1
        return SimpleNamespace(
            type="card_error",
            code=issuer.code,
            decline_code=issuer.decline_code,
            advice_code=issuer.advice_code,
            charge=intent.latest_charge,
            payment_method=_Nested(
                id=card if self.names_cards else f"pm_{self.made}", object="payment_method", type="card"
            ),
        )

    def becomes(self, intent: PaymentIntent, status: str, error: SimpleNamespace | None = None) -> None:
        """The PaymentIntent has this status from now on, and an event says so.

        With no error given, one that requires a payment method was declined.
        """
        assert intent.status not in _FINAL, f"{intent.id} is {intent.status}, and cannot become {status}"
        if status == "requires_payment_method":
            declined = CARDS["pm_card_visa_chargeDeclined"]
            intent.last_payment_error = failure = error or self._payment_error(intent, declined)
            if intent.latest_charge is not None:
                outcome = _Nested(reason=failure.decline_code)
                shown = _Nested(id=intent.latest_charge, status="failed", failure_code=failure.code, outcome=outcome)
                self.failed_charges.setdefault(intent.latest_charge, shown)
            intent.payment_method = None
        if status == "succeeded":
            intent.last_payment_error = None
            if intent.latest_charge is None:
                self._reaches_the_issuer(intent)
            self.charges.append(intent)
        intent.status = status
        self._emit(_EVENT_OF_STATUS[status], intent)

    def cancel_by_itself(self, intent: PaymentIntent) -> None:
        """Stripe cancels it, for reasons of its own, if it still can be."""
        if intent.status not in (*_FINAL, "processing"):
            intent.cancellation_reason = "automatic"
            self.becomes(intent, "canceled")

    def update_by_hand(self, intent: PaymentIntent) -> bool:
        """A person adds metadata in the Dashboard, which clears the last error; False if there is none."""
        had_error, intent.last_payment_error = intent.last_payment_error is not None, None
        return had_error

    def cancel_by_hand(self, intent: PaymentIntent, reason: str | None) -> bool:
        """A person cancels it in the Dashboard; False if it is too late."""
        if intent.status in (*_FINAL, "processing"):
            return False
        intent.was_canceled_by_hand, intent.cancellation_reason = True, reason
        self.becomes(intent, "canceled")
        return True

    # ------------------------------------------------------------ the customer's page, and the bank

    def bank_decides(self, intent: PaymentIntent, *, pays: bool) -> bool:
        """The customer finishes 3-D Secure, or fails to; False if there is nothing to finish."""
        if intent.status != "requires_action":
            return False
        if pays:
            self._reaches_the_issuer(intent)
            self.becomes(intent, "succeeded")
        else:
            failure = Issuer("payment_intent_authentication_failure")
            self.becomes(intent, "requires_payment_method", self._payment_error(intent, failure))
        return True

    def customer_confirms(self, client_secret: str, card: str) -> PaymentIntent | None:
        """The customer's page confirms with a card, by the client secret alone and under no key of ours; None if it
        cannot be confirmed.
        """
        intent = next((each for each in self.intents if each.client_secret == client_secret), None)
        if intent is None or intent.status not in ("requires_action", "requires_payment_method"):
            return None
        self._confirm(intent, {"payment_method": card}, None, under=BY_CUSTOMER)
        return intent

    # ------------------------------------------------------------ refunds

    def _refund(self, parameters: Mapping[str, Any], kind: str | None) -> Answer:
        intent = self._find(parameters["payment_intent"], self.account)
        if intent is None:
            return _NOT_FOUND
        if kind == _BALANCE_TOO_LOW:
            return _TOO_LITTLE_BALANCE
        left = (intent.amount if intent.status == "succeeded" else 0) - self.refunded(intent.id)
        amount = parameters.get("amount", left)
        if amount > left or not left:
            return _TOO_MUCH if left else _ALREADY_REFUNDED
        fails = CARDS[intent.payment_method or "pm_card_visa"].refunds_fail
        refund = Refund(
            f"re_{len(self.refunds)}",
            amount,
            intent.currency,
            intent.id,
            Metadata(parameters.get("metadata", {})),
            status="pending" if kind == "pending" else "succeeded",
            created=self._now(),
            charge=intent.latest_charge,
            decided_at=self._now() + _DECIDED_AFTER_SECONDS if fails or kind == "pending" else None,
        )
        self.refunds.append(refund)
        self._emit("refund.created", refund)
        self._emit("charge.refunded", self.charge_of(intent))
        return Answer(200, copy(refund))

    def refunded(self, intent_id: str) -> int:
        """How much of it was given back."""
        return sum(refund.amount for refund in self.refunds if refund.payment_intent == intent_id and refund.is_live)

    def refund_in_dashboard(self, intent_id: str, amount: int, kind: str | None = None, **metadata: str) -> Answer:
        """A person refunds in the Dashboard; `kind` is "pending" for a refund that is decided later."""
        return self._refund({"payment_intent": intent_id, "amount": amount, "metadata": metadata}, kind)

    def return_refund(self, refund: Refund) -> None:
        """The bank returns the refund after it was made; an event says so."""
        refund.status, refund.failure_reason, refund.decided_at = "failed", "lost_or_stolen_card", None
        self._emit("refund.failed", refund)

    def hold_refund(self, refund: Refund, reason: str | None) -> None:
        """Stripe holds the refund for this reason, or sends it (None); an event says so."""
        refund.pending_reason, refund.status = reason, "pending" if reason else "succeeded"
        self._emit("refund.updated", refund)

    # ------------------------------------------------------------ disputes

    def dispute_is(self, intent_id: str, status: str, number: int = 0) -> None:
        """The bank opens a dispute of the PaymentIntent, or decides about the one of this number; an event says so."""
        dispute_id = f"dp_{intent_id}_{number}"
        dispute = next((each for each in self.disputes if each.id == dispute_id), None)
        kind = "updated"
        if dispute is None:
            dispute, kind = Dispute(dispute_id, intent_id, status, self._now()), "created"
            self.disputes.append(dispute)
        elif status in ("won", "lost", "warning_closed", "prevented"):
            kind = "closed"
        dispute.status = status
        self._emit(f"charge.dispute.{kind}", dispute)

    def list_disputes(self, given: Mapping[str, Any]) -> list[Dispute]:
        """GET /v1/disputes: newest first."""
        self.reach("disputes")
        intent_id = given.get("payment_intent")
        return [copy(each) for each in reversed(self.disputes) if intent_id in (None, each.payment_intent)]

    def retrieve_dispute(self, dispute_id: str) -> Dispute:
        """GET /v1/disputes/{id}."""
        self.reach("disputes")
        dispute = next((each for each in self.disputes if each.id == dispute_id), None)
        shown: Dispute = (_NOT_FOUND if dispute is None else Answer(200, dispute)).give()
        return shown

    # ------------------------------------------------------------ requests that only read

    def retrieve_charge(self, charge_id: str) -> Any:
        """GET /v1/charges/{id}: of a PaymentIntent, whose metadata it has."""
        self.reach("charges")
        found = (each for each in self.intents if each.latest_charge == charge_id and each.account == self.account)
        intent = next(found, None)
        return self.charge_of(intent) if intent else _NOT_FOUND.give()

    def charge_of(self, intent: PaymentIntent) -> Any:
        """The latest charge, as the SDK shows it."""
        refunded = self.refunded(intent.id)
        about = {"id": intent.latest_charge, "object": "charge", "payment_intent": intent.id}
        return SimpleNamespace(**about, amount_refunded=refunded, metadata=intent.metadata)

    def retrieve(self, intent_id: str, parameters: Mapping[str, Any] | None = None) -> PaymentIntent:
        """GET /v1/payment_intents/{id}."""
        self.reach("retrieve")
        intent = self._find(intent_id, self.account)
        if intent and "latest_charge" in (parameters or {}).get("expand", ()):
            intent = copy(intent)
            charge: Any = intent.latest_charge and self.failed_charges.get(intent.latest_charge, intent.latest_charge)
            intent.latest_charge = charge
        shown: PaymentIntent = (_NOT_FOUND if intent is None else Answer(200, intent)).give()
        return shown

    def retrieve_refund(self, refund_id: str) -> Refund:
        """GET /v1/refunds/{id}."""
        self.reach("refunds")
        refund = next((each for each in self.refunds if each.id == refund_id), None)
        shown: Refund = (_NOT_FOUND if refund is None else Answer(200, refund)).give()
        return shown

    def search(self, query: str) -> list[PaymentIntent]:
        """GET /v1/payment_intents/search: by order id, but late, and with the status of then. Newest first."""
        self.reach("search")
        if not self.has_search:
            _NO_SEARCH.give()
        [order_id] = _OF_AN_ORDER.findall(query)
        visible_until = self.io.now() - self.search_lag_seconds
        found, behind = [], False
        for intent in reversed(self.intents):
            if not intent.metadata.includes({"order_id": order_id}) or intent.account != self.account:
                continue
            shown = self._as_of(intent, visible_until) if self.search_lag_seconds else copy(intent)
            behind |= shown is None or shown.status != intent.status
            if shown is not None:
                found.append(shown)
        if behind:
            self.io.met("stripe search: lags")
        return found

    def _as_of(self, intent: PaymentIntent, time: int) -> PaymentIntent | None:
        if intent.appeared > time:
            return None
        of_it = (each for each in reversed(self.events) if each.created <= time and each.data.object.id == intent.id)
        last = next(of_it, None)
        return copy(last.data.object) if last else copy(intent)

    def list_created(self, given: Mapping[str, Any]) -> list[PaymentIntent]:
        """GET /v1/payment_intents: at once, by time alone. Newest first."""
        self.reach("list")
        ours = (each for each in reversed(self.intents) if each.account == self.account)
        shown = [each for each in ours if _within(each.created, given)]
        # By the time of creation: one that was executed late is not the newest.
        return [copy(each) for each in sorted(shown, key=lambda each: -each.created)]

    def list_events(self, given: Mapping[str, Any]) -> list[Event]:
        """GET /v1/events: newest first."""
        self.reach("events")
        types = {*given.get("types", ()), *([given["type"]] if "type" in given else ())}
        events = (each for each in reversed(self.events) if each.seen_by == self.account)
        return [each for each in events if _within(each.created, given) and (not types or each.type in types)]

    def retrieve_event(self, event_id: str) -> Event:
        """GET /v1/events/{id}."""
        self.reach("events")
        event = next((each for each in self.events if each.id == event_id and each.seen_by == self.account), None)
        return event or _NOT_FOUND.give()

    def list_refunds(self, given: Mapping[str, Any]) -> list[Refund]:
        """GET /v1/refunds: at once, and complete. Newest first. An unknown PaymentIntent has none, or is a 404."""
        self.reach("refunds")
        intent_id = given.get("payment_intent")
        if intent_id is not None and self._find(intent_id, self.account) is None:
            return [] if self.io.happens("stripe refunds: another account shows nothing") else _NOT_FOUND.give()
        made = [each for each in reversed(self.refunds) if intent_id in (None, each.payment_intent)]
        return [copy(each) for each in made if _within(each.created, given)]

    # ------------------------------------------------------------ between

    def reach(self, where: str) -> None:
        """The request is on its way: it may not arrive, or be turned away."""
        self.io.pause(f"stripe {where}")
        before = _BEFORE_HARSH if self.harsh else _BEFORE
        kind = "drop before" if self.down else self._fault(where, before)
        if kind is not None:
            _TURNED_AWAY[kind].give()

    def _fault(self, where: str, kinds: Sequence[str]) -> str | None:
        if self.only_faults is not None:
            kinds = [kind for kind in kinds if kind in self.only_faults]
        return self.io.fault(f"stripe {where}", kinds) if kinds else None

    def _find(self, intent_id: str, account: int) -> PaymentIntent | None:
        return next((each for each in self.intents if each.id == intent_id and each.account == account), None)

    def _emit(self, type_: str, thing: PaymentIntent | Refund | Dispute) -> None:
        data = SimpleNamespace(object=copy(thing))
        account = getattr(thing, "account", 0)
        self.events.append(Event(f"evt_{len(self.events)}", type_, self._now(), data, account))

    # ------------------------------------------------------------ what Stripe does by itself

    def time_has_passed(self) -> None:
        """Execute what was answered with an error, decide what is pending, forget keys of 24 hours, or not yet."""
        now = self.io.now()
        while due := self._next_due(now):
            self.acts_at, act = due
            act()
        self.acts_at = None
        for key, stored in list(self.keys.items()):
            old = stored.answer is not None and now - stored.created >= KEY_RETENTION_SECONDS
            if old and self.io.happens("stripe: key pruned"):
                del self.keys[key]
                self.forgotten.add(key[1])

    def _next_due(self, now: int) -> tuple[int, Callable[[], object]] | None:
        """What is due first of all that Stripe has put off, and when."""
        due: list[tuple[int, Callable[[], object]]] = []
        if self.rolling_forward:
            late = min(self.rolling_forward, key=lambda each: each.due)
            due.append((late.due, partial(self._execute_late, late)))
        due += [
            (intent.decided_at, partial(self._decide, intent))
            for intent in self.intents
            if intent.status == "processing" and intent.decided_at is not None
        ]
        due += [
            (refund.decided_at, partial(self._decide_refund, refund))
            for refund in self.refunds
            if refund.decided_at is not None
        ]
        first = min(due, key=operator.itemgetter(0), default=None)
        return first if first is not None and first[0] <= now else None

    def _execute_late(self, late: RollForward) -> None:
        self.rolling_forward.remove(late)
        self.executed_late.add(late.key)
        late.execute()

    def _now(self) -> int:
        return self.io.now() if self.acts_at is None else self.acts_at

    def _decide(self, intent: PaymentIntent) -> None:
        issuer = CARDS[intent.payment_method or "pm_card_visa"]
        intent.processing_failed = bool(issuer.code) or not self.io.happens("stripe: processing has succeeded")
        if intent.processing_failed:
            self.becomes(intent, "requires_payment_method")
        else:
            self.becomes(intent, "succeeded")

    def _decide_refund(self, refund: Refund) -> None:
        refund.decided_at = None
        intent = next(each for each in self.intents if each.id == refund.payment_intent)
        fails = CARDS[intent.payment_method or "pm_card_visa"].refunds_fail
        if fails or not self.io.happens("stripe: refund has succeeded"):
            self.return_refund(refund)
        else:
            self.hold_refund(refund, None)


_OF_AN_ORDER = re.compile(r"metadata\['order_id'\]:'(\w+)'")
_BOUNDS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def _within(created: int, given: Mapping[str, Any]) -> bool:
    bounds = given.get("created", {})
    return all(_BOUNDS[name](created, bound) for name, bound in bounds.items())


# ---------------------------------------------------------------- the SDK's client

_DEFAULT_LIMIT = 10


def _is_retried(status: int | None) -> bool:
    """stripe-python, `HTTPClient._should_retry`, of answers without `Stripe-Should-Retry`."""
    return status is None or status == 409 or status >= 500


def stripe_in_memory(stripe_: MemoryStripe, *, retries: int = STRIPE_RETRIES) -> Any:
    """A `stripe.StripeClient` over it, that sends again what the SDK sends again, under the same key."""

    def sent[Result](send: Callable[[], Result], retries: int = retries) -> Result:
        for tries_left in reversed(range(retries + 1)):
            try:
                return send()
            except stripe.StripeError as error:
                if not _is_retried(error.http_status) or not tries_left:
                    raise
        raise AssertionError

    made = iter(range(10**9))

    def post(send: Callable[..., Any], *, ids: int = 0) -> Callable[..., Any]:
        """A request as the SDK takes it: the ids of its path, its parameters, and the SDK's options."""

        def request(*given: Any) -> Any:
            parameters, options = ({} if each is None else each for each in (*given[ids:], None, None)[:2])
            # Without a key the SDK makes one up, so that its own retries charge once (stripe-python, "Idempotency").
            key = options.get("idempotency_key") or f"made up by the SDK {next(made)}"
            send_once = partial(send, *given[:ids], parameters, key)
            return sent(send_once, options.get("max_network_retries", retries))

        return request

    def get(read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda object_id, *parameters: sent(partial(read, object_id, *parameters[:1]))

    def listing(read: Callable[[Mapping[str, Any]], list[Any]]) -> Callable[..., Any]:
        def page_of(given: Mapping[str, Any]) -> Any:
            items = read(given)
            if "starting_after" in given:
                ids = [item.id for item in items]
                items = items[ids.index(given["starting_after"]) + 1 :]
            shown = items[: min(given.get("limit", _DEFAULT_LIMIT), stripe_.page_max)]
            return SimpleNamespace(data=shown, has_more=len(items) > len(shown))

        return lambda given=MappingProxyType({}), *_: sent(partial(page_of, given))

    def found(given: Mapping[str, Any]) -> Any:
        items, limit = stripe_.search(given["query"]), given.get("limit", _DEFAULT_LIMIT)
        return SimpleNamespace(data=items[:limit], has_more=len(items) > limit)

    payment_intents = SimpleNamespace(
        create=post(stripe_.create),
        confirm=post(stripe_.confirm, ids=1),
        cancel=post(stripe_.cancel, ids=1),
        retrieve=get(stripe_.retrieve),
        search=lambda given, *_: sent(partial(found, given)),
        list=listing(stripe_.list_created),
    )
    refunds = SimpleNamespace(
        create=post(stripe_.refund), list=listing(stripe_.list_refunds), retrieve=get(stripe_.retrieve_refund)
    )
    disputes = SimpleNamespace(list=listing(stripe_.list_disputes), retrieve=get(stripe_.retrieve_dispute))
    events = SimpleNamespace(list=listing(stripe_.list_events), retrieve=get(stripe_.retrieve_event))
    charges = SimpleNamespace(retrieve=get(stripe_.retrieve_charge))
    return SimpleNamespace(
        v1=SimpleNamespace(
            payment_intents=payment_intents, events=events, refunds=refunds, disputes=disputes, charges=charges
        )
    )
