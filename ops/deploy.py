"""Deploy the stack, with its secrets and its webhook endpoint; run it again after any failure.

    STRIPE_SECRET_KEY=sk_test_… make deploy STACK=shop

The steps that are left are shown, and done with --yes or when a terminal says so. STRIPE_SECRET_KEY makes the webhook
endpoint, and is stored for the functions unless STRIPE_FUNCTIONS_KEY is another one; Profile=live stores only `rk_…`.
No key is in an argument, a log or the template. Without STRIPE_SECRET_KEY, as in CI, a stack that is there is deployed.
"""

import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import stripe

from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.time_bounds import TimeBounds
from ops import check, webhook
from ops.connection import Stack
from ops.deploy_account import Account
from ops.deploy_plan import FAILED_FIRST, PLACEHOLDER, Seen, Step, Wanted, plan, to_delete
from ops.errors import ExitStatus, Problem, problem_of, stripe_line
from ops.output import Report, show

_TEMPLATE = Path(__file__).resolve().parents[1] / "template.yaml"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE", help="of template.yaml")
    parser.add_argument("--role-arn", default="", help="what CloudFormation acts as (default: you)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if missing := _missing(stack):
        said = "what is missing to deploy (STACK is an argument of make, the others are environment variables):"
        raise Problem("\n  ".join((said, *missing)))
    account = account_of(stack, arguments)
    named = named_parameters(arguments.parameter)
    described = account.described()
    wanted = Wanted(
        stack.name,
        named,
        os.environ.get("STRIPE_SECRET_KEY", "").strip(),
        os.environ.get("STRIPE_FUNCTIONS_KEY", "").strip(),
        has_token_command=bool(os.environ.keys() & {"TOKEN_COMMAND", "CLIENT_ID"}),
    )
    seen = _seen(account, described, wanted)
    steps = plan(seen, wanted)
    _try_keys({**seen.parameters, **wanted.parameters}.get("StripeApiBase", stripe.DEFAULT_API_BASE), wanted)
    lines = [f"{number}. {step.value}" for number, step in enumerate(steps, 1)]
    lines += [f"with {name}={value}" for name, value in wanted.parameters.items()]
    if not agreed(f"Deploy {stack.name} to {account.where()}:", lines, arguments):
        return Report({"would": [step.name for step in steps]}, ["nothing was changed"], ExitStatus.FOUND)
    is_well = True
    for step in steps:
        say(f"• {step.value}")
        match step:
            case Step.REMOVE_FAILED:
                remove_failed(account)
            case Step.STORE_SECRETS:
                _store_secrets(account, wanted)
            case Step.DEPLOY:
                _deploy(account, seen, wanted, arguments.role_arn)
            case Step.ENDPOINT | Step.CHECK:
                is_well = _at_the_stack(step, stack) and is_well
    return Report({"is_well": is_well}, _next(stack, is_well), ExitStatus.OK if is_well else ExitStatus.FOUND)


def _missing(stack: Stack) -> list[str]:
    """Everything that has to be given first: a person learns of it at once, not one by one."""
    if stack.is_local:
        return []
    missing = [*([] if stack.name else ["a name for the stack: STACK=shop"]), *stack.missing()]
    if missing and not os.environ.get("STRIPE_SECRET_KEY"):
        # Alone it is missed only where no stack is yet: the plan says so.
        missing.append("for the first deployment a Stripe key of test mode: STRIPE_SECRET_KEY=sk_test_…")
    for name in ("STRIPE_SECRET_KEY", "STRIPE_FUNCTIONS_KEY"):
        key = os.environ.get(name, "").strip()
        if key and not re.fullmatch(r"[sr]k_(test|live)_[a-zA-Z0-9_]+", key):
            missing.append(f"{name} is not a Stripe key, which begins with sk_test_, rk_test_, sk_live_ or rk_live_")
    return missing


def named_parameters(words: Sequence[str]) -> dict[str, str]:
    """The value of each parameter. Raises Problem if the template has none of this name, which sam would drop."""
    _, _, section = _TEMPLATE.read_text().partition("\nParameters:\n")
    known = re.findall(r"^  (\w+):$", re.split(r"^\w", section, flags=re.MULTILINE)[0], re.MULTILINE)
    for word in words:
        if "=" not in word or word.partition("=")[0] not in known:
            raise Problem(f"PARAMETERS: {word} is not Name=value of one of {', '.join(sorted(known))}")
    return dict(word.split("=", 1) for word in words)


def account_of(stack: Stack, arguments: Namespace) -> Account:
    """The account that the caller means; what is started from here, such as sam, means the same. Raises Problem."""
    if stack.is_local:
        raise Problem("--stack NAME is missing: a local stack is started with `make local`")
    account = Account(stack)
    if arguments.profile:
        os.environ["AWS_PROFILE"] = arguments.profile
    os.environ["AWS_DEFAULT_REGION"] = account.region
    return account


def agreed(title: str, lines: Sequence[str], arguments: Namespace) -> bool:
    """Show what would be done, and ask; --yes is the answer where there is no terminal."""
    say("\n  ".join((title, *lines)))
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        say("YES=1 after `make …`, or --yes, does it")
        return False
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


def say(line: str) -> None:
    """Progress; the result is on standard output."""
    print(line, file=sys.stderr, flush=True)


def remove_failed(account: Account) -> None:
    """Delete a stack that never was in use, with what CloudFormation could not delete or would retain."""
    of_stack = account.resources()
    account.delete_stack()
    for each in to_delete(list(account.retained()), of_stack):
        say(f"  deleting the {each.kind} {each.id}")
        account.delete(each)


def _seen(account: Account, described: Mapping[str, Any], wanted: Wanted) -> Seen:
    status = str(described.get("StackStatus", ""))
    parameters = {each["ParameterKey"]: each["ParameterValue"] for each in described.get("Parameters", [])}
    if status in FAILED_FIRST:  # Its secrets may have been deleted since.
        parameters = {name: value for name, value in parameters.items() if name not in wanted.secret_names}
    # CI deploys without a right to read secrets; another Profile may need another kind of key.
    other_profile = wanted.parameters.get("Profile", present := parameters.get("Profile")) != present
    if not other_profile and not wanted.secret_names.keys() - parameters.keys():
        return Seen(status, parameters)
    key, webhooks = (account.secret(parameters.get(name, own)) for name, own in wanted.secret_names.items())
    return Seen(status, parameters, str(key.get("SecretString", "")).strip(), bool(webhooks))


def _try_keys(api_base: str, wanted: Wanted) -> None:
    """Make one read request with each key. Raises Problem if Stripe refuses it."""
    tried: dict[str, tuple[str, Callable[[stripe.StripeClient], object]]] = {
        "STRIPE_SECRET_KEY": (wanted.deploying_key, lambda client: client.v1.webhook_endpoints.list({"limit": 1})),
        "STRIPE_FUNCTIONS_KEY": (wanted.functions_key, lambda client: client.v1.payment_intents.list({"limit": 1})),
    }
    for name, (key, request) in tried.items():
        try:
            if key:
                request(stripe_client(key, api_base=api_base, bounds=TimeBounds.of(30)))
        except stripe.AuthenticationError:
            raise Problem(f"{name}: Stripe knows no such key (401). Nothing was changed") from None
        except stripe.StripeError as error:
            raise Problem(f"{name}: {stripe_line(error)}. Nothing was changed") from None


def _store_secrets(account: Account, wanted: Wanted) -> None:
    values = {"StripeSecretArn": wanted.functions_key or wanted.deploying_key, "StripeWebhookSecretArn": PLACEHOLDER}
    for parameter, name in wanted.secret_names.items():
        if parameter not in wanted.parameters and not account.secret(name):
            account.store_secret(name, values[parameter])


def _deploy(account: Account, seen: Seen, wanted: Wanted, role_arn: str) -> None:
    unknown = [each for each in wanted.secret_names if each not in {**seen.parameters, **wanted.parameters}]
    arns = {parameter: account.secret(wanted.secret_names[parameter])["ARN"] for parameter in unknown}
    # What is not asked for stays as it is, for the build as well.
    parameters = {**seen.parameters, **arns, **wanted.parameters}
    account.sam("build", parameters=parameters)
    account.sam(
        *("deploy", "--stack-name", account.name, "--resolve-s3", "--s3-prefix", account.name),
        # The second one is for a transform in a template with a nested stack.
        *("--capabilities", "CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"),
        *("--no-confirm-changeset", "--no-fail-on-empty-changeset"),
        *(("--role-arn", role_arn) if role_arn else ()),
        parameters=parameters,
    )
    if parameters.get("Profile") == "live":
        account.protect()


def _at_the_stack(step: Step, stack: Stack) -> bool:
    """Whether it is well. What is wrong is said, and can be repeated: the stack is deployed."""
    given = Namespace(yes=True, action="create", seconds=120)  # What both commands read of their arguments.
    try:
        report = (webhook if step is Step.ENDPOINT else check).run(stack, given)
    except Exception as error:
        if not (problem := problem_of(error)):
            raise
        say(f"  ✗ {problem}")
        return False
    show(report, as_json=False, out=sys.stderr)
    return bool(report.status == ExitStatus.OK)


def _next(stack: Stack, is_well: bool) -> list[str]:
    pool = stack.outputs.get("SignInUrl")
    return [
        "",
        f"API            {stack.output('ApiUrl')}",
        f"a token        .venv/bin/python -m ops --stack {stack.name} token CUSTOMER",
        *([f"customers      sign in at {pool}, client {stack.output('CustomersClientId')}"] if pool else []),
        "next           set AlarmEmail (PARAMETERS=AlarmEmail=you@…), then docs/guides/api.md: a first order with curl",
        *([] if is_well else [f"not well       see above; `make deploy STACK={stack.name}` goes on from here"]),
    ]
