"""What a design is: one Lambda function behind an SQS queue, written against boto3's and stripe's clients.

A design knows nothing of the simulator. All of them share what AWS's documentation advises ("Creating and configuring
an Amazon SQS event source mapping"): a visibility timeout of six times the function timeout, maxReceiveCount 5, a DLQ,
partial batch responses. All but ours also share `max_network_retries=2` of stripe's client.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import stripe
from botocore.exceptions import BotoCoreError, ClientError

DAY_SECONDS = 24 * 3600

Record = Mapping[str, Any]
"""One record of the event that Lambda receives from a queue."""

Handler = Callable[[dict[str, Any], Any], Any]
"""A Lambda function's handler: `handler(event, context)`."""


@dataclass(frozen=True)
class Clients:
    """What a function creates at its cold start: clients, clock, logger."""

    dynamodb: Any
    stripe: Any
    now: Callable[[], int]
    log_exception: Callable[[], None]
    """Logs the exception that is being handled."""
    queue: Any
    """Only onecharge uses it: it changes the visibility timeout of its messages."""


@dataclass(frozen=True, eq=False)
class Design:
    """One way to avoid double charges."""

    title: str
    """The column's heading, in at most two lines."""
    start: Callable[[Clients], Handler]
    """The code outside the handler, run once; returns the handler."""
    keys: Mapping[str, tuple[str, ...]]
    """The key attributes of its tables."""
    ttl_attribute: str = "expires_at"
    stripe_retries: int = 2
    max_receive_count: int = 5
    durable: bool = False
    """Lambda invokes an interrupted execution again; each delivery of a message starts another execution."""
    release: Callable[[Clients], bool] = lambda _: False
    """What an operator runs for orders that wait for a person; returns whether there was one."""
    is_declined: Callable[[Clients], bool] = lambda _: False
    """Whether the customer is told that the payment failed, and pays again."""


def each_record(clients: Clients, process: Callable[[Record], None]) -> Handler:
    """The loop of AWS's "Implementing partial batch responses": a record that raises is reported as failed."""

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        failures = []
        for record in event["Records"]:
            try:
                process(record)
            except Exception:
                clients.log_exception()
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return handler


def order_in(record: Record) -> dict[str, Any]:
    """The order in a message."""
    order: dict[str, Any] = json.loads(record["body"])["data"]
    return order


def payment_of(order: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the PaymentIntent that pays for the order: created and confirmed in one request."""
    return {
        "amount": order["amount_minor"],
        "currency": order["currency"].lower(),
        "payment_method": order["payment_method"],
        "confirm": True,
        "allowed_payment_method_types": ["card"],
        "metadata": {"order_id": order["order_id"], "customer_id": order["customer_id"]},
    }


def put_if_new(clients: Clients, table: str, item: Mapping[str, Any]) -> bool:
    """A conditional put. Returns whether no item had this key; the table's key is the item's first attribute."""
    try:
        clients.dynamodb.put_item(
            TableName=table, Item=item, ConditionExpression=f"attribute_not_exists({next(iter(item))})"
        )
    except clients.dynamodb.exceptions.ConditionalCheckFailedException:
        return False
    return True


@dataclass
class InvokeAgain(Exception):
    """The durable execution service invokes the same execution again."""

    after_seconds: int = 0


@dataclass(frozen=True)
class DurableContext:
    """What Lambda's durable execution SDK gives a function: steps whose checkpointed results are not computed again.

    AWS Durable Execution SDK Developer Guide, "Retry Strategies" (here its default, without jitter). The checkpoints
    are in a table, whose requests fail as the service's can.
    """

    clients: Clients
    execution: str
    attempts: int = 6

    def step(self, name: str, work: Callable[[], str]) -> str:
        key = {"execution": {"S": self.execution}, "step": {"S": name}}
        checkpoint = self._request("get_item", Key=key, ConsistentRead=True).get("Item", {})
        if "result" in checkpoint:
            return str(checkpoint["result"]["S"])
        attempt = int(checkpoint.get("attempt", {"N": "0"})["N"]) + 1
        try:
            result = work()
        except stripe.StripeError:
            if attempt == self.attempts:
                raise
            self.clients.log_exception()
            self._request("put_item", Item={**key, "attempt": {"N": str(attempt)}})
            raise InvokeAgain(after_seconds=min(60, 5 * 2 ** (attempt - 1))) from None
        self._request("put_item", Item={**key, "result": {"S": result}})
        return result

    def _request(self, operation: str, **given: Any) -> Mapping[str, Any]:
        try:
            response: Mapping[str, Any] = getattr(self.clients.dynamodb, operation)(TableName="Checkpoints", **given)
        except (BotoCoreError, ClientError):
            self.clients.log_exception()
            raise InvokeAgain from None
        return response
