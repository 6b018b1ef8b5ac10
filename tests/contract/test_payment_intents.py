"""The shop's client of Stripe shows what Stripe's SDK shows over HTTP: one engine is behind both."""

import time
from typing import Any

import stripe

from onecharge.payments.stripe_client import stripe_client
from stripe_standin.server import running_standin
from tests.shop.builders import PATIENT
from tests.shop.dynamodb import NoFaults
from tests.shop.stripe import ShopStripe, client_of

PAYS, DECLINED, ASKS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
ORDER = {"allowed_payment_method_types": ["card"], "metadata": {"order_id": "ord_1"}, "currency": "eur"}
EXPANDED = {"expand": ["latest_charge"]}
SHOWN = ("id", "status", "amount", "currency", "cancellation_reason")


def transcript(client: stripe.StripeClient) -> list[Any]:
    """What the SDK shows after each request: the object and whether it is a replay, or the error."""
    seen: list[Any] = []
    names: dict[str, str] = {}

    def shown(answer: Any) -> list[Any]:
        """Ids by their order: each account makes up its own."""
        values = [getattr(answer, name, None) for name in SHOWN]
        return [names.setdefault(str(values[0]), f"object {len(names)}"), *values[1:]]

    def ask(method: Any, *given: Any) -> Any:
        try:
            made = method(*given)
        except stripe.StripeError as error:
            details: Any = error.error
            intent = getattr(details, "payment_intent", None)
            replayed = (
                (error.headers or {}).get("Idempotent-Replayed"),
                (error.headers or {}).get("idempotent-replayed"),
            )
            about = [getattr(details, name, None) for name in ("type", "code", "decline_code", "param")]
            seen.append(
                [type(error).__name__, error.http_status, error.code, *about, *replayed, intent and shown(intent)]
            )
            return None
        if hasattr(made, "has_more"):
            seen.append([made.has_more, *map(shown, made.data)])
        else:
            charge, last = getattr(made, "latest_charge", None), getattr(made, "last_payment_error", None)
            declined = last and [last.code, last.decline_code]
            refunded = getattr(charge, "amount_refunded", None)
            replayed = made.last_response.headers.get("idempotent-replayed")
            seen.append([*shown(made), replayed, bool(charge), refunded, declined])
        return made

    intents, refunds, events, disputes = (
        getattr(client.v1, name) for name in ("payment_intents", "refunds", "events", "disputes")
    )

    def create(key: str, amount: int = 1099) -> str:
        return str(getattr(ask(intents.create, {**ORDER, "amount": amount}, {"idempotency_key": key}), "id", ""))

    def confirm(intent_id: str, card: str, key: str) -> None:
        ask(intents.confirm, intent_id, {"payment_method": card, "use_stripe_sdk": True}, {"idempotency_key": key})

    first = create("1")
    create("1")
    create("1", amount=1)
    for card, key in ((DECLINED, "a"), (DECLINED, "a"), ("pm_unknown", "b"), (PAYS, "c"), (PAYS, "c"), (PAYS, "d")):
        confirm(first, card, key)
        ask(intents.retrieve, first, EXPANDED)
    ask(intents.cancel, first, {"cancellation_reason": "abandoned"})
    second, third = create("2"), create("3")
    confirm(second, PAYS, "c")
    confirm(second, ASKS, "e")
    confirm(second, PAYS, "f")
    for reason in ("requested_by_customer", "abandoned"):
        ask(intents.cancel, third, {"cancellation_reason": reason})
    confirm(third, PAYS, "g")
    confirm("pi_unknown", PAYS, "h")
    ask(intents.retrieve, "pi_unknown", EXPANDED)
    for given in ({"limit": 2}, {"limit": 2, "starting_after": second}, {"created": {"lt": 1}}):
        ask(intents.list, given)
    for key, amount in (("r", 99), ("r", 99), ("s", 10**6), ("t", 1000)):
        ask(refunds.create, {"payment_intent": first, "amount": amount}, {"idempotency_key": key})
    ask(refunds.list, {"payment_intent": first})
    ask(disputes.list, {"payment_intent": first})
    ask(intents.retrieve, first, EXPANDED)
    types = ["payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled"]
    listed = [(each.type, *shown(each.data.object)) for each in events.list({"types": types}).data]
    pages = [each.id for each in intents.list({"limit": 1}).auto_paging_iter()]
    return [*seen, listed, [names[each] for each in pages]]


def test_both_clients_show_the_same() -> None:
    """Creates, confirms, cancels, replays, declines, refusals, lists, refunds and events, one after the other."""
    in_process = transcript(client_of(ShopStripe(NoFaults(int(time.time())))))
    with running_standin() as standin:
        over_http = transcript(stripe_client("sk_test_x", api_base=standin.base_url, bounds=PATIENT))
    assert in_process == over_http
    assert all(each in str(in_process) for each in ("succeeded", "requires_action", "canceled", "generic_decline"))
