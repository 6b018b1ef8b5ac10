"""The stand-in's objects have Stripe's official types, of the pinned API version.

The test writes each object as a TypeScript literal of its official type and compiles it. The compiler refuses an
unknown field, a value of another type and a missing required field.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pytest
import stripe

from stripe_standin import attempts, disputes, refunds
from stripe_standin.account import API_VERSION
from stripe_standin.engine import StripeEngine
from stripe_standin.faults import Fault, FaultRule
from stripe_standin.messages import Request
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.tests.typescript import NODE_MODULES, TypeScript

CREATE = {"amount": "1099", "currency": "eur", "allowed_payment_method_types[0]": "card", "metadata[order_id]": "ord_1"}
CARDS = (
    "pm_card_visa",
    "pm_card_chargeDeclined",
    "pm_card_chargeDeclinedExpiredCard",
    "pm_card_chargeDeclinedIncorrectCvc",
    "pm_card_radarBlock",
    "pm_card_threeDSecure2Required",
    "pm_card_createDispute",
    "pm_card_refundFail",
    "pm_card_pendingRefund",
)


class Recorder:
    """Sends every kind of request to the stand-in, and records each object with the name of its official type."""

    def __init__(self) -> None:
        self.engine = StripeEngine(lambda: 1_800_000_000.0)
        self.recorded: list[tuple[str, Mapping[str, Any]]] = []
        self._keys = count()

    @property
    def account(self) -> Any:
        return self.engine.account

    def send(self, type_: str, method: str, path: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        key = f"key-{next(self._keys)}" if method == "POST" else None
        request, _ = self.engine.identify(Request(method, f"/v1/{path}", parameters or {}, "sk_test_x", key))
        response = self.engine.respond(request)
        body = response.body
        self.recorded.append((type_, body) if response.status == 200 else ("StripeRawError", body["error"]))
        return body

    def pay(self, card: str, *, confirm: bool = True) -> str:
        intent = self.send("PaymentIntent", "POST", "payment_intents", CREATE)["id"]
        if confirm:
            self.send("PaymentIntent", "POST", f"payment_intents/{intent}/confirm", {"payment_method": card})
        return str(intent)

    def record(self) -> list[tuple[str, Mapping[str, Any]]]:
        intents = {card: self.pay(card) for card in CARDS}
        self._record_refunds(intents)
        self._record_other_statuses(intents)
        self._record_errors(intents)
        self._record_lists()
        for event in self.account.events:
            self.recorded.append((_event_type(event["type"]), _without_nulls(event)))
        return self.recorded

    def _record_refunds(self, intents: Mapping[str, str]) -> None:
        for card in ("pm_card_visa", "pm_card_refundFail", "pm_card_pendingRefund"):
            parameters = {"payment_intent": intents[card], "amount": "99", "reason": "duplicate"}
            self.send("Refund", "POST", "refunds", parameters)
        self.engine.run_scheduled()
        refunds.succeed(self.account, next(iter(self.account.all(refunds.Refund).values())))

    def _record_other_statuses(self, intents: Mapping[str, str]) -> None:
        attempts.authenticate(
            self.account, self.account.all(PaymentIntent)[intents["pm_card_threeDSecure2Required"]], succeed=False
        )
        unconfirmed = self.pay("", confirm=False)
        reason = {"cancellation_reason": "requested_by_customer"}
        self.send("PaymentIntent", "POST", f"payment_intents/{unconfirmed}/cancel", reason)
        for succeed in (True, False):
            request = Request("POST", "/v1/payment_intents", {**CREATE, "payment_method": "pm_card_visa"}, "sk_test_x")
            intent = self.engine.respond(request).body["id"]
            ticket = self.engine.begin(Request("POST", f"/v1/payment_intents/{intent}/confirm", {}, "sk_test_x"))
            self.recorded.append(("PaymentIntent", self.engine.execute(ticket, Fault.STAYS_PROCESSING)[0].body))  # type: ignore[arg-type]
            attempts.finish_processing(self.account, self.account.all(PaymentIntent)[intent], succeed=succeed)
        dispute = next(iter(self.account.all(disputes.Dispute).values()))
        self.recorded.append(("Dispute", dispute.as_json()))
        disputes.close_dispute(self.account, dispute, "lost")
        disputed = self.pay("pm_card_createDispute")
        won = next(
            each for each in self.account.all(disputes.Dispute).values() if each.charge.payment_intent == disputed
        )
        disputes.close_dispute(self.account, won, "won")

    def _record_errors(self, intents: Mapping[str, str]) -> None:
        paid = intents["pm_card_visa"]
        self.send("", "GET", "payment_intents/pi_unknown")
        self.send("", "POST", f"payment_intents/{paid}/confirm", {"payment_method": "pm_card_visa"})
        self.send("", "POST", "payment_intents", {**CREATE, "color": "red"})
        self.send("", "POST", "payment_intents", {**CREATE, "amount": "1"})
        for kind in Fault:
            error = FaultRule(kind).error_response
            if error is not None:
                self.recorded.append(("StripeRawError", error.as_response().body["error"]))

    def _record_lists(self) -> None:
        method = self.send("PaymentMethod", "POST", "payment_methods", {"type": "card", "card[token]": "tok_visa"})[
            "id"
        ]
        self.send("PaymentMethod", "GET", f"payment_methods/{method}")
        lists = {
            **{"payment_intents": "PaymentIntent", "refunds": "Refund", "charges": "Charge", "disputes": "Dispute"},
            "balance_transactions": "BalanceTransaction",
        }
        for path, type_ in lists.items():
            self.send(f"ApiList<Stripe.{type_}>", "GET", path, {"limit": "100"})
        expanded = {"limit": "100", "expand[0]": "data.latest_charge", "expand[1]": "data.payment_method"}
        self.send("ApiList<Stripe.PaymentIntent>", "GET", "payment_intents", expanded)
        sources = {"limit": "100", "expand[0]": "data.source"}
        booked = self.send("ApiList<Stripe.BalanceTransaction>", "GET", "balance_transactions", sources)["data"]
        self.send("BalanceTransaction", "GET", f"balance_transactions/{booked[0]['id']}")
        self._record_webhook_endpoints()

    def _record_webhook_endpoints(self) -> None:
        parameters = {"url": "https://shop.example/stripe/events", "enabled_events[0]": "charge.refunded"}
        made = self.send("WebhookEndpoint", "POST", "webhook_endpoints", parameters)
        self.send("WebhookEndpoint", "POST", f"webhook_endpoints/{made['id']}", {"disabled": "true"})
        self.send("ApiList<Stripe.WebhookEndpoint>", "GET", "webhook_endpoints", {"limit": "100"})
        self.send("DeletedWebhookEndpoint", "DELETE", f"webhook_endpoints/{made['id']}")


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


def _flat(objects: list[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for type_, object_ in objects:
        yield type_, object_
        data = object_.get("data")
        nested = data if isinstance(data, list) else [data["object"]] if isinstance(data, dict) else []
        yield from ((type_, each) for each in nested)


def _values_of(kind: str | None, field: str) -> set[str]:
    """All recorded values of a field of one kind of object; None means errors."""
    objects = [each for type_, each in _flat(Recorder().record()) if kind or type_ == "StripeRawError"]
    return {each[field] for each in objects if each.get(field) and each.get("object") == kind}


@pytest.fixture(scope="module")
def recorded() -> list[tuple[str, Mapping[str, Any]]]:
    return Recorder().record()


def compile_errors(typescript: TypeScript, objects: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The errors of the objects, each a literal of its type."""
    lines = [f"export const _{n}: Stripe.{type_} = {json.dumps(each)};" for n, (type_, each) in enumerate(objects)]
    literals = typescript.folder / "objects.ts"
    literals.write_text("\n".join(["import type Stripe from 'stripe';", *lines]))
    options = {"target": "es2022", "module": "nodenext", "moduleResolution": "nodenext"}
    return typescript.errors(literals, types_of="stripe/cjs/stripe.cjs.node.d.ts", **options)


def test_the_types_are_of_the_pinned_api_version(typescript: TypeScript) -> None:
    """stripe-python, the npm package and the stand-in have the same API version."""
    pinned = json.loads((NODE_MODULES / "stripe/package.json").read_text())["version"]
    source = (NODE_MODULES / "stripe/cjs/apiVersion.js").read_text()
    assert API_VERSION in source, pinned
    assert stripe.api_version == API_VERSION


def test_every_object_has_its_official_type(
    typescript: TypeScript, recorded: list[tuple[str, Mapping[str, Any]]]
) -> None:
    """No unknown field, no wrong type, no missing required field, without exceptions."""
    assert compile_errors(typescript, recorded) == []


def test_every_status_and_event_type_is_recorded(recorded: list[tuple[str, Mapping[str, Any]]]) -> None:
    """Each status of each object, and each event type: the tests above cover all of them."""
    statuses = {(each.get("object"), each.get("status")) for _, each in _flat(recorded)}
    expected: dict[str, Sequence[str | None]] = {
        "payment_intent": (
            "requires_payment_method requires_action processing succeeded canceled requires_confirmation".split()
        ),
        "charge": ["succeeded", "failed", "pending"],
        "refund": ["succeeded", "pending", "failed"],
        "dispute": ["needs_response", "lost", "won"],
        "payment_method": [None],
    }
    assert statuses >= {(name, status) for name, wanted in expected.items() for status in wanted}
    events = {each["type"] for _, each in recorded if each.get("object") == "event"}
    assert events >= {
        *(f"payment_intent.{what}" for what in "created succeeded payment_failed requires_action canceled".split()),
        *(f"charge.{what}" for what in "succeeded failed pending refunded dispute.created dispute.closed".split()),
        *(f"refund.{what}" for what in "created updated failed".split()),
        "payment_intent.processing",
    }


@pytest.mark.parametrize(
    ("resource", "type_", "values"),
    [
        ("PaymentIntents", "Status", _values_of("payment_intent", "status")),
        ("PaymentIntents", "CancellationReason", _values_of("payment_intent", "cancellation_reason")),
        ("PaymentIntents", "Code", _values_of(None, "code")),
        ("Charges", "Status", _values_of("charge", "status")),
        ("Disputes", "Status", _values_of("dispute", "status")),
        ("BalanceTransactions", "Type", _values_of("balance_transaction", "type")),
    ],
)
def test_enum_values_are_stripes(typescript: TypeScript, resource: str, type_: str, values: set[str]) -> None:
    """Statuses, reasons and error codes: the types allow any string, so their declarations are read."""
    source = (NODE_MODULES / f"stripe/cjs/resources/{resource}.d.ts").read_text()
    # Nested objects have types of the same name.
    unions = re.findall(rf"^ +type {type_} = ([^;]*);", source, re.MULTILINE)
    assert values
    assert any(values <= set(re.findall(r"'(\w+)'", union)) for union in unions), values
