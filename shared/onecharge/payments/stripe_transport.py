"""How requests reach Stripe: over urllib3, which botocore uses too, instead of requests.

Stripe's SDK: retries, under the same idempotency key ─► StripeTransport: one try ─► one pool of connections

It behaves as the SDK's own RequestsClient: which errors may be retried, Stripe's CA bundle, proxies of the environment.
A redirect is not followed: its response is not Stripe's answer, and the API key belongs to no other host.
An informational response (1xx) is no answer either, and its connection is closed: the answer is still to come on it,
and the next request on the same connection would read it as its own.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import stripe
import urllib3
from urllib3.exceptions import (
    ClosedPoolError,
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    TimeoutError,
)
from urllib3.util import create_urllib3_context, make_headers

from onecharge.payments.stripe_metrics import NO_ANSWER, status_of, stripe_request
from onecharge.payments.stripe_responses import (
    KEY_REPLACED,
    REFUSED_KEY_STATUSES,
    OtherObject,
    is_of_another_request,
)
from onecharge.runtime.aws import BATCH_SIZE

_ONE_TRY = urllib3.Retry(total=False)
"""Every error is raised at once, and no redirect is followed: whether to try again is the SDK's decision."""
_MAY_BE_RETRIED = (TimeoutError, NewConnectionError, ProtocolError, ProxyError, ClosedPoolError)
"""Before the response: not connected, broken off, or timed out. Not a certificate that is not trusted."""


class StripeTransport(stripe.HTTPClient):
    """One pool of connections, each request tried once, and counted with its duration until the response begins.

    Args:
        api_base: what every request's URL begins with.
        timeout: of one try: to connect, and until the next byte.
        count: takes the metric of each try; called on several threads.
        is_key_replaced: whether the API key of a request, which Stripe has just refused, was replaced.
        ca_bundle: a file of certificates; Stripe's own by default.
    """

    name = "urllib3"

    def __init__(
        self,
        api_base: str,
        *,
        timeout: urllib3.Timeout,
        count: Callable[[str], None],
        is_key_replaced: Callable[[], bool],
        ca_bundle: str | None = None,
    ) -> None:
        super().__init__()
        self._connections = _connections(api_base, timeout, ca_bundle or stripe.ca_bundle_path)
        self._count = count
        self._is_key_replaced = is_key_replaced

    def request(  # type: ignore[override]  # The SDK takes the body as bytes, as its RequestsClient returns it.
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: str | None = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Send one request.

        Raises:
            stripe.APIConnectionError: there is no answer; it says whether the request may be sent again.
            OtherObject: the answer is another request's.
        """
        response = self._begun(method.upper(), url, headers, post_data)
        if is_of_another_request(headers, response.headers):
            # Nor is what follows on this connection. The SDK does not send it again: a person has to see it.
            response.close()
            raise OtherObject(headers=response.headers)
        try:
            body = response.data  # Read here: the connection may break off within it.
        except HTTPError as error:
            # As RequestsClient has it: a body that is late may be asked for again, one that breaks off not.
            raise _no_answer(error, should_retry=isinstance(error, ReadTimeoutError)) from error
        finally:
            response.release_conn()
        if response.status in REFUSED_KEY_STATUSES and self._is_key_replaced():
            response.headers[KEY_REPLACED] = "true"
        return body, response.status, response.headers

    def close(self) -> None:
        """Close the connections that are idle."""
        self._connections.clear()

    def _begun(
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: str | None
    ) -> urllib3.BaseHTTPResponse:
        """The response, of which only the headers are read."""
        if method == "GET":
            # Pages of a hundred objects: a lookup reads as many as its time allows.
            headers = {**(headers or {}), "Accept-Encoding": "gzip"}
        started_at = time.monotonic()
        status, request_id = NO_ANSWER, None
        try:
            response = self._connections.urlopen(
                method, url, redirect=False, headers=headers, body=post_data, retries=_ONE_TRY, preload_content=False
            )
            if response.status < HTTPStatus.OK:
                # http.client skips 100 only, and takes any other one for the whole response.
                response.close()
                raise ProtocolError(f"informational response {response.status}")
            status, request_id = status_of(response.status), response.headers.get("request-id")
            return response
        except Exception as error:
            raise _no_answer(error, should_retry=isinstance(error, _MAY_BE_RETRIED)) from error
        finally:
            seconds = time.monotonic() - started_at
            self._count(stripe_request(method, url, status, seconds, request_id))


def _no_answer(error: Exception, *, should_retry: bool) -> stripe.APIConnectionError:
    return stripe.APIConnectionError(f"{type(error).__name__}: {error}", should_retry=should_retry)


def _connections(api_base: str, timeout: urllib3.Timeout, ca_bundle: str) -> urllib3.PoolManager:
    """The connections to this host, through the proxy that the environment names for it, if any."""
    base = urlsplit(api_base)
    # One context for all connections: by itself, each would read the bundle anew.
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    if base.scheme == "https":
        context.load_verify_locations(ca_bundle)
    settings: dict[str, Any] = {"num_pools": 1, "maxsize": BATCH_SIZE, "timeout": timeout, "ssl_context": context}
    proxies = getproxies()
    proxy = proxies.get(base.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(base.netloc):
        return urllib3.PoolManager(**settings)
    login = urlsplit(proxy)
    user = f"{unquote(login.username)}:{unquote(login.password or '')}" if login.username else None
    return urllib3.ProxyManager(proxy, proxy_headers=make_headers(proxy_basic_auth=user), **settings)
