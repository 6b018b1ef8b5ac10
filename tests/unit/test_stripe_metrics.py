"""How the requests to Stripe are named in metrics. What is measured of them is in test_stripe_transport.py."""

import re

import pytest

from onecharge.payments.stripe_metrics import SLOW_SECONDS, endpoint_of, status_of, stripe_request
from testing.harness import PROJECT


@pytest.mark.parametrize(
    ("method", "path", "endpoint"),
    [
        ("POST", "/v1/payment_intents", "POST /v1/payment_intents"),
        ("POST", "/v1/payment_intents/pi_1/confirm", "POST /v1/payment_intents/{id}/confirm"),
        ("GET", "/v1/payment_intents/search?query=order_id:x", "GET /v1/payment_intents/search"),
        ("GET", "/v1/events?limit=100", "GET /v1/events"),
        ("GET", "/v1/refunds/re_1", "GET /v1/refunds/{id}"),
    ],
)
def test_an_endpoint_has_no_id_and_no_query(method: str, path: str, endpoint: str) -> None:
    """A metric for each order would cost $0.30 each."""
    assert endpoint_of(method, f"https://api.stripe.com{path}") == endpoint


def test_a_status_that_asks_for_an_action_is_its_own() -> None:
    """The alarms are on them."""
    assert [status_of(code) for code in (200, 402, 403, 409, 404, 500)] == ["2xx", "402", "403", "409", "4xx", "5xx"]


@pytest.mark.parametrize(
    ("status", "seconds", "is_noted"),
    [("2xx", 0.3, False), ("2xx", SLOW_SECONDS, True), ("402", 0.3, True), ("5xx", 0.3, True), ("none", 0.3, True)],
)
def test_a_request_that_was_slow_or_failed_names_its_id(status: str, seconds: float, is_noted: bool) -> None:
    """The others share a line: no query shows them one by one."""
    metric = stripe_request("POST", "https://api.stripe.com/v1/payment_intents", status, seconds, "req_1")
    assert metric.value == seconds
    assert metric.about == ({"stripe_request_id": "req_1"} if is_noted else {})


def test_the_saved_query_shows_what_has_a_line_of_its_own() -> None:
    """Every request that is slower than the query asks for has its id in the log."""
    [threshold] = re.findall(r"filter StripeSeconds > (\d+)", (PROJECT / "monitoring.yaml").read_text())
    assert int(threshold) >= SLOW_SECONDS
