"""One outgoing HTTP request: a webhook to its endpoint, or a call of the admin API."""

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 30


def send(method: str, url: str, body: str, headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]]:
    """Returns the status, the body and the headers. A redirect is not followed: to Stripe it is a failed delivery.

    Raises:
        OSError: no response arrived.
    """
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    connection_to = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connection_to(parts.netloc, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, target, body.encode(), dict(headers))
        response = connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return response.status, response.read().decode(errors="replace"), received
    except HTTPException as broken:
        raise OSError(f"{url} sent no complete response: {broken!r}") from broken
    finally:
        connection.close()
