"""What Stripe does with a request: pure semantics on a clock that is handed in. No sockets, no threads, no chance.

A request passes three steps, so that another one can arrive in between:

    begin     authenticate, look the idempotency key up: a replay, a conflict, or a ticket to go on with
    execute   the charge happens here, at once or not at all
    finish    the answer is stored under the key, if it is one that Stripe remembers

Whoever calls holds a lock around each step, not around all three. Source of the rules: Stripe documentation,
"Idempotent requests", "Error handling", "PaymentIntents API".
"""

import hashlib
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from local.stripe_standin.errors import ApiError, invalid, missing
from local.stripe_standin.payment_methods import BEHAVIOURS, AsksForAuthentication, Declines, Succeeds

KEY_LENGTH_MAX = 255
KEY_RETENTION_SECONDS = 24 * 3600
AMOUNT_MAX = 99_999_999

CURRENCIES = frozenset(
    (
        "aed afn all amd ang aoa ars aud awg azn bam bbd bdt bhd bif bmd bnd bob brl bsd bwp byn bzd cad cdf chf clp "
        "cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd hnl htg huf idr ils "
        "inr isk jmd jod jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk mnt mop mur mvr "
        "mwk mxn myr mzn nad ngn nio nok npr nzd omr pab pen pgk php pkr pln pyg qar ron rsd rub rwf sar sbd scr sek "
        "sgd shp sle sos srd std szl thb tjs tnd top try ttd twd tzs uah ugx usd uyu uzs vnd vuv wst xaf xcd xof xpf "
        "yer zar zmw"
    ).split()
)

_CREATE_PARAMETERS = re.compile(
    r"amount|currency|confirm|payment_method|customer|description|capture_method|off_session|return_url|receipt_email"
    r"|error_on_requires_action|confirmation_method|statement_descriptor(_suffix)?|setup_future_usage"
    r"|automatic_payment_methods\[(enabled|allow_redirects)\]|payment_method_types\[\d*\]|metadata\[.+\]|expand\[\d*\]"
)
_CONFIRM_PARAMETERS = re.compile(r"payment_method|off_session|return_url|error_on_requires_action|expand\[\d*\]")
_LIST_PARAMETERS = re.compile(
    r"customer|limit|starting_after|ending_before|created(\[(gte|gt|lte|lt)\])?|expand\[\d*\]"
)
_EVENT_PARAMETERS = re.compile(_LIST_PARAMETERS.pattern + r"|type|types\[\d*\]")
_REFUND_LIST_PARAMETERS = re.compile(_LIST_PARAMETERS.pattern + r"|payment_intent|charge")
_REFUND_PARAMETERS = re.compile(r"payment_intent|charge|amount|reason|metadata\[.+\]|expand\[\d*\]")


@dataclass(frozen=True)
class Request:
    """One HTTP request, its form or query parameters flat, as they came: `{"metadata[order_id]": "…"}`."""

    method: str
    path: str
    parameters: Mapping[str, str]
    api_key: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Response:
    """One HTTP answer."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ticket:
    """A request that may be executed; its key, if it has one, is in use until it is finished."""

    request: Request


@dataclass(frozen=True)
class StoredAnswer:
    """What a key stands for: the request that came first, and its answer once there is one."""

    request: Request
    created: float
    response: Response | None


@dataclass
class Intent:
    """A PaymentIntent: its own states let it succeed once, for ever."""

    id: str
    amount: int
    currency: str
    created: int
    metadata: dict[str, str]
    payment_method: str | None = None
    customer: str | None = None
    description: str | None = None
    status: str = "requires_payment_method"
    charge_id: str | None = None
    refunded: int = 0
    last_payment_error: dict[str, Any] | None = None
    updated: float = 0

    def as_json(self) -> dict[str, Any]:
        acts = self.status == "requires_action"
        return {
            "id": self.id,
            "object": "payment_intent",
            "amount": self.amount,
            "amount_received": self.amount if self.status == "succeeded" else 0,
            "currency": self.currency,
            "status": self.status,
            "client_secret": f"{self.id}_secret_{_digest(self.id)[:16]}",
            "confirmation_method": "automatic",
            "capture_method": "automatic_async",
            "created": self.created,
            "customer": self.customer,
            "description": self.description,
            "last_payment_error": self.last_payment_error,
            "latest_charge": self.charge_id,
            "livemode": False,
            "metadata": dict(self.metadata),
            "next_action": {"type": "use_stripe_sdk", "use_stripe_sdk": {}} if acts else None,
            "payment_method": self.payment_method if self.status != "requires_payment_method" else None,
            "payment_method_types": ["card"],
        }


@dataclass(frozen=True)
class Charge:
    """One entry of the ledger: money was taken."""

    id: str
    payment_intent: str
    amount: int
    currency: str
    created: int
    metadata: Mapping[str, str]
    idempotency_key: str | None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class StripeEngine:
    """One account's Stripe. `clock` gives epoch seconds; equal seeds and requests give equal ids."""

    def __init__(self, clock: Callable[[], float], *, seed: int = 0) -> None:
        self._clock = clock
        self._seed = seed
        self._made: Counter[str] = Counter()
        self._keys: dict[str, StoredAnswer] = {}
        self.intents: dict[str, Intent] = {}
        self.charges: list[Charge] = []
        self.refunds: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.search_lag_seconds = 0.0
        self.accepted_api_keys = re.compile(r"[sr]k_test_.+")

    # ---------------------------------------------------------------- the three steps

    def begin(self, request: Request) -> Ticket | Response:
        """Let the request in, or answer it at once: 401, 400, 409, or the replay of the first answer."""
        try:
            self._authenticate(request)
            earlier = self._earlier_use_of_key(request)
        except ApiError as error:
            return self._error(error)
        if earlier is not None and earlier.response is not None:
            return Response(
                earlier.response.status,
                earlier.response.body,
                {**earlier.response.headers, "Idempotent-Replayed": "true"},
            )
        if request.method == "POST" and request.idempotency_key:
            self._keys[request.idempotency_key] = StoredAnswer(request, self._clock(), None)
        return Ticket(request)

    def execute(self, ticket: Ticket) -> tuple[Response, bool]:
        """Do what is asked; says with the answer whether Stripe remembers it under the key."""
        try:
            return self._route(ticket.request), True
        except ApiError as error:
            return self._error(error), error.remembered

    def finish(self, ticket: Ticket, response: Response, *, remembered: bool) -> None:
        """Store the answer under the request's key, or free the key if the answer is not one to remember."""
        key = ticket.request.idempotency_key
        if ticket.request.method != "POST" or not key:
            return
        if remembered:
            self._keys[key] = StoredAnswer(ticket.request, self._keys[key].created, response)
        else:
            del self._keys[key]

    def answer(self, request: Request) -> Response:
        """All three steps at once, for callers that let nothing happen in between."""
        ticket = self.begin(request)
        if isinstance(ticket, Response):
            return ticket
        response, remembered = self.execute(ticket)
        self.finish(ticket, response, remembered=remembered)
        return response

    def _authenticate(self, request: Request) -> None:
        if not (request.api_key and self.accepted_api_keys.fullmatch(request.api_key)):
            raise ApiError(401, "invalid_request_error", "Invalid API Key provided.")

    def _earlier_use_of_key(self, request: Request) -> StoredAnswer | None:
        key = request.idempotency_key
        if request.method != "POST" or not key:
            return None
        if len(key) > KEY_LENGTH_MAX:
            raise ApiError(400, "idempotency_error", "Idempotency keys must be at most 255 characters.")
        self._prune_keys()
        earlier = self._keys.get(key)
        if earlier is None:
            return None
        if earlier.response is None:
            raise ApiError(
                409,
                "idempotency_error",
                "There is currently another in-progress request using this Idempotent Key.",
                code="idempotency_key_in_use",
            )
        if (earlier.request.path, earlier.request.parameters) != (request.path, request.parameters):
            raise ApiError(
                400,
                "idempotency_error",
                "Keys for idempotent requests can only be used with the same endpoint and parameters they were first "
                "used with.",
            )
        return earlier

    def _prune_keys(self) -> None:
        oldest = self._clock() - KEY_RETENTION_SECONDS
        # A key in use is kept however old: forgetting it would let a second request in.
        self._keys = {
            key: stored for key, stored in self._keys.items() if stored.response is None or stored.created > oldest
        }

    def _error(self, error: ApiError) -> Response:
        headers = {"Stripe-Should-Retry": "true"} if error.status == 409 else {}
        return Response(error.status, error.body, headers)

    # ---------------------------------------------------------------- endpoints

    def _route(self, request: Request) -> Response:
        path = request.path.removeprefix("/v1/")
        match request.method, path.split("/"):
            case "POST", ["payment_intents"]:
                return self._create(request)
            case "GET", ["payment_intents"]:
                return self._list(request, _LIST_PARAMETERS, [i.as_json() for i in self.intents.values()])
            case "GET", ["payment_intents", "search"]:
                return self._search(request)
            case "GET", ["payment_intents", intent_id]:
                return Response(200, self._intent(intent_id).as_json())
            case "POST", ["payment_intents", intent_id, "confirm"]:
                _refuse_unknown(request, _CONFIRM_PARAMETERS)
                return self._confirm(self._intent(intent_id), request)
            case "POST", ["payment_intents", intent_id, "cancel"]:
                return self._cancel(self._intent(intent_id))
            case "POST", ["refunds"]:
                return self._refund(request)
            case "GET", ["refunds"]:
                return self._list_refunds(request)
            case "GET", ["events"]:
                return self._list_events(request)
            case "GET", ["events", event_id]:
                return Response(200, self._event(event_id))
        raise ApiError(404, "invalid_request_error", f"Unrecognized request URL ({request.method}: {request.path}).")

    def _create(self, request: Request) -> Response:
        _refuse_unknown(request, _CREATE_PARAMETERS)
        given = request.parameters
        intent = Intent(
            id="",
            amount=_amount(given),
            currency=_currency(given),
            created=int(self._clock()),
            metadata=_metadata(given),
            payment_method=_payment_method(given),
            customer=given.get("customer"),
            description=given.get("description"),
            status="requires_confirmation" if "payment_method" in given else "requires_payment_method",
        )
        confirm = given.get("confirm") == "true"
        if confirm:
            _refuse_redirects_without_return_url(given)
            if intent.payment_method is None:
                raise invalid(
                    "You cannot confirm this PaymentIntent because it's missing a payment method.",
                    code="payment_intent_unexpected_state",
                )
        # From here on nothing is refused: execution has begun.
        intent.id = self._new_id("pi")
        self.intents[intent.id] = intent
        self._emit("payment_intent.created", intent)
        return self._confirm(intent, request) if confirm else Response(200, intent.as_json())

    def _confirm(self, intent: Intent, request: Request) -> Response:
        if intent.status not in ("requires_payment_method", "requires_confirmation", "requires_action"):
            raise ApiError(
                400,
                "invalid_request_error",
                f"This PaymentIntent's status is {intent.status}: it cannot be confirmed.",
                remembered=True,
                code="payment_intent_unexpected_state",
                payment_intent=intent.as_json(),
            )
        intent.payment_method = _payment_method(request.parameters) or intent.payment_method
        if intent.payment_method is None:
            raise invalid("The PaymentIntent is missing a payment method.", code="payment_intent_unexpected_state")
        match BEHAVIOURS[intent.payment_method]:
            case Succeeds():
                self._charge(intent, request.idempotency_key)
                return Response(200, intent.as_json())
            case Declines(code, decline_code):
                raise self._decline(intent, code, decline_code)
            case AsksForAuthentication():
                if request.parameters.get("off_session") in ("true", "recurring", "one_off"):
                    raise self._decline(intent, "authentication_required", "authentication_required")
                intent.status = "requires_action"
                self._emit("payment_intent.requires_action", intent)
                return Response(200, intent.as_json())

    def _charge(self, intent: Intent, idempotency_key: str | None) -> None:
        charge = Charge(
            id=self._new_id("ch"),
            payment_intent=intent.id,
            amount=intent.amount,
            currency=intent.currency,
            created=int(self._clock()),
            metadata=dict(intent.metadata),
            idempotency_key=idempotency_key,
        )
        self.charges.append(charge)
        intent.charge_id, intent.status, intent.last_payment_error = charge.id, "succeeded", None
        self._emit("payment_intent.succeeded", intent)

    def _decline(self, intent: Intent, code: str, decline_code: str | None) -> ApiError:
        details: dict[str, Any] = {"code": code, "message": "Your card was declined.", "type": "card_error"}
        if decline_code:
            details["decline_code"] = decline_code
        intent.status, intent.last_payment_error = "requires_payment_method", details
        self._emit("payment_intent.payment_failed", intent)
        body = {name: value for name, value in details.items() if name not in ("type", "message")}
        return ApiError(
            402, "card_error", "Your card was declined.", remembered=True, payment_intent=intent.as_json(), **body
        )

    def authenticate(self, intent_id: str, *, succeed: bool) -> Intent:
        """The customer finishes 3-D Secure, or fails to; what Stripe's page in the browser does."""
        intent = self._intent(intent_id)
        if intent.status != "requires_action":
            raise invalid("There is nothing to authenticate.", code="payment_intent_unexpected_state")
        if succeed:
            self._charge(intent, None)
        else:
            self._decline(intent, "payment_intent_authentication_failure", None)
        return intent

    def _cancel(self, intent: Intent) -> Response:
        if intent.status in ("succeeded", "canceled", "processing"):
            raise invalid("You cannot cancel this PaymentIntent.", code="payment_intent_unexpected_state")
        intent.status = "canceled"
        self._emit("payment_intent.canceled", intent)
        return Response(200, intent.as_json())

    def _refund(self, request: Request) -> Response:
        _refuse_unknown(request, _REFUND_PARAMETERS)
        given = request.parameters
        intent = self._intent(given.get("payment_intent", ""))
        left = (intent.amount if intent.status == "succeeded" else 0) - intent.refunded
        amount = _amount(given) if "amount" in given else left
        if left == 0:
            raise invalid("The charge has already been refunded.", code="charge_already_refunded")
        if amount > left:
            # In Stripe's words, for it gives no code to this.
            text = f"Refund amount ({amount}) is greater than unrefunded amount on charge ({left})"
            raise invalid(text, param="amount")
        intent.refunded += amount
        refund = {
            "id": self._new_id("re"),
            "object": "refund",
            "amount": amount,
            "currency": intent.currency,
            "payment_intent": intent.id,
            "charge": intent.charge_id,
            "status": "succeeded",
            "created": int(self._clock()),
            "metadata": _metadata(given),
        }
        self.refunds.append(refund)
        self._emit("charge.refunded", intent)
        return Response(200, refund)

    def _list_refunds(self, request: Request) -> Response:
        wanted = {name: request.parameters[name] for name in ("payment_intent", "charge") if name in request.parameters}
        refunds = [each for each in self.refunds if wanted.items() <= each.items()]
        return self._list(request, _REFUND_LIST_PARAMETERS, refunds)

    def _search(self, request: Request) -> Response:
        wanted, statuses = _parse_query(request.parameters.get("query", ""))
        visible_until = self._clock() - self.search_lag_seconds
        found = [
            intent
            for intent in self.intents.values()
            if (self.search_lag_seconds == 0 or intent.updated <= visible_until)
            and wanted.items() <= intent.metadata.items()
            and (not statuses or intent.status in statuses)
        ]
        page = [intent.as_json() for intent in reversed(found)][: _limit(request.parameters)]
        body = {"object": "search_result", "data": page, "has_more": len(found) > len(page), "next_page": None}
        return Response(200, {**body, "url": request.path})

    def _list_events(self, request: Request) -> Response:
        given = request.parameters
        types = {value for name, value in given.items() if name == "type" or name.startswith("types[")}
        return self._list(
            request, _EVENT_PARAMETERS, [event for event in self.events if not types or event["type"] in types]
        )

    def _list(self, request: Request, allowed: re.Pattern[str], oldest_first: list[dict[str, Any]]) -> Response:
        """Newest first, by cursor. It filters by `created` and `customer`, and knows no metadata."""
        _refuse_unknown(request, allowed)
        given = request.parameters
        data = [item for item in reversed(oldest_first) if _created_within(item, given)]
        if "customer" in given:
            data = [item for item in data if item.get("customer") == given["customer"]]
        ids = [item["id"] for item in data]
        if "starting_after" in given:
            data = data[_place(ids, given["starting_after"], "starting_after") + 1 :]
        limit = _limit(given)
        if "ending_before" in given:
            data = data[: _place(ids, given["ending_before"], "ending_before")][-limit:]
        body = {"object": "list", "data": data[:limit], "has_more": len(data) > limit, "url": request.path}
        return Response(200, body)

    # ---------------------------------------------------------------- bookkeeping

    def _intent(self, intent_id: str) -> Intent:
        if intent_id not in self.intents:
            raise missing("payment_intent", intent_id, "intent")
        return self.intents[intent_id]

    def _event(self, event_id: str) -> dict[str, Any]:
        for event in self.events:
            if event["id"] == event_id:
                return event
        raise missing("event", event_id, "id")

    def _emit(self, type_: str, intent: Intent) -> None:
        intent.updated = self._clock()
        self.events.append(
            {
                "id": self._new_id("evt"),
                "object": "event",
                "api_version": None,
                "created": int(self._clock()),
                "livemode": False,
                "type": type_,
                "data": {"object": intent.as_json()},
                "pending_webhooks": 0,
                "request": {"id": None, "idempotency_key": None},
            }
        )

    def _new_id(self, kind: str) -> str:
        self._made[kind] += 1
        return f"{kind}_{_digest(f'{self._seed}:{kind}:{self._made[kind]}')[:24]}"


# -------------------------------------------------------------------- parameters


def _refuse_unknown(request: Request, allowed: re.Pattern[str]) -> None:
    for name in request.parameters:
        if not allowed.fullmatch(name):
            raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")


def _amount(given: Mapping[str, str]) -> int:
    if "amount" not in given:
        raise invalid("Missing required param: amount.", param="amount", code="parameter_missing")
    amount = _integer(given["amount"], "amount")
    if amount < 1:
        raise invalid(
            "This value must be greater than or equal to 1.", param="amount", code="parameter_invalid_integer"
        )
    if amount > AMOUNT_MAX:
        raise invalid("Amount must be no more than 99999999.", param="amount", code="amount_too_large")
    return amount


def _currency(given: Mapping[str, str]) -> str:
    if "currency" not in given:
        raise invalid("Missing required param: currency.", param="currency", code="parameter_missing")
    currency = given["currency"].lower()
    if currency not in CURRENCIES:
        raise invalid(f"Invalid currency: {currency}.", param="currency")
    return currency


def _payment_method(given: Mapping[str, str]) -> str | None:
    payment_method = given.get("payment_method")
    if payment_method is not None and payment_method not in BEHAVIOURS:
        raise ApiError(
            400,
            "invalid_request_error",
            f"No such PaymentMethod: '{payment_method}'",
            code="resource_missing",
            param="payment_method",
        )
    return payment_method


def _metadata(given: Mapping[str, str]) -> dict[str, str]:
    metadata = {name[9:-1]: value for name, value in given.items() if name.startswith("metadata[")}
    if len(metadata) > 50 or any(len(name) > 40 or len(value) > 500 for name, value in metadata.items()):
        raise invalid("Metadata takes 50 keys of 40 characters, with values of 500.", param="metadata")
    return metadata


def _refuse_redirects_without_return_url(given: Mapping[str, str]) -> None:
    cards_only = any(name.startswith("payment_method_types[") for name in given)
    never_redirects = given.get("automatic_payment_methods[allow_redirects]") == "never"
    if not (cards_only or never_redirects or "return_url" in given):
        raise invalid(
            "This PaymentIntent is configured to accept payment methods enabled in your Dashboard. Because some of "
            "these payment methods might redirect your customer off of your page, you must provide a `return_url`. If "
            "you don't want to accept redirect-based payment methods, set "
            "`automatic_payment_methods[enabled]` to `true` and `automatic_payment_methods[allow_redirects]` to "
            "`never` when creating Setup Intents and Payment Intents."
        )


def _integer(text: str, param: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise invalid(f"Invalid integer: {text}", param=param, code="parameter_invalid_integer")
    return int(text)


def _limit(given: Mapping[str, str]) -> int:
    limit = _integer(given.get("limit", "10"), "limit")
    if not 1 <= limit <= 100:
        raise invalid("Limit must be between 1 and 100.", param="limit")
    return limit


_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "created[gte]": operator.ge,
    "created[gt]": operator.gt,
    "created[lte]": operator.le,
    "created[lt]": operator.lt,
    "created": operator.eq,
}


def _created_within(item: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    return all(
        holds(item["created"], _integer(given[name], name)) for name, holds in _COMPARISONS.items() if name in given
    )


def _place(ids: list[str], identifier: str, param: str) -> int:
    if identifier not in ids:
        raise missing("object", identifier, param)
    return ids.index(identifier)


def _parse_query(query: str) -> tuple[dict[str, str], set[str]]:
    """`metadata['a']:'b' AND status:'succeeded'`: the part of Stripe's search language that is supported."""
    clauses = re.split(r"\s+AND\s+", query)
    parsed = [re.fullmatch(r"""(?:metadata\[['"](\w+)['"]\]|(status)):['"]([^'"]*)['"]""", each) for each in clauses]
    metadata: dict[str, str] = {}
    statuses: set[str] = set()
    for clause in parsed:
        if clause is None:
            raise invalid("We were unable to parse your search query.", param="query")
        name, is_status, value = clause.groups()
        if is_status:
            statuses.add(value)
        else:
            metadata[name] = value
    return metadata, statuses
