"""A client for the stand-in's admin API: read the ledger, inject faults, move the clock."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stripe_standin import outgoing
from stripe_standin.faults import Fault


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

    charges: tuple[LedgerCharge, ...]
    payment_intents: tuple[Mapping[str, Any], ...]
    refunds: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]
    """`requests`, `replays`, and the requests of each method and path: `GET /v1/events`."""

    def charges_of(self, order_id: str, account: str = "acct_standin") -> list[LedgerCharge]:
        """The charges of an order in an account."""
        return [charge for charge in self.charges if (charge.order_id, charge.account) == (order_id, account)]


class AdminError(OSError):
    """The stand-in refused the call, or the server is not a stand-in."""


class StandInAdmin:
    """One method for each endpoint under /_standin/.

    Raises:
        AdminError: the call was refused.
        OSError: the stand-in did not answer.
    """

    def __init__(self, base_url: str) -> None:
        self._base = f"{base_url}/_standin"

    def ledger(self) -> Ledger:
        ledger = self._send("GET", "ledger")
        return Ledger(
            charges=tuple(LedgerCharge(**charge) for charge in ledger["charges"]),
            payment_intents=tuple(ledger["payment_intents"]),
            refunds=tuple(ledger["refunds"]),
            counts=ledger["counts"],
        )

    def add_fault(self, kind: Fault, match: Mapping[str, str] | None = None, **rule: Any) -> None:
        """Inject a fault into the requests that match; `rule` has the other fields of faults.FaultRule."""
        self._send("POST", "faults", {"rules": [{"kind": kind, "match": dict(match or {}), **rule}]})

    def faults_met(self) -> int:
        """How many requests have met an injected fault."""
        return sum(rule["hits"] for rule in self._send("GET", "faults")["rules"])

    def clear_faults(self, kind: Fault | None = None) -> None:
        """All of them, or those of one kind."""
        self._send("DELETE", "faults", {"kind": kind})

    def advance_clock(self, seconds: float) -> None:
        self._send("POST", "clock", {"advance_seconds": seconds})

    def settings(self, **settings: Any) -> None:
        """Change latency_seconds, webhook_url, webhook_secret, webhooks_by_themselves."""
        self._send("POST", "settings", settings)

    def authenticate(self, payment_intent_id: str, *, succeed: bool = True) -> None:
        """Complete 3-D Secure as the customer does: authentication succeeds or fails."""
        self._send("POST", f"payment_intents/{payment_intent_id}/authenticate", {"succeed": succeed})

    def finish_processing(self, payment_intent_id: str, *, succeed: bool = True) -> None:
        """End `processing` (see Fault.STAYS_PROCESSING): the payment succeeds or is declined."""
        self._send("POST", f"payment_intents/{payment_intent_id}/finish_processing", {"succeed": succeed})

    def fail_refund(self, refund_id: str) -> None:
        """Let a refund fail, even after it succeeded."""
        self._send("POST", f"refunds/{refund_id}/fail")

    def open_dispute(self, payment_intent_id: str, *, amount: int | None = None) -> str:
        """Dispute the charge as the cardholder does; returns the dispute's id."""
        return str(self._send("POST", "disputes", {"payment_intent": payment_intent_id, "amount": amount})["id"])

    def close_dispute(self, dispute_id: str, *, status: str = "lost") -> None:
        """Close the dispute: `lost` or `won`."""
        self._send("POST", f"disputes/{dispute_id}/close", {"status": status})

    def delete_keys(self, key: str | None = None) -> int:
        """Delete one idempotency key, or all that are not in use. Returns the number of deleted keys."""
        return int(self._send("POST", "keys/delete", {"key": key})["deleted"])

    def assign_api_key(
        self, api_key: str, account: str | None = "acct_standin", *, cards_of: str | None = None
    ) -> None:
        """Assign an API key to an account, which sees nothing of other accounts; with None the key is refused.

        A new account takes the PaymentMethods of `cards_of`, another account, as if they had been cloned to it.
        """
        self._send("POST", "api_keys", {"api_key": api_key, "account": account, "cards_of": cards_of})

    def events(self) -> list[Mapping[str, Any]]:
        """All events, oldest first; `deliver_webhooks` takes their indexes."""
        return list(self._send("GET", "webhooks")["events"])

    def deliver_webhooks(self, order: Sequence[int] | None = None) -> list[int]:
        """Send events to the webhook URL and to the endpoints, by index, in this order; all if None. Returns the HTTP
        statuses."""
        response = self._send("POST", "webhooks/deliver", {} if order is None else {"order": list(order)})
        return list(response["statuses"])

    def reset(self) -> None:
        self._send("POST", "reset")

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        url = f"{self._base}/{path}"
        sent = "" if body is None else json.dumps(body)
        status, answer, _ = outgoing.send(method, url, sent, {"Content-Type": "application/json"})
        if status != 200:
            raise AdminError(f"{method} {url}: {status} {answer}")
        return json.loads(answer)
