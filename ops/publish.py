"""Publish an order's rows again, if a record was skipped: a touch makes their streams emit them. Twice is safe."""

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from typing import Any

from onecharge.runtime.dynamodb import to_item
from ops.connection import ORDER, Stack
from ops.output import Report


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", **ORDER)


def run(stack: Stack, arguments: Namespace) -> Report:
    order_id = stack.order_id_of(arguments.order)
    # Of OrderRefunds only inserts are published: republish sends refund requests again, and their worker the outcomes.
    found = stack.tables_with(order_id)
    for name in found if arguments.yes else ():
        touch(stack.dynamodb, stack.value(name), order_id)
    return Report({"order_id": order_id, "published_from": found}, is_dry_run=not arguments.yes)


def touch(client: Any, table: str, order_id: str) -> None:
    """Let the table's stream emit the order's item once more, if there is one."""
    with suppress(client.exceptions.ConditionalCheckFailedException):
        client.update_item(
            TableName=table,
            Key=to_item({"order_id": order_id}),
            UpdateExpression="ADD touches :one",
            ConditionExpression="attribute_exists(order_id)",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
