"""Publish an order's rows again: they are touched, so their streams emit them. Consumers ignore duplicates.

For changes that publish_events has skipped. republish sends refund requests again.
"""

from argparse import ArgumentParser, Namespace

from ops.connection import Stack
from ops.errors import ExitStatus
from ops.facts import items_of, order_id_of_reference
from ops.output import Report, Table


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", metavar="ORDER", help="the order's id, or its PaymentIntent's")


def run(stack: Stack, arguments: Namespace) -> Report:
    order_id, one = order_id_of_reference(stack, arguments.order), {":one": {"N": "1"}}
    tables = ("OrdersTable", "PaymentsTable", "RefundsTable")
    rows = [(table, item) for table in tables for item in items_of(stack, table, order_id)]
    for table, item in rows if arguments.yes else ():
        name, key = stack.resource(table), {each: item[each] for each in ("order_id", "refund_id") if each in item}
        add, exists = "ADD touches :one", "attribute_exists(order_id)"
        stack.dynamodb.update_item(
            TableName=name, Key=key, UpdateExpression=add, ConditionExpression=exists, ExpressionAttributeValues=one
        )
    done = "touched" if arguments.yes else "dry run: --yes touches them"
    status = ExitStatus.OK if rows and arguments.yes else ExitStatus.FOUND
    found = [{"table": table} for table, _ in rows]
    return Report({"rows": found}, [Table.of(f"rows of {order_id} ({done})", "table", found)], status)
