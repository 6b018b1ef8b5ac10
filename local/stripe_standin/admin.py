"""The stand-in from another process: read its ledger, order faults, move its clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from local.stripe_standin.faults import Fault

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
    created: int


@dataclass(frozen=True)
class Ledger:
    """All charges, all PaymentIntents, and how often Stripe was asked what."""

    charges: tuple[LedgerCharge, ...]
    payment_intents: tuple[Mapping[str, Any], ...]
    refunds: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]

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
    ) -> None:
        """Order a fault for the requests that match (see faults.py)."""
        rule = {"kind": kind, "match": dict(match or {}), "times": times, "skip": skip, "seconds": seconds}
        self._send("POST", "faults", {"rules": [{**rule, "method": method, "path": path}]})

    def faults_met(self) -> int:
        """How many requests have met a fault that was ordered."""
        return sum(max(0, rule["hits"] - rule["skip"]) for rule in self._send("GET", "faults")["rules"])

    def clear_faults(self) -> None:
        self._send("DELETE", "faults")

    def advance_clock(self, seconds: float) -> None:
        self._send("POST", "clock", {"advance_seconds": seconds})

    def settings(self, **settings: Any) -> None:
        """latency_seconds, search_lag_seconds, webhook_url, webhook_secret."""
        self._send("POST", "settings", settings)

    def authenticate(self, payment_intent_id: str, *, succeed: bool = True) -> None:
        """Finish the 3-D Secure step as the customer would, or fail it."""
        self._send("POST", f"payment_intents/{payment_intent_id}/authenticate", {"succeed": succeed})

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
    )
