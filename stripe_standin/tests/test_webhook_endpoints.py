"""Webhook endpoints: made, listed, changed and deleted through the API; their secrets are returned once."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import stripe

from stripe_standin.account import API_VERSION
from stripe_standin.tests.standin_account import PATIENCE_SECONDS, Account


def test_the_secret_is_in_the_response_to_the_create_only(account: Account) -> None:
    """Nobody can read it later."""
    endpoints = account.client.v1.webhook_endpoints
    made = endpoints.create({"url": "https://shop.example/hook", "enabled_events": ["charge.refunded"]})
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    [listed] = endpoints.list().data
    assert not hasattr(listed, "secret")
    assert not hasattr(endpoints.retrieve(made.id), "secret")


class Receiver(ThreadingHTTPServer):
    """Receives webhooks."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.received.append((body, self.headers["Stripe-Signature"]))
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def shop() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yield server
        server.shutdown()


def test_events_are_delivered_by_themselves_if_asked(account: Account, shop: Receiver) -> None:
    """Each is sent once and in order, signed; a redirect is not followed."""
    url = f"http://127.0.0.1:{shop.server_port}/stripe/events"
    account.admin.settings(webhook_url=url, webhook_secret="whsec_x", webhooks_by_themselves=True)
    account.pay("key-1")
    account.pay("key-2")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(shop.received) < len(account.event_types()) and time.monotonic() < deadline:
        time.sleep(0.05)
    events = [stripe.Webhook.construct_event(*each, "whsec_x") for each in shop.received]
    assert [event.type for event in events] == account.event_types()
    assert account.admin.deliver_webhooks([0]) == [302]


def test_the_api_version_of_an_endpoint_cannot_be_changed(account: Account) -> None:
    """Stripe refuses the parameter."""
    endpoints = account.client.v1.webhook_endpoints
    parameters: Any = {"url": "https://shop.example/hook", "enabled_events": ["*"], "api_version": API_VERSION}
    made = endpoints.create(parameters)
    assert made.api_version == API_VERSION
    other: Any = {"api_version": "2025-09-30.clover"}
    with pytest.raises(stripe.InvalidRequestError, match="unknown parameter"):
        endpoints.update(made.id, other)
