"""The client for Stripe's API, with the account's key as it is now: a process outlives a rotation of the key."""

import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any

import requests
import stripe

from onecharge.payments.stripe_metrics import NO_ANSWER, status_of, stripe_request
from onecharge.payments.stripe_responses import API_KEY_REPLACED, REFUSED_KEY_STATUSES
from onecharge.payments.time_bounds import STRIPE_RETRIES, TimeBounds
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.secrets import Secret, SecretUnavailable

STRIPE_VERSION = "2026-10-28.endive"
"""Stated explicitly, so that an upgrade of the SDK is no silent upgrade of the API."""

_API_KEY = re.compile(r"[A-Za-z0-9_]+")
"""As all of Stripe's are (Stripe documentation, "API keys"). A line break in a header fails with all of it shown."""

LIVE_KEY = "_live_"
"""In every API key of live mode, secret or restricted (Stripe documentation, "API keys")."""


def stripe_client(
    api_key: str,
    *,
    api_base: str,
    bounds: TimeBounds,
    is_replaced: Callable[[str], bool] = lambda _: False,
    count: Callable[[str], None] = lambda _: None,
) -> stripe.StripeClient:
    """One client for all threads, with bounded timeouts and without usage telemetry.

    Args:
        is_replaced: whether the API key, which Stripe has just refused, was replaced by another one.
        count: takes the metric of each request; called on several threads.
    """
    stripe.enable_telemetry = False  # It writes a file in the home directory.
    return stripe.StripeClient(
        api_key,
        stripe_version=STRIPE_VERSION,
        base_addresses={"api": api_base},
        max_network_retries=STRIPE_RETRIES,
        http_client=CountingClient(
            timeout=(bounds.stripe_connect_timeout_seconds, bounds.stripe_read_timeout_seconds),
            count=count,
            is_key_replaced=lambda: is_replaced(api_key),
        ),
    )


class CountingClient(stripe.RequestsClient):
    """Stripe's own HTTP client, which counts each try, and marks the refusal of an API key that was replaced since.

    It follows no redirect: after one, a POST is a GET, and its response is not Stripe's answer. The connection of an
    informational response (1xx) is closed.
    """

    def __init__(
        self, *, timeout: tuple[float, float], count: Callable[[str], None], is_key_replaced: Callable[[], bool]
    ) -> None:
        super().__init__(timeout=timeout)
        self._count, self._is_key_replaced = count, is_key_replaced

    def request(  # type: ignore[override]  # As RequestsClient has it, which returns the body as bytes.
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Send one request; the SDK itself calls this again for each retry."""
        if getattr(self._thread_local, "session", None) is None:
            self._thread_local.session = _session()
        started_at = time.monotonic()
        status = NO_ANSWER
        answered: Mapping[str, str] = {}
        try:
            body, code, received = super().request(method, url, headers, post_data)
            status, answered = status_of(code), received
            if code < HTTPStatus.OK:
                # http.client takes an informational response for the answer; the next request would read the real one.
                self.close()  # type: ignore[no-untyped-call]  # of the SDK
                raise stripe.APIConnectionError(f"informational response {code}", should_retry=True)
        finally:
            seconds = time.monotonic() - started_at
            self._count(stripe_request(method.upper(), url, status, seconds, sent=headers, received=answered))
        if code in REFUSED_KEY_STATUSES and self._is_key_replaced():
            received = {**received, API_KEY_REPLACED: "true"}
        return body, code, received


def _session() -> requests.Session:
    """A session that follows no redirect, and takes no password for Stripe from a .netrc file."""
    session = requests.Session()
    session.max_redirects = 0
    session.auth = lambda request: request
    return session


class StripeAccount:
    """The account whose key a secret holds.

    A key that Stripe refuses (401, 403) has the secret read anew at once. If it holds another key by now, the response
    is classified as API_KEY_REPLACED: the request was not executed, nothing is wrong, and its retry uses the new key.
    The request itself is never sent again with the new key: a delivery that has looked something up at one account must
    not continue at another one.
    """

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
        client_for = partial(
            stripe_client, api_base=api_base, bounds=bounds, is_replaced=self._is_replaced, count=count
        )
        self._client_for = lru_cache(maxsize=1)(client_for)

    def client(self) -> stripe.StripeClient:
        """The client with the current key; the same one as long as the key does not change.

        Raises:
            SecretUnavailable: the key cannot be read, an outage, or the secret holds something else. It is an alarm.
        """
        try:
            key = self._key()
        except SecretUnavailable:
            self._count(Alarm(Cause.STRIPE_ACCOUNT))
            raise
        return self._client_for(key)

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

    def _is_replaced(self, api_key: str) -> bool:
        """Whether the secret holds another key than the one that Stripe has refused."""
        try:
            if self._key() == api_key:
                self._secret.read_again()
            return self._key() != api_key
        except SecretUnavailable:
            return False
