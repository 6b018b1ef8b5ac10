"""The stand-in from another process: read its ledger, order faults, move its clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from local.stripe_standin.faults import Executed, Fault

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class LedgerCharge:
    """Money that was taken: the oracle of every test."""

    charge_id: str
    payment_intent_id: str
    order_id: str | None
    attempt: str | None
    amount_minor: int
    currency: str
    idempotency_key: str | None
    """Of the request that confirmed it; None for one that the customer's authentication finished."""
    created: int
    payment_method: str = ""
    account: str = ""


@dataclass(frozen=True)
class Ledger:
    """All charges, all PaymentIntents, and how often Stripe was asked what."""

    charges: tuple[LedgerCharge, ...]
    payment_intents: tuple[Mapping[str, Any], ...]
    refunds: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]
    unpaid_charges: tuple[Mapping[str, Any], ...] = ()
    """Attempts that failed, or are being processed: no money was taken."""
    disputes: tuple[Mapping[str, Any], ...] = ()

    def charges_of(self, order_id: str) -> list[LedgerCharge]:
        return [charge for charge in self.charges if charge.order_id == order_id]


class StandInAdmin:
    """A client of the endpoints under /_standin/."""

    def __init__(self, base_url: str) -> None:
        self._base = f"{base_url}/_standin"
        self._session = requests.Session()

    def ledger(self) -> Ledger:
        answer = self._send("GET", "ledger")
        return Ledger(
            charges=tuple(_charge(each) for each in answer["charges"]),
            payment_intents=tuple(answer["payment_intents"]),
            refunds=tuple(answer["refunds"]),
            counts=answer["counts"],
            unpaid_charges=tuple(answer["unpaid_charges"]),
            disputes=tuple(answer["disputes"]),
        )

    def add_fault(
        self,
        kind: Fault,
        match: Mapping[str, str] | None = None,
        *,
        times: int | None = 1,
        skip: int = 0,
        seconds: float = 120,
        method: str = "POST",
        path: str = "/v1/payment_intents",
        stored: bool | None = None,
        executed: Executed | None = None,
        status: int | None = None,
        error: Mapping[str, str] | None = None,
    ) -> None:
        """Order a fault for the requests that match (see faults.py).

        Of a fault that is an answer, `stored` says whether it is replayed under its key, `executed` whether the request
        takes effect all the same; `status` and `error` (message, type, code) are Fault.ANSWER's.
        """
        rule = {"kind": kind, "match": dict(match or {}), "times": times, "skip": skip, "seconds": seconds}
        answer = {"stored": stored, "executed": executed, "status": status, "error": dict(error or {})}
        self._send("POST", "faults", {"rules": [{**rule, **answer, "method": method, "path": path}]})

    def faults_met(self) -> int:
        """How many requests have met a fault that was ordered."""
        return sum(max(0, rule["hits"] - rule["skip"]) for rule in self._send("GET", "faults")["rules"])

    def clear_faults(self) -> None:
        self._send("DELETE", "faults")

    def advance_clock(self, seconds: float) -> None:
        self._send("POST", "clock", {"advance_seconds": seconds})

    def settings(self, **settings: Any) -> None:
        """latency_seconds, webhook_url, webhook_secret; endpoint_rate_limit, account_rate_limit (requests per second,
        None for no limit); and the fields of account.Behavior: search_lag_seconds, confirms_max, …
        """
        self._send("POST", "settings", settings)

    def authenticate(self, payment_intent_id: str, *, succeed: bool = True) -> None:
        """Finish the 3-D Secure step as the customer would, or fail it."""
        self._send("POST", f"payment_intents/{payment_intent_id}/authenticate", {"succeed": succeed})

    def decide(self, payment_intent_id: str, *, succeed: bool = True) -> None:
        """End `processing` (see Fault.STAYS_PROCESSING): the bank pays, or declines."""
        self._send("POST", f"payment_intents/{payment_intent_id}/decide", {"succeed": succeed})

    def cancel_by_stripe(self, payment_intent_id: str, *, reason: str = "automatic") -> None:
        """Cancel a PaymentIntent without anybody's request."""
        self._send("POST", f"payment_intents/{payment_intent_id}/cancel", {"reason": reason})

    def create_payment_method(
        self, behaves_like: str = "pm_card_visa", *, customer: str | None = None, id_: str | None = None
    ) -> str:
        """A PaymentMethod of its own, unlike the names of test payment methods: without a customer it pays once."""
        given = {"behaves_like": behaves_like, "customer": customer, "id": id_}
        return str(self._send("POST", "payment_methods", given)["id"])

    def settle_refund(self, refund_id: str) -> None:
        """A pending refund succeeds."""
        self._send("POST", f"refunds/{refund_id}/settle")

    def fail_refund(self, refund_id: str, *, reason: str = "expired_or_canceled_card") -> None:
        """A refund fails, even one that had succeeded."""
        self._send("POST", f"refunds/{refund_id}/fail", {"reason": reason})

    def open_dispute(self, payment_intent_id: str, *, reason: str = "fraudulent", amount: int | None = None) -> str:
        """The cardholder disputes the charge; returns the dispute's id."""
        given = {"payment_intent": payment_intent_id, "reason": reason, "amount": amount}
        return str(self._send("POST", "disputes", given)["id"])

    def close_dispute(self, dispute_id: str, *, status: str = "lost") -> None:
        """The bank decides the dispute: `lost` or `won`."""
        self._send("POST", f"disputes/{dispute_id}/close", {"status": status})

    def run_late(self) -> int:
        """Let happen now what would happen by itself later: late executions, refunds; returns how much that was."""
        return int(self._send("POST", "late/run")["ran"])

    def forget_keys(self, key: str | None = None) -> int:
        """Forget the answer of this idempotency key, or of all that are not in use; returns how many that was."""
        return int(self._send("POST", "keys/forget", {"key": key})["forgotten"])

    def assign_api_key(self, api_key: str, account: str | None = "acct_standin") -> None:
        """From now on this API key is one of that account, which sees nothing of others; of None, it is refused."""
        self._send("POST", "api_keys", {"api_key": api_key, "account": account})

    def events(self) -> list[Mapping[str, Any]]:
        """All events so far, oldest first; their places are what `deliver_webhooks` takes."""
        return list(self._send("GET", "webhooks")["events"])

    def deliver_webhooks(self, order: Sequence[int] | None = None) -> list[int]:
        """Send the events, in this order and as often as named; gives the statuses that came back."""
        answer = self._send("POST", "webhooks/deliver", {} if order is None else {"order": list(order)})
        return list(answer["statuses"])

    def reset(self) -> None:
        self._send("POST", "reset")

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self._session.request(method, f"{self._base}/{path}", json=body, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        return answer.json()


def _charge(charge: Mapping[str, Any]) -> LedgerCharge:
    return LedgerCharge(
        charge_id=charge["id"],
        payment_intent_id=charge["payment_intent"],
        order_id=charge["metadata"].get("order_id"),
        attempt=charge["metadata"].get("attempt"),
        amount_minor=charge["amount"],
        currency=charge["currency"].upper(),
        idempotency_key=charge["idempotency_key"],
        created=charge["created"],
        payment_method=charge["payment_method"],
        account=charge["account"],
    )
