"""Make the webhook endpoint at Stripe, or check and correct it.

    webhook create     the endpoint of this stack: its URL, exactly the event types that are handled, the API version;
                       its signing secret goes into the secret StripeWebhookSecret, and is never shown

It can be run again: it corrects an endpoint of the same URL. One whose secret is not stored, or of another API version,
is replaced:

    create a second endpoint ─► store its secret ─► the stack takes what it signs ─► disable the first endpoint

Meanwhile both send each event; a duplicate changes nothing. Stripe sends a refused event again, and `reconcile` reads
every event minutes later.

A Stripe key with the permission "Webhook endpoints: Write" is needed (STRIPE_SECRET_KEY); the functions' lacks it.
"""

import hashlib
import hmac
import json
import os
import time
from argparse import ArgumentParser, Namespace
from http import HTTPStatus
from typing import Any

import requests
import stripe

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES, is_signing_secret
from ops.connection import Stack
from ops.errors import Problem
from ops.output import Report

PATIENCE_SECONDS = 90
"""Longer than a function keeps a secret that was refused (runtime/secrets.py, REREAD_SECONDS)."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("create",), help="make the endpoint, or compare and correct it")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if stack.is_local and "API_URL" not in os.environ:
        raise Problem("the emulator's own name for its API leads nowhere: set API_URL")
    url, endpoints = f"{stack.api_url}/stripe/events", stack.stripe.v1.webhook_endpoints
    present = [each for each in endpoints.list({"limit": 100}).auto_paging_iter() if each.url == url]
    first = next((each for each in present if each.status == "enabled"), present[0] if present else None)
    # Stripe shows a secret only when it makes the endpoint, and never changes its API version (API reference).
    is_stored = is_signing_secret(stack.secret("StripeWebhookSecret"))
    if first is None or not is_stored or first.api_version != STRIPE_VERSION:
        if arguments.yes:
            return _replace(stack, url, present)
        why = "has another API version" if is_stored else "has a secret that is not stored"
        line = f"{first.id} {why}: it is replaced" if first else f"an endpoint for {url} is created"
        return Report({"action": "replace" if first else "create", "message": line}, is_dry_run=True)
    if first.status == "enabled" and set(first.enabled_events) == set(EVENT_TYPES):
        return Report({"action": "none", "message": f"{first.id} is as it should be"})
    found = f"{first.id} is {first.status}, and its events are: {', '.join(first.enabled_events)}"
    if arguments.yes:
        changes: Any = {"enabled_events": list(EVENT_TYPES), "disabled": False}
        endpoints.update(first.id, changes)
    return Report({"action": "correct", "message": found}, is_dry_run=not arguments.yes)


def _replace(stack: Stack, url: str, previous: list[stripe.WebhookEndpoint]) -> Report:
    """Create an endpoint; once the stack takes what it signs, disable the previous ones, if there are any."""
    endpoints, about = stack.stripe.v1.webhook_endpoints, {"description": f"{stack.name}, made by `python -m ops`"}
    wanted: Any = {"url": url, "enabled_events": list(EVENT_TYPES), "api_version": STRIPE_VERSION, **about}
    made = endpoints.create(wanted)
    secret, secret_id = str(made.secret), stack.resource("StripeWebhookSecret")
    try:
        stack.client("secretsmanager").put_secret_value(SecretId=secret_id, SecretString=secret)
    except Exception:
        endpoints.delete(made.id)  # Without its secret every event that it sends would be refused.
        raise
    line, names = f"created {made.id} for {url}, and stored its secret", ", ".join(each.id for each in previous)
    if not _takes(url, secret):
        stays = f": {names} stays; disable it at Stripe once the stack does" if previous else ""
        return Report(
            {"action": "create", "message": f"{line}, but the stack refuses what it signs{stays}"}, is_wrong=True
        )
    for each in previous:
        endpoints.update(each.id, {"disabled": True})  # Not deleted: its deliveries can still be read.
    line += f"; it replaces {names}, which is disabled" if previous else "; the stack takes what it signs"
    return Report({"action": "replace" if previous else "create", "message": line})


def _takes(url: str, secret: str) -> bool:
    """Whether the stack soon answers a request that this secret has signed, of an event that changes nothing."""
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
        time.sleep(3)
