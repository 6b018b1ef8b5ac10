"""The client for Stripe's API, with the account's key as it is now: a process outlives a rotation of the key.

Each try of a request is a metric, StripeSeconds, whose line in the log has Stripe's id of the request, by which its
support finds it.
"""

import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import requests
import stripe
from aws_lambda_powertools.metrics import MetricUnit

from onecharge.payments.time_bounds import STRIPE_RETRIES, TimeBounds
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm, Metric
from onecharge.runtime.secrets import Secret, SecretUnavailable

STRIPE_VERSION = "2026-10-28.endive"
"""Stated explicitly, so that an upgrade of the SDK is no silent upgrade of the API."""

_API_KEY = re.compile(r"[A-Za-z0-9_]+")
"""As all of Stripe's are (Stripe documentation, "API keys"). A line break in a header fails with all of it shown."""

LIVE_KEY = "_live_"
"""In every API key of live mode, secret or restricted (Stripe documentation, "API keys")."""

_OWN_STATUSES = (401, 402, 403, 409, 429)
"""What asks for an action of its own; the others are counted by their class. Each value is a metric that AWS bills."""
_ORDER_ID = re.compile(r"\bord_[0-9a-f]{32}\b")
_OBJECT_ID = re.compile(r"/((?:pi|re|ch|evt)_\w+)")


def stripe_client(
    api_key: str, *, api_base: str, bounds: TimeBounds, count: Callable[[str], None] = lambda _: None
) -> stripe.StripeClient:
    """One client for all threads, with bounded timeouts and without usage telemetry.

    Args:
        count: takes the metric of each request; called on several threads.
    """
    stripe.enable_telemetry = False  # It writes a file in the home directory.
    return stripe.StripeClient(
        api_key,
        stripe_version=STRIPE_VERSION,
        base_addresses={"api": api_base},
        max_network_retries=STRIPE_RETRIES,
        http_client=CountingClient(timeout=bounds.stripe_timeouts, count=count),
    )


class CountingClient(stripe.RequestsClient):
    """Stripe's own HTTP client, which counts each try.

    It follows no redirect: after one, a POST is a GET, and its response is not Stripe's answer. The connection of an
    informational response (1xx) is closed.
    """

    def __init__(self, *, timeout: tuple[float, float], count: Callable[[str], None]) -> None:
        super().__init__(timeout=timeout)
        self._count = count

    def request(  # type: ignore[override]  # As RequestsClient has it, which returns the body as bytes.
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Send one request; the SDK itself calls this again for each retry."""
        if getattr(self._thread_local, "session", None) is None:
            self._thread_local.session = _session()
        started_at, code = time.monotonic(), 0
        received: Mapping[str, str] = {}
        try:
            body, code, received = super().request(method, url, headers, post_data)
            if code < HTTPStatus.OK:
                # http.client takes an informational response for the answer; the next request would read the real one.
                self.close()  # type: ignore[no-untyped-call]  # of the SDK
                raise stripe.APIConnectionError(f"informational response {code}", should_retry=True)
        finally:
            seconds = time.monotonic() - started_at
            self._count(stripe_request(method.upper(), url, code, seconds, sent=headers or {}, received=received))
        return body, code, received


def _session() -> requests.Session:
    """A session that follows no redirect, and takes no password for Stripe from a .netrc file."""
    session = requests.Session()
    session.max_redirects = 0
    session.auth = lambda request: request
    return session


def stripe_request(
    method: str, url: str, code: int, seconds: float, *, sent: Mapping[str, str], received: Mapping[str, str]
) -> Metric:
    """The metric of one request to Stripe.

    Args:
        code: the response's status; 0 without a response: a time-out, or a connection that broke off.
        sent: the request's headers.
        received: the response's, of which HTTP ignores the case; empty if there was none.
    """
    key, path = sent.get("Idempotency-Key"), urlsplit(url).path
    # Our keys name the order; else the path has the object's id.
    order, stripe_object = _ORDER_ID.search(key or ""), _OBJECT_ID.search(path)
    about = {
        "stripe_request_id": received.get("request-id"),
        "idempotency_key": key,
        "replayed": received.get("idempotent-replayed"),
        "order_id": order and order[0],
        "stripe_object": stripe_object and stripe_object[1],
    }
    # Without ids and query: a metric for each order would be billed.
    endpoint = f"{method} {re.sub(r'^(/v1/[^/]+/)[^/]+', r'\1{id}', path)}"
    return Metric(
        "StripeSeconds",
        {"endpoint": endpoint},
        {"status": status_of(code)},
        value=round(seconds, 3),
        unit=MetricUnit.Seconds,
        about={name: value for name, value in about.items() if value is not None},
    )


def status_of(code: int) -> str:
    """A status of its own, or its class, 2xx to 5xx; `none` without a response."""
    return str(code) if code in _OWN_STATUSES else f"{code // 100}xx" if code else "none"


class StripeAccount:
    """The account whose key a secret holds."""

    def __init__(
        self,
        secret: Secret,
        *,
        api_base: str,
        bounds: TimeBounds,
        must_be_live: bool = False,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._secret, self._must_be_live, self._count = secret, must_be_live, count
        self._client_for = lru_cache(maxsize=1)(
            lambda key: stripe_client(key, api_base=api_base, bounds=bounds, count=count)
        )

    def client(self) -> stripe.StripeClient:
        """The client with the current key; the same one as long as the key does not change.

        Raises:
            SecretUnavailable: the key cannot be read, an outage, or the secret holds something else. It is an alarm.
        """
        try:
            return self._client_for(self._key())
        except SecretUnavailable:
            self._count(Alarm(Cause.STRIPE_ACCOUNT))
            raise

    def is_live(self) -> bool:
        """Whether the key is one of live mode: real money. Raises SecretUnavailable."""
        return LIVE_KEY in self._key()

    def _key(self) -> str:
        """The key, without the white space around it. Raises SecretUnavailable, without any of it."""
        key = self._secret.current()
        if not _API_KEY.fullmatch(key):
            raise SecretUnavailable("not an API key")
        if self._must_be_live and LIVE_KEY not in key:
            # A test card would pay an order, and no money would move.
            raise SecretUnavailable("not an API key of live mode")
        return key
