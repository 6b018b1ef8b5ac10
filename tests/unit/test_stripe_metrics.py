"""How the requests to Stripe are named in metrics. What is measured of them is in test_stripe_transport.py."""

import pytest

from onecharge.payments.stripe_metrics import endpoint_of, status_of, stripe_request


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


def test_a_request_names_its_id() -> None:
    """By which Stripe's support finds it; a request without a response has none."""
    url = "https://api.stripe.com/v1/payment_intents"
    answered, unanswered = (stripe_request("POST", url, "2xx", 0.3, request_id) for request_id in ("req_1", None))
    assert (answered.value, answered.about) == (0.3, {"stripe_request_id": "req_1"})
    assert unanswered.about == {}
