"""The stand-in's Stripe in this process, behind its SDK's client: the gateway above it is the deployed one.

The engine decides what a request does. Here is what comes between it and a worker: `Io` says where others may run, and
which fault a request meets; persons, banks and Stripe itself act through the engine's own functions.

    reach ─► the key: replay, 409 or 400 ─► in flight ─► the effect, now, later or never ─► stored ─► answered
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import stripe
from requests.structures import CaseInsensitiveDict

from onecharge.payments.time_bounds import STRIPE_RETRIES
from stripe_standin import attempts, confirmation, disputes, payment_intents, refunds
from stripe_standin.account import Account, CountedIds
from stripe_standin.charges import Charge
from stripe_standin.disputes import Dispute
from stripe_standin.engine import ACCOUNT_ID, StripeEngine
from stripe_standin.errors import ApiError
from stripe_standin.faults import Executed, Fault, FaultRule
from stripe_standin.messages import Request, Response, Ticket
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.payment_methods import PaymentMethod
from stripe_standin.refunds import Refund
from tests.shop.dynamodb import Io, NoFaults

DAY_SECONDS = 24 * 3600
BY_CUSTOMER = "the customer's page"
"""In the place of a key, for a confirm of the customer's page."""
OTHER_ACCOUNT_ID = "acct_other"
_ACCOUNT_OF_KEY = {"sk_test_ours": ACCOUNT_ID, "sk_test_other": OTHER_ACCOUNT_ID}
_API_KEYS = tuple(_ACCOUNT_OF_KEY)

CARDS = (
    "pm_card_visa",
    "pm_card_mastercard",
    "pm_card_refundFail",
    "pm_card_visa_chargeDeclined",
    "pm_card_visa_chargeDeclinedInsufficientFunds",
    "pm_card_visa_chargeDeclinedLostCard",
    "pm_card_chargeDeclinedExpiredCard",
    "pm_card_threeDSecure2Required",
    "pm_card_authenticationRequired",
)
"""The test cards that a customer of the shop has; each is a PaymentMethod of this id, which pays more than once."""
REASONS_BY_HAND = ("fraudulent", "duplicate", "a reason of next year", None)
"""With which a person may cancel a PaymentIntent in the Dashboard, beside those that we use ourselves."""

# ---------------------------------------------------------------- what a request may meet


def _stored(status: int, executed: Executed = Executed.NEVER, seconds: float = 0) -> FaultRule:
    return FaultRule(Fault.RESPONSE, status=status, stored=True, executed=executed, seconds=seconds)


def _later(seconds: int, status: int = 500) -> FaultRule:
    return _stored(status, Executed.LATER, seconds)


_AROUND: Mapping[str, FaultRule] = {
    "500 before": FaultRule(Fault.ERROR_500_BEFORE),
    "500 after": FaultRule(Fault.ERROR_500_AFTER),
    "500, executed later": _later(900),
    "drop after": FaultRule(Fault.DROP_AFTER),
    "time-out": FaultRule(Fault.HANG_AFTER, seconds=10),
}
_AROUND_HARSH: Mapping[str, FaultRule] = {
    **_AROUND,
    "500, executed an hour later": _later(3600),
    "500, executed a day later": _later(DAY_SECONDS),
    "500, executed two days later": _later(2 * DAY_SECONDS),
    "502 stored": _stored(502),
    "502 stored, executed": _stored(502, Executed.NOW),
    "503 stored": _stored(503),
    "503 stored, executed an hour later": _later(3600, 503),
    "424 stored": _stored(424),
    "429 stored": _stored(429),
    "403 stored": _stored(403),
}
_CONFIRM_HARSH: Mapping[str, FaultRule] = {
    "processing": FaultRule(Fault.STAYS_PROCESSING),
    "500, processing": FaultRule(Fault.STAYS_PROCESSING, status=500),
    "canceled by Stripe": FaultRule(Fault.CANCELED_BY_STRIPE),
}
"""Beside the others: the PaymentIntent is decided later, or is one confirm beyond Stripe's limit."""
_REFUND_HARSH: Mapping[str, FaultRule] = {
    "500, executed 20 hours later": _later(20 * 3600),
    "500, executed 23 hours later": _later(23 * 3600),
    "502, executed 20 hours later": FaultRule(
        Fault.RESPONSE, status=502, stored=False, executed=Executed.LATER, seconds=20 * 3600
    ),
    "pending": FaultRule(Fault.REFUND_PENDING),
    "balance too low": FaultRule(Fault.BALANCE_TOO_LOW),
}
"""The protocol of refunds assumes that a request which no key stores is executed before its key would be forgotten."""
_BEFORE: Mapping[str, FaultRule] = {
    "drop before": FaultRule(Fault.DROP_BEFORE),
    "429": FaultRule(Fault.RATE_LIMIT_429),
    "503": FaultRule(Fault.UNAVAILABLE_503),
    "401": FaultRule(Fault.RESPONSE, status=401),
}
_BEFORE_HARSH: Mapping[str, FaultRule] = {
    **_BEFORE,
    "429 lock_timeout": FaultRule(Fault.RATE_LIMIT_429, error={"code": "lock_timeout"}),
    "502": FaultRule(Fault.RESPONSE, status=502),
    "424": FaultRule(Fault.RESPONSE, status=424),
}
"""Nothing of these is stored under the key: the next request under it is the first."""
REFUND_FAULTS = frozenset((*_BEFORE_HARSH, *_AROUND_HARSH, *_REFUND_HARSH))
"""All that a request to refund may meet."""
_INVALID = FaultRule(
    Fault.RESPONSE,
    status=400,
    stored=True,
    error={"type": "invalid_request_error", "code": "parameter_unknown", "message": "Received unknown parameter: x"},
)
_LOST = (Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.HANG_AFTER)
_DECIDED_AFTER_SECONDS = 3600

# ---------------------------------------------------------------- what the SDK shows


class SdkObject:
    """An object of Stripe's, as the SDK shows it: attributes and items, and no dictionary's methods but `to_dict`."""

    def __init__(self, body: Mapping[str, Any], last_response: Any = None) -> None:
        self._body, self.last_response = body, last_response

    def __getattr__(self, name: str) -> Any:
        try:
            return shown(self._body[name])
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        return shown(self._body[name])

    def __contains__(self, name: str) -> bool:
        return name in self._body

    def to_dict(self) -> dict[str, Any]:
        return dict(self._body)


def shown(value: Any) -> Any:
    """A part of an object, as the SDK shows it."""
    if isinstance(value, Mapping):
        return SdkObject(value)
    return [shown(each) for each in value] if isinstance(value, list) else value


_ERRORS = {401: stripe.AuthenticationError, 403: stripe.PermissionError, 429: stripe.RateLimitError}


def sdk_error(status: int | None, *, replay: bool = False, **details: Any) -> stripe.StripeError:
    """As stripe-python raises it (`_APIRequestor.specific_v1_api_error`); without a status, there is no answer."""
    if status is None:
        return stripe.APIConnectionError("no answer", should_retry=True)
    type_ = {402: "card_error"}.get(status, "api_error" if status >= 500 else "invalid_request_error")
    body = {"type": type_, "message": "message", **details}
    given: Any = {"http_status": status, "json_body": {"error": body}, "headers": _headers(replay)}
    if status in (400, 404) and body["type"] == "idempotency_error":
        return stripe.IdempotencyError(body["message"], **given)
    if status in (400, 402, 404):
        kind = stripe.CardError if status == 402 else stripe.InvalidRequestError
        return kind(body["message"], param=body.get("param"), code=body.get("code"), **given)
    return _ERRORS.get(status, stripe.APIError)(body["message"], **given)


def _headers(replay: bool, **more: str) -> Mapping[str, str]:
    own = {"Request-Id": "req_1", "Stripe-Version": "in process", **more}
    return CaseInsensitiveDict({**own, "Idempotent-Replayed": "true"} if replay else own)


_FIRST = SimpleNamespace(code=200, headers=_headers(False))
_REPLAYED = SimpleNamespace(code=200, headers=_headers(True))


class SdkList:
    """A page of a list, as the SDK shows it."""

    def __init__(self, data: list[Any], now: int, after: Callable[[], "SdkList"] | None) -> None:
        self.data, self.has_more, self._after = data, after is not None, after
        self.last_response = SimpleNamespace(code=200, headers=_headers(False, Date=formatdate(now, usegmt=True)))

    def auto_paging_iter(self) -> Iterator[Any]:
        """Every object of this page and of those after it."""
        yield from self.data
        if self._after:
            yield from self._after().auto_paging_iter()


def _answer(response: Response) -> Any:
    """What the SDK makes of a response: an object, or an error that it raises."""
    replay = "Idempotent-Replayed" in response.headers
    if response.status != 200:
        raise sdk_error(response.status, replay=replay, **response.body["error"])
    return SdkObject(response.body, _REPLAYED if replay else _FIRST)


# ---------------------------------------------------------------- Stripe


class _Engine(StripeEngine):
    """The engine, with an eye on each confirm."""

    def __init__(self, shop: "ShopStripe") -> None:
        self.shop = shop
        super().__init__(lambda: shop.io.now(), ids=CountedIds())

    def execute(self, ticket: Ticket, outcome: Fault | None = None) -> tuple[Response, bool]:
        account, request = self.accounts[ticket.account_id], ticket.request
        [*_, identifier, last] = request.path.split("/")
        intent = account.all(PaymentIntent).get(identifier) if last == "confirm" else None
        if intent is not None:
            self.shop.tries(intent, request)
        response, stored = super().execute(ticket, outcome)
        if intent is not None:
            self.shop.tried(account, intent, request, response)
        elif last == "refunds" and request.method == "POST" and response.status == 200:
            self.shop.refund_is_made(response.body["id"])
        return response, stored

    def execute_late(self, ticket: Ticket, *, is_first: bool) -> None:
        self.shop.executed_late.add(ticket.request.idempotency_key or "")
        super().execute_late(ticket, is_first=is_first)


class ShopStripe:
    """Stripe's side of a shop: two accounts, of which an API key sees one, and what happens at Stripe by itself."""

    def __init__(
        self,
        io: Io | None = None,
        *,
        harsh: bool = False,
        only_faults: frozenset[str] | None = None,
        page_max: int = 100,
    ) -> None:
        self.io = io or NoFaults()
        self.engine = _Engine(self)
        self.engine.behavior.late_refund_seconds = _DECIDED_AFTER_SECONDS
        self.harsh = harsh
        """More kinds of answers that say nothing, stored under the key or not; late effects; processing."""
        self.only_faults = only_faults
        """If given, no others happen."""
        self.page_max = page_max
        """How many objects a page of a list has at most, however many were asked for."""
        self.lag_seconds = 0
        """How long the list of refunds may lack one."""
        self.account = 0
        """Which account the API key is of: 1 is another one, which sees nothing of ours. Money is taken in both."""
        self.down = False
        self.refuses_until = 0
        """Until then what would create or confirm a PaymentIntent is refused as invalid, as after a faulty deploy."""
        self.keys_store_refusals = False
        self.forgotten: set[str] = set()
        """The keys that Stripe has forgotten after 24 hours, and that were used again."""
        self.executed_late: set[str] = set()
        """The keys whose requests were executed after they had been answered with an error."""
        self.refusals_replayed: Counter[tuple[str, str]] = Counter()
        """By account and key: how often a stored refusal was replayed that says nothing of a PaymentIntent."""
        self.processing_failed: set[str] = set()
        self.canceled_by_hand: set[str] = set()
        for api_key, account_id in _ACCOUNT_OF_KEY.items():
            self.engine.assign_key(api_key, account_id)
        for account in self.accounts:
            account.keys.forgets = self._forgets
        self.names_cards(CARDS)

    # ------------------------------------------------------------ what is there

    @property
    def accounts(self) -> list[Account]:
        return list(self.engine.accounts.values())

    @property
    def ours(self) -> Account:
        return self.engine.account

    @property
    def intents(self) -> list[PaymentIntent]:
        """The PaymentIntents of both accounts, ours first, oldest first."""
        return [intent for account in self.accounts for intent in account.all(PaymentIntent).values()]

    @property
    def charges(self) -> list[PaymentIntent]:
        """The oracle: the PaymentIntent of each time that money was taken, in both accounts."""
        taken = [(each, each.all(Charge)[charge_id]) for each in self.accounts for charge_id in each.ledger]
        return [account.all(PaymentIntent)[charge.payment_intent] for account, charge in taken]

    @property
    def refunds(self) -> list[Refund]:
        return list(self.ours.all(Refund).values())

    @property
    def disputes(self) -> list[Dispute]:
        return list(self.ours.all(Dispute).values())

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of our account, oldest first."""
        return self.ours.events

    def is_ours(self, intent_id: str) -> bool:
        return intent_id in self.ours.all(PaymentIntent)

    def refunded(self, intent_id: str) -> int:
        """How much of it was given back."""
        return sum(each.amount for each in self.refunds if each.charge.payment_intent == intent_id and each.is_live)

    def names_cards(self, cards: Sequence[str]) -> None:
        """These test cards are PaymentMethods of their own name, and a decline names them as they were sent.

        Any other name of a test card becomes a new PaymentMethod with each use.
        """
        for account in self.accounts:
            account.all(PaymentMethod).clear()
            for name in cards:
                account.all(PaymentMethod)[name] = PaymentMethod(name, 0, name, is_attached=True)

    # ------------------------------------------------------------ one request

    def send(
        self,
        name: str,
        method: str,
        path: str,
        parameters: Mapping[str, Any],
        key: str | None = None,
        *,
        account: int | None = None,
    ) -> Any:
        """Send one request, once; returns the SDK's object or raises the SDK's error.

        Args:
            name: what faults and boundaries call it.
            account: whose API key it has, if not the shop's of now.
        """
        self.reach(name)
        seen = self.engine.accounts[_ACCOUNT_OF_KEY[self._api_key(account)]]
        if name == "refunds" and parameters.get("payment_intent", "") not in {"", *seen.all(PaymentIntent)}:
            raise sdk_error(404, code="resource_missing", param="payment_intent")
        if self._refuses(name) and not self.keys_store_refusals:
            self.io.met("a request is refused as invalid")
            return _answer(self._error(_INVALID))
        request = Request(method, f"/v1/{path}", _flat(parameters), self._api_key(account), key)
        ticket = self.engine.begin(request)
        if isinstance(ticket, Response):
            self._count_replay(request, ticket)
            return _answer(ticket)
        if method == "GET":
            return _answer(self.engine.execute(ticket)[0])
        return self._post(name, ticket)

    def _post(self, name: str, ticket: Ticket) -> Any:
        effects = self._effects(name)
        kind = self._fault(name, tuple(effects))
        rule = effects[kind] if kind else None
        try:
            self.io.pause(f"stripe {name} in flight")
        finally:
            # Stripe goes on with what it has received, whether or not anybody still waits for it.
            response = self.engine.carry_out(ticket, _INVALID if self._refuses(name) else rule)
        if kind == "time-out" and rule is not None:
            self.io.pass_time(int(rule.seconds))
        self.io.pause(f"stripe {name} answered")
        if rule is not None and rule.kind in _LOST:
            raise sdk_error(None)
        return _answer(response)

    def _effects(self, name: str) -> Mapping[str, FaultRule]:
        if not self.harsh:
            return _AROUND
        return {**_AROUND_HARSH, **{"confirm": _CONFIRM_HARSH, "refund": _REFUND_HARSH}.get(name, {})}

    def reach(self, where: str) -> None:
        """The request is on its way: it may not arrive, or be turned away."""
        self.io.pause(f"stripe {where}")
        before = _BEFORE_HARSH if self.harsh else _BEFORE
        kind = "drop before" if self.down else self._fault(where, tuple(before))
        if kind == "drop before":
            raise sdk_error(None)
        if kind is not None:
            _answer(self._error(before[kind]))

    def _fault(self, where: str, kinds: Sequence[str]) -> str | None:
        if self.only_faults is not None:
            kinds = [kind for kind in kinds if kind in self.only_faults]
        return self.io.fault(f"stripe {where}", kinds) if kinds else None

    def _error(self, rule: FaultRule) -> Response:
        assert rule.error_response is not None
        return rule.error_response

    def _refuses(self, name: str) -> bool:
        return name in ("create", "confirm") and self.io.now() < self.refuses_until

    def _forgets(self, key: str) -> bool:
        forgets = self.io.happens("stripe: key pruned")
        if forgets:
            self.forgotten.add(key)
        return forgets

    def _count_replay(self, request: Request, response: Response) -> None:
        if "Idempotent-Replayed" not in response.headers:
            return
        if self.harsh:
            self.io.met("stripe: stored answer replayed")
        if response.status in (400, 403, 404) and "payment_intent" not in response.body["error"]:
            self.refusals_replayed[request.api_key or "", request.idempotency_key or ""] += 1

    # ------------------------------------------------------------ what the SDK's lists need

    def list_page(self, name: str, path: str, given: Mapping[str, Any], *, account: int | None = None) -> SdkList:
        """A page of a list: of `page_max` objects, however many were asked for."""
        limit = min(given.get("limit", 10), self.page_max)
        page = self.send(name, "GET", path, {**given, "limit": limit}, account=account)

        def after() -> SdkList:
            return self.list_page(name, path, {**given, "starting_after": page.data[-1].id}, account=account)

        shown = [each for each in page.data if not (name == "refunds" and self._lacks(each))]
        return SdkList(shown, self.io.now(), after if page.has_more else None)

    def _lacks(self, listed: Any) -> bool:
        is_young = listed.created > self.io.now() - self.lag_seconds
        return is_young and self.io.happens("stripe: the list lacks a refund")

    def _api_key(self, account: int | None) -> str:
        return _API_KEYS[self.account if account is None else account]

    # ------------------------------------------------------------ confirms, which a world may watch

    def tries(self, intent: PaymentIntent, request: Request) -> None:
        """A confirm of the PaymentIntent is about to be executed."""

    def tried(self, account: Account, intent: PaymentIntent, request: Request, response: Response) -> None:
        """It was; what is processing now is decided later."""
        if intent.status == "processing" and response.status == 200:
            due = self.engine.now() + _DECIDED_AFTER_SECONDS
            self.engine.schedule.add(due, partial(self._decide, account, intent))

    def _decide(self, account: Account, intent: PaymentIntent) -> None:
        if intent.status != "processing":
            return
        declines = account.all(PaymentMethod)[intent.payment_method or ""].card.declines
        pays = not declines and self.io.happens("stripe: processing has succeeded")
        if not pays:
            self.processing_failed.add(intent.id)
        attempts.decide(account, intent, succeed=pays)

    # ------------------------------------------------------------ persons, the customer's page, banks, and time

    def cancel_by_hand(self, intent: PaymentIntent, reason: str | None) -> bool:
        """A person cancels it in the Dashboard; False if it is too late."""
        if intent.status in ("succeeded", "canceled", "processing"):
            return False
        self.canceled_by_hand.add(intent.id)
        payment_intents.cancel_now(self._account_of(intent), intent, reason)
        return True

    def edit_by_hand(self, intent: PaymentIntent, **metadata: str) -> None:
        """A person changes metadata in the Dashboard, which clears the last error."""
        intent.metadata |= metadata
        intent.last_payment_error = None

    def bank_decides(self, intent: PaymentIntent, *, pays: bool) -> bool:
        """The customer finishes 3-D Secure, or fails to; False if there is nothing to finish."""
        if intent.status != "requires_action":
            return False
        attempts.decide(self._account_of(intent), intent, succeed=pays)
        return True

    def customer_confirms(self, client_secret: str, card: str) -> PaymentIntent | None:
        """The customer's page confirms with a card, by the client secret alone and under no key of ours; None if it
        cannot be confirmed.
        """
        intent = next((each for each in self.intents if each.client_secret == client_secret), None)
        if intent is None or intent.status not in ("requires_action", "requires_payment_method"):
            return None
        request = Request(
            "POST", f"/v1/payment_intents/{intent.id}/confirm", {"payment_method": card}, None, BY_CUSTOMER
        )
        self.tries(intent, request)
        with suppress(ApiError):
            confirmation.confirm(self._account_of(intent), request, intent.id)
        return intent

    def refund_in_dashboard(self, intent_id: str, amount: int, kind: str | None = None, **metadata: str) -> bool:
        """A person refunds in the Dashboard; `kind` is "pending" for a refund that is decided later. False if Stripe
        refuses it."""
        parameters = {"payment_intent": intent_id, "amount": amount, "metadata": metadata}
        request = Request("POST", "/v1/refunds", _flat(parameters))
        try:
            made = refunds.create(self.ours, request, outcome=Fault.REFUND_PENDING if kind else None)
        except ApiError:
            return False
        self.refund_is_made(made["id"])
        return True

    def refund_is_made(self, refund_id: str) -> None:
        """One that is pending is decided later."""
        refund = self.ours.all(Refund)[refund_id]
        if refund.status == "pending":
            due = self.engine.now() + _DECIDED_AFTER_SECONDS
            self.engine.schedule.add(due, partial(self._decide_refund, refund))

    def _decide_refund(self, refund: Refund) -> None:
        if refund.status != "pending" or refund.pending_reason is not None:
            return
        if self.io.happens("stripe: refund has succeeded"):
            self.hold_refund(refund, None)
        else:
            self.return_refund(refund)

    def return_refund(self, refund: Refund) -> None:
        """The bank returns the refund after it was made; an event says so."""
        refunds.fail(self.ours, refund, "lost_or_stolen_card")

    def hold_refund(self, refund: Refund, reason: str | None) -> None:
        """Stripe holds the refund for this reason, or sends it (None); an event says so."""
        refunds.hold(self.ours, refund, reason)

    def dispute_is(self, intent_id: str, status: str, number: int = 0) -> None:
        """The bank opens a dispute of the PaymentIntent, or decides about the one of this number; an event says so."""
        charge = self.ours.all(Charge)[self.ours.all(PaymentIntent)[intent_id].latest_charge or ""]
        of_it = [each for each in self.disputes if each.charge is charge]
        if number < len(of_it):
            disputes.change_status(self.ours, of_it[number], status)
        else:
            disputes.open_dispute(self.ours, charge, status=status)

    def forget_keys(self) -> None:
        """Stripe may do so when keys are 24 hours old."""
        for account in self.accounts:
            account.keys.delete()

    def time_has_passed(self) -> None:
        """Stripe does by itself what is due by now."""
        self.engine.run_due()

    def _account_of(self, intent: PaymentIntent) -> Account:
        return next(each for each in self.accounts if intent.id in each.all(PaymentIntent))


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Parameters as the SDK sends them: `{"metadata": {"a": "b"}, "types": ["c"]}` is `metadata[a]=b&types[0]=c`."""
    flat: dict[str, str] = {}
    for name, value in parameters.items():
        path = f"{prefix}[{name}]" if prefix else name
        if isinstance(value, Mapping):
            flat |= _flat(value, path)
        elif isinstance(value, (list, tuple)):
            flat |= _flat({str(index): each for index, each in enumerate(value)}, path)
        elif value is not None:
            flat[path] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


# ---------------------------------------------------------------- the SDK's client


def _is_retried(status: int | None) -> bool:
    """stripe-python, `HTTPClient._should_retry`, of answers without `Stripe-Should-Retry`."""
    return status is None or status == 409 or status >= 500


def client_of(shop: ShopStripe, *, retries: int = STRIPE_RETRIES, account: int | None = None) -> Any:
    """A `stripe.StripeClient` over it, that sends again what the SDK sends again, under the same key.

    Args:
        account: whose API key it has, whatever the shop's is.
    """

    def sent[Result](send: Callable[[], Result], retries: int = retries) -> Result:
        for tries_left in reversed(range(retries + 1)):
            try:
                return send()
            except stripe.StripeError as error:
                if not _is_retried(error.http_status) or not tries_left:
                    raise
        raise AssertionError

    made = iter(range(10**9))

    def post(name: str, path: str) -> Callable[..., Any]:
        """A request as the SDK takes it: the ids of its path, its parameters, and the SDK's options."""
        count = path.count("{}")

        def request(*given: Any) -> Any:
            parameters, options = ({} if each is None else each for each in (*given[count:], None, None)[:2])
            # Without a key the SDK makes one up, so that its own retries charge once (stripe-python, "Idempotency").
            key = options.get("idempotency_key") or f"made up by the SDK {next(made)}"
            send = partial(shop.send, name, "POST", path.format(*given[:count]), parameters, key, account=account)
            return sent(send, options.get("max_network_retries", retries))

        return request

    def get(name: str, path: str) -> Callable[..., Any]:
        return lambda id_, given=None, *_: sent(
            partial(shop.send, name, "GET", path.format(id_), given or {}, account=account)
        )

    def listing(name: str, path: str) -> Callable[..., Any]:
        return lambda given=MappingProxyType({}), *_: sent(partial(shop.list_page, name, path, given, account=account))

    return SimpleNamespace(
        v1=SimpleNamespace(
            payment_intents=SimpleNamespace(
                create=post("create", "payment_intents"),
                confirm=post("confirm", "payment_intents/{}/confirm"),
                cancel=post("cancel", "payment_intents/{}/cancel"),
                retrieve=get("retrieve", "payment_intents/{}"),
                list=listing("list", "payment_intents"),
            ),
            refunds=SimpleNamespace(
                create=post("refund", "refunds"),
                list=listing("refunds", "refunds"),
                retrieve=get("refunds", "refunds/{}"),
            ),
            disputes=SimpleNamespace(list=listing("disputes", "disputes"), retrieve=get("disputes", "disputes/{}")),
            events=SimpleNamespace(list=listing("events", "events"), retrieve=get("events", "events/{}")),
            charges=SimpleNamespace(list=listing("charges", "charges"), retrieve=get("charges", "charges/{}")),
            payment_methods=SimpleNamespace(retrieve=get("payment method", "payment_methods/{}")),
        )
    )
