"""What is measured of the requests to Stripe, with a server in place of Stripe."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests

from onecharge.payments.stripe_metrics import NO_ANSWER, MeasuredAdapter, endpoint_of, status_of
from onecharge.runtime.metrics import Metric


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # http.server's name.
        if self.path == "/v1/broken":
            self.close_connection = True
            return
        self.send_response(int(self.path.rpartition("/")[2]))
        self.send_header("Request-Id", "req_1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def counted() -> list[Metric]:
    return []


@pytest.fixture
def session(counted: list[Metric]) -> requests.Session:
    session = requests.Session()
    session.trust_env = False

    def count(name: str) -> None:
        assert isinstance(name, Metric)
        counted.append(name)

    session.mount("http://", MeasuredAdapter(count))
    return session


@pytest.mark.parametrize(("code", "status"), [(200, "2xx"), (401, "401"), (429, "429"), (404, "4xx"), (503, "5xx")])
def test_a_response_is_counted_by_its_status_and_its_endpoint(
    address: str, session: requests.Session, counted: list[Metric], code: int, status: str
) -> None:
    """With Stripe's id of the request, by which its support finds it; and without the object's own id."""
    session.get(f"{address}/v1/payment_intents/{code}")
    [metric] = counted
    assert (metric, metric.about) == ("StripeSeconds", {"stripe_request_id": "req_1"})
    assert metric.dimensions == ({"endpoint": "GET /v1/payment_intents/{id}"}, {"status": status})
    assert 0 < metric.value < 5


def test_a_request_without_a_response_is_counted(
    address: str, session: requests.Session, counted: list[Metric]
) -> None:
    """And the error reaches the SDK as before, which retries it."""
    with pytest.raises(requests.ConnectionError):
        session.get(f"{address}/v1/broken")
    assert [each.dimensions[1] for each in counted] == [{"status": NO_ANSWER}]


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
