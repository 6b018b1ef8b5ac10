"""How Stripe processes a request. Pure: the clock is an argument; no sockets, threads or randomness.

A request takes three steps, so that another request can arrive between them:

    begin     authenticate and check the idempotency key: a replay, a conflict, or a ticket for the next steps
    execute   run the endpoint; money moves here or not at all
    finish    store the response under the key, if Stripe stores it

The caller locks around each step, not around all three. Sources: Stripe documentation, "Idempotent requests",
"Error handling", "Advanced error handling", "Authentication", "Versioning".

    engine ──► confirmation ──► attempts ──► charges, disputes, payment_methods ──► cards
           ──► payment_intents, refunds, lists         all on one account.Account
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import formatdate
from functools import partial
from typing import Any

from stripe_standin import confirmation, lists, payment_intents, payment_methods, refunds, webhook_endpoints
from stripe_standin.account import API_VERSION, Account, Behavior, Ids, Object, Schedule
from stripe_standin.balance import BalanceTransaction
from stripe_standin.charges import Charge
from stripe_standin.disputes import Dispute
from stripe_standin.errors import ApiError
from stripe_standin.faults import Executed, Fault, FaultRule
from stripe_standin.messages import Request, Response, Ticket
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.payment_methods import PaymentMethod
from stripe_standin.refunds import Refund
from stripe_standin.webhook_endpoints import WebhookEndpoint

ACCOUNT_ID = "acct_standin"
"""The account of every API key that `assign_key` has not moved."""

_API_KEYS = re.compile(r"[sr]k_test_.+")
_PUBLISHABLE_KEYS = re.compile(r"pk_test_.+")
_OF_A_PAGE = re.compile(
    r"POST /v1/payment_methods|GET /v1/payment_intents/pi_[^/]+|POST /v1/payment_intents/pi_[^/]+/challenge"
)
"""What a publishable key may request (Stripe documentation, "API keys")."""
_NO_ACCESS = (
    "The provided key does not have access to account '{}' (or that account does not exist). Application access may "
    "have been revoked."
)

Handler = Callable[..., dict[str, Any]]
_ID = r"([^/]+)"
_LISTED: Mapping[str, tuple[type[Object], str]] = {
    "payment_intents": (PaymentIntent, ""),
    "charges": (Charge, "payment_intent"),
    "refunds": (Refund, "payment_intent"),
    "disputes": (Dispute, "payment_intent"),
    "balance_transactions": (BalanceTransaction, ""),
    "webhook_endpoints": (WebhookEndpoint, ""),
}
"""By path: the class, and what a list of it filters by."""
_ROUTES: Mapping[tuple[str, str], Handler] = {
    ("POST", "payment_intents"): confirmation.create,
    ("POST", f"payment_intents/{_ID}/confirm"): confirmation.confirm,
    ("POST", f"payment_intents/{_ID}/cancel"): payment_intents.cancel,
    ("POST", f"payment_intents/{_ID}/challenge"): confirmation.challenge,
    ("POST", "payment_methods"): payment_methods.create,
    ("POST", "refunds"): refunds.create,
    ("GET", "events"): lists.events,
    ("GET", f"events/{_ID}"): lists.event,
    ("POST", "webhook_endpoints"): webhook_endpoints.create,
    ("POST", f"webhook_endpoints/{_ID}"): webhook_endpoints.update,
    ("DELETE", f"webhook_endpoints/{_ID}"): webhook_endpoints.delete,
    **{("GET", path): partial(lists.listed, *kind) for path, kind in _LISTED.items()},
    **{("GET", f"{path}/{_ID}"): partial(lists.retrieve, kind) for path, (kind, _) in _LISTED.items()},
    ("GET", f"payment_methods/{_ID}"): partial(lists.retrieve, PaymentMethod),
    ("GET", f"payment_intents/{_ID}"): payment_intents.retrieve,
}
_HAVE_OUTCOMES = (confirmation.create, confirmation.confirm, refunds.create)


class StripeEngine:
    """Stripe and its accounts. `clock` returns epoch seconds."""

    def __init__(self, clock: Callable[[], float], *, ids: Ids | None = None) -> None:
        self._clock = clock
        self._ids = ids or Ids()
        self._account_of_key: dict[str, str | None] = {}
        self.schedule = Schedule()
        self.behavior = Behavior()
        self.accounts: dict[str, Account] = {}
        self.account = self._open(ACCOUNT_ID)

    def now(self) -> float:
        """Epoch seconds; while Stripe acts by itself, the time at which that was due."""
        return self._clock() if self.schedule.acts_at is None else self.schedule.acts_at

    # ---------------------------------------------------------------- the three steps

    def identify(self, request: Request) -> tuple[Request, dict[str, str]]:
        """Assign a request id; returns the request and the headers of every response to it."""
        identified = replace(request, id=self._ids.new("req"))
        headers = {
            "Date": formatdate(self.now(), usegmt=True),
            "Request-Id": str(identified.id),
            "Stripe-Version": identified.version or API_VERSION,
        }
        if identified.uses_idempotency_key:
            headers |= {"Idempotency-Key": str(identified.idempotency_key), "Original-Request": str(identified.id)}
        return identified, headers

    def begin(self, request: Request) -> Ticket | Response:
        """Returns a ticket, or the response that ends the request: 401, 403, 400, 409, or a replay."""
        self.run_due()
        try:
            account = self._account_for(request)
            replay = account.keys.begin(request, self.now())
        except ApiError as error:
            return _error(error, request)
        return replay or Ticket(request, account.id, int(self.now()))

    def created_with(self, request: Request) -> dict[str, str]:
        """Amount, currency and metadata of the PaymentIntent in the path, as the parameters that created it."""
        identifier = (re.findall(r"/payment_intents/(pi_[^/]+)", request.path) or [""])[0]
        for account in self.accounts.values():
            if (intent := account.all(PaymentIntent).get(identifier)) is not None:
                metadata = {f"metadata[{name}]": value for name, value in intent.metadata.items()}
                return {"amount": str(intent.amount), "currency": intent.currency, **metadata}
        return {}

    def execute(self, ticket: Ticket, outcome: Fault | None = None) -> tuple[Response, bool]:
        """Run the endpoint. Returns the response, and whether Stripe stores it under the key."""
        request, account = ticket.request, self.accounts[ticket.account_id]
        account.executing, account.received_at = request, ticket.received_at
        try:
            return Response(200, self._route(account, request, outcome)), True
        except ApiError as error:
            return _error(error, request), error.stored
        finally:
            account.executing = None

    def carry_out(self, ticket: Ticket, rule: FaultRule | None = None) -> Response:
        """Execute the request and finish it, as far as the fault lets it. Returns the response, which may be lost."""
        error = rule.error_response if rule else None
        if rule is None or error is None or rule.executed is Executed.NOW:
            response, stored = self.execute(ticket, rule.outcome if rule else None)
            if rule is not None and error is not None and stored:
                response, stored = error, bool(rule.stored)
        else:
            response, stored = error, bool(rule.stored)
            if rule.executed is Executed.LATER:
                late = partial(self.execute_late, ticket, is_first=not stored)
                self.schedule.add(ticket.received_at + rule.seconds, late)
        self.finish(ticket, response, stored=stored)
        return response

    def execute_late(self, ticket: Ticket, *, is_first: bool) -> None:
        """Execute what was answered with an error ("Stripe may roll forward").

        If its key stored nothing, it is the first request under it, unless another one came meanwhile.
        """
        if not is_first:
            self.execute(ticket)
        elif ticket.request.idempotency_key not in self.accounts[ticket.account_id].keys:
            self.accounts[ticket.account_id].keys.begin(ticket.request, self.now())
            response, stored = self.execute(ticket)
            self.finish(ticket, response, stored=stored)

    def finish(self, ticket: Ticket, response: Response, *, stored: bool) -> None:
        """Store the response under the key, or delete the key if Stripe does not store this response."""
        self.accounts[ticket.account_id].keys.finish(ticket.request, response, stored=stored)

    def respond(self, request: Request) -> Response:
        """All three steps without interruption."""
        ticket = self.begin(request)
        return ticket if isinstance(ticket, Response) else self.carry_out(ticket)

    def run_due(self) -> None:
        """Run the scheduled actions that are due."""
        self.schedule.run(self._clock())

    # ---------------------------------------------------------------- accounts and API keys

    def assign_key(self, api_key: str, account_id: str | None, cards_of: str | None = None) -> None:
        """Assign an API key to an account, which is created if it is new; with None the key is refused."""
        self._account_of_key[api_key] = account_id
        if account_id is not None and account_id not in self.accounts:
            self._open(account_id).cards_of = self.accounts[cards_of] if cards_of else None

    def _open(self, account_id: str) -> Account:
        self.accounts[account_id] = Account(account_id, self.now, self._ids, self.behavior, self.schedule)
        return self.accounts[account_id]

    def _account_for(self, request: Request) -> Account:
        api_key = request.api_key or ""
        account_id = self._account_of_key.get(api_key, ACCOUNT_ID)
        is_of_a_page = _PUBLISHABLE_KEYS.fullmatch(api_key) is not None
        if not is_of_a_page and not _API_KEYS.fullmatch(api_key):
            raise ApiError(401, "invalid_request_error", "Invalid API Key provided.")
        if is_of_a_page and not _OF_A_PAGE.fullmatch(f"{request.method} {request.path}"):
            text = "This API call cannot be made with a publishable API key. Please use a secret API key."
            raise ApiError(401, "invalid_request_error", text, code="secret_key_required")
        if account_id is None:
            raise ApiError(401, "invalid_request_error", "Expired API Key provided.", code="api_key_expired")
        if request.account not in (None, account_id):
            raise ApiError(403, "invalid_request_error", _NO_ACCESS.format(request.account), code="account_invalid")
        return self.accounts[account_id]

    # ---------------------------------------------------------------- endpoints

    def _route(self, account: Account, request: Request, outcome: Fault | None) -> dict[str, Any]:
        path = request.path.removeprefix("/v1/")
        for (method, pattern), handler in _ROUTES.items():
            match = re.fullmatch(pattern, path) if method == request.method else None
            if match:
                options = {"outcome": outcome} if outcome and handler in _HAVE_OUTCOMES else {}
                return lists.expand(account, request, handler(account, request, *match.groups(), **options))
        raise ApiError(404, "invalid_request_error", f"Unrecognized request URL ({request.method}: {request.path}).")


def _error(error: ApiError, request: Request) -> Response:
    log = f"https://dashboard.stripe.com/test/logs/{request.id}"
    headers = {"Stripe-Should-Retry": "true"} if error.status == 409 else {}
    return Response(error.status, {"error": {**error.body["error"], "request_log_url": log}}, headers)
