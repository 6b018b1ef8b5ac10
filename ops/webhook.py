"""Make the webhook endpoint at Stripe, or check and correct it.

    webhook create     the endpoint of this stack: its URL, exactly the event types that are handled, the API version;
                       its signing secret goes into the secret StripeWebhookSecret, and is never shown

It can be run again: it compares an endpoint of the same URL, and corrects it; one whose secret is not stored, or of
another API version, is replaced:

    create a second endpoint ─► store its secret ─► the stack takes what it signs ─► disable the first endpoint

Meanwhile both send each event; a duplicate changes nothing. Stripe sends a refused event again, and `reconcile` reads
every event minutes later.

A Stripe key with the permission "Webhook endpoints: Write" is needed (--stripe-key-secret); the functions' lacks it.
"""

import hashlib
import hmac
import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import requests
import stripe

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES, is_signing_secret
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report

PATIENCE_SECONDS = 90
"""Longer than a function keeps a secret that was refused (runtime/secrets.py, REREAD_SECONDS)."""
_PAUSE_SECONDS = 3


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("create", help="make the endpoint, or compare and correct it")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if stack.is_local and "API_URL" not in os.environ:
        raise Problem("the emulator's own name for its API leads nowhere: set API_URL")
    webhook = Webhook(stack, f"{stack.api_url}/stripe/events")
    return _create(webhook, is_dry_run=not arguments.yes)


@dataclass(frozen=True)
class Webhook:
    """A stack's endpoints at one URL, and the secret in Secrets Manager."""

    stack: Stack
    url: str

    def present(self) -> list[stripe.WebhookEndpoint]:
        """The endpoints that Stripe has for the URL, the newest first; more than one while one is replaced."""
        listed = self.stack.stripe.v1.webhook_endpoints.list({"limit": 100})
        return [each for each in listed.auto_paging_iter() if each.url == self.url]

    def create(self) -> stripe.WebhookEndpoint:
        """A new endpoint, whose secret is stored; if that fails, there is no new endpoint."""
        endpoints = self.stack.stripe.v1.webhook_endpoints
        wanted: Any = {
            "url": self.url,
            "enabled_events": list(EVENT_TYPES),
            "api_version": STRIPE_VERSION,
            "description": f"{self.stack.name}, made by `python -m ops`",
        }
        made = endpoints.create(wanted)
        if not made.secret:  # Only this response has it.
            raise Problem(f"Stripe has returned no secret for {made.id}: nothing was stored")
        try:
            self.store(made.secret)
        except Exception:
            # Without its secret every event that it sends would be refused.
            endpoints.delete(made.id)
            raise
        return made

    def update(self, endpoint: stripe.WebhookEndpoint, **changes: Any) -> None:
        parameters: Any = changes
        self.stack.stripe.v1.webhook_endpoints.update(endpoint.id, parameters)

    @property
    def secret_id(self) -> str:
        return self.stack.resource("StripeWebhookSecret")

    def store(self, secret: str) -> None:
        self.stack.client("secretsmanager").put_secret_value(SecretId=self.secret_id, SecretString=secret)

    def report(self, action: str, line: str, *, is_done: bool, **also: Any) -> Report:
        status = ExitStatus.OK if is_done else ExitStatus.FOUND
        return Report({"action": action, "url": self.url, "message": line, **also}, [line], status)


def _create(webhook: Webhook, *, is_dry_run: bool) -> Report:
    """Create it, or compare the one that is there."""
    present = webhook.present()
    if not present and is_dry_run:
        line = f"would create an endpoint for {webhook.url} and store its signing secret. --yes does it"
        return webhook.report("create", line, is_done=False)
    if not present:
        return _replace(webhook, [])
    endpoint = next((each for each in present if each.status == "enabled"), present[0])
    is_stored = is_signing_secret(webhook.stack.own_secret("StripeWebhookSecret"))
    if not is_stored or endpoint.api_version != STRIPE_VERSION:
        # Stripe shows a secret only when it makes the endpoint, and never changes its API version (API reference).
        why = "has another API version" if is_stored else "has a secret that is not stored"
        if is_dry_run:
            return webhook.report("replace", f"{endpoint.id} {why}: it would be replaced. --yes does it", is_done=False)
        return _replace(webhook, present)
    if endpoint.status == "enabled" and set(endpoint.enabled_events) == set(EVENT_TYPES):
        return webhook.report("none", f"{endpoint.id} is as it should be", is_done=True)
    found = f"{endpoint.id} is {endpoint.status}, and its events are: {', '.join(endpoint.enabled_events)}"
    if is_dry_run:
        return webhook.report("correct", f"{found}. --yes corrects it", is_done=False)
    webhook.update(endpoint, enabled_events=list(EVENT_TYPES), disabled=False)
    return webhook.report("corrected", f"{found}. Corrected", is_done=True)


def _replace(webhook: Webhook, previous: Sequence[stripe.WebhookEndpoint]) -> Report:
    """Create an endpoint; once the stack takes what it signs, disable the previous ones, if there are any."""
    made = webhook.create()
    line = f"created {made.id} for {webhook.url}, and stored its secret"
    if not _takes(webhook.url, str(made.secret)):
        stays = f": {_names(previous)} stays; disable it at Stripe once the stack does" if previous else ""
        line += f", but the stack refuses what it signs, or does not answer{stays}"
        return webhook.report("created", line, is_done=False, disabled=[])
    for each in previous:
        webhook.update(each, disabled=True)  # Not deleted: its deliveries can still be read.
    if not previous:
        return webhook.report("created", f"{line}; the stack takes what it signs", is_done=True)
    line += f"; it replaces {_names(previous)}, which is disabled"
    return webhook.report("replaced", line, is_done=True, disabled=[each.id for each in previous])


def _names(endpoints: Sequence[stripe.WebhookEndpoint]) -> str:
    return ", ".join(each.id for each in endpoints)


def _takes(url: str, secret: str) -> bool:
    """Whether the stack soon answers a request that this secret has signed, as Stripe would send it.

    The event is of a type that no function handles: it changes nothing.
    """
    body = json.dumps({"id": "evt_ops_check", "object": "event", "type": "ops.check", "data": {"object": {}}})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        timestamp = int(time.time())
        signed = hmac.new(secret.encode(), f"{timestamp}.{body}".encode(), hashlib.sha256).hexdigest()
        headers = {"Stripe-Signature": f"t={timestamp},v1={signed}", "Content-Type": "application/json"}
        try:
            if requests.post(url, data=body, headers=headers, timeout=30).status_code == HTTPStatus.OK:
                return True
        except requests.RequestException:
            pass
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
