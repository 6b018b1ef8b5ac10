"""Delete the stack and what `deploy` made beside it; say what is left.

The webhook endpoint, the stack, its tables, bucket and user pool, its two secrets, and what sam has uploaded. What is
protected against deletion, as everything with data in Profile=live is, stays. A stack that was deployed with
Profile=live is refused until its own protection is off. Run it again after any failure.
"""

import os
from argparse import ArgumentParser, Namespace

import stripe

from ops.connection import Stack
from ops.deploy import account_of, agreed, say
from ops.deploy_plan import Wanted, to_delete
from ops.errors import ExitStatus, Problem, stripe_line
from ops.output import Report
from ops.webhook import Webhook


def add_arguments(parser: ArgumentParser) -> None:
    """None but those of every command."""


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    account, left = account_of(stack, arguments), list[str]()
    described = account.described()
    is_there = bool(described)
    if described.get("EnableTerminationProtection"):
        raise Problem(
            f"{stack.name} takes real money, and is protected; to delete it all the same, first: "
            f"aws cloudformation update-termination-protection --no-enable-termination-protection "
            f"--stack-name {stack.name}"
        )
    retained = list(account.retained())
    deleted = [f"{each.kind} {each.id}, with all that is in it" for each in to_delete(retained)]
    what = [*(["the webhook endpoint, the stack"] if is_there else []), *deleted, "the secrets, sam's uploads"]
    if not is_there:
        say(f"there is no stack {stack.name} in {account.where()}; an earlier one may have left something")
    if not agreed(f"Delete of {stack.name} in {account.where()}:", what, arguments):
        return Report({"would": what}, ["nothing was changed"], ExitStatus.FOUND)
    if is_there:
        left += _delete_endpoints(stack, os.environ.get("API_URL"))
        say("• deleting the stack")
        account.delete_stack()
    for each in (retained := list(account.retained())):
        if each in to_delete(retained):
            say(f"• deleting the {each.kind} {each.id}")
            account.delete(each)
        else:
            left.append(f'{each.kind} {each.id}: docs/runbook.md, "Delete a stack"')
    for name in Wanted(stack.name).secret_names.values():
        account.delete_secret(name)
    account.delete_artifacts()
    if deleted:
        left.append("the system backups that DynamoDB makes of deleted tables: 35 days, without charge")
    left.append("the bucket of the stack aws-sam-cli-managed-default, which all SAM applications of the region share")
    left.append("metrics, traces, and the payments at Stripe")
    return Report({"left": left}, ["deleted; left are:", *(f"  {line}" for line in left)])


def _delete_endpoints(stack: Stack, api_url: str | None) -> list[str]:
    """What is left of them: at the stack's own URL, and at that of a custom domain."""
    urls = [stack.outputs.get("StripeEventsUrl"), api_url and f"{api_url.rstrip('/')}/stripe/events"]
    try:
        for webhook in (Webhook(stack, url) for url in urls if url):
            webhook.delete(webhook.present())
    except stripe.StripeError as error:
        return [f"the webhook endpoint at Stripe, if there is one: {stripe_line(error)}"]
    return []
