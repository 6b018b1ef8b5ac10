"""`webhook create`: over the stand-in, and moto's secrets."""

import json
from typing import Any

import pytest

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES
from ops.output import Problem
from tests.support.operated_stack import OperatedStack

API = "https://shop.example"
URL = f"{API}/stripe/events"
WANTED: dict[str, Any] = {"url": URL, "enabled_events": list(EVENT_TYPES), "api_version": STRIPE_VERSION}


@pytest.fixture(autouse=True)
def custom_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_URL", API)


def create(shop: OperatedStack, *words: str) -> tuple[int, str | None]:
    """The exit status is 0 if nothing is left to do; and the endpoint."""
    status, document, _ = shop.ops("webhook", "create", *words)
    assert "whsec_" not in json.dumps(document)
    return status, document["endpoint"]


def enabled(shop: OperatedStack) -> list[str]:
    return [each.id for each in shop.stack.stripe.v1.webhook_endpoints.list().data if each.status == "enabled"]


def test_the_endpoint_has_exactly_what_is_handled(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its URL, event types and API version; its secret is stored. A dry run changes nothing. Of a local stack the URL
    has to be named: the one in its outputs is one of AWS's."""
    assert (create(operated), enabled(operated)) == ((1, None), [])
    status, made = create(operated, "--yes")
    [shown] = operated.stack.stripe.v1.webhook_endpoints.list().data
    assert (status, shown.id, shown.url, shown.api_version) == (0, made, URL, STRIPE_VERSION)
    assert {*shown.enabled_events} == {*EVENT_TYPES}
    assert operated.stack.secret("StripeWebhookSecret").startswith("whsec_")
    assert (create(operated, "--yes"), enabled(operated)) == ((0, made), [made])
    monkeypatch.delenv("API_URL")
    with pytest.raises(Problem, match="set API_URL"):
        create(operated)


@pytest.mark.parametrize(
    ("changes", "is_stored"),
    [
        ({"api_version": "2025-09-30.clover"}, True),
        ({"enabled_events": ["charge.refunded", "customer.created"]}, True),
        ({}, False),
    ],
    ids=str,
)
def test_an_endpoint_that_differs_is_replaced(operated: OperatedStack, changes: Any, is_stored: bool) -> None:
    """Stripe shows a secret only once, and never changes a version. The account's other endpoints are left alone."""
    endpoints = operated.stack.stripe.v1.webhook_endpoints
    theirs = endpoints.create({**WANTED, "url": "https://other.example/hook"}).id  # type: ignore[typeddict-item]
    wrong = endpoints.create(WANTED | changes).id
    secret = {"SecretId": operated.stack.value("StripeWebhookSecret")}
    value = "whsec_of_the_other" if is_stored else "later"
    operated.stack.client("secretsmanager").put_secret_value(**secret, SecretString=value)
    assert (create(operated), {*enabled(operated)}) == ((1, None), {theirs, wrong})
    _, made = create(operated, "--yes")
    assert (wrong != made, {*enabled(operated)}, create(operated)) == (True, {theirs, made}, (0, made))


def test_a_secret_that_cannot_be_stored_leaves_no_endpoint(operated: OperatedStack) -> None:
    """Without its secret each of its events would be refused."""
    _ = operated.stack.stripe
    missing = "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef"
    operated.stack.__dict__["_values"]["StripeWebhookSecret"] = missing
    with pytest.raises(Exception, match="ResourceNotFound"):
        create(operated, "--yes")
    assert enabled(operated) == []
