"""Make the webhook endpoint at Stripe, or check and correct it.

    webhook create     the endpoint of this stack: its URL, exactly the event types that are handled, the API version;
                       its signing secret goes into the secret StripeWebhookSecret, and is never shown

It can be run again: it corrects an endpoint of the same URL. One whose secret is not stored, or of another API version,
is replaced: a second one is created, its secret stored, and the first one disabled. The functions read a new secret
within a minute. Until then Stripe sends again what they refuse, and `reconcile` reads every event. `check`
says whether events arrive.

A Stripe key with the permission "Webhook endpoints: Write" is needed (STRIPE_SECRET_KEY); the functions' lacks it.
"""

import os
from argparse import ArgumentParser, Namespace
from typing import Any

import stripe

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES, is_signing_secret
from ops.connection import Stack
from ops.errors import Problem
from ops.output import Report


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
    """Create an endpoint, and disable the previous ones."""
    endpoints, about = stack.stripe.v1.webhook_endpoints, {"description": f"{stack.name}, made by `python -m ops`"}
    wanted: Any = {"url": url, "enabled_events": list(EVENT_TYPES), "api_version": STRIPE_VERSION, **about}
    made = endpoints.create(wanted)
    secret: Any = {"SecretId": stack.resource("StripeWebhookSecret"), "SecretString": str(made.secret)}
    try:
        stack.client("secretsmanager").put_secret_value(**secret)
    except Exception:
        endpoints.delete(made.id)  # Without its secret every event that it sends would be refused.
        raise
    for each in previous:
        endpoints.update(each.id, {"disabled": True})  # Not deleted: its deliveries can still be read.
    names = ", ".join(each.id for each in previous)
    line = f"created {made.id} for {url}, and stored its secret" + (f"; disabled {names}" if names else "")
    return Report({"action": "replace" if previous else "create", "message": line})
