"""The parity record: questions over plain HTTP, asked of Stripe's test mode, or of a stand-in.

    STRIPE_SECRET_KEY=sk_test_… python -m stripe_standin.parity     about 120 requests, none of which moves real money

parity.json has the answer that is expected of each question, and the answers of Stripe's that are known to differ. Any
other answer is new: a finding about this stand-in, or about Stripe.
"""

import json
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from stripe_standin import outgoing
from stripe_standin.account import API_VERSION
from stripe_standin.server import running_standin

TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""By question: the `expected` answer; a `known` other answer of Stripe's, and `why`."""
STRIPE = "https://api.stripe.com"
VISA, DECLINED = "pm_card_visa", "pm_card_visa_chargeDeclined"
OFF_SESSION = {"payment_method": "pm_card_authenticationRequired", "off_session": "true"}


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.body.get("error", {}))

    @property
    def short(self) -> list[Any]:
        """The status, and the code of the error or the object's status."""
        return [self.status, self.error.get("code") if self.error else self.body.get("status")]

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"


class Client:
    """Sends requests to Stripe, or to a stand-in."""

    def __init__(self, base: str, api_key: str) -> None:
        self._base, self._api_key = base, api_key
        self.run = uuid4().hex
        """Names this run in metadata and keys."""

    def send(self, method: str, path: str, given: Mapping[str, str] | None = None, key: str | None = None) -> Answer:
        headers = {"Authorization": f"Bearer {self._api_key}", "Stripe-Version": API_VERSION}
        headers |= {"Idempotency-Key": key} if key else {}
        form = urlencode(given or {})
        url = f"{self._base}/v1/{path}" + (f"?{form}" if method == "GET" and form else "")
        headers |= {"Content-Type": "application/x-www-form-urlencoded"} if method == "POST" else {}
        status, text, received = outgoing.send(method, url, form if method == "POST" else "", headers)
        return Answer(status, json.loads(text), received)

    def key(self, name: str = "") -> str:
        return f"parity-{self.run}-{name or uuid4()}"

    def post(self, path: str, given: Mapping[str, str] | None = None, key: str | None = None) -> Answer:
        return self.send("POST", path, given, key)

    def get(self, path: str, **given: str) -> Answer:
        return self.send("GET", path, given)

    def create(self, key: str | None = None, **changes: str) -> Answer:
        given = {"amount": "1099", "currency": "eur", "allowed_payment_method_types[0]": "card"}
        return self.post("payment_intents", {**given, "metadata[parity]": self.run, **changes}, key)

    def confirm(self, intent: str, card: str = VISA, key: str | None = None, **more: str) -> Answer:
        return self.post(f"payment_intents/{intent}/confirm", {"payment_method": card, **more}, key)

    def paid(self, **changes: str) -> Answer:
        return self.confirm(self.create(**changes).id)

    def charges_of(self, intent: str) -> list[dict[str, Any]]:
        return list(self.get("charges", payment_intent=intent, limit="100").body["data"])

    def twice(self, intent: str, card: str) -> list[list[Any]]:
        """Confirm it with one key twice: status, code, and whether the response was replayed."""
        key = self.key()
        return [[*each.short, each.replayed] for each in (self.confirm(intent, card, key) for _ in range(2))]


class Parity(Client):
    """The questions: one method each, by the names of the table."""

    # -------------------------------------------------------------------- idempotency keys

    def a_key_replayed(self) -> Any:
        intent, key = self.create().id, self.key()
        first, second = self.confirm(intent, key=key), self.confirm(intent, key=key)
        statuses, replayed = [first.status, second.status], [first.replayed, second.replayed]
        same, charges = first.body == second.body, len(self.charges_of(intent))
        return {"statuses": statuses, "replayed": replayed, "one body": same, "charges": charges}

    def a_key_with_other_parameters(self) -> Any:
        key = self.key()
        self.create(key)
        refused = self.create(key, amount="1100")
        return [refused.status, refused.error["type"]]

    def a_key_at_another_endpoint(self) -> Any:
        key = self.key()
        refused = self.confirm(self.create(key).id, key=key)
        return [refused.status, refused.error["type"]]

    def a_key_in_flight(self) -> Any:
        """Each response is the object, or a 409 with this code."""
        key, allowed = self.key(), [409, "idempotency_key_in_use"]
        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(lambda _: self.create(key, **{"metadata[in_flight]": "yes"}), range(6)))
        others = [answer.short for answer in answers if answer.status != 200]
        objects = {answer.id for answer in answers if answer.status == 200}
        return {"objects": len(objects), "otherwise": [each for each in others if each != allowed]}

    def a_400_of_validation_and_its_replay(self) -> Any:
        """And the same key with other parameters after that."""
        key = self.key()
        answers = [self.create(key, amount="0"), self.create(key, amount="0"), self.create(key)]
        return [[each.status, each.replayed] for each in answers]

    def a_400_of_a_state_and_its_replay(self) -> Any:
        return self.twice(self.paid().id, VISA)

    def a_404_and_its_replay(self) -> Any:
        return self.twice(f"pi_{self.run[:24]}", VISA)

    def a_402_and_its_replay(self) -> Any:
        intent = self.create().id
        return {"replayed": self.twice(intent, DECLINED), "charges": len(self.charges_of(intent))}

    def a_key_of_256_characters(self) -> Any:
        refused = self.create("k" * 256)
        return [refused.status, refused.error["type"]]

    def headers(self) -> Any:
        key = self.key()
        created = self.create(key)
        names = TABLE["headers"]["expected"]["names"]
        reads = [self.send("GET", f"payment_intents/{created.id}", key=key) for _ in range(2)]
        return {"GET": reads[1].replayed, "names": [name for name in names if name in created.headers]}

    # -------------------------------------------------------------------- payments

    def decline_codes(self) -> Any:
        cards = TABLE["decline codes"]["expected"]
        errors = {card: self.confirm(self.create().id, card).error for card in cards}
        return {card: [error.get("code"), error.get("decline_code")] for card, error in errors.items()}

    def a_decline(self) -> Any:
        intent = self.create().id
        inside = self.confirm(intent, DECLINED).error
        after = inside["payment_intent"]
        return {
            "status": after["status"],
            "payment_method": after["payment_method"],
            "charge in error": inside["charge"] == after["latest_charge"],
            "can pay": self.confirm(intent).body["status"],
        }

    def eleven_declines_of_one_PaymentIntent(self) -> Any:
        intent = self.create().id
        statuses = [self.confirm(intent, DECLINED).status for _ in range(11)]
        after, charges = self.get(f"payment_intents/{intent}").body, len(self.charges_of(intent))
        reason = after["cancellation_reason"]
        return {"statuses": statuses, "after": after["status"], "reason": reason, "charges": charges}

    def authentication_required(self) -> Any:
        """Off session after a decline, whose charge may stay the latest; then on session."""
        intent = self.create().id
        first = self.confirm(intent, DECLINED).error["charge"]
        refused = self.post(f"payment_intents/{intent}/confirm", OFF_SESSION)
        kept = refused.error["payment_intent"]["latest_charge"] == first
        waits = self.confirm(intent, "pm_card_authenticationRequired", use_stripe_sdk="true")
        return {"off session": refused.short, "charge kept": kept, "on session": waits.short}

    def a_confirmed_one_confirmed_again(self) -> Any:
        refused = self.confirm(self.paid().id)
        return [refused.short, refused.error.get("payment_intent", {}).get("status")]

    def cancel(self) -> Any:
        """Then canceled again, confirmed, and a paid one canceled."""
        path = f"payment_intents/{(intent := self.create().id)}/cancel"
        canceled = self.post(path, {"cancellation_reason": "abandoned"})
        others = [self.post(path), self.confirm(intent), self.post(f"payment_intents/{self.paid().id}/cancel")]
        return {
            "canceled": [*canceled.short, canceled.body.get("cancellation_reason")],
            "others": [each.short for each in others],
        }

    def amounts(self) -> Any:
        """The last two have nine digits and thirteen."""
        return {amount: self.create(amount=amount).error.get("code") for amount in TABLE["amounts"]["expected"]}

    def a_PaymentMethod_without_a_customer_twice(self) -> Any:
        """One that has paid, and one that was declined."""
        answers = []
        for token in ("tok_visa", "tok_visa_chargeDeclined"):
            method = self.post("payment_methods", {"type": "card", "card[token]": token}).id
            answers += [self.confirm(self.create().id, method).short for _ in range(2)]
        return answers

    def parameters_that_are_refused(self) -> Any:
        types = {"amount": "1099", "currency": "eur", "payment_method_types[0]": "card"}
        unknown = self.create(payment_method=f"pm_{self.run[:24]}")
        return [self.create(color="red").short, self.post("payment_intents", types).short, unknown.short]

    def an_update_clears_the_last_error(self) -> Any:
        intent = self.create().id
        before = self.confirm(intent, DECLINED).error["payment_intent"]["last_payment_error"]
        after = self.post(f"payment_intents/{intent}", {"metadata[a]": "b"}).body["last_payment_error"]
        return {"before": before["code"], "after": after}

    # -------------------------------------------------------------------- reads

    def lists_straight_after_a_payment(self) -> Any:
        paid = self.paid()
        listed = self.get("payment_intents", **{"created[gte]": str(paid.body["created"])}).body["data"]
        events = self.get("events", type="payment_intent.succeeded").body["data"]
        return {
            "PaymentIntents": paid.id in [each["id"] for each in listed],
            "charges": len(self.charges_of(paid.id)),
            "events": paid.id in [each["data"]["object"]["id"] for each in events],
        }

    def a_refund_read_back_at_once(self) -> Any:
        paid = self.paid()
        of = {"payment_intent": paid.id}
        refund = self.post("refunds", {**of, "amount": "99"})
        listed, charge = self.get("refunds", **of), self.get(f"charges/{paid.body['latest_charge']}")
        too_much = self.post("refunds", {**of, "amount": "1001"})
        self.post("refunds", of)
        return {
            "refund": refund.short,
            "listed": len(listed.body["data"]),
            "of charge": charge.body["amount_refunded"],
            "too much": too_much.short,
            "twice": self.post("refunds", of).short,
        }

    def what_does_not_exist(self) -> Any:
        """The status, and the `param` of the error."""
        ids = {"payment_intents": "pi", "charges": "ch", "refunds": "re"}
        missing = {path: self.get(f"{path}/{kind}_{self.run[:24]}") for path, kind in ids.items()}
        missing["starting_after"] = self.get("payment_intents", starting_after=f"pi_{self.run[:24]}")
        return {name: [answer.status, answer.error.get("param")] for name, answer in missing.items()}


# ------------------------------------------------------------------------ the report


def verdict(name: str, answer: Any) -> str:
    row = TABLE[name]
    if answer == row["expected"]:
        return "as expected"
    return "as known" if "known" in row and answer == row["known"] else "new"


def ask(parity: Parity, name: str) -> Any:
    try:
        return getattr(parity, name.replace(" ", "_"))()
    except (KeyError, TypeError) as reason:
        return f"a response has another form: {reason!r}"


def report(parity: Parity) -> int:
    """Print each verdict, and whatever is not as expected. Returns the number of new answers."""
    new = 0
    for name, row in TABLE.items():
        answer = ask(parity, name)
        judged = verdict(name, answer)
        new += judged == "new"
        print(f"{judged:12} {name}")
        if judged != "as expected":
            for what, value in {"answered": answer, **row}.items():
                print(f"    {what}: {json.dumps(value)}")
    print(f"{len(TABLE)} questions, {new} new answers")
    return new


def main() -> None:
    api_key = os.environ.get("STRIPE_SECRET_KEY", "")
    if not api_key:
        with running_standin() as standin:
            sys.exit(report(Parity(standin.base_url, "sk_test_x")) > 0)
    if not api_key.startswith(("sk_test_", "rk_test_")):
        sys.exit("STRIPE_SECRET_KEY is no key of test mode (sk_test_…): no request was sent")
    sys.exit(report(Parity(STRIPE, api_key)) > 0)


if __name__ == "__main__":
    main()
