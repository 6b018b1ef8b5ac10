"""How long Stripe takes, and how it answers: one sample for each request, retries of the SDK included.

The samples of an invocation share a line in the log. A request that was slow or was not answered with success has one
of its own, with Stripe's id of it, by which its support finds it; others are found by their PaymentIntent.
"""

from urllib.parse import urlsplit

from aws_lambda_powertools.metrics import MetricUnit

from onecharge.runtime.metrics import Metric

SLOW_SECONDS = 1
"""From here on a request has a line of its own; the saved query slow-stripe-requests shows these."""
NO_ANSWER = "none"
"""The status of a request without a response: a time-out, or a connection that broke off."""
_OWN_STATUSES = frozenset({401, 402, 403, 409, 429})
"""What asks for an action of its own; the others are counted by their class. Each value is a metric that AWS bills."""


def stripe_request(method: str, url: str, status: str, seconds: float, request_id: str | None) -> Metric:
    """One request to Stripe: by endpoint for the latency, by status for the alarms."""
    is_noted = seconds >= SLOW_SECONDS or status != status_of(200)
    return Metric(
        "StripeSeconds",
        {"endpoint": endpoint_of(method, url)},
        {"status": status},
        value=round(seconds, 3),
        unit=MetricUnit.Seconds,
        about={"stripe_request_id": request_id} if request_id and is_noted else {},
    )


def endpoint_of(method: str, url: str) -> str:
    """The request's route, without ids and query: `POST /v1/payment_intents/{id}/confirm`."""
    version, *segments = urlsplit(url).path.strip("/").split("/")
    if len(segments) > 1 and segments[1] != "search":
        segments[1] = "{id}"
    return f"{method} /{'/'.join([version, *segments])}"


def status_of(code: int) -> str:
    """A status of its own, or its class: 2xx, 3xx, 4xx, 5xx."""
    return str(code) if code in _OWN_STATUSES else f"{code // 100}xx"
