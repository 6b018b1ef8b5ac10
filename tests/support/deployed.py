"""A deployed stack as the e2e tests know one: by its name in CloudFormation, with tokens of its own issuer.

`make e2e STACK=…` runs the very tests that run against the local stack. What needs the Stripe stand-in's admin (a
fault, a customer who authenticates) is skipped, and so is what only a stack of one's own survives.
"""

import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import boto3
import pytest
import stripe as stripe_sdk
from botocore.config import Config

from local.stack import Stack, resources_of
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.time_bounds import TimeBounds
from stripe_standin.admin import Ledger, LedgerCharge


class CannotRun(Exception):
    """The tests cannot run against this stack; the text says why."""


@dataclass(frozen=True)
class Aws:
    """boto3 with the caller's credentials, region and AWS_ENDPOINT_URL."""

    session: boto3.Session

    def client(self, service: str) -> Any:
        config = Config(connect_timeout=5, read_timeout=70, max_pool_connections=50)
        return self.session.client(service, config=config)  # type: ignore[call-overload]  # Known at run time.


@dataclass(frozen=True)
class TokenCommand:
    """A command that prints an access token for the customer that its last argument names; with --scope, for staff."""

    command: str

    def token(self, customer_id: str, scope: str = "") -> str:
        """An access token. Raises CannotRun."""
        words = [*shlex.split(self.command), customer_id, *(["--scope", scope] if scope else [])]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode or not done.stdout.strip():
            raise CannotRun(f"TOKEN_COMMAND failed: {done.stderr.strip()}")
        return done.stdout.strip()

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"needs the local issuer: nobody can do `{name}` at another one")


class StripeAccount:
    """Stripe's test mode in the place of the stand-in's admin: it has a ledger, and nobody can inject a fault."""

    def __init__(self, client: stripe_sdk.StripeClient) -> None:
        self._client = client

    def ledger(self) -> Ledger:
        """What Stripe shows of the last hour: a run of the tests is shorter."""
        since: Any = {"created": {"gte": int(time.time()) - 3600}, "limit": 100}
        api = self._client.v1
        intents, refunds = (
            tuple(each.to_dict() for each in objects.list(since).auto_paging_iter())
            for objects in (api.payment_intents, api.refunds)
        )
        charges = tuple(
            LedgerCharge(
                charge_id=each["latest_charge"],
                payment_intent_id=each["id"],
                order_id=each["metadata"].get("order_id"),
                amount_minor=each["amount_received"],
                currency=each["currency"],
                idempotency_key=None,
                created=each["created"],
            )
            for each in intents
            if each["status"] == "succeeded"
        )
        return Ledger(charges=charges, payment_intents=intents, refunds=refunds, counts={})

    def clear_faults(self) -> None:
        """There are none."""

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"needs the Stripe stand-in: nobody can do `{name}` at Stripe")


@dataclass(frozen=True)
class DeployedStack(Stack):
    """A stack that others deployed."""

    session: boto3.Session
    token_command: str
    stripe_key: str

    @property
    def aws(self) -> Aws:  # type: ignore[override]  # All that a test uses of the emulator.
        return Aws(self.session)

    @property
    def issuer(self) -> TokenCommand:  # type: ignore[override]  # All that a test uses of an issuer.
        return TokenCommand(self.token_command)

    @property
    def stripe(self) -> StripeAccount:  # type: ignore[override]  # What it cannot do skips the test.
        client = stripe_client(self.stripe_key, api_base=self.stripe_api_base, bounds=TimeBounds(30))
        return StripeAccount(client)


def deployed_stack(name: str, environment: Mapping[str, str]) -> DeployedStack:
    """The stack of this name.

    Args:
        environment: TOKEN_COMMAND, which is needed; API_URL for a custom domain; STRIPE_SECRET_KEY if the stack's
            own key may not list; AWS's own variables.

    Raises:
        CannotRun: there is no TOKEN_COMMAND, or the stack takes real money.
    """
    if not environment.get("TOKEN_COMMAND"):
        raise CannotRun("TOKEN_COMMAND is missing: a command that prints an access token (docs/guides/deploy.md)")
    session = boto3.Session(region_name=environment.get("AWS_REGION"))
    aws = Aws(session)
    cloudformation = aws.client("cloudformation")
    [found] = cloudformation.describe_stacks(StackName=name)["Stacks"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in found["Outputs"]}
    parameters = {each["ParameterKey"]: each["ParameterValue"] for each in found["Parameters"]}
    resources, secrets = resources_of(cloudformation, name), aws.client("secretsmanager")
    stripe_key = str(secrets.get_secret_value(SecretId=resources["stripe_secret_id"])["SecretString"]).strip()
    for key in (stripe_key, environment.get("STRIPE_SECRET_KEY", "sk_test_")):
        if not key.startswith(("sk_test_", "rk_test_")):
            raise CannotRun(f"{name} has a key that is not of Stripe's test mode: the tests move no real money")
    return DeployedStack(
        stack_name=name,
        aws_endpoint_url=environment.get("AWS_ENDPOINT_URL", ""),
        api_url=environment.get("API_URL") or outputs["ApiUrl"],
        jwt_issuer=parameters["JwtIssuer"],
        jwt_audience=parameters["JwtAudience"],
        jwt_key_file="",
        **resources,
        stripe_api_base=parameters["StripeApiBase"],
        page_url="",
        aws_log="",
        console_url="",
        session=session,
        token_command=environment["TOKEN_COMMAND"],
        stripe_key=environment.get("STRIPE_SECRET_KEY") or stripe_key,
    )
