"""`webhook create`: over the stand-in, moto's secrets, and a receiver that verifies signatures."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import boto3
import pytest
import stripe

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES
from onecharge.runtime.secrets import Secret
from ops import webhook
from ops.command_line import COMMANDS, parser
from ops.connection import Stack
from ops.errors import Problem
from stripe_standin.admin import StandInAdmin

KEY = "rk_test_ops"


class Receiver(ThreadingHTTPServer):
    """As the stack: 200 for what its secret has signed, 400 for all else."""

    def __init__(self, secret: Callable[[], str]) -> None:
        self.secret, self.is_deaf = secret, False
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.api_url}/stripe/events"

    def takes(self, body: str, signature: str) -> bool:
        try:
            stripe.WebhookSignature.verify_header(body, signature, self.secret(), 300)
        except stripe.SignatureVerificationError:
            return False
        return not self.is_deaf


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(200 if self.server.takes(body, self.headers["Stripe-Signature"]) else 400)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class WebhookStack:
    """A deployed stack, its secret, and its Stripe account."""

    def __init__(self, stripe_base: str) -> None:
        self.secrets = boto3.client("secretsmanager")
        self.secret_id = self.secrets.create_secret(Name="webhook")["ARN"]
        self.admin = StandInAdmin(stripe_base)
        self.admin.reset()
        self.receiver = Receiver(lambda: Secret(self.secrets, self.secret_id).current())
        self.parameters = {"StripeApiBase": stripe_base}
        session: Any = self
        self.stack = Stack("shop", session, stripe_key=KEY)
        self.resources = self.stack.__dict__["_resources"] = {"StripeWebhookSecret": self.secret_id}

    def client(self, service: str, **_: Any) -> Any:
        """Of the caller's session."""
        return self if service == "cloudformation" else self.secrets

    def describe_stacks(self, **_: Any) -> dict[str, Any]:
        parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in self.parameters.items()]
        outputs = [{"OutputKey": "ApiUrl", "OutputValue": self.receiver.api_url}]
        return {"Stacks": [{"Parameters": parameters, "Outputs": outputs}]}

    def run(self, *words: str) -> Any:
        """The document of a command; its exit status is 0 if nothing is left to do."""
        arguments = parser().parse_args(["webhook", *words])
        report = COMMANDS["webhook"].run(self.stack, arguments)
        assert "whsec_" not in json.dumps(report.document) + str(report.parts)
        return {**report.document, "status": report.status}

    def create(self) -> Any:
        return self.run("create", "--yes")

    def forget_secret(self) -> None:
        self.secrets.put_secret_value(SecretId=self.secret_id, SecretString="later")

    @property
    def endpoints(self) -> list[stripe.WebhookEndpoint]:
        return list(self.stack.stripe.v1.webhook_endpoints.list().data)

    @property
    def enabled(self) -> list[str]:
        return [each.id for each in self.endpoints if each.status == "enabled"]

    @property
    def secret(self) -> str:
        return str(self.secrets.get_secret_value(SecretId=self.secret_id)["SecretString"])


@pytest.fixture
def shop(aws: None, stripe_base: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookStack]:
    monkeypatch.setattr(webhook, "PATIENCE_SECONDS", 0)
    monkeypatch.delenv("API_URL", raising=False)
    shop = WebhookStack(stripe_base)
    thread = Thread(target=shop.receiver.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield shop
    shop.receiver.shutdown()
    shop.receiver.server_close()
    thread.join()


def test_a_dry_run_changes_nothing(shop: WebhookStack) -> None:
    """It says what would be done."""
    found = shop.run("create")
    assert (found["status"], shop.endpoints, shop.stack.secret("StripeWebhookSecret")) == (1, [], "")
    assert "would create" in found["message"]


def test_the_endpoint_has_exactly_what_is_handled(shop: WebhookStack) -> None:
    """Its URL, event types and API version; its secret is stored, and the stack takes what it signs."""
    assert shop.create()["status"] == 0
    [made] = shop.endpoints
    assert (made.url, made.api_version) == (shop.receiver.url, STRIPE_VERSION)
    assert set(made.enabled_events) == set(EVENT_TYPES)
    assert shop.secret.startswith("whsec_")
    again = shop.create()
    assert (again["status"], again["action"], len(shop.endpoints)) == (0, "none", 1)


def test_an_endpoint_that_differs_is_corrected(shop: WebhookStack) -> None:
    """Event types that are missing or needless, and one that was disabled; its secret stays."""
    shop.create()
    [made], secret = shop.endpoints, shop.secret
    endpoints = shop.stack.stripe.v1.webhook_endpoints
    endpoints.update(made.id, {"disabled": True, "enabled_events": ["charge.refunded", "customer.created"]})
    found = shop.run("create")
    assert found["status"] == 1
    assert "disabled, and its events are: charge.refunded, customer.created" in found["message"]
    assert shop.create()["action"] == "corrected"
    [corrected] = shop.endpoints
    assert (set(corrected.enabled_events), corrected.status) == (set(EVENT_TYPES), "enabled")
    assert shop.secret == secret


def test_an_endpoint_whose_secret_is_unknown_is_made_again(shop: WebhookStack) -> None:
    """It was made by hand, or its secret was not stored before the command was killed: Stripe shows it only once."""
    shop.create()
    [first] = shop.endpoints
    shop.forget_secret()
    assert shop.run("create")["action"] == "replace"
    assert [each.id for each in shop.endpoints] == [first.id]
    assert (shop.create()["status"], shop.secret[:6]) == (0, "whsec_")
    [second] = shop.enabled
    assert second != first.id
    assert shop.create()["action"] == "none"


def test_an_endpoint_of_another_api_version_is_replaced(shop: WebhookStack) -> None:
    """The version of an endpoint cannot be changed."""
    other: Any = {"url": shop.receiver.url, "enabled_events": list(EVENT_TYPES), "api_version": "2025-09-30.clover"}
    shop.stack.stripe.v1.webhook_endpoints.create(other)
    shop.secrets.put_secret_value(SecretId=shop.secret_id, SecretString="whsec_of_the_other")
    assert shop.run("create")["action"] == "replace"
    assert shop.create()["action"] == "replaced"
    [enabled] = [each for each in shop.endpoints if each.status == "enabled"]
    assert enabled.api_version == STRIPE_VERSION


def test_another_endpoint_of_the_account_is_left_alone(shop: WebhookStack) -> None:
    """The account may have others."""
    other: Any = {"url": "https://other.example/hook", "enabled_events": ["*"]}
    theirs = shop.stack.stripe.v1.webhook_endpoints.create(other)
    shop.create()
    shop.forget_secret()
    shop.create()
    assert theirs.id in shop.enabled


def test_a_secret_that_cannot_be_stored_leaves_no_endpoint(shop: WebhookStack) -> None:
    """Without its secret each of its events would be refused."""
    shop.resources["StripeWebhookSecret"] = "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef"
    with pytest.raises(Exception, match="ResourceNotFound"):
        shop.create()
    assert shop.endpoints == []


def test_no_event_is_lost_while_an_endpoint_is_replaced(shop: WebhookStack) -> None:
    """Both send each event until the stack takes what the second one signs. If it refuses that, the first one stays."""
    shop.create()
    [first], deliver = shop.enabled, shop.admin.deliver_webhooks
    client = stripe.StripeClient("sk_test_x", base_addresses={"api": shop.parameters["StripeApiBase"]})
    money = {"amount": 1099, "currency": "eur", "payment_method": "pm_card_visa", "confirm": True}
    parameters: Any = money | {"allowed_payment_method_types": ["card"]}
    client.v1.payment_intents.create(parameters)
    assert set(deliver()) == {200}
    shop.forget_secret()
    shop.receiver.is_deaf = True
    found = shop.create()
    assert found["status"] == 1
    assert {first} < set(shop.enabled)
    shop.receiver.is_deaf = False
    assert set(deliver()) == {200, 400}
    shop.forget_secret()
    assert (shop.create()["status"], len(shop.enabled)) == (0, 1)
    assert set(deliver()) == {200}


def test_of_a_local_stack_the_url_is_named(shop: WebhookStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address in its outputs is one of AWS's, and leads nowhere."""
    shop.stack.endpoint_url = "http://127.0.0.1:1"
    with pytest.raises(Problem, match="set API_URL"):
        shop.create()
    monkeypatch.setenv("API_URL", shop.receiver.api_url)
    assert shop.create()["status"] == 0
