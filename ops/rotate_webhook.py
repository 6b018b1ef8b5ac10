"""Rotate the signing secret of the webhook endpoint, without losing an event.

    create a second endpoint ─► store its secret ─► the stack takes what it signs ─► disable the first endpoint

Stripe's API has no request that rolls a secret; only the Dashboard has ("Roll secret"). So a second endpoint replaces
the first. Meanwhile both send each event: the stack accepts both secrets for a day, and a duplicate changes nothing. An
event that was refused meanwhile is sent again by Stripe, and `reconcile` reads every event minutes later.

--leaked: the former secret is refused at once, not after a day.
"""

from argparse import ArgumentParser, Namespace

import stripe

from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report
from ops.webhook_endpoints import WebhookOfStack, add_endpoint_arguments, create_with_secret, stack_takes

HELP = "replace the signing secret of the webhook endpoint"


def add_arguments(parser: ArgumentParser) -> None:
    """`rotate-webhook [--url URL] [--leaked]`."""
    add_endpoint_arguments(parser)
    parser.add_argument("--leaked", action="store_true", help="refuse the former secret at once")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Replace the endpoint by one with another secret."""
    webhook = WebhookOfStack.of(stack, arguments.url)
    former = [each for each in webhook.endpoints.present() if each.status == "enabled"]
    if not former:
        raise Problem(f"Stripe has no enabled endpoint for {webhook.url}: `webhook create` makes one")
    names = ", ".join(each.id for each in former)
    if not arguments.yes:
        line = (
            f"would create a second endpoint for {webhook.url}, store its secret, and then disable {names}. --yes does"
        )
        return _report(webhook, None, former, ExitStatus.FOUND, line)
    made = create_with_secret(webhook.endpoints, webhook.store)
    if arguments.leaked:
        # Stored twice, the former version in Secrets Manager is the new secret, too.
        webhook.store(str(made.secret))
    if not stack_takes(webhook.url, str(made.secret), patience_seconds=arguments.patience):
        line = f"created {made.id} and stored its secret, but {webhook.url} refuses it: {names} stays; run it again"
        return _report(webhook, made, [], ExitStatus.FOUND, line)
    for each in former:
        webhook.endpoints.disable(each)
    return _report(webhook, made, former, ExitStatus.OK, f"{made.id} replaces {names}, which is disabled")


def _report(
    webhook: WebhookOfStack,
    made: stripe.WebhookEndpoint | None,
    disabled: list[stripe.WebhookEndpoint],
    status: ExitStatus,
    line: str,
) -> Report:
    document = {
        "url": webhook.url,
        "endpoint": made.id if made else None,
        "disabled": [each.id for each in disabled] if made else [],
        "message": line,
    }
    return Report(document, [line], status)
