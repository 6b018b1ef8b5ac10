"""The admin API: read the ledger, inject faults, move the clock, act for customers, banks and Stripe.

Each method of Admin is an endpoint: `POST /_standin/{method}` with its arguments in JSON. StandInAdmin has the same
methods over HTTP.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from stripe_standin import attempts, disputes, outgoing, refunds
from stripe_standin.account import Account, Object
from stripe_standin.charges import Charge
from stripe_standin.disputes import Dispute
from stripe_standin.errors import invalid, missing
from stripe_standin.faults import Fault, FaultRule
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.refunds import Refund

if TYPE_CHECKING:
    from stripe_standin.server import StandIn

_SETTINGS = ("latency_seconds", "webhook_url", "webhook_secret", "webhooks_by_themselves")


@dataclass(frozen=True)
class LedgerCharge:
    """A successful charge: money was taken. Tests count these."""

    charge_id: str
    payment_intent_id: str
    order_id: str | None
    amount_minor: int
    currency: str
    idempotency_key: str | None
    """The key of the confirm."""
    created: int
    payment_method: str = ""
    account: str = "acct_standin"
    """The default is the account of every API key that has no other."""


@dataclass(frozen=True)
class Ledger:
    """All charges, PaymentIntents and refunds of every account, and request counts."""

    charges: Sequence[LedgerCharge]
    payment_intents: Sequence[Mapping[str, Any]]
    refunds: Sequence[Mapping[str, Any]]
    counts: Mapping[str, int]
    """`requests`, `replays`, and the requests of each method and path: `GET /v1/events`."""

    def charges_of(self, order_id: str, account: str = "acct_standin") -> list[LedgerCharge]:
        """The charges of an order in an account."""
        return [charge for charge in self.charges if (charge.order_id, charge.account) == (order_id, account)]


class Admin:
    """The acts, in the stand-in's own process. `deliver_webhooks` takes the lock; for all others the caller holds it.

    Raises:
        ApiError: it cannot be done, or names an unknown object.
    """

    def __init__(self, standin: "StandIn") -> None:
        self._standin = standin

    def ledger(self) -> Ledger:
        accounts = self._standin.engine.accounts.values()
        return Ledger(
            charges=[
                _shown(account, each) for account in accounts for each in account.all(Charge).values() if each.succeeded
            ],
            payment_intents=[each.as_json() for account in accounts for each in account.all(PaymentIntent).values()],
            refunds=[each.as_json() for account in accounts for each in account.all(Refund).values()],
            counts=self._standin.counts,
        )

    def events(self) -> list[Mapping[str, Any]]:
        """All events, oldest first; `deliver_webhooks` takes their indexes."""
        return list(self._standin.engine.account.events)

    def add_fault(self, kind: Fault, match: Mapping[str, str] | None = None, **rule: Any) -> None:
        """Inject a fault into the requests that match; `rule` has the other fields of faults.FaultRule."""
        self._standin.faults.rules.append(FaultRule(kind, dict(match or {}), **rule))

    def faults_met(self) -> int:
        """How many requests have met an injected fault."""
        return sum(rule.hits for rule in self._standin.faults.rules)

    def clear_faults(self, kind: Fault | None = None) -> None:
        """All of them, or those of one kind."""
        rules = self._standin.faults.rules
        rules[:] = [rule for rule in rules if kind and rule.kind != kind]

    def advance_clock(self, seconds: float) -> None:
        self._standin.clock_offset_seconds += seconds

    def settings(self, **settings: Any) -> None:
        """Change latency_seconds, webhook_url, webhook_secret, webhooks_by_themselves."""
        for name, value in settings.items():
            if name not in _SETTINGS:
                raise invalid(f"Unknown setting: {name}", param=name)
            setattr(self._standin, name, value)

    def authenticate(self, payment_intent_id: str, *, succeed: bool = True) -> None:
        """The customer completes 3-D Secure or fails it; or the bank decides about a payment that is `processing`."""
        attempts.decide(*self._find(PaymentIntent, payment_intent_id), succeed=succeed)

    def fail_refund(self, refund_id: str) -> None:
        """Let a refund fail, even after it succeeded."""
        refunds.fail(*self._find(Refund, refund_id))

    def open_dispute(self, payment_intent_id: str, *, amount: int | None = None) -> str:
        """Dispute the charge as the cardholder does; returns the dispute's id."""
        account, intent = self._find(PaymentIntent, payment_intent_id)
        return disputes.open_dispute(account, account.find(Charge, intent.latest_charge or ""), amount=amount).id

    def close_dispute(self, dispute_id: str, *, status: str = "lost") -> None:
        """Close the dispute: `lost` or `won`."""
        account, dispute = self._find(Dispute, dispute_id)
        if status not in ("won", "lost") or dispute.status in ("won", "lost"):
            raise invalid("Only an open dispute can be closed, as won or lost.", param="status")
        disputes.change_status(account, dispute, status)

    def delete_keys(self, key: str | None = None) -> int:
        """Delete one idempotency key, or all that are not in use. Returns the number of deleted keys."""
        return sum(account.keys.delete(key) for account in self._standin.engine.accounts.values())

    def assign_api_key(
        self, api_key: str, account: str | None = "acct_standin", *, cards_of: str | None = None
    ) -> None:
        """Assign an API key to an account, which sees nothing of other accounts; with None the key is refused.

        A new account takes the PaymentMethods of `cards_of`, another account, as if they had been cloned to it.
        """
        self._standin.engine.assign_key(api_key, account, cards_of)

    def deliver_webhooks(self, order: Sequence[int] | None = None) -> list[int]:
        """Send events to the webhook URL and to the endpoints, by index, in this order; all if None. Returns the HTTP
        statuses."""
        with self._standin.lock:
            events = self.events()
        return self._standin.deliver(events if order is None else [events[index] for index in order])

    def reset(self) -> None:
        """Delete all state but the settings."""
        self._standin.reset()

    def _find[Kind: Object](self, kind: type[Kind], identifier: str) -> tuple[Account, Kind]:
        for account in self._standin.engine.accounts.values():
            if identifier in account.all(kind):
                return account, account.all(kind)[identifier]
        raise missing(kind.named[0], identifier, kind.named[1])


def _shown(account: Account, charge: Charge) -> LedgerCharge:
    return LedgerCharge(
        charge_id=charge.id,
        payment_intent_id=charge.payment_intent,
        order_id=charge.metadata.get("order_id"),
        amount_minor=charge.amount,
        currency=charge.currency.upper(),
        idempotency_key=charge.idempotency_key,
        created=charge.created,
        payment_method=charge.method.id,
        account=account.id,
    )


ACTS = {name: act for name, act in vars(Admin).items() if not name.startswith("_")}


class AdminError(OSError):
    """The stand-in refused the call, or the server is not a stand-in."""


class StandInAdmin(Admin):
    """The same acts, over HTTP.

    Raises:
        AdminError: the call was refused.
        OSError: the stand-in did not answer.
    """

    def __init__(self, base_url: str) -> None:
        self._base = f"{base_url}/_standin"

    def __getattribute__(self, name: str) -> Any:
        """Each act of Admin is sent instead of done."""
        return partial(self._send, name) if name in ACTS else super().__getattribute__(name)

    def _send(self, name: str, *values: Any, **given: Any) -> Any:
        _, *parameters = inspect.signature(ACTS[name]).parameters
        url, body = f"{self._base}/{name}", {**dict(zip(parameters, values, strict=False)), **given}
        status, answer, _ = outgoing.send("POST", url, json.dumps(body), {"Content-Type": "application/json"})
        if status != 200:
            raise AdminError(f"{url}: {status} {answer}")
        said = json.loads(answer)
        if name == "ledger":
            return Ledger(**{**said, "charges": [LedgerCharge(**each) for each in said["charges"]]})
        return said
