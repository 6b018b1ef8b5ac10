"""Make and check the webhook endpoint at Stripe.

    webhook create     the endpoint of this stack: its URL, exactly the event types that are handled, the API version;
                       its signing secret goes into the secret StripeWebhookSecretArn, and is never shown

It can be run again: an endpoint of the same URL is compared, and corrected. A Stripe key with the permission "Webhook
endpoints: Write" is needed (--stripe-key-secret); the keys of the functions do not have it.
"""

from argparse import ArgumentParser, Namespace

from ops.connection import Stack
from ops.errors import ExitStatus
from ops.output import Report
from ops.webhook_endpoints import (
    WebhookOfStack,
    add_endpoint_arguments,
    create_with_secret,
    differences,
    has_our_version,
    is_signing_secret,
    stack_takes,
)

HELP = "make or check the webhook endpoint at Stripe"


def add_arguments(parser: ArgumentParser) -> None:
    """`webhook create [--url URL]`."""
    add_endpoint_arguments(parser.add_subparsers(dest="action", required=True).add_parser("create", help=HELP))


def run(stack: Stack, arguments: Namespace) -> Report:
    """Create it, or compare the one that is there."""
    webhook = WebhookOfStack.of(stack, arguments.url)
    present = webhook.endpoints.present()
    if not present:
        return _create(webhook, arguments)
    enabled = [each for each in present if each.status == "enabled"]
    endpoint = (enabled or present)[0]
    wrong = differences(endpoint)
    if not has_our_version(endpoint) or not is_signing_secret(stack.secret(webhook.secret_id)):
        why = "has another API version" if not has_our_version(endpoint) else "has a secret that is not stored"
        line = f"{endpoint.id} {why}: `rotate-webhook` replaces it"
        return _report("replace", webhook, endpoint.id, ExitStatus.FOUND, line)
    if not wrong:
        return _report("none", webhook, endpoint.id, ExitStatus.OK, f"{endpoint.id} is as it should be")
    found = f"{endpoint.id}: {'; '.join(wrong)}"
    if not arguments.yes:
        return _report("correct", webhook, endpoint.id, ExitStatus.FOUND, f"{found}. --yes corrects it")
    webhook.endpoints.correct(endpoint)
    return _report("corrected", webhook, endpoint.id, ExitStatus.OK, f"{found}. Corrected")


def _create(webhook: WebhookOfStack, arguments: Namespace) -> Report:
    if not arguments.yes:
        line = f"would create an endpoint for {webhook.url} and store its signing secret. --yes does it"
        return _report("create", webhook, None, ExitStatus.FOUND, line)
    made = create_with_secret(webhook.endpoints, webhook.store)
    if stack_takes(webhook.url, str(made.secret), patience_seconds=arguments.patience):
        line = f"created {made.id} for {webhook.url}; its secret is stored, and the stack takes what it signs"
        return _report("created", webhook, made.id, ExitStatus.OK, line)
    line = f"created {made.id} and stored its secret, but {webhook.url} refuses what it signs, or does not answer"
    return _report("created", webhook, made.id, ExitStatus.FOUND, line)


def _report(action: str, webhook: WebhookOfStack, endpoint_id: str | None, status: ExitStatus, line: str) -> Report:
    document = {"action": action, "url": webhook.url, "endpoint": endpoint_id, "message": line}
    return Report(document, [line], status)
