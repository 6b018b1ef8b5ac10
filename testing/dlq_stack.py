"""A stack for the commands of `python -m ops`: template.yaml's tables and queues in moto, a Stripe stand-in.

The functions that a test needs run in this process, with their own parts; nothing runs by itself.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Self
from uuid import uuid4

import boto3

from charge_order.app import ORDER_EVENT
from charge_order.app import handle as charge_order
from local.stripe_standin.admin import StandInAdmin
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder, new_order_item
from onecharge.orders.store import OrderStore
from onecharge.payments.charges.charge import ChargeTools
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.runtime.consumer import Consumer
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.queues import Queue
from ops.commands import COMMANDS
from ops.connection import Stack
from ops.output import show
from orders_api.place_order import OrderRequest
from testing.harness import LambdaContext, create_table, load_template
from testing.silent import SILENT
from testing.tools import charge_tools

Clients = Callable[[str], Any]
"""Makes boto3's client of a service."""

API_KEY = "sk_test_operated"
HOUR = 3600


def _of_moto(service: str) -> Any:
    return boto3.client(service)  # type: ignore[call-overload]  # The service is not known before run time.


class CloudFormation:
    """Knows this one stack."""

    def __init__(self, resources: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        self._resources, self._parameters = resources, parameters

    def get_paginator(self, _: str) -> Self:
        return self

    def paginate(self, *, StackName: str) -> list[dict[str, Any]]:
        found = [{"LogicalResourceId": name, "PhysicalResourceId": id_} for name, id_ in self._resources.items()]
        return [{"StackResourceSummaries": found}]

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
        found = [{"ParameterKey": name, "ParameterValue": value} for name, value in self._parameters.items()]
        return {"Stacks": [{"Parameters": found}]}


class Session:
    """boto3's session of whoever operates the stack."""

    def __init__(self, cloudformation: CloudFormation, clients: "Clients") -> None:
        self._cloudformation, self._clients = cloudformation, clients

    def client(self, service: str, **_: Any) -> Any:
        return self._cloudformation if service == "cloudformation" else self._clients(service)


class DlqStack:
    """The stack, its worker, and the commands that operate it.

    Args:
        fifo: whether its queues are FIFO queues.
        clients: of the AWS that it is on; moto's, if none is given (the fixture `aws`).
    """

    def __init__(self, stripe_base: str, *, fifo: bool = False, clients: Clients = _of_moto) -> None:
        self.standin = StandInAdmin(stripe_base)
        self.dynamodb, self.sqs = clients("dynamodb"), clients("sqs")
        self._name = f"shop-{uuid4().hex[:8]}"
        self._offset_seconds = 0.0
        self._fifo = fifo
        secret = clients("secretsmanager").create_secret(Name=f"stripe-{uuid4()}", SecretString=API_KEY)
        parameters = {"StripeApiBase": stripe_base, "StripeSecretArn": secret["ARN"]}
        session: Any = Session(CloudFormation(dict(self._resources()), parameters), clients)
        self.stack = Stack("shop", session, endpoint_url="http://moto")
        self.counted: list[str] = []

    def _resources(self) -> Iterator[tuple[str, str]]:
        for logical_id, resource in load_template()["Resources"].items():
            if resource["Type"] == "AWS::DynamoDB::Table":
                yield logical_id, create_table(self.dynamodb, f"{self._name}-{logical_id}", logical_id)
            if resource["Type"] == "AWS::SQS::Queue":
                is_fifo = self._fifo and "FifoQueue" in str(resource["Properties"])
                name = f"{self._name}-{logical_id}" + (".fifo" if is_fifo else "")
                attributes = {"FifoQueue": "true"} if is_fifo else {}
                yield logical_id, self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    # ------------------------------------------------------------ the commands

    def ops(self, *words: str, **injected: Any) -> tuple[int, dict[str, Any], str]:
        """Run a command: its exit status, its document, and what a person reads."""
        parser = argparse.ArgumentParser()
        for option in ("--yes", "--json"):
            parser.add_argument(option, action="store_true")
        subparsers = parser.add_subparsers(dest="command", required=True)
        for name, command in COMMANDS.items():
            command.add_arguments(subparsers.add_parser(name))
        given = [word for word in words if word == "--yes"]
        arguments = parser.parse_args([*given, *(word for word in words if word != "--yes")])
        report = COMMANDS[arguments.command].run(self.stack, arguments, **injected)
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

    # ------------------------------------------------------------ orders

    @property
    def orders(self) -> OrderStore:
        return OrderStore(self.dynamodb, self.stack.resource("OrdersTable"))

    @property
    def payments(self) -> PaymentStore:
        return PaymentStore(self.dynamodb, self.stack.resource("PaymentsTable"))

    def place(self, **changes: Any) -> StoredOrder:
        """Store a new order of 25.00 EUR."""
        wanted = OrderRequest.model_validate(
            {
                "currency": "EUR",
                "payment_method": "pm_card_visa",
                "items": [{"sku": "mug", "quantity": 1, "unit_amount": 2500}],
                **changes,
            }
        )
        at = datetime.fromtimestamp(self.now(), UTC)
        item = new_order_item(f"ord_{uuid4().hex}", "cus_1", wanted, correlation_id="c", now=at)
        assert self.orders.put_if_new(item) is None
        return StoredOrder.from_item(item)

    def message(self, order: StoredOrder) -> str:
        """The message that asks to charge the order."""
        return order.placed_event().model_dump_json(exclude_none=True)

    def set_status(self, order: StoredOrder, status: OrderStatus, **changes: Any) -> StoredOrder:
        """Let the order have this status, without whatever moves an order."""
        self._set("OrdersTable", {"order_id": order.order_id}, status=status, **changes)
        return self.order(order.order_id)

    def set_payment(self, order_id: str, **changes: Any) -> None:
        """Change attributes of the payment's row."""
        self._set("PaymentsTable", {"order_id": order_id}, **changes)

    def order(self, order_id: str) -> StoredOrder:
        order = self.orders.find(order_id)
        assert order is not None
        return order

    def payment(self, order_id: str) -> Payment:
        payment = self.payments.read(order_id)
        assert payment is not None
        return payment

    def lose(self, order_id: str, table: str = "PaymentsTable") -> None:
        """The table loses its row of the order."""
        self.dynamodb.delete_item(TableName=self.stack.resource(table), Key=to_item({"order_id": order_id}))

    def _set(self, table: str, key: Mapping[str, Any], **changes: Any) -> None:
        self.dynamodb.update_item(
            TableName=self.stack.resource(table),
            Key=to_item(key),
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
            ExpressionAttributeNames={f"#{name}": name for name in changes},
            ExpressionAttributeValues=to_item({f":{name}": value for name, value in changes.items()}),
        )

    def charges(self, order_id: str) -> int:
        """How often the order was charged, by Stripe's ledger."""
        return len(self.standin.ledger().charges_of(order_id))

    # ------------------------------------------------------------ queues

    def send(self, queue: str, body: str, *, group: str = "g", **attributes: str) -> str:
        """Send a message with these attributes to a queue by its logical id; returns its message id."""
        url = self.stack.resource(queue)
        place = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid4())} if url.endswith(".fifo") else {}
        given = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
        return str(self.sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=given, **place)["MessageId"])

    def messages(self, queue: str) -> list[Mapping[str, Any]]:
        """The visible messages of a queue, which stay visible."""
        found = self._receive(queue, visibility_seconds=0)
        return [message for message in found if message["MessageId"]]

    def _receive(self, queue: str, *, visibility_seconds: int) -> list[Mapping[str, Any]]:
        answer = self.sqs.receive_message(
            QueueUrl=self.stack.resource(queue),
            MaxNumberOfMessages=10,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
            VisibilityTimeout=visibility_seconds,
        )
        return list(answer.get("Messages", []))

    # ------------------------------------------------------------ charge_order

    def tools(self) -> ChargeTools:
        """What charge_order works with, as it is deployed."""
        instruments = Instruments(self.now, SILENT, self.counted.append)
        return charge_tools(self.payments, StripeGateway(self.stack.stripe), instruments)

    def charge(self) -> None:
        """charge_order receives a batch of the payments queue; what it does not report as failed is deleted."""
        url, dlq_url = self.stack.resource("PaymentsQueue"), self.stack.resource("PaymentsDlq")
        received = self._receive("PaymentsQueue", visibility_seconds=30)
        if not received:
            return
        consumer = Consumer(
            model=ORDER_EVENT,
            handle=lambda event: charge_order(event, self.tools()),
            queue=Queue(self.sqs, url, dlq_url),
            logger=SILENT,
            count=self.counted.append,
        )
        records = [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {
                    name: {"stringValue": each["StringValue"], "dataType": each["DataType"]}
                    for name, each in message.get("MessageAttributes", {}).items()
                },
                "eventSource": "aws:sqs",
            }
            for message in received
        ]
        failed = {
            each["itemIdentifier"]
            for each in consumer.consume({"Records": records}, LambdaContext())["batchItemFailures"]
        }
        for message in received:
            if message["MessageId"] not in failed:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def pay(self, **changes: Any) -> StoredOrder:
        """An order that is charged, and PAID."""
        order = self.place(**changes)
        self.send("PaymentsQueue", self.message(order))
        self.charge()
        return self.set_status(order, OrderStatus.PAID)
