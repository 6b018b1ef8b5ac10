"""`webhook create`: over the stand-in, moto's secrets, and a receiver that verifies signatures."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import boto3
import pytest
import stripe

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES
from ops import webhook
from ops.command_line import COMMANDS, parser
from ops.connection import Stack
from ops.errors import Problem
from stripe_standin.admin import StandInAdmin
from tests.support.operated_stack import Answers

KEY = "rk_test_ops"


class Shop(ThreadingHTTPServer):
    """A deployed stack: 200 for what its secret has signed, 400 for all else; its secret, and its Stripe account."""

    def __init__(self, stripe_base: str) -> None:
        self.is_deaf = False
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secrets = boto3.client("secretsmanager")
        self.secret_id = self.secrets.create_secret(Name="webhook")["ARN"]
        self.admin = StandInAdmin(stripe_base)
        self.admin.reset()
        self.admin.restrict_api_key(KEY, ["webhook_write"])
        self.api_url = f"http://127.0.0.1:{self.server_address[1]}"
        described = {
            "Parameters": [{"ParameterKey": "StripeApiBase", "ParameterValue": stripe_base}],
            "Outputs": [{"OutputKey": "ApiUrl", "OutputValue": self.api_url}],
        }
        self.clients = {"cloudformation": Answers([{"Stacks": [described]}]), "secretsmanager": self.secrets}
        session: Any = self
        self.stack = Stack("shop", session, stripe_key=KEY)
        self.resources = self.stack.__dict__["_resources"] = {"StripeWebhookSecret": self.secret_id}

    def client(self, service: str, **_: Any) -> Any:
        """Of the caller's session."""
        return self.clients[service]

    def create(self, *words: str) -> Any:
        """The document of the command; its exit status is 0 if nothing is left to do."""
        report = COMMANDS["webhook"].run(self.stack, parser().parse_args(["webhook", "create", *words]))
        assert "whsec_" not in json.dumps(report.document)
        return {**report.document, "status": report.status}

    def forget_secret(self, value: str = "later") -> None:
        self.secrets.put_secret_value(SecretId=self.secret_id, SecretString=value)

    @property
    def endpoints(self) -> list[stripe.WebhookEndpoint]:
        return list(self.stack.stripe.v1.webhook_endpoints.list().data)

    @property
    def enabled(self) -> list[str]:
        return [each.id for each in self.endpoints if each.status == "enabled"]


class _Handler(BaseHTTPRequestHandler):
    server: Shop

    def do_POST(self) -> None:
        body, header = self.rfile.read(int(self.headers["Content-Length"])).decode(), self.headers["Stripe-Signature"]
        try:
            stripe.WebhookSignature.verify_header(body, header, self.server.stack.secret("StripeWebhookSecret"), 300)
            is_ours = True
        except stripe.SignatureVerificationError:
            is_ours = False
        self.send_response(200 if is_ours and not self.server.is_deaf else 400)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def shop(aws: None, stripe_base: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(webhook, "PATIENCE_SECONDS", 0)
    monkeypatch.delenv("API_URL", raising=False)
    with Shop(stripe_base) as shop:
        thread = Thread(target=shop.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield shop
        shop.shutdown()
        thread.join()


def test_the_endpoint_has_exactly_what_is_handled(shop: Shop) -> None:
    """Its URL, event types and API version; its secret is stored, and the stack takes what it signs. A dry run says so,
    and changes nothing. Of a local stack the URL is named: the one in its outputs is one of AWS's."""
    assert (shop.create()["status"], shop.endpoints, shop.stack.secret("StripeWebhookSecret")) == (1, [], "")
    assert shop.create("--yes")["status"] == 0
    [made] = shop.endpoints
    assert (made.url, made.api_version) == (f"{shop.api_url}/stripe/events", STRIPE_VERSION)
    assert set(made.enabled_events) == set(EVENT_TYPES)
    assert shop.stack.secret("StripeWebhookSecret").startswith("whsec_")
    assert shop.admin.permissions_used()[KEY] == ["webhook_write"]
    again = shop.create("--yes")
    assert (again["status"], again["action"], len(shop.endpoints)) == (0, "none", 1)
    shop.stack.endpoint_url = "http://127.0.0.1:1"
    with pytest.raises(Problem, match="set API_URL"):
        shop.create()


def test_an_endpoint_that_differs_is_corrected(shop: Shop) -> None:
    """Event types that are missing or needless, and one that was disabled; its secret stays."""
    shop.create("--yes")
    [made], secret = shop.endpoints, shop.stack.secret("StripeWebhookSecret")
    endpoints = shop.stack.stripe.v1.webhook_endpoints
    endpoints.update(made.id, {"disabled": True, "enabled_events": ["charge.refunded", "customer.created"]})
    found = shop.create()
    assert found["status"] == 1
    assert "disabled, and its events are: charge.refunded, customer.created" in found["message"]
    assert shop.create("--yes")["action"] == "correct"
    [corrected] = shop.endpoints
    assert (set(corrected.enabled_events), corrected.status) == (set(EVENT_TYPES), "enabled")
    assert shop.stack.secret("StripeWebhookSecret") == secret


def test_an_endpoint_is_replaced_whose_secret_is_unknown_or_whose_version_is_another(shop: Shop) -> None:
    """Stripe shows a secret only once, and never changes a version. The account's other endpoints are left alone."""
    endpoints: Any = shop.stack.stripe.v1.webhook_endpoints
    wanted = {"enabled_events": list(EVENT_TYPES), "api_version": "2025-09-30.clover"}
    theirs = endpoints.create({"url": "https://other.example/hook", **wanted}).id
    endpoints.create({"url": f"{shop.api_url}/stripe/events", **wanted})
    shop.forget_secret("whsec_of_the_other")
    for _ in range(2):
        before = shop.enabled
        assert (shop.create()["action"], shop.enabled) == ("replace", before)
        assert (shop.create("--yes")["status"], shop.create()["action"]) == (0, "none")
        assert len(shop.enabled) == 2
        assert {*shop.enabled} & {*before} == {theirs}
        [made] = [each for each in shop.endpoints if each.id in shop.enabled and each.id != theirs]
        assert made.api_version == STRIPE_VERSION
        shop.forget_secret()


def test_a_secret_that_cannot_be_stored_leaves_no_endpoint(shop: Shop) -> None:
    """Without its secret each of its events would be refused."""
    shop.resources["StripeWebhookSecret"] = "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef"
    with pytest.raises(Exception, match="ResourceNotFound"):
        shop.create("--yes")
    assert shop.endpoints == []


def test_no_event_is_lost_while_an_endpoint_is_replaced(shop: Shop) -> None:
    """Both send each event until the stack takes what the second one signs. If it refuses that, the first one stays."""
    shop.create("--yes")
    [first], deliver = shop.enabled, shop.admin.deliver_webhooks
    client = stripe.StripeClient("sk_test_x", base_addresses={"api": shop.stack.parameter("StripeApiBase")})
    card = {"payment_method": "pm_card_visa", "confirm": True, "allowed_payment_method_types": ["card"]}
    parameters: Any = {"amount": 1099, "currency": "eur", **card}
    client.v1.payment_intents.create(parameters)
    assert set(deliver()) == {200}
    shop.forget_secret()
    shop.is_deaf = True
    assert (shop.create("--yes")["status"], {first} < set(shop.enabled)) == (1, True)
    shop.is_deaf = False
    assert set(deliver()) == {200, 400}
    shop.forget_secret()
    assert (shop.create("--yes")["status"], len(shop.enabled)) == (0, 1)
    assert set(deliver()) == {200}
