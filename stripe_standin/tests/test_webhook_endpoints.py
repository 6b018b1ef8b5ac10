"""Webhook endpoints: made, listed, changed and deleted through the API; their secrets are returned once."""

import json
import time
from typing import Any

import pytest
import responses
import stripe

from stripe_standin.account import API_VERSION
from tests.support.harness import PATIENCE_SECONDS
from tests.support.standin_account import Account


def test_the_secret_is_in_the_response_to_the_create_only(account: Account) -> None:
    """Nobody can read it later."""
    endpoints = account.client.v1.webhook_endpoints
    made = endpoints.create({"url": "https://shop.example/hook", "enabled_events": ["charge.refunded"]})
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    [listed] = endpoints.list().data
    assert not hasattr(listed, "secret")
    assert not hasattr(endpoints.retrieve(made.id), "secret")


def test_events_are_delivered_by_themselves_if_asked(account: Account) -> None:
    """Each as it happens, in order."""
    url = "https://shop.example/stripe/events"
    with responses.RequestsMock() as shop:
        shop.add_passthru(account.base_url)
        hook = shop.post(url)
        account.admin.settings(webhook_url=url, webhooks_by_themselves=True)
        account.pay("key-1")
        account.pay("key-2")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while hook.call_count < len(account.event_types()) and time.monotonic() < deadline:
            time.sleep(0.05)
        received = [json.loads(str(call.request.body))["type"] for call in hook.calls]
    assert received == account.event_types()


def test_the_api_version_of_an_endpoint_cannot_be_changed(account: Account) -> None:
    """Stripe refuses the parameter."""
    endpoints = account.client.v1.webhook_endpoints
    parameters: Any = {"url": "https://shop.example/hook", "enabled_events": ["*"], "api_version": API_VERSION}
    made = endpoints.create(parameters)
    assert made.api_version == API_VERSION
    other: Any = {"api_version": "2025-09-30.clover"}
    with pytest.raises(stripe.InvalidRequestError, match="unknown parameter"):
        endpoints.update(made.id, other)
