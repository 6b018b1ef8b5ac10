"""The endpoints under /_standin/. `admin.py` is their client; README.md lists them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from stripe_standin import attempts, charges, disputes, payment_intents, refunds
from stripe_standin.account import Account, Behavior
from stripe_standin.engine import StripeEngine
from stripe_standin.errors import invalid, missing
from stripe_standin.faults import FaultPlan, FaultRule

_SERVER_SETTINGS = ("latency_seconds", "latency_max_seconds", "webhook_url", "webhook_secret", "webhooks_by_themselves")
_BEHAVIOR_SETTINGS = tuple(each.name for each in fields(Behavior))


class Server(Protocol):
    """The parts of the server that these endpoints read and change, and its settings."""

    engine: StripeEngine
    faults: FaultPlan
    counts: Counter[str]
    clock: Callable[[], float]
    clock_offset_seconds: float

    def now(self) -> float: ...

    def reset(self) -> None: ...


@dataclass(frozen=True)
class DeliverWebhooks:
    """Deliver webhooks after the lock is released: the receiver may call this stand-in."""

    order: Sequence[int] | None


def handle_admin_request(standin: Server, method: str, path: str, body: dict[str, Any]) -> Any:
    """Process one request; the caller holds the lock."""
    match method, path.split("/"):
        case "GET", ["ledger"]:
            return _ledger(standin)
        case _, ["faults"]:
            return _faults(standin, method, body)
        case "POST", ["clock"]:
            return _move_clock(standin, body)
        case "POST", ["settings"]:
            return _change_settings(standin, body)
        case "POST", ["reset"]:
            standin.reset()
            return {}
        case "GET", ["webhooks"]:
            return {"events": standin.engine.account.events}
        case "POST", ["webhooks", "deliver"]:
            return DeliverWebhooks(body.get("order"))
        case "POST", ["scheduled", "run"]:
            return {"ran": standin.engine.run_scheduled()}
        case "POST", ["keys", "delete"]:
            return {"deleted": sum(account.keys.delete(body.get("key")) for account in _accounts(standin.engine))}
        case "POST", ["api_keys"]:
            if "permissions" in body:
                standin.engine.api_keys.restrict(body["api_key"], body["permissions"])
            else:
                standin.engine.assign_key(body["api_key"], body.get("account"), body.get("cards_of"))
            return {}
        case "GET", ["api_keys"]:
            return {"used": standin.engine.api_keys.used}
        case "POST", parts:
            return _change_object(standin.engine, parts, body)
    raise _unknown(path)


def _change_object(engine: StripeEngine, parts: list[str], body: dict[str, Any]) -> Any:
    """Act on one object as the customer, the bank or Stripe does."""
    match parts:
        case ["payment_intents", id_, "authenticate"]:
            account, intent = _with_intent(engine, id_)
            attempts.authenticate(account, intent, succeed=body.get("succeed", True))
            return intent.as_json()
        case ["payment_intents", id_, "finish_processing"]:
            account, intent = _with_intent(engine, id_)
            attempts.finish_processing(account, intent, succeed=body.get("succeed", True))
            return intent.as_json()
        case ["refunds", id_, "fail"]:
            reason = body.get("reason", "expired_or_canceled_card")
            return refunds.fail(engine.account, refunds.find(engine.account, id_), reason).as_json()
        case ["disputes"]:
            account, intent = _with_intent(engine, body["payment_intent"])
            charge = charges.find(account, intent.latest_charge or "")
            reason = body.get("reason", "fraudulent")
            return disputes.open_dispute(account, charge, reason, body.get("amount")).as_json()
        case ["disputes", id_, "close"]:
            dispute = disputes.find(engine.account, id_)
            return disputes.close_dispute(engine.account, dispute, body["status"]).as_json()
    raise _unknown("/".join(parts))


def _ledger(standin: Server) -> dict[str, Any]:
    accounts = _accounts(standin.engine)
    account_charges = [(account, charge) for account in accounts for charge in account.all(charges.Charge).values()]

    def shown(kind: type[Any]) -> list[dict[str, Any]]:
        return [each.as_json() for account in accounts for each in account.all(kind).values()]

    return {
        "charges": [charge.as_ledger_entry(account) for account, charge in account_charges if charge.succeeded],
        "unpaid_charges": [
            charge.as_ledger_entry(account) for account, charge in account_charges if not charge.succeeded
        ],
        "payment_intents": shown(payment_intents.PaymentIntent),
        "refunds": shown(refunds.Refund),
        "disputes": shown(disputes.Dispute),
        "counts": dict(standin.counts),
    }


def _faults(standin: Server, method: str, body: dict[str, Any]) -> dict[str, Any]:
    if method == "DELETE":
        kind = body.get("kind")
        standin.faults.rules = [rule for rule in standin.faults.rules if kind and rule.kind != kind]
    if method == "POST":
        standin.faults.rules += [FaultRule.from_json(rule) for rule in body["rules"]]
    return {"rules": [asdict(rule) for rule in standin.faults.rules]}


def _move_clock(standin: Server, body: dict[str, Any]) -> dict[str, Any]:
    if "now" in body:
        standin.clock_offset_seconds = body["now"] - standin.clock()
    standin.clock_offset_seconds += body.get("advance_seconds", 0)
    return {"now": standin.now()}


def _change_settings(standin: Server, body: dict[str, Any]) -> dict[str, Any]:
    for name, value in body.items():
        if name in _SERVER_SETTINGS:
            setattr(standin, name, value)
        elif name in _BEHAVIOR_SETTINGS:
            setattr(standin.engine.behavior, name, value)
        else:
            raise invalid(f"Unknown setting: {name}", param=name)
    return {}


def _with_intent(engine: StripeEngine, id_: str) -> tuple[Account, payment_intents.PaymentIntent]:
    for account in _accounts(engine):
        if (intent := account.all(payment_intents.PaymentIntent).get(id_)) is not None:
            return account, intent
    raise missing("payment_intent", id_, "intent")


def _accounts(engine: StripeEngine) -> list[Account]:
    return list(engine.accounts.values())


def _unknown(path: str) -> Exception:
    return missing("admin endpoint", path, "path")
