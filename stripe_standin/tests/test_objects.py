"""The stand-in's objects, and the stub of Stripe.js, have Stripe's official types of the pinned API version.

The test writes each object as a TypeScript literal of its official type and compiles it. The compiler refuses an
unknown field, a value of another type and a missing required field.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import stripe

from stripe_standin import attempts, disputes, refunds
from stripe_standin.account import API_VERSION
from stripe_standin.cards import TEST_CARDS
from stripe_standin.faults import Fault, FaultRule
from stripe_standin.messages import Response
from stripe_standin.refunds import Refund
from stripe_standin.tests.support import ASKS, CREATE, VISA, Stripe
from stripe_standin.tests.typescript import NODE_MODULES, TypeScript
from stripe_standin.webhook_endpoints import EVENT_TYPES

Recorded = list[tuple[str, Mapping[str, Any]]]
"""Objects, with the names of their official types."""
TYPES = {
    "payment_intent": "PaymentIntent",
    "payment_method": "PaymentMethod",
    "charge": "Charge",
    "refund": "Refund",
    "dispute": "Dispute",
    "balance_transaction": "BalanceTransaction",
    "webhook_endpoint": "WebhookEndpoint",
}


class Recorder(Stripe):
    """Records the body of each response."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: Recorded = []

    def post(self, path: str, given: Mapping[str, str] | None = None, key: str | None = None, **more: Any) -> Response:
        response = super().post(path, given, key, **more)
        if error := response.body.get("error"):
            self.recorded.append(("StripeRawError", error))
        else:
            self.recorded.append((TYPES[response.body["object"]], response.body))
        return response


def record() -> Recorded:
    """Every kind of object, in every status, and every event."""
    stripe = Recorder()
    account = stripe.account
    intents = {card: stripe.paid(card) for card in TEST_CARDS}
    for card in (VISA, "pm_card_refundFail"):
        stripe.post("refunds", {"payment_intent": intents[card], "amount": "99", "reason": "duplicate"})
    refunds.hold(account, next(iter(account.all(Refund).values())), "insufficient_funds")
    stripe.time += 601
    attempts.decide(account, stripe.intent(intents[ASKS]), succeed=False)
    stripe.created(payment_method=VISA)
    stripe.post(f"payment_intents/{stripe.created()}/cancel", {"cancellation_reason": "requested_by_customer"})
    for succeed in (True, False):
        processing = stripe.intent(stripe.processing())
        stripe.recorded.append(("PaymentIntent", processing.as_json()))
        attempts.decide(account, processing, succeed=succeed)
    for status in ("lost", "won"):
        disputes.change_status(account, stripe.disputed(stripe.paid()), status)
    stripe.confirm(intents[VISA])
    stripe.confirm("pi_unknown")
    stripe.post("payment_intents", {**CREATE, "color": "red"})
    stripe.post("payment_methods", {"type": "card", "card[token]": "tok_visa"})
    endpoint = {"url": "https://shop.example/stripe/events", "enabled_events[0]": "charge.refunded"}
    path = f"webhook_endpoints/{stripe.post('webhook_endpoints', endpoint).body['id']}"
    stripe.post(path, {"disabled": "true"})
    for listed in ("payment_intents", "refunds", "charges", "disputes", "balance_transactions", "webhook_endpoints"):
        expand = {"payment_intents": "data.latest_charge", "balance_transactions": "data.source"}.get(listed)
        given = {"limit": "100", **({"expand[0]": expand} if expand else {})}
        body = stripe.get(listed, given).body
        stripe.recorded.append((f"ApiList<Stripe.{TYPES[listed.removesuffix('s')]}>", body))
    deleted = stripe.engine.respond(stripe.request("DELETE", path)).body
    errors = [response for kind in Fault if (response := FaultRule(kind).error_response)]
    stripe.recorded += [
        ("DeletedWebhookEndpoint", deleted),
        *(("StripeRawError", each.body["error"]) for each in errors),
        *((_event_type(event["type"]), _without_nulls(event)) for event in account.events),
        *((TYPES[each["object"]], each) for event in account.events for each in [event["data"]["object"]]),
    ]
    return stripe.recorded


def _event_type(type_: str) -> str:
    """`charge.refund.updated` is a Stripe.ChargeRefundUpdatedEvent."""
    return "".join(part.capitalize() for part in re.split(r"[._]", type_)) + "Event"


def _without_nulls(event: dict[str, Any]) -> dict[str, Any]:
    """Stripe sends null for a previous attribute that did not exist; the types do not allow null there."""
    before = event["data"].get("previous_attributes")
    if before is None:
        return event
    known = {name: value for name, value in before.items() if value is not None}
    return {**event, "data": {**event["data"], "previous_attributes": known}}


RECORDED = record()


def values_of(type_: str, field: str) -> set[str]:
    return {each[field] for name, each in RECORDED if name == type_ and each.get(field)}


@pytest.mark.usefixtures("typescript")
def test_the_types_are_of_the_pinned_api_version() -> None:
    """stripe-python, the npm package and the stand-in have the same API version."""
    assert API_VERSION in (NODE_MODULES / "stripe/cjs/apiVersion.js").read_text()
    assert stripe.api_version == API_VERSION


def test_every_object_has_its_official_type(typescript: TypeScript) -> None:
    """No unknown field, no wrong type, no missing required field, without exceptions."""
    lines = [f"export const _{n}: Stripe.{type_} = {json.dumps(each)};" for n, (type_, each) in enumerate(RECORDED)]
    literals = typescript.folder / "objects.ts"
    literals.write_text("\n".join(["import type Stripe from 'stripe';", *lines]))
    options = {"target": "es2022", "module": "nodenext", "moduleResolution": "nodenext"}
    assert typescript.errors(literals, types_of="stripe/cjs/stripe.cjs.node.d.ts", **options) == []


def test_the_stub_of_stripe_js_compiles_strictly(typescript: TypeScript) -> None:
    """A call, an option or a result that Stripe.js does not have does not compile."""
    scripts = sorted((Path(__file__).parents[1] / "browser").glob("*.js"))
    assert typescript.errors_of_scripts(*scripts, strict=True) == []


@pytest.mark.usefixtures("typescript")
@pytest.mark.parametrize(
    ("resource", "type_", "values"),
    [
        ("PaymentIntents", "Status", values_of("PaymentIntent", "status")),
        ("PaymentIntents", "CancellationReason", values_of("PaymentIntent", "cancellation_reason")),
        ("PaymentIntents", "Code", values_of("StripeRawError", "code")),
        ("Charges", "Status", values_of("Charge", "status")),
        ("Disputes", "Status", values_of("Dispute", "status")),
        ("BalanceTransactions", "Type", {"charge", "refund", "refund_failure", "adjustment"}),
        ("WebhookEndpoints", "EnabledEvent", EVENT_TYPES),
    ],
)
def test_enum_values_are_stripes(resource: str, type_: str, values: set[str]) -> None:
    """Statuses, reasons, codes and event types: the types allow any string, so their declarations are read."""
    source = (NODE_MODULES / f"stripe/cjs/resources/{resource}.d.ts").read_text()
    # Nested objects have types of the same name.
    unions = re.findall(rf"^ +type {type_} = ([^;]*);", source, re.MULTILINE)
    assert any(values <= set(re.findall(r"'([\w.]+)'", union)) for union in unions), values
