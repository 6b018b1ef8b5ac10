"""Make the webhook endpoint at Stripe, or compare and replace it. It can be run again.

It has this stack's URL, exactly the event types that are handled, and the API version. Its signing secret is stored in
StripeWebhookSecret, and never shown. An endpoint of the same URL that differs, or whose secret is not stored, is
replaced: a second one is created, its secret stored, and the first one disabled. No event is lost meanwhile.

A Stripe key with the permission "Webhook endpoints: Write" is needed (STRIPE_SECRET_KEY); the functions' lacks it.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

from onecharge.payments.stripe_client import STRIPE_VERSION
from onecharge.payments.stripe_events import EVENT_TYPES, is_signing_secret
from ops.connection import Stack
from ops.output import Report


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("create",), help="make the endpoint, or compare and replace it")


def run(stack: Stack, arguments: Namespace) -> Report:
    url, endpoints = f"{stack.api_url}/stripe/events", stack.stripe.v1.webhook_endpoints
    present = [each for each in endpoints.list({"limit": 100}).auto_paging_iter() if each.url == url]
    # Stripe shows a secret only when it makes the endpoint, and never changes its API version (API reference).
    wanted = ("enabled", STRIPE_VERSION, set(EVENT_TYPES))
    right = [each.id for each in present if (each.status, each.api_version, {*each.enabled_events}) == wanted]
    if right and is_signing_secret(stack.secret("StripeWebhookSecret")):
        return Report({"endpoint": right[0], "message": "it is as it should be"})
    previous = [each.id for each in present if each.status == "enabled"]
    message = f"an endpoint for {url} is created, and its secret stored"
    message += f"; disabled: {', '.join(previous)}" if previous else ""
    if not arguments.yes:
        return Report({"endpoint": None, "message": message}, is_dry_run=True)
    about = {"api_version": STRIPE_VERSION, "description": f"{stack.name}, made by `python -m ops`"}
    given: Any = {"url": url, "enabled_events": list(EVENT_TYPES), **about}
    made = endpoints.create(given)
    secret: Any = {"SecretId": stack.value("StripeWebhookSecret"), "SecretString": str(made.secret)}
    try:
        stack.client("secretsmanager").put_secret_value(**secret)
    except Exception:
        endpoints.delete(made.id)  # Without its secret every event that it sends would be refused.
        raise
    for each in previous:
        endpoints.update(each, {"disabled": True})  # Not deleted: its deliveries can still be read.
    return Report({"endpoint": made.id, "message": message})
