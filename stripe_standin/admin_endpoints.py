"""The endpoints under /_standin/. `admin.py` is their client; README.md lists them."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stripe_standin import attempts, disputes, refunds
from stripe_standin.account import Account
from stripe_standin.charges import Charge
from stripe_standin.disputes import Dispute
from stripe_standin.engine import StripeEngine
from stripe_standin.errors import invalid, missing
from stripe_standin.faults import FaultRule
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.refunds import Refund

if TYPE_CHECKING:
    from stripe_standin.server import StandIn

_SETTINGS = ("latency_seconds", "webhook_url", "webhook_secret", "webhooks_by_themselves")


def handle_admin_request(standin: "StandIn", method: str, path: str, body: dict[str, Any]) -> Any:
    """Process one request; the caller holds the lock."""
    engine = standin.engine
    match method, path.split("/"):
        case "GET", ["ledger"]:
            return _ledger(standin)
        case _, ["faults"]:
            return _faults(standin, method, body)
        case "POST", ["clock"]:
            standin.clock_offset_seconds += body["advance_seconds"]
        case "POST", ["settings"]:
            for name, value in body.items():
                if name not in _SETTINGS:
                    raise invalid(f"Unknown setting: {name}", param=name)
                setattr(standin, name, value)
        case "POST", ["reset"]:
            standin.reset()
        case "GET", ["webhooks"]:
            return {"events": engine.account.events}
        case "POST", ["keys", "delete"]:
            return {"deleted": sum(account.keys.delete(body.get("key")) for account in engine.accounts.values())}
        case "POST", ["api_keys"]:
            engine.assign_key(body["api_key"], body.get("account"), body.get("cards_of"))
        case "POST", parts:
            return _change_object(engine, parts, body)
        case _:
            raise _unknown(path)
    return {}


def _change_object(engine: StripeEngine, parts: list[str], body: dict[str, Any]) -> Any:
    """Act on one object as the customer, the bank or Stripe does."""
    ours = engine.account
    match parts:
        case ["payment_intents", id_, "authenticate"]:
            attempts.authenticate(*_with_intent(engine, id_), succeed=body.get("succeed", True))
        case ["payment_intents", id_, "finish_processing"]:
            attempts.finish_processing(*_with_intent(engine, id_), succeed=body.get("succeed", True))
        case ["refunds", id_, "fail"]:
            refunds.fail(ours, ours.find(Refund, id_))
        case ["disputes"]:
            account, intent = _with_intent(engine, body["payment_intent"])
            charge = account.find(Charge, intent.latest_charge or "")
            return disputes.open_dispute(account, charge, amount=body.get("amount")).as_json()
        case ["disputes", id_, "close"]:
            dispute = ours.find(Dispute, id_)
            if body["status"] not in ("won", "lost") or dispute.status in ("won", "lost"):
                raise invalid("Only an open dispute can be closed, as won or lost.", param="status")
            disputes.change_status(ours, dispute, body["status"])
        case _:
            raise _unknown("/".join(parts))
    return {}


def _ledger(standin: "StandIn") -> dict[str, Any]:
    accounts = list(standin.engine.accounts.values())

    def shown(kind: type[Any]) -> list[dict[str, Any]]:
        return [each.as_json() for account in accounts for each in account.all(kind).values()]

    return {
        "charges": [
            {
                "charge_id": charge.id,
                "payment_intent_id": charge.payment_intent,
                "order_id": charge.metadata.get("order_id"),
                "amount_minor": charge.amount,
                "currency": charge.currency.upper(),
                "idempotency_key": charge.idempotency_key,
                "created": charge.created,
                "payment_method": charge.method.id,
                "account": account.id,
            }
            for account in accounts
            for charge in account.all(Charge).values()
            if charge.succeeded
        ],
        "payment_intents": shown(PaymentIntent),
        "refunds": shown(Refund),
        "counts": dict(standin.counts),
    }


def _faults(standin: "StandIn", method: str, body: dict[str, Any]) -> dict[str, Any]:
    if method == "DELETE":
        kind = body.get("kind")
        standin.faults.rules = [rule for rule in standin.faults.rules if kind and rule.kind != kind]
    if method == "POST":
        standin.faults.rules += [FaultRule(**{**rule, "hits": 0}) for rule in body["rules"]]
    return {"rules": [asdict(rule) for rule in standin.faults.rules]}


def _with_intent(engine: StripeEngine, id_: str) -> tuple[Account, PaymentIntent]:
    for account in engine.accounts.values():
        if id_ in account.all(PaymentIntent):
            return account, account.all(PaymentIntent)[id_]
    raise missing("payment_intent", id_, "intent")


def _unknown(path: str) -> Exception:
    return missing("admin endpoint", path, "path")
