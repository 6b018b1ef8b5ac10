"""What a deployment has to do, from what is wanted and what is there. Pure: it requests nothing.

nothing ─► store the secrets ─► build and deploy ─► make the webhook endpoint ─► check
a failed first deployment ─► delete what it left, then as above
a stack ─► build and deploy ─► compare the endpoint ─► check

Each step can be repeated, so running the command again is what to do after any failure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ops.errors import Problem

PLACEHOLDER = "no endpoint yet"
"""What the webhook's secret holds until the endpoint is made: the route verifies nothing with it, and answers 503."""
FAILED_FIRST = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
"""CloudFormation updates no stack in these states: it has to be deleted (User Guide, "Stack status codes")."""


class Step(Enum):
    """In their order; the value is what the person is told."""

    REMOVE_FAILED = "delete what the failed first deployment left"
    STORE_SECRETS = "store the Stripe key in Secrets Manager, and a placeholder for the webhook's signing secret"
    DEPLOY = "sam build, sam deploy: about ten minutes the first time, fewer later; live shifts traffic for ten more"
    ENDPOINT = "make the webhook endpoint at Stripe and store its signing secret, or compare the one that is there"
    CHECK = "check it: an order in test mode is paid and refunded: a minute or two"


@dataclass(frozen=True)
class Wanted:
    """What the person asks for.

    Args:
        parameters: of template.yaml, as PARAMETERS names them.
        deploying_key: STRIPE_SECRET_KEY, which may make webhook endpoints. Without it, as in CI, a stack that is there
            is deployed, and nothing else happens.
        functions_key: STRIPE_FUNCTIONS_KEY, which is stored for the functions; without it, the deploying key.
        has_token_command: whether an issuer of one's own gives the check its tokens; the user pool does by itself.
    """

    stack: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    deploying_key: str = field(default="", repr=False)
    functions_key: str = field(default="", repr=False)
    has_token_command: bool = False

    @property
    def secret_names(self) -> Mapping[str, str]:
        """The secret's name for each parameter that holds its ARN."""
        return {"StripeSecretArn": f"{self.stack}/stripe", "StripeWebhookSecretArn": f"{self.stack}/stripe-webhook"}


@dataclass(frozen=True)
class Seen:
    """What is there: the stack's status in CloudFormation (empty without a stack), and the two secrets."""

    status: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    stored_key: str = field(default="", repr=False)
    """Empty if there is no such secret."""
    has_webhook_secret: bool = False


def plan(seen: Seen, wanted: Wanted) -> list[Step]:
    """The steps that are left. Raises Problem if there is something that a person has to decide or mend first."""
    _refuse_state(seen, wanted)
    given = {**seen.parameters, **wanted.parameters}
    if wanted.parameters.get("JwtIssuer") and "JwtAudience" not in given:
        raise Problem("JwtIssuer needs JwtAudience: which of the issuer's access tokens are for this API?")
    if given.get("WebOrigin", "").startswith("http://127.0.0.1") and not given.get("JwtIssuer"):
        raise Problem("WebOrigin: a user pool takes http only for http://localhost (Amazon Cognito, callback URLs)")
    is_live = given.get("Profile") == "live"
    if is_live and "AlarmEmail" not in given:
        raise Problem("Profile=live without AlarmEmail: who gets the alarms? (AlarmEmail= if it is really nobody)")
    has_secrets = wanted.secret_names.keys() <= given.keys() or bool(seen.stored_key and seen.has_webhook_secret)
    if key := seen.stored_key or (wanted.functions_key or wanted.deploying_key if not has_secrets else ""):
        _refuse_key(key, wanted.deploying_key, is_live)
    elif not has_secrets:
        raise Problem("STRIPE_SECRET_KEY is missing: export STRIPE_SECRET_KEY=sk_test_…")
    can_check = wanted.deploying_key and not is_live and (wanted.has_token_command or not given.get("JwtIssuer"))
    return [
        *([Step.REMOVE_FAILED] if seen.status in FAILED_FIRST else []),
        *([] if has_secrets else [Step.STORE_SECRETS]),
        Step.DEPLOY,
        *([Step.ENDPOINT] if wanted.deploying_key else []),
        *([Step.CHECK] if can_check else []),
    ]


def _refuse_state(seen: Seen, wanted: Wanted) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,23}", wanted.stack) or re.search("aws|amazon|cognito", wanted.stack):
        # CloudFormation cuts a longer name in those of functions; Cognito takes none of these words in a domain.
        raise Problem(f"STACK={wanted.stack}: 24 small letters, digits and hyphens at most; not aws, amazon, cognito")
    if seen.status == "UPDATE_ROLLBACK_FAILED":
        raise Problem(
            f"the stack's last rollback failed: aws cloudformation continue-update-rollback --stack-name {wanted.stack}"
        )
    if seen.status.startswith("DELETE_"):
        raise Problem(f"the stack is {seen.status}: wait for it, or `make undeploy STACK={wanted.stack}`")
    if seen.status.endswith("_IN_PROGRESS") and seen.status != "REVIEW_IN_PROGRESS":
        raise Problem(f"the stack is {seen.status}: run this again when that has ended")


def _refuse_key(stored: str, deploying: str, is_live: bool) -> None:
    """Raises Problem if the functions must not have this key. No message holds a key."""
    if is_live and not stored.startswith("rk_"):
        raise Problem(
            "Profile=live takes a restricted key alone: export STRIPE_FUNCTIONS_KEY=rk_live_… (docs/guides/deploy.md)"
        )
    if not is_live and not stored.startswith(("sk_test_", "rk_test_")):
        raise Problem(
            "a sandbox takes a key of test mode, sk_test_… or rk_test_…; PARAMETERS=Profile=live asks for live"
        )
    if deploying and ("_live_" in deploying) != ("_live_" in stored):
        raise Problem(
            "STRIPE_SECRET_KEY and the functions' key are not of one mode: the endpoint would be in the other"
        )


# ---------------------------------------------------------------- why it failed, and what stays


def causes(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why the last operation of a stack failed, in the order in which it happened.

    Args:
        events: CloudFormation's, the newest first.
    """
    found = []
    for event in events:
        is_stack = event.get("PhysicalResourceId") == event["StackId"]
        if is_stack and event["ResourceStatus"] in ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS"):
            break
        reason = event.get("ResourceStatusReason", "")
        # What was canceled, or has a nested stack below it, failed because of something else.
        if event["ResourceStatus"].endswith("_FAILED") and not is_stack and "cancelled" not in reason.lower():
            found.append(f"{event['LogicalResourceId']}: {event['ResourceStatus']}: {reason}")
    return found[::-1]


@dataclass(frozen=True)
class Retained:
    """A resource that CloudFormation retains when it deletes a stack: a table, a bucket, a user pool."""

    kind: str
    id: str
    is_protected: bool
    """Against deletion, as in Profile=live."""
    is_empty: bool = False


def to_delete(retained: Sequence[Retained], of_failed: Sequence[str] | None = None) -> list[Retained]:
    """Which of them are deleted with the stack.

    Nothing that is protected, as everything of Profile=live is; nor the bucket beside such a table.

    Args:
        of_failed: the resources of a failed first deployment. Of these, what is empty is deleted, protected or not: it
            never was in use. What an earlier stack of this name left stays.
    """
    if of_failed is not None:
        return [each for each in retained if each.id in of_failed and each.is_empty]
    has_protected = any(each.is_protected for each in retained)
    return [each for each in retained if not each.is_protected and not (each.kind == "bucket" and has_protected)]
