"""The stand-in's objects are Stripe's: each one is checked against the official types of the pinned API version.

TypeScript refuses a literal with a field that its type lacks, with a value of another type, and without a field that
its type requires. So the objects are written down as literals of Stripe's types, and compiled.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import stripe

from local.stripe_standin import attempts, disputes, refunds
from local.stripe_standin.account import API_VERSION
from local.stripe_standin.engine import StripeEngine
from local.stripe_standin.faults import Fault, FaultRule
from local.stripe_standin.messages import Request
from tests.contract.conftest import TOOLS

TYPES = TOOLS / "stripe-types/node_modules"
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
    """Runs through everything that the stand-in can do, and keeps each object with the name of its official type."""

    def __init__(self) -> None:
        self.engine = StripeEngine(lambda: 1_800_000_000.0)
        self.seen: list[tuple[str, Mapping[str, Any]]] = []
        self._keys = count()

    @property
    def account(self) -> Any:
        return self.engine.account

    def ask(self, type_: str, method: str, path: str, **given: str) -> dict[str, Any]:
        parameters = {name.replace("__", "["): value for name, value in given.items()}
        return self.send(type_, method, path, parameters)

    def send(self, type_: str, method: str, path: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        key = f"key-{next(self._keys)}" if method == "POST" else None
        request, _ = self.engine.identify(Request(method, f"/v1/{path}", parameters, "sk_test_x", key))
        answer = self.engine.answer(request)
        body = answer.body
        self.seen.append((type_, body) if answer.status == 200 else ("StripeRawError", body["error"]))
        return body

    def pay(self, card: str, *, confirm: bool = True, customer: str | None = None) -> str:
        theirs = {"customer": customer} if customer else {}
        intent = self.send("PaymentIntent", "POST", "payment_intents", {**CREATE, **theirs})["id"]
        if confirm:
            self.ask("PaymentIntent", "POST", f"payment_intents/{intent}/confirm", payment_method=card)
        return str(intent)

    def record(self) -> list[tuple[str, Mapping[str, Any]]]:
        intents = {card: self.pay(card) for card in CARDS}
        self._refund(intents)
        self._end_the_others(intents)
        self._be_refused(intents)
        self._list()
        for event in self.account.events:
            self.seen.append((_event_type(event["type"]), _without_nulls(event)))
        return self.seen

    def _refund(self, intents: Mapping[str, str]) -> None:
        for card in ("pm_card_visa", "pm_card_refundFail", "pm_card_pendingRefund"):
            self.ask("Refund", "POST", "refunds", payment_intent=intents[card], amount="99", reason="duplicate")
        self.engine.run_all()
        refunds.settle(self.account, next(iter(self.account.refunds.values())))

    def _end_the_others(self, intents: Mapping[str, str]) -> None:
        attempts.authenticate(
            self.account, self.account.payment_intents[intents["pm_card_threeDSecure2Required"]], succeed=False
        )
        unconfirmed = self.pay("", confirm=False, customer="cus_1")
        self.ask(
            "PaymentIntent",
            "POST",
            f"payment_intents/{unconfirmed}/cancel",
            cancellation_reason="requested_by_customer",
        )
        for succeed in (True, False):
            request = Request("POST", "/v1/payment_intents", {**CREATE, "payment_method": "pm_card_visa"}, "sk_test_x")
            intent = self.engine.answer(request).body["id"]
            ticket = self.engine.begin(Request("POST", f"/v1/payment_intents/{intent}/confirm", {}, "sk_test_x"))
            self.seen.append(("PaymentIntent", self.engine.execute(ticket, stays_processing=True)[0].body))  # type: ignore[arg-type]
            attempts.decide(self.account, self.account.payment_intents[intent], succeed=succeed)
        dispute = next(iter(self.account.disputes.values()))
        self.seen.append(("Dispute", dispute.as_json()))
        disputes.close_dispute(self.account, dispute, "lost")

    def _be_refused(self, intents: Mapping[str, str]) -> None:
        self.ask("", "GET", "payment_intents/pi_unknown")
        self.ask("", "POST", f"payment_intents/{intents['pm_card_visa']}/confirm", payment_method="pm_card_visa")
        self.send("", "POST", "payment_intents", {**CREATE, "colour": "red"})
        self.send("", "POST", "payment_intents", {**CREATE, "amount": "1"})
        for kind in Fault:
            answer = FaultRule(kind).answer
            if answer is not None:
                self.seen.append(("StripeRawError", answer.response.body["error"]))

    def _list(self) -> None:
        method = self.send("PaymentMethod", "POST", "payment_methods", {"type": "card", "card[token]": "tok_visa"})[
            "id"
        ]
        self.ask("PaymentMethod", "POST", f"payment_methods/{method}/attach", customer="cus_1")
        self.ask("PaymentMethod", "GET", f"payment_methods/{method}")
        lists = {"payment_intents": "PaymentIntent", "refunds": "Refund", "charges": "Charge", "disputes": "Dispute"}
        for path, type_ in lists.items():
            self.ask(f"ApiList<Stripe.{type_}>", "GET", path, limit="100")
        expanded = {"limit": "100", "expand[0]": "data.latest_charge", "expand[1]": "data.payment_method"}
        self.send("ApiList<Stripe.PaymentIntent>", "GET", "payment_intents", expanded)
        query = {"query": "metadata['order_id']:'ord_1'", "limit": "1"}
        self.send("ApiSearchResult<Stripe.PaymentIntent>", "GET", "payment_intents/search", query)


def _event_type(type_: str) -> str:
    """`charge.refund.updated` is a Stripe.ChargeRefundUpdatedEvent."""
    return "".join(part.capitalize() for part in re.split(r"[._]", type_)) + "Event"


@pytest.fixture(scope="module")
def official_types() -> Path:
    if not shutil.which("node") or not (TYPES / "stripe").exists():
        reason = "Stripe's types need npm, which this machine lacks, or `make test` was not run"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return TYPES


def _without_nulls(event: dict[str, Any]) -> dict[str, Any]:
    """Stripe sends null for what an object did not have before, which the types of previous attributes do not know."""
    before = event["data"].get("previous_attributes")
    if before is None:
        return event
    known = {name: value for name, value in before.items() if value is not None}
    return {**event, "data": {**event["data"], "previous_attributes": known}}


def _flat(objects: list[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for type_, made in objects:
        yield type_, made
        data = made.get("data")
        inside = data if isinstance(data, list) else [data["object"]] if isinstance(data, dict) else []
        yield from ((type_, each) for each in inside)


def _words(kind: str | None, field: str) -> set[str]:
    """What was recorded in this field of this kind of object; of None, of the errors."""
    objects = [made for type_, made in _flat(Recorder().record()) if kind or type_ == "StripeRawError"]
    return {made[field] for made in objects if made.get(field) and made.get("object") == kind}


@pytest.fixture(scope="module")
def recorded() -> list[tuple[str, Mapping[str, Any]]]:
    return Recorder().record()


def compile_errors(types: Path, folder: Path, objects: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """What TypeScript finds wrong with the objects, each in a line of its own."""
    lines = [f"export const _{n}: Stripe.{type_} = {json.dumps(made)};" for n, (type_, made) in enumerate(objects)]
    (folder / "objects.ts").write_text("\n".join(["import type Stripe from 'stripe';", *lines]))
    options = {
        **{"noEmit": True, "strict": True, "skipLibCheck": True, "target": "es2022", "types": []},
        **{"module": "nodenext", "moduleResolution": "nodenext"},
        "paths": {"stripe": [str(types / "stripe/cjs/stripe.cjs.node.d.ts")]},
    }
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["objects.ts"]}))
    command = ["node", str(types / "typescript/bin/tsc"), "--pretty", "false", "-p", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_types_are_of_the_pinned_api_version(official_types: Path) -> None:
    """stripe-python, the npm package and the stand-in speak of the same version of the API."""
    pinned = json.loads((official_types / "stripe/package.json").read_text())["version"]
    source = (official_types / "stripe/cjs/apiVersion.js").read_text()
    assert API_VERSION in source, pinned
    assert stripe.api_version == API_VERSION


def test_every_object_is_one_of_stripes(
    official_types: Path, recorded: list[tuple[str, Mapping[str, Any]]], tmp_path: Path
) -> None:
    """Every field exists with a fitting type, and no required one is missing: no exceptions are needed."""
    assert compile_errors(official_types, tmp_path, recorded) == []


def test_everything_that_the_stand_in_makes_is_among_them(recorded: list[tuple[str, Mapping[str, Any]]]) -> None:
    """Each status of each object, and each type of event."""
    statuses = {(made.get("object"), made.get("status")) for _, made in _flat(recorded)}
    expected: dict[str, Sequence[str | None]] = {
        "payment_intent": (
            "requires_payment_method requires_action processing succeeded canceled requires_confirmation".split()
        ),
        "charge": ["succeeded", "failed", "pending"],
        "refund": ["succeeded", "pending", "failed"],
        "dispute": ["needs_response", "lost"],
        "payment_method": [None],
    }
    assert statuses >= {(name, status) for name, wanted in expected.items() for status in wanted}
    events = {made["type"] for _, made in recorded if made.get("object") == "event"}
    assert events >= {
        *(f"payment_intent.{what}" for what in "created succeeded payment_failed requires_action canceled".split()),
        *(f"charge.{what}" for what in "succeeded failed pending refunded dispute.created dispute.closed".split()),
        *(f"refund.{what}" for what in "created updated failed".split()),
        "payment_intent.processing",
    }


def test_a_wrong_object_is_found(
    official_types: Path, recorded: list[tuple[str, Mapping[str, Any]]], tmp_path: Path
) -> None:
    """A field of another type, one too many, one too few: in each object, TypeScript sees it."""
    type_, intent = recorded[0]
    assert type_ == "PaymentIntent"
    changes: list[dict[str, Any]] = [
        {"amount": None},
        {"amount": "1099"},
        {"colour": "red"},
        {"object": "intent"},
        {"next_action": {}},
    ]
    spoilt = [{**intent, **change} for change in changes]
    spoilt.append({name: value for name, value in intent.items() if name != "latest_charge"})
    errors = compile_errors(official_types, tmp_path, [(type_, each) for each in spoilt])
    # The first line of the file imports the types.
    assert {int(found[1]) - 2 for error in errors if (found := re.match(r"objects\.ts\((\d+)", error))} == set(range(6))


@pytest.mark.parametrize(
    ("resource", "type_", "values"),
    [
        ("PaymentIntents", "Status", _words("payment_intent", "status")),
        ("PaymentIntents", "CancellationReason", _words("payment_intent", "cancellation_reason")),
        ("PaymentIntents", "Code", _words(None, "code")),
        ("Charges", "Status", _words("charge", "status")),
        ("Disputes", "Status", _words("dispute", "status")),
    ],
)
def test_words_are_stripes(official_types: Path, resource: str, type_: str, values: set[str]) -> None:
    """Statuses, reasons and codes, which the types leave open for words to come."""
    source = (official_types / f"stripe/cjs/resources/{resource}.d.ts").read_text()
    # Parts of the object have types of the same name.
    unions = re.findall(rf"^ +type {type_} = ([^;]*);", source, re.MULTILINE)
    assert values
    assert any(values <= set(re.findall(r"'(\w+)'", union)) for union in unions), values
