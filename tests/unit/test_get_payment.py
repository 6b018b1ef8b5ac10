"""GET /orders/{order_id}/payment: the client secret, shown to the order's customer alone, and kept by nobody.

DynamoDB and Stripe are in memory; the composed function runs over moto and the SDK's own HTTP requests.
"""

import json
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from responses import RequestsMock

from get_payment.app import GetPaymentParts
from get_payment.payment import ROUTE, Payments, PaymentView
from onecharge.contract.states import PaymentState
from onecharge.payments.time_bounds import STRIPE_RETRIES, TimeBounds
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.http_api import resolver_of
from tests.shop.builders import INTENTS, PAYMENTS, SHOP, STRIPE_API, stripe_intent
from tests.shop.scripted_stripe import ASKS_FOR_ACTION, NO_ANSWER, WRONG_KEY
from tests.shop.shop import Shop, order_id
from tests.support.harness import LambdaContext, Log, Sample, create_table, load_template


class Page:
    """The customer's page, and the payment service that it asks."""

    def __init__(self, sample: Sample, log: Log) -> None:
        self._sample, self.log = sample, log
        self.shop = Shop(log)
        self.counted: list[str] = []
        count: Any = self.counted.append
        payments = Payments(self.shop.store, lambda: self.shop.payment_intents, log.logger, count)
        self.resolver = resolver_of([ROUTE], payments, logger=log.logger, count=count)

    def ask(self, name: str = "a", *, customer: str = "cus_1") -> tuple[int, dict[str, Any]]:
        return answer_of(self.resolver, event_of(self._sample, order_id(name), customer))


def event_of(sample: Sample, of: str, customer: str) -> dict[str, Any]:
    event = sample("get_payment/get_payment")
    event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = customer
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{of}/payment"
    return event


def answer_of(resolver: APIGatewayHttpResolver, event: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = resolver.resolve(event, LambdaContext())
    assert answer["headers"].get("Cache-Control", "no-store") == "no-store"
    return answer["statusCode"], json.loads(answer["body"])


@pytest.fixture
def page(sample: Sample, log: Log) -> Page:
    return Page(sample, log)


NOT_FOUND = "urn:onecharge:problem:not-found"


def test_the_secret_is_retrieved_while_the_payment_requires_action(page: Page) -> None:
    """No row, no log line and no repr has it."""
    page.shop.deliver(payment_method=ASKS_FOR_ACTION)
    secret = page.shop.stripe.intent("pi_0").client_secret
    assert page.ask() == (200, {"order_id": order_id("a"), "client_secret": secret, "stripe_status": "requires_action"})
    assert "secret" not in str(page.shop.row()) + page.log.text
    assert "secret_x" not in repr(
        PaymentView(order_id=order_id("a"), client_secret="pi_0_secret_x", stripe_status=None)
    )


def test_another_customers_payment_is_as_if_it_were_not_there(page: Page) -> None:
    """The 404 of an order that was never placed, or never charged; Stripe is not asked."""
    page.shop.deliver(payment_method=ASKS_FOR_ACTION)
    page.shop.stripe.requests.clear()
    answers = [page.ask(customer="cus_2"), page.ask("b"), page.ask("b", customer="cus_2")]
    assert [(status, problem["type"]) for status, problem in answers] == [(404, NOT_FOUND)] * 3
    assert page.shop.stripe.requests == []


def test_an_id_that_no_order_has_is_not_looked_for(page: Page, sample: Sample) -> None:
    """However long it is: 404, and DynamoDB is not asked."""
    page.shop.store = None  # type: ignore[assignment]  # A request would fail.
    status, problem = answer_of(page.resolver, event_of(sample, "ord_" + "a" * 3000, "cus_1"))
    assert (status, problem["type"]) == (404, NOT_FOUND)


def test_nobody_is_served_without_claims(page: Page, sample: Sample) -> None:
    """401, as on every route of the API."""
    event = event_of(sample, order_id("a"), "cus_1")
    del event["requestContext"]["authorizer"]
    assert answer_of(page.resolver, event)[0] == 401


def test_a_payment_that_requires_no_action_has_no_secret(page: Page) -> None:
    """Whether the row says so already or only Stripe does."""
    page.shop.deliver(payment_method=ASKS_FOR_ACTION)
    page.shop.stripe.show("pi_0", "succeeded")
    assert page.ask()[1] == {"order_id": order_id("a"), "client_secret": None, "stripe_status": "succeeded"}
    page.shop.restore(page.shop.row() | {"state": PaymentState.SUCCEEDED})
    page.shop.stripe.requests.clear()
    assert page.ask()[1]["client_secret"] is None
    assert page.shop.stripe.requests == []


def test_nobody_can_confirm_what_is_to_be_canceled(page: Page) -> None:
    """With the secret, the customer's page could."""
    page.shop.deliver(payment_method=ASKS_FOR_ACTION)
    page.shop.request_cancel(payment_method=ASKS_FOR_ACTION)
    assert page.shop.state() is PaymentState.REQUIRES_ACTION
    assert page.ask()[1]["client_secret"] is None


@pytest.mark.parametrize("failure", [NO_ANSWER, WRONG_KEY])
def test_an_outage_is_503(page: Page, failure: Any) -> None:
    """No secret would say that the payment requires no action any more. The page asks again."""
    page.shop.deliver(payment_method=ASKS_FOR_ACTION)
    page.shop.stripe.failing["retrieve"] = failure
    status, problem = page.ask()
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert "ClientSecretUnknown" in page.counted
    page.shop.stripe.failing.clear()
    assert page.ask()[0] == 200


# ---------------------------------------------------------------- the composed function


@pytest.fixture
def resolver(aws: None, page: Page) -> APIGatewayHttpResolver:
    """The function, over a table with the row of order a, which requires action."""
    create_table(boto3.client("dynamodb"), PAYMENTS, "PaymentsTable")
    page.shop.deliver(payment_method=ASKS_FOR_ACTION)
    boto3.client("dynamodb").put_item(TableName=PAYMENTS, Item=to_item(page.shop.row()))
    boto3.client("secretsmanager").create_secret(Name="stripe", SecretString="sk_test_x")
    return GetPaymentParts(
        {
            "PAYMENTS_TABLE": PAYMENTS,
            "STRIPE_SECRET_ARN": "stripe",
            "STRIPE_API_BASE": STRIPE_API,
            "PROFILE": "sandbox",
            "SHOP": SHOP,
            "FUNCTION_TIMEOUT_SECONDS": "15",
        }
    ).resolver


def test_the_function_retrieves_the_payment_intent(
    resolver: APIGatewayHttpResolver, http: RequestsMock, sample: Sample
) -> None:
    """That is its only request to Stripe."""
    shown = stripe_intent("requires_action", id="pi_0", client_secret="pi_0_secret_y")
    http.get(f"{INTENTS}/pi_0", json=shown | {"metadata": {"order_id": order_id("a")}})
    event = event_of(sample, order_id("a"), "cus_1")
    view = {"order_id": order_id("a"), "client_secret": "pi_0_secret_y", "stripe_status": "requires_action"}
    assert answer_of(resolver, event) == (200, view)
    assert len(http.calls) == 1


@pytest.mark.parametrize("lost", ["the key", "the table"])
def test_an_outage_of_aws_is_503(
    resolver: APIGatewayHttpResolver, sample: Sample, lost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Safe to retry, as every request that reads."""
    if lost == "the key":
        boto3.client("secretsmanager").delete_secret(SecretId="stripe", ForceDeleteWithoutRecovery=True)
    else:
        boto3.client("dynamodb").delete_table(TableName=PAYMENTS)
    status, problem = answer_of(resolver, event_of(sample, order_id("a"), "cus_1"))
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")


def test_stripe_is_given_up_before_the_function_is() -> None:
    """Two tries that Stripe does not answer, and the reads before them, take less than the function's timeout."""
    timeout = load_template()["Resources"]["GetPaymentFunction"]["Properties"]["Timeout"]
    pause_seconds, dynamodb_seconds = 1, 3
    one_request = TimeBounds(timeout).request_seconds * (STRIPE_RETRIES + 1) + pause_seconds
    assert one_request + dynamodb_seconds < timeout
    assert timeout < 30  # That is how long an HTTP API waits.


def test_the_route_has_a_limit_of_its_own() -> None:
    """Each request asks Stripe, whose limit charges need."""
    settings = load_template()["Resources"]["OrdersApi"]["Properties"]["RouteSettings"]
    assert settings[f"{ROUTE.method} {ROUTE.path}"]["ThrottlingRateLimit"] <= 5
