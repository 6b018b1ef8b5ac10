"""Publish an order's rows again, if a record was skipped: a touch makes their streams emit them. Twice is safe."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ops.connection import Stack
from ops.errors import ExitStatus
from ops.facts import items_of, order_id_of_reference
from ops.output import Report, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", metavar="ORDER", help="the order's id, or its PaymentIntent's")


def run(stack: Stack, arguments: Namespace) -> Report:
    order_id = order_id_of_reference(stack, arguments.order)
    # Of OrderRefunds only inserts are published: republish sends refund requests again, and their worker the outcomes.
    tables = ("OrdersTable", "PaymentsTable")
    rows = [(table, item) for table in tables for item in items_of(stack, table, order_id)]
    for table, item in rows if arguments.yes else ():
        touch(stack.dynamodb, stack.resource(table), {"order_id": item["order_id"]})
    found, is_done = [{"table": table} for table, _ in rows], bool(rows and arguments.yes)
    title = f"rows of {order_id}, touched" if is_done else f"rows of {order_id}; --yes touches them"
    return Report({"rows": found}, [Table.of(title, "table", found)], ExitStatus.OK if is_done else ExitStatus.FOUND)


def touch(client: "DynamoDBClient", table: str, key: Mapping[str, Any]) -> bool:
    """Let the table's stream emit the item of this key once more; False if there is none."""
    try:
        client.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="ADD touches :one",
            ConditionExpression="attribute_exists(order_id)",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
    except client.exceptions.ConditionalCheckFailedException:
        return False
    return True
