"""Stripe for a test: the engine, with a clock that the test moves."""

from collections.abc import Mapping
from typing import Any

from stripe_standin import disputes
from stripe_standin.charges import Charge
from stripe_standin.disputes import Dispute
from stripe_standin.engine import StripeEngine
from stripe_standin.faults import Fault, FaultRule
from stripe_standin.messages import Request, Response, Ticket
from stripe_standin.payment_intents import PaymentIntent

VISA, ASKS = "pm_card_visa", "pm_card_threeDSecure2Required"
CREATE = {"amount": "1099", "currency": "eur", "allowed_payment_method_types[0]": "card", "metadata[order_id]": "ord_1"}
KEY = "sk_test_x"


class Stripe:
    """An engine. Requests have the parameters of a form; `created` and `paid` return a PaymentIntent's id."""

    def __init__(self, **behavior: Any) -> None:
        self.time = 1_800_000_000.0
        self.engine = StripeEngine(lambda: self.time)
        self.account = self.engine.account
        vars(self.engine.behavior).update(behavior)

    def request(
        self, method: str, path: str, given: Mapping[str, str] | None = None, key: str | None = None, **headers: str
    ) -> Request:
        return Request(method, f"/v1/{path}", given or {}, headers.pop("api_key", KEY), key, **headers)

    def post(self, path: str, given: Mapping[str, str] | None = None, key: str | None = None, **more: Any) -> Response:
        return self.engine.respond(self.request("POST", path, given, key, **more))

    def get(self, path: str, given: Mapping[str, str] | None = None, **headers: str) -> Response:
        return self.engine.respond(self.request("GET", path, given, **headers))

    def meets(self, fault: FaultRule, path: str, given: Mapping[str, str], key: str | None = None) -> Response:
        """A request that meets this fault."""
        ticket = self.engine.begin(self.request("POST", path, given, key))
        assert isinstance(ticket, Ticket)
        return self.engine.carry_out(ticket, fault)

    def created(self, **changes: str) -> str:
        return str(self.post("payment_intents", {**CREATE, **changes}).body["id"])

    def confirm(self, intent: str, card: str = VISA, key: str | None = None, **more: str) -> Response:
        return self.post(f"payment_intents/{intent}/confirm", {"payment_method": card, **more}, key)

    def paid(self, card: str = VISA) -> str:
        self.confirm(intent := self.created(), card)
        return intent

    def processing(self) -> str:
        confirm = f"payment_intents/{(intent := self.created())}/confirm"
        self.meets(FaultRule(Fault.STAYS_PROCESSING), confirm, {"payment_method": VISA})
        return intent

    def disputed(self, intent: str) -> Dispute:
        charge = self.account.all(Charge)[self.intent(intent).latest_charge or ""]
        return disputes.open_dispute(self.account, charge)

    def intent(self, identifier: str) -> PaymentIntent:
        return self.account.all(PaymentIntent)[identifier]

    def last_events(self, number: int) -> list[str]:
        return [each["type"] for each in self.account.events[-number:]]


def short(response: Response) -> tuple[int, str | None]:
    """The status, and the error's code or the object's status."""
    error = response.body.get("error")
    return response.status, error.get("code") if error else response.body.get("status")
