"""The shop's client of Stripe shows what Stripe's SDK shows over HTTP: one engine is behind both."""

import json
import re
import time
from collections import defaultdict
from itertools import count
from typing import Any

import stripe

from onecharge.payments.stripe_client import stripe_client
from stripe_standin.server import running_standin
from tests.shop.builders import PATIENT
from tests.shop.dynamodb import Io
from tests.shop.sdk import client_of
from tests.shop.stripe import ShopStripe

PAYS, DECLINED, ASKS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
ORDER = {"allowed_payment_method_types": ["card"], "metadata": {"order_id": "ord_1"}, "currency": "eur"}
EXPANDED = {"expand": ["latest_charge"]}
INTENT = ("id", "status", "amount", "currency", "cancellation_reason", "client_secret", "amount_received")
ERROR = ("type", "code", "decline_code", "param")


def transcript(client: stripe.StripeClient) -> str:
    """What the SDK shows after each request, one a line; each account makes up its own ids and times."""
    lines: list[Any] = []

    def shown(thing: Any, *names: str) -> list[Any]:
        return [getattr(thing, name, None) for name in names]

    def ask(method: Any, *given: Any) -> Any:
        try:
            made = method(*given)
        except stripe.StripeError as error:
            details, headers = error.error, {name.lower(): value for name, value in (error.headers or {}).items()}
            about = [
                type(error).__name__,
                error.http_status,
                *shown(details, *ERROR),
                headers.get("idempotent-replayed"),
            ]
            lines.append([*about, *shown(getattr(details, "payment_intent", None), *INTENT)])
            return None
        for each in getattr(made, "data", [made]):
            charge, last = getattr(each, "latest_charge", None), getattr(each, "last_payment_error", None)
            more = [*shown(charge, "amount_refunded", "paid"), *shown(last, *ERROR), getattr(made, "has_more", None)]
            lines.append([*shown(each, *INTENT), *more])
        lines.append(made.last_response.headers.get("idempotent-replayed"))
        return made

    intents, refunds, events, disputes = (
        getattr(client.v1, name) for name in ("payment_intents", "refunds", "events", "disputes")
    )

    def create(key: str, amount: int = 1099) -> str:
        return str(getattr(ask(intents.create, {**ORDER, "amount": amount}, {"idempotency_key": key}), "id", ""))

    def confirm(intent_id: str, card: str, key: str) -> None:
        ask(intents.confirm, intent_id, {"payment_method": card, "use_stripe_sdk": True}, {"idempotency_key": key})
        ask(intents.retrieve, intent_id, EXPANDED)

    first, _, _, second, third = create("1"), create("1"), create("1", amount=1), create("2"), create("3")
    for card, key in ((DECLINED, "a"), (DECLINED, "a"), ("pm_unknown", "b"), (PAYS, "c"), (PAYS, "c"), (PAYS, "d")):
        confirm(first, card, key)
    for intent_id, reason in ((first, "abandoned"), (third, "requested_by_customer"), (third, "abandoned")):
        ask(intents.cancel, intent_id, {"cancellation_reason": reason})
    for intent_id, card, key in ((second, PAYS, "c"), (second, ASKS, "e"), (second, PAYS, "f"), (third, PAYS, "g")):
        confirm(intent_id, card, key)
    confirm("pi_unknown", PAYS, "h")
    for query in ({"limit": 2}, {"limit": 2, "starting_after": second}, {"created": {"lt": 1}}):
        ask(intents.list, query)
    for key, amount in (("r", 99), ("r", 99), ("s", 10**6), ("t", 1000)):
        ask(refunds.create, {"payment_intent": first, "amount": amount}, {"idempotency_key": key})
    for method in (refunds.list, disputes.list):
        ask(method, {"payment_intent": first})
    types = ["payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled"]
    lines += [[each.type, *shown(each.data.object, *INTENT)] for each in events.list({"types": types}).data]
    lines += [each.id for each in intents.list({"limit": 1}).auto_paging_iter()]
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    return re.sub(r"\b(pi|re)_\w+", lambda found: f"object {numbers[found[0]]}", "\n".join(map(json.dumps, lines)))


def test_both_clients_show_the_same() -> None:
    """Creates, confirms, cancels, replays, declines, refusals, lists, refunds and events, one after the other."""
    in_process = transcript(client_of(ShopStripe(Io(int(time.time())))))
    with running_standin() as standin:
        over_http = transcript(stripe_client("sk_test_x", api_base=standin.base_url, bounds=PATIENT))
    assert in_process == over_http
    assert all(each in in_process for each in ("succeeded", "requires_action", "canceled", "generic_decline"))
