"""GET /orders/{order_id}/payment: the client secret, shown to the order's customer alone, and kept by nobody."""

import json
from typing import Any

import pytest

from get_payment.payment import PaymentView, payment_api
from onecharge.contract.states import PaymentState
from tests.shop.scripted_stripe import ASKS_FOR_ACTION, NO_ANSWER, WRONG_KEY
from tests.shop.shop import Shop, order_id
from tests.support.harness import LambdaContext, Log, Sample
from tests.support.orders_api import UNKNOWN


class Page:
    """The customer's page, and the payment service that it asks. The payment of order a requires action."""

    def __init__(self, sample: Sample, log: Log) -> None:
        self._sample, self.shop = sample, Shop(log)
        self.counted: list[str] = []
        self.api = payment_api(self.shop.store, lambda: self.shop.payment_intents, log.logger, self.counted.append)
        self.shop.deliver(payment_method=ASKS_FOR_ACTION)
        self.shop.stripe.requests.clear()

    def ask(self, of: str = order_id("a"), customer: str | None = "cus_1") -> tuple[int, Any, Any]:
        """The status, and the secret and Stripe's status, or the problem and nothing."""
        event = self._sample("get_payment/get_payment")
        event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = customer
        if customer is None:
            del event["requestContext"]["authorizer"]
        event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{of}/payment"
        answer = self.api.resolve(event, LambdaContext())
        body = json.loads(answer["body"])
        if answer["statusCode"] != 200:
            return answer["statusCode"], body["type"].removeprefix("urn:onecharge:problem:"), None
        assert (answer["headers"]["Cache-Control"], body["order_id"]) == ("no-store", of)
        return 200, body["client_secret"], body["stripe_status"]


@pytest.fixture
def page(sample: Sample, log: Log) -> Page:
    return Page(sample, log)


def test_the_secret_is_retrieved_while_the_payment_requires_action(page: Page, log: Log) -> None:
    """No row, no log line and no repr has it, and no line has the card. Once Stripe or the row says so, there is none
    any more. Nor is there one for what is to be canceled, which is PENDING: with it, the page could confirm."""
    secret = page.shop.stripe.intent("pi_0").client_secret
    assert secret
    assert page.ask() == (200, secret, "requires_action")
    shown = PaymentView(order_id=order_id("a"), client_secret=secret, stripe_status=None)
    assert secret not in str(page.shop.row()) + log.text + repr(shown)
    assert ASKS_FOR_ACTION not in log.text
    row = page.shop.row()
    for changes in ({"state": PaymentState.SUCCEEDED}, {"state": PaymentState.PENDING}):
        page.shop.restore(row | changes)
        page.shop.stripe.requests.clear()
        assert (page.ask(), page.shop.stripe.requests) == ((200, None, None), [])
    page.shop.restore(row)
    page.shop.stripe.show("pi_0", "succeeded")
    assert page.ask() == (200, None, "succeeded")


@pytest.mark.parametrize(
    ("of", "customer", "answer"),
    [
        (order_id("a"), "cus_2", (404, "not-found")),
        (order_id("b"), "cus_1", (404, "not-found")),
        (UNKNOWN, "cus_2", (404, "not-found")),
        ("ord_" + "a" * 3000, "cus_1", (404, "not-found")),
        (order_id("a"), None, (401, "unauthenticated")),
        (order_id("a"), "a b", (403, "forbidden")),
    ],
)
def test_another_customers_payment_is_as_if_it_were_not_there(
    page: Page, of: str, customer: str | None, answer: tuple[int, str]
) -> None:
    """The 404 of an order that was never placed, or never charged, or cannot be; nobody is served without claims.
    Stripe is not asked."""
    assert (page.ask(of, customer), page.shop.stripe.requests) == ((*answer, None), [])


@pytest.mark.parametrize("failure", [NO_ANSWER, WRONG_KEY])
def test_an_outage_is_503(page: Page, failure: Any, log: Log) -> None:
    """No secret would say that the payment requires no action any more. The page asks again; the line in the log names
    the order."""
    page.shop.stripe.failing["retrieve"] = failure
    assert (page.ask(), "ClientSecretUnknown" in page.counted) == ((503, "try-again", None), True)
    [line] = [line for line in log.lines if line["message"].startswith("client secret unknown")]
    assert (line["order_id"], line["correlation_id"]) == (order_id("a"), page.shop.row()["correlation_id"])
