"""What tests and the demo steer under /_standin/; `admin.py` is its client, README.md lists it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from local.stripe_standin import attempts, charges, disputes, payment_intents, payment_methods, refunds
from local.stripe_standin.account import Account, Behavior
from local.stripe_standin.cards import TEST_CARDS
from local.stripe_standin.engine import StripeEngine
from local.stripe_standin.errors import invalid, missing
from local.stripe_standin.faults import FaultPlan, FaultRule

if TYPE_CHECKING:
    from local.stripe_standin.server import StandIn

_OF_THE_SERVER = ("latency_seconds", "webhook_url", "webhook_secret")
_BEHAVIOR = tuple(each.name for each in fields(Behavior))


@dataclass(frozen=True)
class DeliverWebhooks:
    """What is left to do once the lock is given back: the receiver may ask this very stand-in."""

    order: Sequence[int] | None


def administer(standin: "StandIn", method: str, path: str, given: dict[str, Any]) -> Any:
    """Answer one request under /_standin/; the caller holds the lock."""
    match method, path.split("/"):
        case "GET", ["ledger"]:
            return _ledger(standin)
        case _, ["faults"]:
            return _faults(standin, method, given)
        case "POST", ["clock"]:
            return _move_clock(standin, given)
        case "POST", ["settings"]:
            return _set(standin, given)
        case "POST", ["reset"]:
            standin.reset()
            return {}
        case "GET", ["webhooks"]:
            return {"events": standin.engine.account.events}
        case "POST", ["webhooks", "deliver"]:
            return DeliverWebhooks(given.get("order"))
        case "POST", ["late", "run"]:
            return {"ran": standin.engine.run_all()}
        case "POST", ["keys", "forget"]:
            return {"forgotten": sum(account.keys.forget(given.get("key")) for account in _accounts(standin.engine))}
        case "POST", ["api_keys"]:
            standin.engine.assign_key(given["api_key"], given.get("account"))
            return {}
        case "POST", parts:
            return _act(standin.engine, parts, given)
    raise _unknown(path)


def _act(engine: StripeEngine, parts: list[str], given: dict[str, Any]) -> Any:
    """What the customer, the customer's bank, or Stripe by itself does to one object."""
    match parts:
        case ["payment_methods"]:
            return _new_payment_method(engine.account, given)
        case ["payment_intents", id_, "authenticate"]:
            account, intent = _with_intent(engine, id_)
            attempts.authenticate(account, intent, succeed=given.get("succeed", True))
            return intent.as_json()
        case ["payment_intents", id_, "decide"]:
            account, intent = _with_intent(engine, id_)
            attempts.decide(account, intent, succeed=given.get("succeed", True))
            return intent.as_json()
        case ["payment_intents", id_, "cancel"]:
            account, intent = _with_intent(engine, id_)
            payment_intents.cancel_now(account, intent, given.get("reason", "automatic"))
            return intent.as_json()
        case ["refunds", id_, "settle"]:
            return refunds.settle(engine.account, refunds.find(engine.account, id_)).as_json()
        case ["refunds", id_, "fail"]:
            reason = given.get("reason", "expired_or_canceled_card")
            return refunds.fail(engine.account, refunds.find(engine.account, id_), reason).as_json()
        case ["disputes"]:
            account, intent = _with_intent(engine, given["payment_intent"])
            charge = charges.find(account, intent.latest_charge or "")
            reason = given.get("reason", "fraudulent")
            return disputes.open_dispute(account, charge, reason, given.get("amount")).as_json()
        case ["disputes", id_, "close"]:
            dispute = disputes.find(engine.account, id_)
            return disputes.close_dispute(engine.account, dispute, given["status"]).as_json()
    raise _unknown("/".join(parts))


def _ledger(standin: "StandIn") -> dict[str, Any]:
    entries = [(account, charge) for account in _accounts(standin.engine) for charge in account.charges.values()]
    shown = [(charge.succeeded, charge.as_ledger_entry(account)) for account, charge in entries]
    return {
        "charges": [entry for succeeded, entry in shown if succeeded],
        "unpaid_charges": [entry for succeeded, entry in shown if not succeeded],
        "payment_intents": _all(account.payment_intents.values() for account in _accounts(standin.engine)),
        "refunds": _all(account.refunds.values() for account in _accounts(standin.engine)),
        "disputes": _all(account.disputes.values() for account in _accounts(standin.engine)),
        "counts": dict(standin.counts),
    }


def _faults(standin: "StandIn", method: str, given: dict[str, Any]) -> dict[str, Any]:
    if method == "DELETE":
        standin.faults = FaultPlan()
    if method == "POST":
        standin.faults.rules += [FaultRule.from_json(rule) for rule in given["rules"]]
    return {"rules": [asdict(rule) for rule in standin.faults.rules]}


def _move_clock(standin: "StandIn", given: dict[str, Any]) -> dict[str, Any]:
    if "now" in given:
        standin.clock_offset_seconds = given["now"] - time.time()
    standin.clock_offset_seconds += given.get("advance_seconds", 0)
    return {"now": standin.now()}


def _set(standin: "StandIn", given: dict[str, Any]) -> dict[str, Any]:
    limits = {"endpoint_rate_limit": "per_endpoint", "account_rate_limit": "per_account"}
    for name, value in given.items():
        if name in _OF_THE_SERVER:
            setattr(standin, name, value)
        elif name in _BEHAVIOR:
            setattr(standin.engine.behavior, name, value)
        elif name in limits:
            setattr(standin.engine.rate_limits, limits[name], value)
        else:
            raise invalid(f"There is no such setting: {name}", param=name)
    return {}


def _new_payment_method(account: Account, given: dict[str, Any]) -> dict[str, Any]:
    behaves_like = given.get("behaves_like", "pm_card_visa")
    if behaves_like not in TEST_CARDS:
        raise missing("test payment method", behaves_like, "behaves_like")
    made = payment_methods.new(account, behaves_like, customer=given.get("customer"), id_=given.get("id"))
    return made.as_json()


def _with_intent(engine: StripeEngine, id_: str) -> tuple[Account, payment_intents.PaymentIntent]:
    for account in _accounts(engine):
        if id_ in account.payment_intents:
            return account, account.payment_intents[id_]
    raise missing("payment_intent", id_, "intent")


def _accounts(engine: StripeEngine) -> list[Account]:
    return list(engine.accounts.values())


def _all(made: Iterable[Iterable[Any]]) -> list[dict[str, Any]]:
    return [each.as_json() for kind in made for each in kind]


def _unknown(path: str) -> Exception:
    return missing("admin endpoint", path, "path")
