"""How long Stripe takes, and how it answers: one sample for each request, retries of the SDK included.

Each has a line in the log, with Stripe's id of the request, by which its support finds it, its idempotency key, and
the order or object that it is about.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from aws_lambda_powertools.metrics import MetricUnit

from onecharge.runtime.metrics import Metric

NO_ANSWER = "none"
"""The status of a request without a response: a time-out, or a connection that broke off."""
_OWN_STATUSES = frozenset({401, 402, 403, 409, 429})
"""What asks for an action of its own; the others are counted by their class. Each value is a metric that AWS bills."""


_ORDER_ID = re.compile(r"\bord_[0-9a-f]{32}\b")
_OBJECT_ID = re.compile(r"/((?:pi|re|ch|evt)_\w+)")


def stripe_request(
    method: str,
    url: str,
    status: str,
    seconds: float,
    *,
    sent: Mapping[str, str] | None,
    received: Mapping[str, str],
) -> Metric:
    """One request to Stripe: by endpoint for the latency, by status for the alarms.

    Args:
        sent: the request's headers.
        received: the response's, of which HTTP ignores the case; empty if there was none.
    """
    key = (sent or {}).get("Idempotency-Key")
    # Our keys name the order; else the path has the object's id.
    order, stripe_object = _ORDER_ID.search(key or ""), _OBJECT_ID.search(urlsplit(url).path)
    about = {
        "stripe_request_id": received.get("request-id"),
        "idempotency_key": key,
        "replayed": received.get("idempotent-replayed"),
        "order_id": order and order[0],
        "stripe_object": stripe_object and stripe_object[1],
    }
    return Metric(
        "StripeSeconds",
        {"endpoint": endpoint_of(method, url)},
        {"status": status},
        value=round(seconds, 3),
        unit=MetricUnit.Seconds,
        about={name: value for name, value in about.items() if value is not None},
    )


def endpoint_of(method: str, url: str) -> str:
    """The request's route, without ids and query: `POST /v1/payment_intents/{id}/confirm`."""
    version, *segments = urlsplit(url).path.strip("/").split("/")
    if len(segments) > 1:
        segments[1] = "{id}"
    return f"{method} /{'/'.join([version, *segments])}"


def status_of(code: int) -> str:
    """A status of its own, or its class: 2xx, 3xx, 4xx, 5xx."""
    return str(code) if code in _OWN_STATUSES else f"{code // 100}xx"
