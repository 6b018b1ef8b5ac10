"""Webhook endpoints: made, listed, changed and deleted through the API; their secrets are returned once."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import stripe

from local.stripe_standin.account import API_VERSION
from testing.standin_account import Account


class Receiver(ThreadingHTTPServer):
    """Keeps the body of each request."""

    def __init__(self) -> None:
        self.received: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def wait_for(self, deliveries: int) -> None:
        """Return once so many have arrived."""
        deadline = time.monotonic() + 60
        while len(self.received) < deliveries and time.monotonic() < deadline:
            time.sleep(0.05)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/stripe/events"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_secret_is_in_the_response_to_the_create_only(account: Account) -> None:
    """Nobody can read it later."""
    endpoints = account.client.v1.webhook_endpoints
    made = endpoints.create({"url": "https://shop.example/hook", "enabled_events": ["charge.refunded"]})
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    [listed] = endpoints.list().data
    assert not hasattr(listed, "secret")
    assert not hasattr(endpoints.retrieve(made.id), "secret")


def test_events_are_delivered_by_themselves_if_asked(account: Account, receiver: Receiver) -> None:
    """Each as it happens, in order."""
    account.admin.settings(webhook_url=receiver.url, webhooks_by_themselves=True)
    account.pay("key-1")
    account.pay("key-2")
    receiver.wait_for(len(account.event_types()))
    assert [json.loads(body)["type"] for body in receiver.received] == account.event_types()


def test_the_api_version_of_an_endpoint_cannot_be_changed(account: Account) -> None:
    """Stripe refuses the parameter."""
    endpoints = account.client.v1.webhook_endpoints
    parameters: Any = {"url": "https://shop.example/hook", "enabled_events": ["*"], "api_version": API_VERSION}
    made = endpoints.create(parameters)
    assert made.api_version == API_VERSION
    other: Any = {"api_version": "2025-09-30.clover"}
    with pytest.raises(stripe.InvalidRequestError, match="unknown parameter"):
        endpoints.update(made.id, other)
