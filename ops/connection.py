"""One stack, deployed or local: AWS clients, resources by their logical ids, its Stripe account.

    --stack NAME        CloudFormation knows its resources; AWS_PROFILE and AWS_REGION are read, as by the AWS CLI
    --stack FILE.json   a local run; the default is .local/stack.json, while `make local` runs

A caller needs cloudformation:DescribeStacks and ListStackResources for every command, and the actions that the command
itself requests. An error names a missing one.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import stripe
from botocore.config import Config

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import PaymentStore
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.dynamodb import to_item
from ops.output import FOUND, NO_SUCH_ORDER, Problem

OPS = ".venv/bin/python -m ops"
"""How a command begins, as it is typed in the project's folder."""
STACK_JSON = Path(__file__).resolve().parent.parent / ".local" / "stack.json"
"""Where the local stack says where it is."""
ORDER: Any = {"metavar": "ORDER", "help": "its id (ord_…), or its PaymentIntent's (pi_…)"}
"""The argument that Stack.order_id_of reads."""
_CONFIG = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"})
_BOUNDS = TimeBounds(30)
"""Stripe's timeouts are those of a function with a timeout of so many seconds: a person waits."""


@dataclass(eq=False)
class Stack:
    """A stack, as a command needs it. Nothing is requested before it is used; whatever it lacks raises Problem."""

    name: str
    session: boto3.Session
    _: KW_ONLY
    endpoint_url: str | None = None
    """Of a local stack's emulator; None on AWS."""
    stripe_key: str | None = None
    """STRIPE_SECRET_KEY; without it, the stack's own secret is used."""

    @property
    def command(self) -> str:
        """How a command for this stack begins."""
        return OPS if self.endpoint_url else f"{OPS} --stack {self.name}"

    # ------------------------------------------------------------ AWS

    def client(self, service: Any) -> Any:
        """boto3's client of a service, with the caller's credentials."""
        return self.session.client(service, endpoint_url=self.endpoint_url, config=_CONFIG)

    @cached_property
    def dynamodb(self) -> Any:
        client = self.client("dynamodb")
        _ = client.exceptions  # Made at their first use, without a lock: not by two threads at a time.
        return client

    sqs = cached_property[Any](lambda stack: stack.client("sqs"))
    payments = cached_property(lambda stack: PaymentStore(stack.dynamodb, stack.value("PaymentsTable")))
    refunds = cached_property(
        lambda stack: OrderRefundStore(stack.dynamodb, stack.value("OrderRefundsTable"), stack.value("OrdersTable"))
    )

    def item(self, table: str, **key: str) -> Mapping[str, Any] | None:
        """An item of a table by its logical id, in DynamoDB's JSON, read consistently; None if there is none."""
        given = {"TableName": self.value(table), "Key": to_item(key), "ConsistentRead": True}
        found: Mapping[str, Any] | None = self.dynamodb.get_item(**given).get("Item")
        return found

    def tables_with(self, order_id: str) -> list[str]:
        """The tables that have the order, or its payment, by their logical ids. Raises Problem if there is none."""
        if found := [name for name in ("OrdersTable", "PaymentsTable") if self.item(name, order_id=order_id)]:
            return found
        raise Problem(NO_SUCH_ORDER, FOUND)

    def scan(self, table: str, **given: Any) -> Iterator[Mapping[str, Any]]:
        """The items of a table by its name, in DynamoDB's JSON, read consistently."""
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True, **given)
        return (item for page in pages for item in page["Items"])

    def log(self, pattern: str, since: float) -> Iterator[list[tuple[float, dict[str, Any]]]]:
        """The functions' log lines that match, by page: when, and their fields. The emulator returns every line."""
        given: Any = {"logGroupName": self.value("FunctionsLogGroup"), "startTime": int(since * 1000)}
        for page in self.client("logs").get_paginator("filter_log_events").paginate(filterPattern=pattern, **given):
            lines = [(each["timestamp"] / 1000, each["message"]) for each in page["events"]]
            yield [(at, json.loads(text)) for at, text in lines if text.startswith("{")]

    def secret(self, logical_id: str) -> str:
        """The present value of a secret of template.yaml, empty until one is stored. It is never shown."""
        client = self.client("secretsmanager")
        with suppress(client.exceptions.ResourceNotFoundException):
            return str(client.get_secret_value(SecretId=self.value(logical_id))["SecretString"]).strip()
        return ""

    def value(self, name: str) -> str:
        """Of template.yaml: of a parameter or an output, or a resource's physical id: a table's name, a queue's URL."""
        if name in self._values:
            return self._values[name]
        raise Problem(f"stack {self.name} has no {name}: was it deployed from this template?")

    @cached_property
    def _values(self) -> Mapping[str, str]:
        client = self.client("cloudformation")
        [stack] = client.describe_stacks(StackName=self.name)["Stacks"]
        pages = client.get_paginator("list_stack_resources").paginate(StackName=self.name)
        resources = [each for page in pages for each in page["StackResourceSummaries"]]
        found = {each["LogicalResourceId"]: each.get("PhysicalResourceId", "") for each in resources}
        found |= {each["ParameterKey"]: each["ParameterValue"] for each in stack.get("Parameters", [])}
        return found | {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}

    @property
    def api_url(self) -> str:
        """Where the API is, for Stripe too: API_URL names a custom domain, which the stack does not know."""
        if self.endpoint_url and "API_URL" not in os.environ:
            raise Problem("this is for a deployed stack, whose API Stripe reaches: give --stack NAME, or set API_URL")
        return (os.environ.get("API_URL") or self.value("ApiUrl")).rstrip("/")

    # ------------------------------------------------------------ Stripe

    @cached_property
    def stripe(self) -> stripe.StripeClient:
        """The client of the stack's Stripe account; the same API version and retries as the functions'."""
        key = self.stripe_key or self.secret("StripeSecret")
        if not key:
            raise Problem(f"no Stripe key is stored yet: {self.value('Next1StripeKey')}")
        return stripe_client(key.strip(), api_base=self.value("StripeApiBase"), bounds=_BOUNDS)

    payment_intents = cached_property(lambda stack: PaymentIntents(stack.stripe, stack.value("ShopId")))
    """The shop's PaymentIntents, requested as the functions do."""

    def order_id_of(self, given: str) -> str:
        """The order of an order id or a PaymentIntent's."""
        if re.fullmatch(ORDER_ID_PATTERN, given):
            return given
        shown = self.payment_intents.retrieve(given)
        if shown.intent and shown.intent.order_id:
            return shown.intent.order_id
        why = f"Stripe does not show it: {shown.failure.kind}" if shown.failure else "its metadata names no order"
        raise Problem(f"{given} is no order, nor a PaymentIntent of this application: {why}", FOUND)


def connect(name: str | None) -> Stack:
    """The stack of this name, as --stack; None for the local one, if it runs. Raises Problem if there is none."""
    if name and not name.endswith(".json"):
        # boto3 itself reads AWS_DEFAULT_REGION alone, unlike AWS's other SDKs and its guides.
        session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
        return Stack(name, session, stripe_key=os.environ.get("STRIPE_SECRET_KEY"))
    try:
        given = json.loads((Path(name) if name else STACK_JSON).read_text())
    except FileNotFoundError:
        raise Problem("--stack NAME is missing: no local stack runs here (`make local` starts one)") from None
    # Nothing on this machine is reached through a proxy. STRIPE_SECRET_KEY is not read: a real key must not reach the
    # stand-in.
    local = f"{urlsplit(given['aws_endpoint_url']).hostname},127.0.0.1,localhost"
    os.environ |= {"NO_PROXY": local, "no_proxy": local}
    # The emulator takes any credentials; these open nothing on AWS.
    session = boto3.Session("test", "test", region_name="us-east-1")
    return Stack(given["stack_name"], session, endpoint_url=given["aws_endpoint_url"])
