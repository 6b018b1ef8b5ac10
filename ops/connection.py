"""One stack, deployed or local alike: AWS clients, resources by their logical ids, its Stripe account.

    --stack NAME        CloudFormation knows its resources; credentials, region: the caller's, as the AWS CLI finds them
    --stack local       .local/stack.json, while `make local` runs; also the default then
    --stack FILE.json   such a file of another local run

What a caller needs to be allowed is what the command does: cloudformation:DescribeStacks and ListStackResources for
every command, then the actions of its own requests. A missing one is named.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import stripe
from botocore.config import Config

from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.time_bounds import TimeBounds
from ops.errors import Problem

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sqs import SQSClient

LOCAL = "local"
_REGION, _ANY = "us-east-1", "test"
"""The emulator's region, and credentials: it takes any."""
_PATIENCE_SECONDS = 30
"""Timeouts as a function with this timeout has them: a person waits."""


@dataclass(frozen=True)
class StripeKeySource:
    """Where the Stripe key comes from: the first of these that is given; else the secret of the stack itself."""

    secret_id: str | None = None
    """Name or ARN of a secret in Secrets Manager (--stripe-key-secret)."""
    api_key: str | None = None
    """STRIPE_SECRET_KEY. Never read for a local stack: a real key has no business there."""


class Stack:
    """A stack, as a command needs it. Nothing is requested before it is used."""

    def __init__(
        self,
        name: str,
        session: boto3.Session,
        *,
        endpoint_url: str | None = None,
        stripe_key: StripeKeySource | None = None,
    ) -> None:
        self.name = name
        self.endpoint_url = endpoint_url
        """Of the emulator; None on AWS."""
        self._session = session
        self._stripe_key = stripe_key or StripeKeySource()

    @property
    def is_local(self) -> bool:
        return self.endpoint_url is not None

    def client(self, service: str) -> Any:
        """boto3's client of a service, with the caller's credentials."""
        # Nothing on this machine is reached through a proxy, whatever the environment says.
        proxies: dict[str, Any] = {"proxies": {}} if self.is_local else {}
        config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"}, **proxies)
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

    @cached_property
    def functions(self) -> "LambdaClient":
        client: LambdaClient = self.client("lambda")
        return client

    # ------------------------------------------------------------ what CloudFormation knows

    def resource(self, logical_id: str) -> str:
        """The physical id of a resource of template.yaml: a table's name, a queue's URL, a function's name.

        Raises:
            Problem: the stack has no such resource.
        """
        found = self._resources.get(logical_id)
        if found is None:
            raise Problem(f"stack {self.name} has no {logical_id}: was it deployed from this template?")
        return found

    def has_resource(self, logical_id: str) -> bool:
        """Whether the stack has it: a stack without an optional part does not."""
        return logical_id in self._resources

    def logical_ids(self) -> list[str]:
        """Of every resource, sorted."""
        return sorted(self._resources)

    def parameter(self, name: str) -> str:
        """The value of a parameter of template.yaml. Raises Problem if the stack has no such parameter."""
        found = self._parameters.get(name)
        if found is None:
            raise Problem(f"stack {self.name} has no parameter {name}: was it deployed from this template?")
        return found

    def output(self, name: str) -> str:
        """The value of an output of template.yaml. Raises Problem if the stack has no such output."""
        found = self._outputs.get(name)
        if found is None:
            raise Problem(f"stack {self.name} has no output {name}: was it deployed from this template?")
        return found

    @cached_property
    def _outputs(self) -> Mapping[str, str]:
        [stack] = self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}

    @cached_property
    def _resources(self) -> Mapping[str, str]:
        # DescribeStackResources ends at 100 resources (AWS CloudFormation API reference); this one has pages.
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=self.name)
        found = [each for page in pages for each in page["StackResourceSummaries"]]
        return {each["LogicalResourceId"]: each.get("PhysicalResourceId", "") for each in found}

    @cached_property
    def _parameters(self) -> Mapping[str, str]:
        [stack] = self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {each["ParameterKey"]: each["ParameterValue"] for each in stack.get("Parameters", [])}

    # ------------------------------------------------------------ Stripe

    @cached_property
    def stripe(self) -> stripe.StripeClient:
        """The client of the stack's Stripe account; the same API version and retries as the functions'."""
        return stripe_client(
            self._api_key(), api_base=self.parameter("StripeApiBase"), bounds=TimeBounds.of(_PATIENCE_SECONDS)
        )

    def _api_key(self) -> str:
        if self._stripe_key.secret_id is None and self._stripe_key.api_key:
            return self._stripe_key.api_key.strip()
        return self.secret(self._stripe_key.secret_id or self.parameter("StripeSecretArn"))

    def secret(self, secret_id: str) -> str:
        """The present value of a secret. It is never shown."""
        answer = self.client("secretsmanager").get_secret_value(SecretId=secret_id)
        return str(answer["SecretString"]).strip()

    # ------------------------------------------------------------ who asks

    @cached_property
    def caller(self) -> str:
        """Who runs this, as AWS knows them: the ARN of a user or of a role's session (sts:GetCallerIdentity)."""
        return str(self.client("sts").get_caller_identity()["Arn"])


def connect(
    name: str | None,
    *,
    stack_json: Path,
    environment: Mapping[str, str],
    profile: str | None = None,
    region: str | None = None,
    stripe_key_secret: str | None = None,
) -> Stack:
    """The stack of this name.

    Args:
        name: as --stack; None for the local one, if it runs.
        stack_json: where the local stack says where it is.

    Raises:
        Problem: there is none, or --stack is missing.
    """
    if name is None and not stack_json.exists():
        raise Problem("--stack NAME is missing: no local stack runs here (`make local` starts one)")
    if name in (None, LOCAL):
        return _local(stack_json, stripe_key_secret)
    if name.endswith(".json"):
        return _local(Path(name), stripe_key_secret)
    session = boto3.Session(profile_name=profile, region_name=region)
    key = StripeKeySource(stripe_key_secret, environment.get("STRIPE_SECRET_KEY"))
    return Stack(name, session, stripe_key=key)


def _local(stack_json: Path, stripe_key_secret: str | None) -> Stack:
    try:
        given = json.loads(stack_json.read_text())
        endpoint_url, name = str(given["aws_endpoint_url"]), str(given["stack_name"])
    except FileNotFoundError:
        raise Problem(f"no local stack runs: there is no {stack_json} (`make local` starts one)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{stack_json} is no file of a local stack: {error!r}") from None
    _bypass_proxies(endpoint_url)
    session = boto3.Session(aws_access_key_id=_ANY, aws_secret_access_key=_ANY, region_name=_REGION)
    return Stack(name, session, endpoint_url=endpoint_url, stripe_key=StripeKeySource(stripe_key_secret))


def _bypass_proxies(endpoint_url: str) -> None:
    """The stand-in is where the emulator is; the Stripe client asks the environment for proxies."""
    host = endpoint_url.split("//")[-1].split(":")[0]
    for variable in ("NO_PROXY", "no_proxy"):
        os.environ[variable] = ",".join(filter(None, (os.environ.get(variable), host, "127.0.0.1", "localhost")))
