"""The engine alone, with a clock that the test moves: what Stripe does late, and under which key."""

from collections.abc import Mapping
from typing import Any

import pytest

from stripe_standin.engine import StripeEngine
from stripe_standin.faults import Fault, FaultRule
from stripe_standin.messages import Request, Response, Ticket

CREATE = {"amount": "1099", "currency": "eur", "allowed_payment_method_types[0]": "card", "metadata[order_id]": "ord_1"}
HOUR = 3600


class Stripe:
    """An engine, and one PaymentIntent."""

    def __init__(self, **behavior: Any) -> None:
        self.time = 1000.0
        self.engine = StripeEngine(lambda: self.time)
        vars(self.engine.behavior).update(behavior)
        self.intent_id = self.post("payment_intents", CREATE).body["id"]

    def post(self, path: str, parameters: Mapping[str, str], key: str | None = None) -> Response:
        return self.engine.respond(Request("POST", f"/v1/{path}", parameters, "sk_test_x", key))

    def get(self, path: str, **parameters: str) -> Any:
        return self.engine.respond(Request("GET", f"/v1/{path}", parameters, "sk_test_x")).body

    def is_late(self, key: str, *, stored: bool) -> None:
        """A create is answered with a 500, and executed an hour later."""
        ticket = self.engine.begin(Request("POST", "/v1/payment_intents", CREATE, "sk_test_x", key))
        assert isinstance(ticket, Ticket)
        late = FaultRule(Fault.ERROR_500_LATER, seconds=HOUR, stored=stored)
        assert self.engine.carry_out(ticket, late).status == 500


@pytest.mark.parametrize("another_comes", [False, True])
def test_what_no_key_has_stored_is_late_the_first_request_under_it(another_comes: bool) -> None:
    """Its response is the key's from then on, unless another request came under the key meanwhile."""
    stripe = Stripe()
    stripe.is_late("a", stored=False)
    if another_comes:
        assert stripe.post("payment_intents", CREATE, "a").headers == {}
    stripe.time += HOUR
    assert stripe.post("payment_intents", CREATE, "a").headers["Idempotent-Replayed"] == "true"
    assert len(stripe.get("payment_intents")["data"]) == 2


def test_what_is_created_late_is_as_old_as_its_request() -> None:
    """So it is not the newest of a list; but its event is of the time at which it appeared."""
    stripe = Stripe()
    stripe.time += 1
    stripe.is_late("a", stored=True)
    stripe.time += 1
    stripe.post("payment_intents", CREATE)
    stripe.time += 2 * HOUR
    assert [each["created"] for each in stripe.get("payment_intents")["data"]] == [1002, 1001, 1000]
    assert stripe.engine.account.events[-1]["created"] == 1001 + HOUR


@pytest.mark.parametrize("stored", [True, False])
def test_a_key_may_store_that_too_little_is_left_to_refund(stored: bool) -> None:
    """Stripe does not say. If it does not, the same request is executed once there is money left again."""
    stripe = Stripe(stores_refused_refunds=stored, late_refund_seconds=HOUR)
    stripe.post(f"payment_intents/{stripe.intent_id}/confirm", {"payment_method": "pm_card_refundFail"})
    refund = {"payment_intent": stripe.intent_id}
    stripe.post("refunds", refund)
    assert stripe.post("refunds", refund, "b").body["error"]["code"] == "charge_already_refunded"
    stripe.time += HOUR
    assert stripe.post("refunds", refund, "b").status == (400 if stored else 200)
