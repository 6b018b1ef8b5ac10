"""Check the Stripe keys of the functions: does each have the permissions that it needs, and no more?

Every check is a request that a key with the permission is answered "no such object" to, or an empty list: nothing is
created, changed or charged. docs/guides/stripe-keys.md says what each function needs.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import stripe

from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_permissions import PERMISSIONS, Permission, without_included
from onecharge.payments.time_bounds import TimeBounds
from ops.connection import Stack
from ops.errors import ExitStatus, Problem, stripe_line
from ops.output import Report, Table

HELP = "check that each function's Stripe key has its permissions, and no more"

SHARED_KEY = "StripeSecretArn"
OWN_KEYS: Mapping[str, str] = {
    "charge_order": "ChargeStripeSecretArn",
    "reconcile": "ReconcileStripeSecretArn",
    "refund_charge": "RefundStripeSecretArn",
    "payment_questions": "QuestionsStripeSecretArn",
    "stripe_webhook": "WebhookStripeSecretArn",
    "stripe_eventbridge": "WebhookStripeSecretArn",
}
"""The parameter of template.yaml that names the secret with a function's own key; empty: the shared key."""

_NOBODYS = "pi_onecharge_permission_check"
_CHECKS: Mapping[Permission, Callable[[stripe.StripeClient], object]] = {
    Permission.PAYMENT_INTENTS_READ: lambda client: client.v1.payment_intents.list({"limit": 1}),
    Permission.PAYMENT_INTENTS_WRITE: lambda client: client.v1.payment_intents.cancel(_NOBODYS),
    Permission.CHARGES_READ: lambda client: client.v1.refunds.list({"limit": 1}),
    Permission.CHARGES_WRITE: lambda client: client.v1.refunds.create({"payment_intent": _NOBODYS}),
    Permission.EVENTS_READ: lambda client: client.v1.events.list({"limit": 1}),
}
_PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Found:
    """What a function's key may do, beside what it needs."""

    function: str
    secret_parameter: str
    missing: list[str]
    needless: list[str]

    @property
    def is_shared(self) -> bool:
        """Of a key for all functions it is no finding that it may do more than one of them needs."""
        return self.secret_parameter == SHARED_KEY

    @property
    def is_wrong(self) -> bool:
        return bool(self.missing or (self.needless and not self.is_shared))


def add_arguments(parser: ArgumentParser) -> None:
    """`stripe-keys check`."""
    parser.add_subparsers(dest="action", required=True).add_parser("check", help=HELP)


def run(stack: Stack, _: Namespace) -> Report:
    """Check the key of each function that the stack has."""
    functions = [name for name in PERMISSIONS if stack.has_resource(_resource_of(name))]
    found = [_check(stack, function) for function in functions]
    rows = [(each.function, each.secret_parameter, ", ".join(each.missing), ", ".join(each.needless)) for each in found]
    status = ExitStatus.FOUND if any(each.is_wrong for each in found) else ExitStatus.OK
    columns = ("function", "key", "lacks", "may, and needs not")
    styles = ["red" if each.is_wrong else None for each in found]
    document = {"functions": [{**vars(each), "is_wrong": each.is_wrong} for each in found]}
    return Report(document, [Table("Stripe keys", columns, rows, styles)], status)


def _check(stack: Stack, function: str) -> Found:
    own = OWN_KEYS[function]
    parameter = own if stack.parameter(own) else SHARED_KEY
    client = stripe_client(
        stack.secret(stack.parameter(parameter)),
        api_base=stack.parameter("StripeApiBase"),
        bounds=TimeBounds.of(_PATIENCE_SECONDS),
    )
    allowed = {permission for permission in Permission if _is_allowed(client, permission)}
    needed = PERMISSIONS[function]
    includes = set(without_included(needed))
    missing = sorted(needed - allowed)
    # A write includes the read: that is not asked for twice.
    needless = [each for each in without_included(allowed) if each not in includes and each not in needed]
    return Found(function, parameter, [str(each) for each in missing], needless)


def _is_allowed(client: stripe.StripeClient, permission: Permission) -> bool:
    """Whether Stripe answers anything but 403. Raises Problem if it does not answer, or refuses the key itself."""
    try:
        _CHECKS[permission](client)
    except stripe.PermissionError:
        return False
    except stripe.InvalidRequestError:
        return True  # No such object: the key was allowed to ask.
    except stripe.StripeError as error:
        raise Problem(stripe_line(error)) from None
    return True


def _resource_of(function: str) -> str:
    return "".join(word.title() for word in function.split("_")) + "Function"
