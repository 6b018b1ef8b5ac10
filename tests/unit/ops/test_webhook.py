"""`webhook create`: over the stand-in, and moto's secrets."""

import json
from typing import Any

import boto3
import pytest
import stripe

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES
from ops.command_line import COMMANDS, parser
from ops.connection import Stack
from ops.errors import Problem
from stripe_standin.admin import StandInAdmin
from tests.support.operated_stack import Answers

KEY, API = "rk_test_ops", "https://shop.example"
URL = f"{API}/stripe/events"


class Shop:
    """A deployed stack: its secret, and its Stripe account."""

    def __init__(self, stripe_base: str) -> None:
        self.secrets = boto3.client("secretsmanager")
        self.secret_id = self.secrets.create_secret(Name="webhook")["ARN"]
        self.admin = StandInAdmin(stripe_base)
        self.admin.reset()
        described = {
            "Parameters": [{"ParameterKey": "StripeApiBase", "ParameterValue": stripe_base}],
            "Outputs": [{"OutputKey": "ApiUrl", "OutputValue": API}],
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

    @property
    def secret(self) -> str:
        return self.stack.secret("StripeWebhookSecret")

    @property
    def endpoints(self) -> list[stripe.WebhookEndpoint]:
        return list(self.stack.stripe.v1.webhook_endpoints.list().data)

    @property
    def enabled(self) -> list[str]:
        return [each.id for each in self.endpoints if each.status == "enabled"]


@pytest.fixture
def shop(aws: None, stripe_base: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.delenv("API_URL", raising=False)
    return Shop(stripe_base)


def test_the_endpoint_has_exactly_what_is_handled(shop: Shop) -> None:
    """Its URL, event types and API version; its secret is stored. A dry run says so, and changes nothing. Of a local
    stack the URL has to be named: the one in its outputs is one of AWS's."""
    assert (shop.create()["status"], shop.endpoints, shop.secret) == (1, [], "")
    assert shop.create("--yes")["status"] == 0
    [made] = shop.endpoints
    assert (made.url, made.api_version, {*made.enabled_events}) == (URL, STRIPE_VERSION, {*EVENT_TYPES})
    assert shop.secret.startswith("whsec_")
    again = shop.create("--yes")
    assert (again["status"], again["action"], len(shop.endpoints)) == (0, "none", 1)
    shop.stack.endpoint_url = "http://127.0.0.1:1"
    with pytest.raises(Problem, match="set API_URL"):
        shop.create()


def test_an_endpoint_that_differs_is_corrected(shop: Shop) -> None:
    """Event types that are missing or needless, and one that was disabled; its secret stays."""
    shop.create("--yes")
    [made], secret = shop.endpoints, shop.secret
    endpoints = shop.stack.stripe.v1.webhook_endpoints
    endpoints.update(made.id, {"disabled": True, "enabled_events": ["charge.refunded", "customer.created"]})
    found = shop.create()
    assert (found["status"], "is disabled, and its events are: charge.refunded, cust" in found["message"]) == (1, True)
    assert shop.create("--yes")["action"] == "correct"
    [corrected] = shop.endpoints
    assert ({*corrected.enabled_events}, corrected.status, shop.secret) == ({*EVENT_TYPES}, "enabled", secret)


def test_an_endpoint_is_replaced_whose_secret_is_unknown_or_whose_version_is_another(shop: Shop) -> None:
    """Stripe shows a secret only once, and never changes a version. The account's other endpoints are left alone."""
    endpoints: Any = shop.stack.stripe.v1.webhook_endpoints
    wanted = {"enabled_events": list(EVENT_TYPES), "api_version": "2025-09-30.clover"}
    theirs = endpoints.create({"url": "https://other.example/hook", **wanted}).id
    endpoints.create({"url": URL, **wanted})
    for secret in ("whsec_of_the_other", "later"):
        shop.secrets.put_secret_value(SecretId=shop.secret_id, SecretString=secret)
        before = shop.enabled
        assert (shop.create()["action"], shop.enabled) == ("replace", before)
        assert (shop.create("--yes")["status"], shop.create()["action"]) == (0, "none")
        [made] = [each for each in shop.endpoints if each.id in {*shop.enabled} - {theirs}]
        assert (made.id in before, made.api_version, theirs in shop.enabled) == (False, STRIPE_VERSION, True)


def test_a_secret_that_cannot_be_stored_leaves_no_endpoint(shop: Shop) -> None:
    """Without its secret each of its events would be refused."""
    shop.resources["StripeWebhookSecret"] = "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef"
    with pytest.raises(Exception, match="ResourceNotFound"):
        shop.create("--yes")
    assert shop.endpoints == []
