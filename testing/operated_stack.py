"""A stack for `python -m ops` in one process: moto's tables, queues and secrets, and a Stripe stand-in."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import boto3

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import StandIn
from onecharge.orders.schema import new_order_item
from onecharge.payments.charges.protocol import FrozenRequest
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.leases import Claimed
from onecharge.runtime.dynamodb import to_item
from ops.connection import Stack
from testing.harness import create_table

TABLES = (
    *("OrdersTable", "PaymentsTable", "OrdersStateTable", "PaymentsStateTable"),
    *("OrderRefundsTable", "RefundsTable"),
    "StripeEventsTable",
)
QUEUES = (
    *("PaymentsQueue", "OrderUpdatesQueue", "PaymentsDlq", "OrderUpdatesDlq", "SubscriptionsDlq"),
    *("RefundsQueue", "RefundsDlq"),
)
FUNCTIONS = ("PublishEventsFunction", "ChargeOrderFunction", "UpdateOrderFunction", "RepublishFunction")


@dataclass(frozen=True)
class _Payable:
    amount_minor: int = 2500
    currency: str = "EUR"
    payment_method: str = "pm_card_visa"
    fingerprint: str = "f"


@dataclass
class _Pages:
    """A client with one paginated operation, whose pages are the same for all."""

    pages: list[dict[str, Any]]
    stacks: list[dict[str, Any]] = field(default_factory=list)

    def get_paginator(self, _: str) -> Self:
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return self.pages

    def describe_stacks(self, **_: Any) -> dict[str, Any]:
        return {"Stacks": self.stacks}


class OperatedStack:
    """The stack, and short forms of what tests put into it. Needs moto's mock_aws around it."""

    def __init__(self, standin: StandIn) -> None:
        self.dynamodb = boto3.client("dynamodb")
        self.sqs = boto3.client("sqs")
        self.admin = StandInAdmin(standin.base_url)
        secret = boto3.client("secretsmanager").create_secret(Name="stripe", SecretString="sk_test_x")["ARN"]
        resources = {name: create_table(self.dynamodb, f"shop-{name}", name) for name in TABLES}
        resources |= {name: self.sqs.create_queue(QueueName=f"shop-{name}")["QueueUrl"] for name in QUEUES}
        resources |= {name: f"shop-{name}" for name in FUNCTIONS}
        self.s3 = boto3.client("s3")
        self.s3.create_bucket(Bucket="shop-failed-records")
        resources["FailedRecordsBucket"] = "shop-failed-records"
        parameters = {"StripeSecretArn": secret, "StripeApiBase": standin.base_url, "RequiresActionSeconds": "43200"}
        self.mappings: list[dict[str, Any]] = []
        self._cloudformation = _Pages(
            [
                {"StackResourceSummaries": [{"LogicalResourceId": name, "PhysicalResourceId": physical}]}
                for name, physical in resources.items()
            ],
            [{"Parameters": [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]}],
        )
        session: Any = self
        self.stack = Stack("shop", session)

    def client(self, service: str, **_: Any) -> Any:
        """As boto3's session."""
        if service == "cloudformation":
            return self._cloudformation
        if service == "lambda":
            return _Pages([{"EventSourceMappings": self.mappings}])
        return boto3.client(service)  # type: ignore[call-overload]  # The service is not known before run time.

    def put_order(self, order_id: str, status: str = "PENDING", *, at: datetime | None = None, **changes: Any) -> None:
        """An order, placed now."""
        item = new_order_item(order_id, "cus_1", _Payable(), correlation_id="corr-1", now=at or datetime.now(UTC))
        self.dynamodb.put_item(
            TableName=self.stack.resource("OrdersTable"), Item={**item, **to_item({"status": status, **changes})}
        )

    def order_status(self, order_id: str) -> str:
        key = {"order_id": {"S": order_id}}
        item = self.dynamodb.get_item(TableName=self.stack.resource("OrdersTable"), Key=key)["Item"]
        return item["status"]["S"]

    @property
    def payments(self) -> PaymentStore:
        return PaymentStore(self.dynamodb, self.stack.resource("PaymentsTable"))

    def put_payment(self, order_id: str, *, now: int, **changes: Any) -> None:
        """A row, claimed now; `changes` overwrite its attributes."""
        request = FrozenRequest(order_id, 2500, "EUR", "cus_1", now)
        claim = self.payments.claim(
            request, attempt=1, payment_method="pm_card_visa", correlation_id="c", owner="w", now=now, lease_seconds=35
        )
        assert isinstance(claim, Claimed)
        key = {"order_id": {"S": order_id}}
        table = self.stack.resource("PaymentsTable")
        item = self.dynamodb.get_item(TableName=table, Key=key)["Item"]
        kept = {name: value for name, value in item.items() if changes.get(name, 0) is not None}
        self.dynamodb.put_item(TableName=table, Item={**kept, **to_item(changes)})

    def row(self, order_id: str) -> dict[str, Any]:
        """All attributes of the payment's row."""
        key = {"order_id": {"S": order_id}}
        return dict(self.dynamodb.get_item(TableName=self.stack.resource("PaymentsTable"), Key=key)["Item"])

    def intent(self, order_id: str, *, confirm: str | None = None, **changes: Any) -> str:
        """A PaymentIntent of the order at Stripe, with `confirm` a payment method that it is confirmed with."""
        parameters: Any = {
            "amount": 2500,
            "currency": "eur",
            "allowed_payment_method_types": ["card"],
            "metadata": {"order_id": order_id, "customer_id": "cus_1", "placed_at": "1", "generation": "0"},
            **({"confirm": True, "payment_method": confirm} if confirm else {}),
            **changes,
        }
        return self.stack.stripe.v1.payment_intents.create(parameters).id

    def status_at_stripe(self, payment_intent_id: str) -> str:
        return self.stack.stripe.v1.payment_intents.retrieve(payment_intent_id).status
