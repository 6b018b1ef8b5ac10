"""`webhook create` and `rotate-webhook`: over the stand-in, moto's secrets, and a receiver that verifies signatures."""

import io
import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import boto3
import pytest
import stripe

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import StandIn, running_standin
from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES
from onecharge.runtime.secrets import Secret
from ops import rotate_webhook, webhook
from ops.connection import Stack, StripeKeySource
from ops.errors import ExitStatus, Problem
from ops.output import Report, show

KEY = "rk_test_ops"


class Receiver(ThreadingHTTPServer):
    """As the stack: 200 for what one of its secrets has signed, 400 for all else."""

    def __init__(self, secrets: Callable[[], tuple[str, ...]]) -> None:
        self.secrets = secrets
        self.is_deaf = False
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/stripe/events"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(200 if not self.server.is_deaf and any(map(self._is_signed(body), self._secrets)) else 400)
        self.end_headers()

    @property
    def _secrets(self) -> tuple[str, ...]:
        return self.server.secrets()

    def _is_signed(self, body: str) -> Callable[[str], bool]:
        def by(secret: str) -> bool:
            try:
                stripe.WebhookSignature.verify_header(body, self.headers["Stripe-Signature"], secret, 300)
                return True
            except stripe.SignatureVerificationError:
                return False

        return by

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Shop:
    """A deployed stack, its secret, and its Stripe account."""

    def __init__(self, standin: StandIn) -> None:
        self.secrets = boto3.client("secretsmanager")
        self.secret_id = self.secrets.create_secret(Name="webhook", SecretString="later")["ARN"]
        self.admin = StandInAdmin(standin.base_url)
        self.admin.restrict_api_key(KEY, ["webhook_write"])
        self.receiver = Receiver(lambda: Secret(self.secrets, self.secret_id).with_previous())
        self.parameters = {
            "StripeApiBase": standin.base_url,
            "StripeWebhookSecretArn": self.secret_id,
        }
        self.stack = Stack("shop", self, stripe_key=StripeKeySource(api_key=KEY))  # type: ignore[arg-type]

    def client(self, service: str, **_: Any) -> Any:
        """Of the caller's session."""
        return self if service == "cloudformation" else self.secrets

    def describe_stacks(self, **_: Any) -> dict[str, Any]:
        parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in self.parameters.items()]
        outputs = [{"OutputKey": "StripeEventsUrl", "OutputValue": self.receiver.url}]
        return {"Stacks": [{"Parameters": parameters, "Outputs": outputs}]}

    def create(self, *, yes: bool = True) -> Report:
        return webhook.run(self.stack, Namespace(url=None, patience=0, yes=yes))

    def rotate(self, *, yes: bool = True, leaked: bool = False) -> Report:
        return rotate_webhook.run(self.stack, Namespace(url=None, patience=0, yes=yes, leaked=leaked))

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
def shop(aws: None) -> Iterator[Shop]:
    with running_standin() as standin:
        shop = Shop(standin)
        thread = Thread(target=shop.receiver.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield shop
        shop.receiver.shutdown()
        shop.receiver.server_close()
        thread.join()


def printed(report: Report) -> str:
    out = io.StringIO()
    show(report, as_json=False, out=out)
    show(report, as_json=True, out=out)
    return out.getvalue()


def test_a_dry_run_changes_nothing(shop: Shop) -> None:
    """It says what would be done."""
    report = shop.create(yes=False)
    assert (report.status, shop.endpoints, shop.secret) == (ExitStatus.FOUND, [], "later")
    assert "would create" in printed(report)


def test_the_endpoint_has_exactly_what_is_handled(shop: Shop) -> None:
    """Its URL, event types and API version; its secret is stored, and the stack takes what it signs."""
    report = shop.create()
    [made] = shop.endpoints
    assert report.status is ExitStatus.OK
    assert (made.url, set(made.enabled_events), made.api_version) == (
        *(shop.receiver.url, set(EVENT_TYPES), STRIPE_VERSION),
    )
    assert shop.secret.startswith("whsec_")
    assert shop.admin.permissions_used()[KEY] == ["webhook_write"]


def test_it_is_created_once(shop: Shop) -> None:
    """Run again, nothing is left to do."""
    shop.create()
    again = shop.create()
    assert (again.status, again.document["action"], len(shop.endpoints)) == (ExitStatus.OK, "none", 1)


def test_an_endpoint_that_differs_is_corrected(shop: Shop) -> None:
    """Event types that are missing or needless, and one that was disabled; its secret stays."""
    shop.create()
    [made], secret = shop.endpoints, shop.secret
    endpoints = shop.stack.stripe.v1.webhook_endpoints
    endpoints.update(made.id, {"disabled": True, "enabled_events": ["charge.refunded", "customer.created"]})
    assert shop.create(yes=False).status is ExitStatus.FOUND
    assert "needs not, customer.created" in printed(shop.create(yes=False))
    assert shop.create().document["action"] == "corrected"
    [corrected] = shop.endpoints
    assert (set(corrected.enabled_events), corrected.status) == (set(EVENT_TYPES), "enabled")
    assert shop.secret == secret


def test_an_endpoint_whose_secret_nobody_has_is_replaced(shop: Shop) -> None:
    """It was made by hand: the stack cannot verify what it sends."""
    shop.create()
    shop.secrets.put_secret_value(SecretId=shop.secret_id, SecretString="later")
    assert shop.create().document["action"] == "replace"
    assert shop.rotate().status is ExitStatus.OK
    assert shop.create().document["action"] == "none"


def test_an_endpoint_of_another_api_version_is_replaced(shop: Shop) -> None:
    """The version of an endpoint cannot be changed."""
    other: Any = {"url": shop.receiver.url, "enabled_events": list(EVENT_TYPES), "api_version": "2025-09-30.clover"}
    shop.stack.stripe.v1.webhook_endpoints.create(other)
    assert shop.create().document["action"] == "replace"
    shop.rotate()
    [enabled] = [each for each in shop.endpoints if each.status == "enabled"]
    assert enabled.api_version == STRIPE_VERSION


def test_the_endpoint_of_somebody_else_is_left_alone(shop: Shop) -> None:
    """The account may have others."""
    other: Any = {"url": "https://other.example/hook", "enabled_events": ["*"]}
    theirs = shop.stack.stripe.v1.webhook_endpoints.create(other)
    shop.create()
    shop.rotate()
    assert theirs.id in shop.enabled


def test_a_secret_that_cannot_be_stored_leaves_no_endpoint(shop: Shop) -> None:
    """Nobody would know its secret: each of its events would be refused."""
    shop.parameters["StripeWebhookSecretArn"] = "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef"
    with pytest.raises(Exception, match="ResourceNotFound"):
        shop.create()
    assert shop.endpoints == []


def test_a_rotation_replaces_the_endpoint_once_the_stack_takes_the_new_secret(shop: Shop) -> None:
    """The former secret is good for a day, for what is still on its way."""
    shop.create()
    [former], first = shop.enabled, shop.secret
    report = shop.rotate()
    assert report.status is ExitStatus.OK
    assert (former in shop.enabled, len(shop.enabled), shop.secret != first) == (False, 1, True)
    assert shop.receiver.secrets() == (shop.secret, first)


def test_a_leaked_secret_is_refused_at_once(shop: Shop) -> None:
    """No version of the secret in Secrets Manager is the former one."""
    shop.create()
    leaked = shop.secret
    assert shop.rotate(leaked=True).status is ExitStatus.OK
    assert leaked not in shop.receiver.secrets()


def test_no_event_is_lost_during_a_rotation(shop: Shop) -> None:
    """While both endpoints are enabled the stack takes what either signs; a stack that refuses keeps the former one."""
    shop.create()
    [former] = shop.enabled
    shop.receiver.is_deaf = True
    report = shop.rotate()
    assert (report.status, report.document["disabled"]) == (ExitStatus.FOUND, [])
    assert {former} < set(shop.enabled)
    shop.receiver.is_deaf = False
    client = stripe.StripeClient("sk_test_x", base_addresses={"api": shop.parameters["StripeApiBase"]})
    parameters: Any = {
        "amount": 1099,
        "currency": "eur",
        "allowed_payment_method_types": ["card"],
        "payment_method": "pm_card_visa",
        "confirm": True,
    }
    client.v1.payment_intents.create(parameters)
    assert set(shop.admin.deliver_webhooks()) == {200}
    assert shop.rotate().status is ExitStatus.OK
    assert len(shop.enabled) == 1
    assert set(shop.admin.deliver_webhooks()) == {200}


def test_a_rotation_needs_an_endpoint(shop: Shop) -> None:
    """And a dry run only says what it would do."""
    with pytest.raises(Problem, match="`webhook create` makes one"):
        shop.rotate()
    shop.create()
    before = shop.enabled, shop.secret
    assert shop.rotate(yes=False).status is ExitStatus.FOUND
    assert (shop.enabled, shop.secret) == before


def test_no_secret_is_printed(shop: Shop) -> None:
    """Neither in the lines nor in the JSON."""
    reports = [shop.create(), shop.rotate(), shop.rotate(leaked=True)]
    shop.receiver.is_deaf = True
    reports.append(shop.rotate())
    for report in reports:
        assert "whsec_" not in json.dumps(report.document) + printed(report)


def test_of_a_local_stack_the_url_is_named(shop: Shop) -> None:
    """The address in its outputs is one of AWS's, which nobody has."""
    shop.stack.endpoint_url = "http://127.0.0.1:1"
    with pytest.raises(Problem, match="--url"):
        shop.create()
    report = webhook.run(shop.stack, Namespace(url=shop.receiver.url, patience=0, yes=True))
    assert report.status is ExitStatus.OK
