"""One stack, deployed or local: AWS clients, resources by their logical ids, its Stripe account.

    --stack NAME        CloudFormation knows its resources; credentials and region are the caller's, as for the AWS CLI
    --stack local       .local/stack.json, while `make local` runs; also the default then
    --stack FILE.json   the stack.json of another local run

A caller needs cloudformation:DescribeStacks and ListStackResources for every command, and the actions that the command
itself requests. An error names a missing one.
"""

import argparse
import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import stripe
from botocore.config import Config
from botocore.exceptions import ClientError

from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.dynamodb import to_item
from ops.errors import Problem

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

STACK_JSON = Path(__file__).resolve().parent.parent / ".local" / "stack.json"
"""Where the local stack says where it is."""
_REGION, _ANY = "us-east-1", "test"
"""The emulator's region, and credentials: it takes any."""
_PATIENCE_SECONDS = 30
"""Stripe's timeouts are those of a function with this timeout: a person waits."""


class Stack:
    """A stack, as a command needs it. Nothing is requested before it is used.

    Args:
        endpoint_url: of the emulator; None on AWS.
        stripe_key_secret: name or ARN of a secret with a Stripe key (--stripe-key-secret).
        stripe_key: STRIPE_SECRET_KEY, used without `stripe_key_secret`; without both, the stack's own secret.
    """

    def __init__(
        self,
        name: str,
        session: boto3.Session,
        *,
        endpoint_url: str | None = None,
        stripe_key_secret: str | None = None,
        stripe_key: str | None = None,
    ) -> None:
        self.name = name
        self.endpoint_url = endpoint_url
        self._session = session
        self._stripe_key_secret, self._stripe_key = stripe_key_secret, stripe_key

    @property
    def is_local(self) -> bool:
        return self.endpoint_url is not None

    def client(self, service: str) -> Any:
        """boto3's client of a service, with the caller's credentials."""
        config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"})
        return self._session.client(  # type: ignore[call-overload]  # The service is not known before run time.
            service, endpoint_url=self.endpoint_url, config=config
        )

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        client: DynamoDBClient = self.client("dynamodb")
        return client

    @cached_property
    def sqs(self) -> "SQSClient":
        client: SQSClient = self.client("sqs")
        return client

    def item(self, table: str, **key: str) -> Mapping[str, Any] | None:
        """An item of a table by its logical id, in DynamoDB's JSON, read consistently; None if there is none."""
        name, given = self.resource(table), to_item(key)
        return self.dynamodb.get_item(TableName=name, Key=given, ConsistentRead=True).get("Item")

    # ------------------------------------------------------------ what CloudFormation knows

    def resource(self, logical_id: str) -> str:
        """The physical id of a resource of template.yaml, such as a table's name or a queue's URL. Raises Problem."""
        return self._named("resource", logical_id, self._resources)

    def parameter(self, name: str) -> str:
        """The value of a parameter of template.yaml. Raises Problem if the stack has no such parameter."""
        found = {each["ParameterKey"]: each["ParameterValue"] for each in self._described.get("Parameters", [])}
        return self._named("parameter", name, found)

    def output(self, name: str) -> str:
        """The value of an output of template.yaml. Raises Problem if the stack has no such output."""
        found = {each["OutputKey"]: each["OutputValue"] for each in self._described.get("Outputs", [])}
        return self._named("output", name, found)

    @property
    def api_url(self) -> str:
        """Where the API is: API_URL names a custom domain, which the stack does not know. Raises Problem."""
        return (os.environ.get("API_URL") or self.output("ApiUrl")).rstrip("/")

    @property
    def created_at(self) -> float:
        """When the stack was created, in seconds since 1970."""
        return float(self._described["CreationTime"].timestamp())

    def _named(self, kind: str, name: str, found: Mapping[str, str]) -> str:
        if name not in found:
            raise Problem(f"stack {self.name} has no {kind} {name}: was it deployed from this template?")
        return found[name]

    @cached_property
    def _described(self) -> Mapping[str, Any]:
        [stack] = self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return dict(stack)

    @cached_property
    def _resources(self) -> Mapping[str, str]:
        # DescribeStackResources ends at 100 resources (AWS CloudFormation API reference); this one has pages.
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=self.name)
        found = [each for page in pages for each in page["StackResourceSummaries"]]
        return {each["LogicalResourceId"]: each.get("PhysicalResourceId", "") for each in found}

    # ------------------------------------------------------------ Stripe, and the caller

    @cached_property
    def stripe(self) -> stripe.StripeClient:
        """The client of the stack's Stripe account; the same API version and retries as the functions'."""
        if self._stripe_key_secret:
            key = self.secret(self._stripe_key_secret)
        else:
            key = self._stripe_key or self.own_secret("StripeSecret")
        if not key:
            raise Problem(f"no Stripe key is stored yet: {self.output('Next1StripeKey')}")
        bounds = TimeBounds.of(_PATIENCE_SECONDS)
        return stripe_client(key.strip(), api_base=self.parameter("StripeApiBase"), bounds=bounds)

    def own_secret(self, logical_id: str) -> str:
        """The present value of a secret of template.yaml, empty until one is stored. It is never shown."""
        try:
            return self.secret(self.resource(logical_id))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return ""

    def secret(self, secret_id: str) -> str:
        """The present value of a secret. It is never shown."""
        answer = self.client("secretsmanager").get_secret_value(SecretId=secret_id)
        return str(answer["SecretString"]).strip()

    @property
    def shop(self) -> str:
        """The shop's name in order ids and at Stripe. Raises Problem."""
        return self.output("ShopId")

    @property
    def payment_intents(self) -> PaymentIntents:
        """The shop's PaymentIntents, requested as the functions do."""
        return PaymentIntents(self.stripe, self.shop)

    @cached_property
    def caller(self) -> str:
        """The caller's ARN, of a user or of a role's session (sts:GetCallerIdentity)."""
        return str(self.client("sts").get_caller_identity()["Arn"])


def add_stack_options(parser: argparse._ActionsContainer) -> None:
    """Which stack, and with which credentials: what `connect` is given."""
    parser.add_argument(
        "--stack",
        metavar="NAME",
        help="a deployed stack's name; `local`, or a stack.json (default: the local stack, if it runs)",
    )
    parser.add_argument("--profile", help="AWS profile, as of the AWS CLI")
    parser.add_argument("--region", help="AWS region of the stack")
    parser.add_argument(
        "--stripe-key-secret",
        metavar="SECRET",
        help="secret with the Stripe key to use (default: STRIPE_SECRET_KEY, then the stack's own)",
    )


def connect(
    name: str | None, profile: str | None = None, region: str | None = None, stripe_key_secret: str | None = None
) -> Stack:
    """The stack of this name, as --stack; None for the local one, if it runs. Raises Problem if there is none."""
    if name is None and not STACK_JSON.exists():
        raise Problem("--stack NAME is missing: no local stack runs here (`make local` starts one)")
    if name in (None, "local"):
        return _local(STACK_JSON, stripe_key_secret)
    if name.endswith(".json"):
        return _local(Path(name), stripe_key_secret)
    # boto3 itself reads AWS_DEFAULT_REGION alone, unlike AWS's other SDKs and its guides.
    session = boto3.Session(profile_name=profile, region_name=region or os.environ.get("AWS_REGION"))
    stripe_key = os.environ.get("STRIPE_SECRET_KEY")
    return Stack(name, session, stripe_key_secret=stripe_key_secret, stripe_key=stripe_key)


def _local(stack_json: Path, stripe_key_secret: str | None) -> Stack:
    """A stack.json's stack. STRIPE_SECRET_KEY is not read: a real key must not reach the stand-in."""
    try:
        given = json.loads(stack_json.read_text())
        endpoint_url, name = str(given["aws_endpoint_url"]), str(given["stack_name"])
    except FileNotFoundError:
        raise Problem(f"no local stack runs: there is no {stack_json} (`make local` starts one)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{stack_json} is not the file of a local stack: {error!r}") from None
    _bypass_proxies(endpoint_url)
    session = boto3.Session(aws_access_key_id=_ANY, aws_secret_access_key=_ANY, region_name=_REGION)
    return Stack(name, session, endpoint_url=endpoint_url, stripe_key_secret=stripe_key_secret)


def _bypass_proxies(endpoint_url: str) -> None:
    """Nothing on this machine is reached through a proxy. The stand-in is where the emulator is."""
    host = endpoint_url.split("//")[-1].split(":")[0]
    for variable in ("NO_PROXY", "no_proxy"):
        os.environ[variable] = ",".join(filter(None, (os.environ.get(variable), host, "127.0.0.1", "localhost")))
