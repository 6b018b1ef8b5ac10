"""One stack, deployed or local: AWS clients, resources by their logical ids, its Stripe account.

    --stack NAME        CloudFormation knows its resources; AWS_PROFILE and AWS_REGION are read, as by the AWS CLI
    --stack local       .local/stack.json, while `make local` runs; also the default then
    --stack FILE.json   the stack.json of another local run

A caller needs cloudformation:DescribeStacks and ListStackResources for every command, and the actions that the command
itself requests. An error names a missing one.
"""

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
_ANY = "test"
"""The emulator's credentials: it takes any."""
_PATIENCE_SECONDS = 30
"""Stripe's timeouts are those of a function with this timeout: a person waits."""


class Stack:
    """A stack, as a command needs it. Nothing is requested before it is used.

    Args:
        endpoint_url: of the emulator; None on AWS.
        stripe_key: STRIPE_SECRET_KEY; without it, the stack's own secret is used.
    """

    def __init__(
        self, name: str, session: boto3.Session, *, endpoint_url: str | None = None, stripe_key: str | None = None
    ) -> None:
        self.name = name
        self.endpoint_url = endpoint_url
        self._session, self._stripe_key = session, stripe_key

    @property
    def is_local(self) -> bool:
        return self.endpoint_url is not None

    @property
    def command(self) -> str:
        """How a command for this stack begins, as it is typed."""
        return ".venv/bin/python -m ops" + ("" if self.is_local else f" --stack {self.name}")

    def client(self, service: str) -> Any:
        """boto3's client of a service, with the caller's credentials."""
        config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"})
        return self._session.client(  # type: ignore[call-overload]  # The service is not known before run time.
            service, endpoint_url=self.endpoint_url, config=config
        )

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        return cast("DynamoDBClient", self.client("dynamodb"))

    @cached_property
    def sqs(self) -> "SQSClient":
        return cast("SQSClient", self.client("sqs"))

    def item(self, table: str, **key: str) -> Mapping[str, Any] | None:
        """An item of a table by its logical id, in DynamoDB's JSON, read consistently; None if there is none."""
        name, given = self.resource(table), to_item(key)
        return self.dynamodb.get_item(TableName=name, Key=given, ConsistentRead=True).get("Item")

    # ------------------------------------------------------------ what CloudFormation knows

    def resource(self, logical_id: str) -> str:
        """The physical id of a resource of template.yaml: a table's name, a queue's URL. Raises Problem."""
        return self._named("resource", logical_id, self._resources)

    def parameter(self, name: str) -> str:
        """The value of a parameter of template.yaml. Raises Problem."""
        return self._named("parameter", name, self._described("Parameter"))

    def output(self, name: str) -> str:
        """The value of an output of template.yaml. Raises Problem."""
        return self._named("output", name, self._described("Output"))

    @property
    def api_url(self) -> str:
        """Where the API is: API_URL names a custom domain, which the stack does not know. Raises Problem."""
        return (os.environ.get("API_URL") or self.output("ApiUrl")).rstrip("/")

    @property
    def shop(self) -> str:
        """The shop's name in order ids and at Stripe. Raises Problem."""
        return self.output("ShopId")

    def _named(self, kind: str, name: str, found: Mapping[str, str]) -> str:
        if name not in found:
            raise Problem(f"stack {self.name} has no {kind} {name}: was it deployed from this template?")
        return found[name]

    def _described(self, kind: str) -> Mapping[str, str]:
        return {each[f"{kind}Key"]: each[f"{kind}Value"] for each in self.described.get(f"{kind}s", [])}

    @cached_property
    def described(self) -> Mapping[str, Any]:
        """The stack, as CloudFormation describes it."""
        return dict(self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"][0])

    @cached_property
    def _resources(self) -> Mapping[str, str]:
        # DescribeStackResources ends at 100 resources (AWS CloudFormation API reference); this one has pages.
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=self.name)
        found = [each for page in pages for each in page["StackResourceSummaries"]]
        return {each["LogicalResourceId"]: each.get("PhysicalResourceId", "") for each in found}

    # ------------------------------------------------------------ Stripe

    @cached_property
    def stripe(self) -> stripe.StripeClient:
        """The client of the stack's Stripe account; the same API version and retries as the functions'."""
        key = self._stripe_key or self.secret("StripeSecret")
        if not key:
            raise Problem(f"no Stripe key is stored yet: {self.output('Next1StripeKey')}")
        bounds = TimeBounds(_PATIENCE_SECONDS)
        return stripe_client(key.strip(), api_base=self.parameter("StripeApiBase"), bounds=bounds)

    @property
    def payment_intents(self) -> PaymentIntents:
        """The shop's PaymentIntents, requested as the functions do."""
        return PaymentIntents(self.stripe, self.shop)

    def secret(self, logical_id: str) -> str:
        """The present value of a secret of template.yaml, empty until one is stored. It is never shown."""
        secrets = self.client("secretsmanager")
        try:
            return str(secrets.get_secret_value(SecretId=self.resource(logical_id))["SecretString"]).strip()
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return ""


def connect(name: str | None) -> Stack:
    """The stack of this name, as --stack; None for the local one, if it runs. Raises Problem if there is none."""
    if name is None and not STACK_JSON.exists():
        raise Problem("--stack NAME is missing: no local stack runs here (`make local` starts one)")
    if name in (None, "local"):
        return _local(STACK_JSON)
    if name.endswith(".json"):
        return _local(Path(name))
    # boto3 itself reads AWS_DEFAULT_REGION alone, unlike AWS's other SDKs and its guides.
    session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
    return Stack(name, session, stripe_key=os.environ.get("STRIPE_SECRET_KEY"))


def _local(stack_json: Path) -> Stack:
    """A stack.json's stack. STRIPE_SECRET_KEY is not read: a real key must not reach the stand-in."""
    try:
        given = json.loads(stack_json.read_text())
        endpoint_url, name = str(given["aws_endpoint_url"]), str(given["stack_name"])
    except FileNotFoundError:
        raise Problem(f"no local stack runs: there is no {stack_json} (`make local` starts one)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{stack_json} is not the file of a local stack: {error!r}") from None
    # Nothing on this machine is reached through a proxy. The stand-in is where the emulator is.
    host = endpoint_url.split("//")[-1].split(":")[0]
    for variable in ("NO_PROXY", "no_proxy"):
        os.environ[variable] = ",".join(filter(None, (os.environ.get(variable), host, "127.0.0.1", "localhost")))
    session = boto3.Session(aws_access_key_id=_ANY, aws_secret_access_key=_ANY, region_name="us-east-1")
    return Stack(name, session, endpoint_url=endpoint_url)
