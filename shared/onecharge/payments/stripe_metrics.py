"""How long Stripe takes, and how it answers: one metric for each request, retries of the SDK included."""

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
from aws_lambda_powertools.metrics import MetricUnit
from requests.adapters import HTTPAdapter

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


class MeasuredAdapter(HTTPAdapter):
    """Sends the requests of a session, and counts each with its duration until the response begins.

    Args:
        count: takes the metric; called on several threads.
    """

    def __init__(self, count: Callable[[str], None], **settings: Any) -> None:
        super().__init__(**settings)
        self._count = count

    def send(self, request: requests.PreparedRequest, *args: Any, **settings: Any) -> requests.Response:
        """Send one request; it is counted if it fails, too."""
        started_at = time.monotonic()
        status, request_id = NO_ANSWER, None
        try:
            response = super().send(request, *args, **settings)
            status, request_id = status_of(response.status_code), response.headers.get("request-id")
            return response
        finally:
            seconds = time.monotonic() - started_at
            self._count(stripe_request(str(request.method), str(request.url), status, seconds, request_id))
