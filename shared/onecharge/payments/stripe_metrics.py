"""How long Stripe takes, and how it answers: one sample for each request, retries of the SDK included.

Each has a line in the log, with Stripe's id of the request, by which its support finds it.
"""

from urllib.parse import urlsplit

from aws_lambda_powertools.metrics import MetricUnit

from onecharge.runtime.metrics import Metric

NO_ANSWER = "none"
"""The status of a request without a response: a time-out, or a connection that broke off."""
_OWN_STATUSES = frozenset({401, 402, 403, 409, 429})
"""What asks for an action of its own; the others are counted by their class. Each value is a metric that AWS bills."""


def stripe_request(method: str, url: str, status: str, seconds: float, request_id: str | None) -> Metric:
    """One request to Stripe: by endpoint for the latency, by status for the alarms."""
    return Metric(
        "StripeSeconds",
        {"endpoint": endpoint_of(method, url)},
        {"status": status},
        value=round(seconds, 3),
        unit=MetricUnit.Seconds,
        about={"stripe_request_id": request_id} if request_id else {},
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
