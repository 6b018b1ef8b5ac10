"""What Stripe does with a request: pure semantics on a clock that is handed in. No sockets, no threads, no chance.

A request passes three steps, so that another one can arrive in between:

    begin     authenticate, look the idempotency key up: a replay, a conflict, or a ticket to go on with
    execute   the charge happens here, at once or not at all
    finish    the answer is stored under the key, if it is one that Stripe remembers

Whoever calls holds a lock around each step, not around all three. Source of the rules: Stripe documentation,
"Idempotent requests", "Error handling", "Advanced error handling", "Authentication", "Versioning".

    engine ──► confirmation ──► attempts ──► charges, disputes, payment_methods ──► cards
           ──► payment_intents, refunds, lists         all on one account.Account, which holds everything
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from local.stripe_standin import charges, confirmation, disputes, lists, payment_intents, payment_methods, refunds
from local.stripe_standin.account import API_VERSION, Account, Behavior, Ids
from local.stripe_standin.errors import ApiError, invalid
from local.stripe_standin.messages import Request, Response, Ticket
from local.stripe_standin.rate_limits import RateLimits
from local.stripe_standin.schedule import Schedule

__all__ = ["Request", "Response", "StripeEngine", "Ticket"]

ACCOUNT_ID = "acct_standin"
"""Whose every key is, unless `assign_key` says otherwise."""

_API_KEYS = re.compile(r"[sr]k_test_.+")
_VERSIONS = re.compile(r"\d{4}-\d{2}-\d{2}(\.[a-z_]+)?")

Handler = Callable[..., dict[str, Any]]
_ID = r"([^/]+)"
_ROUTES: Mapping[tuple[str, str], Handler] = {
    ("POST", "payment_intents"): confirmation.create,
    ("GET", "payment_intents"): lists.payment_intents,
    ("GET", "payment_intents/search"): lists.search_payment_intents,
    ("GET", f"payment_intents/{_ID}"): payment_intents.retrieve,
    ("POST", f"payment_intents/{_ID}/confirm"): confirmation.confirm,
    ("POST", f"payment_intents/{_ID}/cancel"): payment_intents.cancel,
    ("POST", "payment_methods"): payment_methods.create,
    ("GET", f"payment_methods/{_ID}"): payment_methods.retrieve,
    ("POST", f"payment_methods/{_ID}/attach"): payment_methods.attach,
    ("POST", f"payment_methods/{_ID}/detach"): payment_methods.detach,
    ("POST", "refunds"): refunds.create,
    ("GET", "refunds"): lists.refunds,
    ("GET", f"refunds/{_ID}"): refunds.retrieve,
    ("GET", "charges"): lists.charges,
    ("GET", f"charges/{_ID}"): charges.retrieve,
    ("GET", "disputes"): lists.disputes,
    ("GET", f"disputes/{_ID}"): disputes.retrieve,
    ("GET", "events"): lists.events,
    ("GET", f"events/{_ID}"): lists.event,
}
_CAN_STAY_PROCESSING = (confirmation.create, confirmation.confirm)


class StripeEngine:
    """Stripe with its accounts. `clock` gives epoch seconds; equal seeds and requests give equal ids."""

    def __init__(self, clock: Callable[[], float], *, seed: int = 0) -> None:
        self._clock = clock
        self._ids = Ids(seed)
        self._account_of_key: dict[str, str | None] = {}
        self.schedule = Schedule()
        self.behavior = Behavior()
        self.rate_limits = RateLimits(clock)
        self.accounts: dict[str, Account] = {}
        self.account = self._open(ACCOUNT_ID)

    # ---------------------------------------------------------------- the three steps

    def identify(self, request: Request) -> tuple[Request, dict[str, str]]:
        """The request with an id of its own, and the headers that any answer to it has."""
        identified = Request(**{**vars(request), "id": self._ids.new("req")})
        headers = {"Request-Id": str(identified.id), "Stripe-Version": identified.version or API_VERSION}
        if identified.remembers:
            headers |= {"Idempotency-Key": str(identified.idempotency_key), "Original-Request": str(identified.id)}
        return identified, headers

    def begin(self, request: Request) -> Ticket | Response:
        """Let the request in, or answer it at once: 401, 429, 400, 409, or the replay of the first answer."""
        self.run_due()
        try:
            account = self._account_for(request)
            self._check_rate(account, request)
            self._check_version(request)
            replay = account.keys.begin(request, self._clock())
        except ApiError as error:
            return _error(error, request)
        return replay or Ticket(request, account.id)

    def about(self, request: Request) -> dict[str, str]:
        """Amount, currency and metadata of the PaymentIntent that the path names, as the parameters that gave them."""
        identifier = (re.findall(r"/payment_intents/(pi_[^/]+)", request.path) or [""])[0]
        for account in self.accounts.values():
            if (intent := account.payment_intents.get(identifier)) is not None:
                metadata = {f"metadata[{name}]": value for name, value in intent.metadata.items()}
                return {"amount": str(intent.amount), "currency": intent.currency, **metadata}
        return {}

    def execute(self, ticket: Ticket, *, stays_processing: bool = False) -> tuple[Response, bool]:
        """Do what is asked; says with the answer whether Stripe remembers it under the key."""
        request, account = ticket.request, self.accounts[ticket.account_id]
        account.executing = request
        try:
            return Response(200, self._route(account, request, stays_processing=stays_processing)), True
        except ApiError as error:
            return _error(error, request), error.remembered
        finally:
            account.executing = None

    def execute_later(self, ticket: Ticket, seconds: float) -> None:
        """Do what is asked once this time has passed, whatever was answered ("Stripe may roll forward")."""
        self.schedule.add(self._clock() + seconds, partial(self.execute, ticket))

    def finish(self, ticket: Ticket, response: Response, *, remembered: bool) -> None:
        """Store the answer under the request's key, or free the key if the answer is not one to remember."""
        self.accounts[ticket.account_id].keys.finish(ticket.request, response, remembered=remembered)

    def answer(self, request: Request) -> Response:
        """All three steps at once, for callers that let nothing happen in between."""
        ticket = self.begin(request)
        if isinstance(ticket, Response):
            return ticket
        response, remembered = self.execute(ticket)
        self.finish(ticket, response, remembered=remembered)
        return response

    def run_due(self) -> int:
        """Let happen what happens by itself, up to now."""
        return self.schedule.run(self._clock())

    def run_all(self) -> int:
        """Let happen now whatever would happen by itself later."""
        return self.schedule.run(float("inf"))

    # ---------------------------------------------------------------- accounts and keys

    def assign_key(self, api_key: str, account_id: str | None) -> None:
        """From now on this key is one of that account; of none, it is refused."""
        self._account_of_key[api_key] = account_id
        if account_id is not None and account_id not in self.accounts:
            self._open(account_id)

    def _open(self, account_id: str) -> Account:
        self.accounts[account_id] = Account(account_id, self._clock, self._ids, self.behavior, self.schedule)
        return self.accounts[account_id]

    def _account_for(self, request: Request) -> Account:
        api_key = request.api_key or ""
        account_id = self._account_of_key.get(api_key, ACCOUNT_ID)
        if not _API_KEYS.fullmatch(api_key):
            raise ApiError(401, "invalid_request_error", "Invalid API Key provided.")
        if account_id is None:
            raise ApiError(401, "invalid_request_error", "Expired API Key provided.", code="api_key_expired")
        return self.accounts[account_id]

    def _check_rate(self, account: Account, request: Request) -> None:
        reason = self.rate_limits.reason_to_refuse(account.id, request)
        if reason is not None:
            raise RateLimited(reason)

    def _check_version(self, request: Request) -> None:
        if request.version is not None and not _VERSIONS.fullmatch(request.version):
            raise invalid(f"Invalid Stripe API version: {request.version}")

    # ---------------------------------------------------------------- endpoints

    def _route(self, account: Account, request: Request, *, stays_processing: bool) -> dict[str, Any]:
        path = request.path.removeprefix("/v1/")
        for (method, pattern), handler in _ROUTES.items():
            found = re.fullmatch(pattern, path) if method == request.method else None
            if found:
                how = {"stays_processing": True} if stays_processing and handler in _CAN_STAY_PROCESSING else {}
                return lists.expand(account, request, handler(account, request, *found.groups(), **how))
        raise ApiError(404, "invalid_request_error", f"Unrecognized request URL ({request.method}: {request.path}).")


class RateLimited(ApiError):
    """Too many requests within a second."""

    def __init__(self, reason: str) -> None:
        super().__init__(429, "invalid_request_error", "Too many requests.", code="rate_limit")
        self.reason = reason


def _error(error: ApiError, request: Request) -> Response:
    log = f"https://dashboard.stripe.com/test/logs/{request.id}"
    headers = {"Stripe-Should-Retry": "true"} if error.status == 409 else {}
    if isinstance(error, RateLimited):
        headers["Stripe-Rate-Limited-Reason"] = error.reason
    return Response(error.status, {"error": {**error.body["error"], "request_log_url": log}}, headers)
