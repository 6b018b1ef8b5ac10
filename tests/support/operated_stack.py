"""A stack for the commands of `python -m ops`, in one process: tables in memory, moto's queues, a Stripe stand-in.

`deliver` runs charge_order's own handler; nothing runs by itself.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from typing import Any
from uuid import uuid4

import boto3

from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder, new_order_item
from onecharge.orders.transitions import WAITING
from onecharge.payments.deliveries import handle as charge_order
from onecharge.payments.payment_intents import description_of
from onecharge.payments.payments_table import Payment
from onecharge.runtime.dynamodb import from_item, shard_of, to_item
from ops.command_line import COMMANDS, parser
from ops.connection import Stack
from ops.output import show
from stripe_standin.admin import StandInAdmin
from tests.shop.builders import SHOP, order
from tests.shop.dynamodb import MemoryDynamoDB
from tests.shop.tools import tools_of
from tests.support.fake_sns import FakeSns
from tests.support.harness import create_table, load_template

API_KEY = "sk_test_operated"
HOUR = 3600
FREE: dict[str, Any] = {"lease_owner": None, "lease_expires_at": 0}
FINAL: dict[str, Any] = {"unfinished_shard": None, "unfinished_claimed_at": None}
"""What a row lacks that is free, and that is final."""


class Answers(list[dict[str, Any]]):
    """Stands in for the clients that moto does not have as a stack's: answers whatever is asked with its pages."""

    def get_paginator(self, operation: str) -> "Answers":
        return self

    def paginate(self, **_: Any) -> "Answers":
        return self

    def describe_stacks(self, **_: Any) -> dict[str, Any]:
        return self[0]


class OperatedStack:
    """The stack, its worker, and the commands that operate it.

    Args:
        clients: of the AWS that it is on; moto's (the fixture `aws`) and tables in memory, if none is given.
    """

    def __init__(self, stripe_base: str, *, fifo: bool = False, clients: Callable[[str], Any] | None = None) -> None:
        self.standin = StandInAdmin(stripe_base)
        self._clients: Any = clients or boto3.client
        self.dynamodb: Any = self._clients("dynamodb") if clients else MemoryDynamoDB()
        self._name, self._fifo, self._offset_seconds = f"shop-{uuid4().hex[:8]}", fifo, 0.0
        self.log: list[dict[str, Any]] = []
        """The functions' log, as events of CloudWatch."""
        self.sns = FakeSns()
        self.answers: dict[str, Any] = {
            "logs": Answers([{"events": self.log}]),
            "sns": self.sns,
            "dynamodb": self.dynamodb,
        }
        session: Any = self
        self.stack = Stack("shop", session, endpoint_url="http://moto")
        resources = load_template()["Resources"].items()
        values = {"StripeApiBase": stripe_base, "RequiresActionSeconds": "43200", "ShopId": SHOP}
        self.stack.__dict__["_values"] = values | {name: self._make(name, resource) for name, resource in resources}

    def client(self, service: str, **_: Any) -> Any:
        """As boto3's session."""
        return self.answers.get(service) or self._clients(service)

    @property
    def sqs(self) -> Any:
        return self._clients("sqs")

    def _make(self, logical_id: str, resource: Mapping[str, Any]) -> str:
        name = f"{self._name}-{logical_id}"
        match resource["Type"]:
            case "AWS::DynamoDB::Table":
                return create_table(self.dynamodb, name, logical_id)
            case "AWS::SQS::Queue":
                is_fifo = self._fifo and "FifoQueue" in str(resource["Properties"])
                attributes = {"FifoQueue": "true"} if is_fifo else {}
                queue = self.sqs.create_queue(QueueName=name + ".fifo" * is_fifo, Attributes=attributes)
                return str(queue["QueueUrl"])
            case "AWS::SecretsManager::Secret":
                return str(self._clients("secretsmanager").create_secret(Name=name, SecretString=API_KEY)["ARN"])
            case _:
                return name

    def ops(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Run a command: its exit status, its document, and what a person reads."""
        arguments = parser().parse_args(words)
        report = COMMANDS[arguments.command].run(self.stack, arguments)
        as_json, as_text = StringIO(), StringIO()
        show(report, as_json=True, out=as_json)
        show(report, as_json=False, out=as_text)
        return int(report.status), json.loads(as_json.getvalue()), as_text.getvalue()

    # ------------------------------------------------------------ time

    def now(self) -> float:
        return time.time() + self._offset_seconds

    @contextmanager
    def hours_ago(self, hours: float) -> Iterator[None]:
        """What happens within the block happened so long ago, here and at Stripe."""
        self._offset_seconds -= hours * HOUR
        self.standin.advance_clock(-hours * HOUR)
        try:
            yield
        finally:
            self._offset_seconds += hours * HOUR
            self.standin.advance_clock(hours * HOUR)

    # ------------------------------------------------------------ tables

    def put(self, table: str, **item: Any) -> None:
        """Store an item, whatever was there; an attribute that is None is left out."""
        self.dynamodb.put_item(TableName=self.stack.value(table), Item=to_item(item))

    def get(self, table: str, **key: str) -> dict[str, Any]:
        """An item, in plain Python values."""
        return from_item(self.stack.item(table, **key) or {})

    def delete(self, table: str, **key: str) -> None:
        """The table loses the item."""
        self.dynamodb.delete_item(TableName=self.stack.value(table), Key=to_item(key))

    def place(self, *, at: datetime | None = None, **changes: Any) -> StoredOrder:
        """Store a new order of 25.00 EUR; `changes` overwrite its attributes."""
        order_id, at = changes.get("order_id", f"ord_{uuid4().hex}"), at or datetime.fromtimestamp(self.now(), UTC)
        ordered = {"customer_id": "cus_1", "amount_minor": 2500, "currency": "EUR", "payment_method": "pm_card_visa"}
        new = new_order_item(order_id, at, **ordered, fingerprint="f", correlation_id="corr-1")
        self.set_order(order_id, **(from_item(new) | changes))
        return self.order(order_id)

    def order(self, order_id: str) -> StoredOrder:
        return StoredOrder.model_validate(self.get("OrdersTable", order_id=order_id))

    def set_order(self, order_id: str, /, **changes: Any) -> None:
        """Change attributes of the order's item; it is in the index if it waits, as any outcome leaves it."""
        item = self.get("OrdersTable", order_id=order_id) | changes
        self.put("OrdersTable", **item | {"waiting_shard": shard_of(order_id) if item["status"] in WAITING else None})

    def put_refund(self, order_id: str, **changes: Any) -> None:
        """Store a refund of 5.00 EUR as it is requested now; `changes` overwrite its attributes."""
        at = datetime.fromtimestamp(self.now(), UTC).isoformat()
        item = {"order_id": order_id, "attempt": 1, "amount_minor": 500, "currency": "EUR", "fingerprint": "f"}
        item |= {"correlation_id": "c", "requested_at": at, "status": "PENDING"}
        self.put("OrderRefundsTable", **item | changes)

    @staticmethod
    def message(order: StoredOrder) -> str:
        """The message that asks to charge the order."""
        return order.placed_event().model_dump_json(exclude_none=True)

    def claim(self, order_id: str, *, at: int | None = None, **changes: Any) -> None:
        """A row as its first claim leaves it; `changes` overwrite its attributes."""
        now = int(self.now()) if at is None else at
        claimed = order(order_id=order_id, amount_minor=2500, placed_at=datetime.fromtimestamp(now, UTC))
        self.stack.payments.claim(claimed, correlation_id="c", now=now, lease_seconds=35)
        self.set_payment(order_id, **changes)

    def set_payment(self, order_id: str, **changes: Any) -> None:
        """Change attributes of the payment's row."""
        self.put("PaymentsTable", **(self.row(order_id) | changes))

    def row(self, order_id: str) -> dict[str, Any]:
        """All attributes of the payment's row."""
        return self.get("PaymentsTable", order_id=order_id)

    def payment(self, order_id: str) -> Payment:
        payment = self.stack.payments.read(order_id)
        assert payment is not None
        return payment

    # ------------------------------------------------------------ Stripe

    def intent(self, order_id: str, *, confirm: str | None = None, **changes: Any) -> str:
        """A PaymentIntent of the order at Stripe, with `confirm` a payment method that it is confirmed with."""
        metadata = {"shop": SHOP, "order_id": order_id, "customer_id": "cus_1"}
        parameters: Any = {"amount": 2500, "currency": "eur", "allowed_payment_method_types": ["card"]}
        parameters |= {"metadata": metadata, "description": description_of(order_id), **changes}
        parameters |= {"confirm": True, "payment_method": confirm} if confirm else {}
        return self.stack.stripe.v1.payment_intents.create(parameters).id

    def refund(self, order_id: str, amount: int, /, **metadata: str) -> str:
        """A refund of the order's PaymentIntent at Stripe."""
        intent_id = str(self.payment(order_id).payment_intent_id)
        parameters: Any = {"payment_intent": intent_id, "amount": amount, "metadata": metadata}
        return self.stack.stripe.v1.refunds.create(parameters).id

    def charges(self, order_id: str) -> int:
        """How often the order was charged, by Stripe's ledger."""
        return len(self.standin.ledger().charges_of(order_id))

    # ------------------------------------------------------------ queues, and the worker

    def send(self, queue: str, body: str, *, group: str = "g", **attributes: str) -> str:
        """Send a message with these attributes to a queue by its logical id; returns its message id."""
        url = self.stack.value(queue)
        place = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid4())} if url.endswith(".fifo") else {}
        given = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
        return str(self.sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=given, **place)["MessageId"])

    def messages(self, queue: str) -> list[Mapping[str, Any]]:
        """The visible messages of a queue, which stay visible."""
        given: Any = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10}
        given |= {"QueueUrl": self.stack.value(queue), "VisibilityTimeout": 0}
        return list(self.sqs.receive_message(**given).get("Messages", []))

    def deliver(self, order_id: str) -> None:
        """The order's present event reaches the worker."""
        event: Any = self.order(order_id).event()
        charge_order(event, tools_of(self.stack.payments, self.stack.payment_intents, self.now))

    def pay(self, **changes: Any) -> StoredOrder:
        """An order that is charged, and PAID."""
        order = self.place(**changes)
        self.deliver(order.order_id)
        self.set_order(order.order_id, status=OrderStatus.PAID)
        return self.order(order.order_id)
