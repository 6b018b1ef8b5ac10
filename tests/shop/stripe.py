"""The stand-in's Stripe in this process, behind its SDK's client: the gateway above it is the deployed one.

The engine decides what a request does. Here is what comes between it and a worker: `Io` says where others may run, and
which fault a request meets; persons, banks and Stripe itself act through the engine's own functions.

    reach ─► the key: replay, 409 or 400 ─► in flight ─► the effect, now, later or never ─► stored ─► answered
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from typing import Any

from stripe._encode import _api_encode

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
from tests.shop.dynamodb import Io
from tests.shop.sdk import SdkList, answer_of, sdk_error

_HOUR = 3600
_API_KEYS = {"sk_test_ours": ACCOUNT_ID, "sk_test_other": "acct_other"}
_CARDS = (
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


def _stored(status: int, executed: Executed = Executed.NEVER, hours: float = 0, *, stored: bool = True) -> FaultRule:
    return FaultRule(Fault.RESPONSE, status=status, stored=stored, executed=executed, seconds=hours * _HOUR)


_BEFORE: Mapping[str, FaultRule] = {
    "drop before": FaultRule(Fault.DROP_BEFORE),
    "429": FaultRule(Fault.RATE_LIMIT_429),
    "429 lock_timeout": FaultRule(Fault.RATE_LIMIT_429, error={"code": "lock_timeout"}),
    **{str(status): FaultRule(Fault.RESPONSE, status=status) for status in (401, 424, 502, 503)},
}
"""Nothing of these is stored under the key: the next request under it is the first."""
_AROUND: Mapping[str, FaultRule] = {
    "drop after": FaultRule(Fault.DROP_AFTER),
    "time-out": FaultRule(Fault.HANG_AFTER, seconds=10),
    "500 before": FaultRule(Fault.ERROR_500_BEFORE),
    "500 after": FaultRule(Fault.ERROR_500_AFTER),
    "500, executed later": _stored(500, Executed.LATER, 0.25),
    "500, executed an hour later": _stored(500, Executed.LATER, 1),
    "500, executed a day later": _stored(500, Executed.LATER, 24),
    "500, executed two days later": _stored(500, Executed.LATER, 48),
    "502 stored, executed": _stored(502, Executed.NOW),
    "503 stored, executed an hour later": _stored(503, Executed.LATER, 1),
    **{f"{status} stored": _stored(status) for status in (403, 424, 429, 502, 503)},
}
_OF: Mapping[str, Mapping[str, FaultRule]] = {
    "confirm": {
        "processing": FaultRule(Fault.STAYS_PROCESSING),
        "500, processing": FaultRule(Fault.STAYS_PROCESSING, status=500),
        "canceled by Stripe": FaultRule(Fault.CANCELED_BY_STRIPE),
    },
    "create refund": {
        "500, executed 20 hours later": _stored(500, Executed.LATER, 20),
        "500, executed 23 hours later": _stored(500, Executed.LATER, 23),
        "502, executed 20 hours later": _stored(502, Executed.LATER, 20, stored=False),
        "pending": FaultRule(Fault.REFUND_PENDING),
        "balance too low": FaultRule(Fault.BALANCE_TOO_LOW),
    },
}
"""Beside the others. The protocol of refunds assumes that what no key stores is executed before it would forget it."""
USUAL_FAULTS = frozenset(
    ("drop before", "429", "401", "503", "drop after", "time-out", "500 before", "500 after", "500, executed later")
)
REFUND_FAULTS = frozenset((*_BEFORE, *_AROUND, *_OF["create refund"]))
"""All that a request to refund may meet."""
_INVALID = FaultRule(
    Fault.RESPONSE,
    status=400,
    error={"type": "invalid_request_error", "code": "parameter_unknown", "message": "Received unknown parameter: x"},
)
_LOST = (Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.HANG_AFTER)
_DECIDED_AFTER_SECONDS = _HOUR


class ShopStripe(StripeEngine):
    """Stripe's side of a shop: two accounts, of which an API key sees one, and what happens at Stripe by itself."""

    def __init__(self, io: Io | None = None, *, faults: frozenset[str] | None = None, page_max: int = 100) -> None:
        self.io = io or Io()
        super().__init__(lambda: self.io.now(), ids=CountedIds())
        self.behavior.late_refund_seconds = _DECIDED_AFTER_SECONDS
        self.faults = faults
        """Those that happen; None if all may."""
        self.page_max = page_max
        """How many objects a page of a list has at most, however many were asked for."""
        self.lag_seconds = 0
        """How long the list of refunds may lack one."""
        self.of_account = 0
        """Which account the API key is of: 1 is another one, which sees nothing of ours. Money is taken in both."""
        self.down = False
        self.refuses_until = 0
        """Until then what would create or confirm a PaymentIntent is refused as invalid, as after a faulty deploy."""
        self.executed_late: set[str] = set()
        """The keys whose requests were executed after they had been answered with an error."""
        for api_key, account_id in _API_KEYS.items():
            self.assign_key(api_key, account_id)
        for account in self.accounts.values():
            account.keys.forgets = lambda _: self.io.happens("stripe: key pruned")
            for name in _CARDS:
                account.all(PaymentMethod)[name] = PaymentMethod(name, 0, name, is_attached=True)

    # ------------------------------------------------------------ what is there

    @property
    def ours(self) -> Account:
        return self.account

    @property
    def intents(self) -> list[PaymentIntent]:
        """The PaymentIntents of both accounts, ours first, oldest first."""
        return [intent for account in self.accounts.values() for intent in account.all(PaymentIntent).values()]

    @property
    def charges(self) -> list[PaymentIntent]:
        """The oracle: the PaymentIntent of each time that money was taken, in both accounts."""
        taken = [(each, each.all(Charge)[charge_id]) for each in self.accounts.values() for charge_id in each.ledger]
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

    # ------------------------------------------------------------ one request

    def send(
        self,
        operation: str,
        method: str,
        path: str,
        parameters: Mapping[str, Any],
        key: str | None = None,
        account: int | None = None,
    ) -> Any:
        """Send one request, once; returns the SDK's object or raises the SDK's error.

        Args:
            operation: what faults and boundaries call it.
            account: whose API key it has, if not the shop's of now.
        """
        self.reach(operation)
        api_key = [*_API_KEYS][self.of_account if account is None else account]
        sees = self.accounts[_API_KEYS[api_key]].all(PaymentIntent)
        if operation == "refunds" and parameters.get("payment_intent") not in {None, *sees}:
            raise sdk_error(404, code="resource_missing", param="payment_intent")
        if operation in ("create", "confirm") and self.io.now() < self.refuses_until:
            self.io.met("a request is refused as invalid")
            return answer_of(_response(_INVALID))
        ticket = self.begin(Request(method, f"/v1/{path}", _flat(parameters), api_key, key))
        if isinstance(ticket, Response):
            if "Idempotent-Replayed" in ticket.headers:
                self.io.met("stripe: stored answer replayed")
            return answer_of(ticket)
        return answer_of(self.execute(ticket)[0]) if method == "GET" else self._post(operation, ticket)

    def reach(self, operation: str) -> None:
        """The request is on its way: it may not arrive, or be turned away."""
        self.io.pause(f"stripe {operation}")
        rule = _BEFORE["drop before"] if self.down else self._fault(operation, _BEFORE)
        if rule:
            raise sdk_error(None) if rule.kind in _LOST else answer_of(_response(rule))

    def _post(self, operation: str, ticket: Ticket) -> Any:
        rule = self._fault(operation, {**_AROUND, **_OF.get(operation, {})})
        try:
            self.io.pause(f"stripe {operation} in flight")
        finally:
            # Stripe goes on with what it has received, whether or not anybody still waits for it.
            response = self.carry_out(ticket, rule)
        if rule and rule.kind is Fault.HANG_AFTER:
            self.io.pass_time(int(rule.seconds))
        self.io.pause(f"stripe {operation} answered")
        if rule and rule.kind in _LOST:
            raise sdk_error(None)
        return answer_of(response)

    def _fault(self, operation: str, rules: Mapping[str, FaultRule]) -> FaultRule | None:
        kinds = [kind for kind in rules if self.faults is None or kind in self.faults]
        kind = self.io.fault(f"stripe {operation}", kinds) if kinds else None
        return rules[kind] if kind else None

    def page(self, operation: str, path: str, parameters: Mapping[str, Any], account: int | None = None) -> SdkList:
        """A page of a list."""
        limit = min(parameters.get("limit", 10), self.page_max)
        found = self.send(operation, "GET", path, {**parameters, "limit": limit}, account=account)
        listed = [each for each in found.data if not (operation == "refunds" and self._lacks(each))]
        after = {**parameters, "starting_after": found.data[-1].id} if found.has_more else {}
        headers = {"Date": formatdate(self.io.now(), usegmt=True)}
        return SdkList(listed, partial(self.page, operation, path, after, account) if after else None, headers)

    def _lacks(self, listed: Any) -> bool:
        is_young = listed.created > self.io.now() - self.lag_seconds
        return is_young and self.io.happens("stripe: the list lacks a refund")

    # ------------------------------------------------------------ the effect, and what Stripe decides later

    def execute(self, ticket: Ticket, outcome: Fault | None = None) -> tuple[Response, bool]:
        account, request = self.accounts[ticket.account_id], ticket.request
        [*_, intent_id, last] = request.path.split("/")
        intent = account.all(PaymentIntent).get(intent_id) if last == "confirm" else None
        if intent:
            self.io.confirms(intent, str(request.idempotency_key))
        response, stored = super().execute(ticket, outcome)
        if response.status == 200 and intent and intent.status == "processing":
            self._decided_later(lambda: self._decide(account, intent))
        elif response.status == 200 and (request.method, last) == ("POST", "refunds"):
            self._refund_is_made(response.body["id"])
        return response, stored

    def execute_late(self, ticket: Ticket, *, is_first: bool) -> None:
        self.executed_late.add(ticket.request.idempotency_key or "")
        super().execute_late(ticket, is_first=is_first)

    def _decided_later(self, decide: Callable[[], None]) -> None:
        self.schedule.add(self.now() + _DECIDED_AFTER_SECONDS, decide)

    def _decide(self, account: Account, intent: PaymentIntent) -> None:
        if intent.status == "processing":
            declines = account.all(PaymentMethod)[intent.payment_method or ""].card.declines
            pays = not declines and self.io.happens("stripe: processing has succeeded")
            attempts.decide(account, intent, succeed=pays)

    def _refund_is_made(self, refund_id: str) -> None:
        refund = self.ours.all(Refund)[refund_id]
        if refund.status == "pending":
            self._decided_later(lambda: self._decide_refund(refund))

    def _decide_refund(self, refund: Refund) -> None:
        if refund.status == "pending" and refund.pending_reason is None:
            sent = self.io.happens("stripe: refund has succeeded")
            self.hold_refund(refund, None) if sent else self.return_refund(refund)

    def time_has_passed(self) -> None:
        """Stripe does by itself what is due by now."""
        self.run_due()

    def forget_keys(self) -> None:
        """Stripe may do so when keys are 24 hours old."""
        for account in self.accounts.values():
            account.keys.delete()

    # ------------------------------------------------------------ persons, the customer's page, banks

    def cancel_by_hand(self, intent: PaymentIntent, reason: str | None) -> bool:
        """A person cancels it in the Dashboard; False if it is too late."""
        may = intent.status not in ("succeeded", "canceled", "processing")
        if may:
            payment_intents.cancel_now(self._account_of(intent), intent, reason)
        return may

    def edit_by_hand(self, intent: PaymentIntent, **metadata: str) -> None:
        """A person changes metadata in the Dashboard, which clears the last error."""
        intent.metadata |= metadata
        intent.last_payment_error = None

    def bank_decides(self, intent: PaymentIntent, *, pays: bool) -> None:
        """The customer finishes 3-D Secure, or fails to."""
        if intent.status == "requires_action":
            attempts.decide(self._account_of(intent), intent, succeed=pays)

    def customer_confirms(self, intent: PaymentIntent, card: str) -> None:
        """The customer's page confirms with a card, by the client secret alone and under no key of ours."""
        request = Request("POST", f"/v1/payment_intents/{intent.id}/confirm", {"payment_method": card})
        with suppress(ApiError):
            confirmation.confirm(self._account_of(intent), request, intent.id)

    def refund_in_dashboard(self, intent_id: str, amount: int, *, is_pending: bool = False, **metadata: Any) -> bool:
        """A person refunds in the Dashboard; False if Stripe refuses it. One that is pending is decided later."""
        request = Request(
            "POST", "/v1/refunds", _flat({"payment_intent": intent_id, "amount": amount, "metadata": metadata})
        )
        try:
            made = refunds.create(self.ours, request, outcome=Fault.REFUND_PENDING if is_pending else None)
        except ApiError:
            return False
        self._refund_is_made(made["id"])
        return True

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

    def _account_of(self, intent: PaymentIntent) -> Account:
        return next(each for each in self.accounts.values() if intent.id in each.all(PaymentIntent))


def _response(rule: FaultRule) -> Response:
    assert rule.error_response is not None
    return rule.error_response


def _flat(parameters: Mapping[str, Any]) -> dict[str, str]:
    """As the SDK sends them: `{"metadata": {"a": "b"}, "types": ["c"]}` is `metadata[a]=b&types[0]=c`."""
    return {name: str(value) for name, value in _api_encode(parameters)}
