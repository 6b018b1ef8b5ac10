"""`index`: what waits is in its index, and nothing else is: once, after a release that changed the index.

    scan     every item, a page at a time; a read unit for each 8 KB
    write    waits and has no `waiting_shard`, or that of another number of shards ─► it is set
             waits no more and has one ─► it is removed

Each write is on the condition that the status is still the one that was read; whoever changed it has written the
attribute, too. An item of a status that this release does not know, or of none, is counted as unreadable and left
alone. Exit status: 0 if nothing is left to do, 1 if items were found and --yes was not given, or are unreadable.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.contract.refunds import RefundStatus
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import waits as refund_waits
from onecharge.orders.transitions import waits
from onecharge.runtime.dynamodb import expression_values, from_item, to_item
from onecharge.runtime.shards import shard_of
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.output import Report, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

HELP = "put what waits into its index, once after a release that changed the index"


@dataclass(frozen=True)
class IndexedTable:
    """A table with the index `waiting`."""

    name: str
    """Its logical id."""
    key: tuple[str, ...]
    waits: Callable[[str], bool]
    """Whether an item of this status waits. Raises ValueError if there is no such status."""


TABLES = [IndexedTable("OrdersTable", ("order_id",), lambda status: waits(OrderStatus(status)))]
TABLES.append(
    IndexedTable("OrderRefundsTable", ("order_id", "refund_id"), lambda status: refund_waits(RefundStatus(status)))
)


def add_arguments(parser: ArgumentParser) -> None:
    """None of its own."""


def run(stack: Stack, arguments: Namespace) -> Report:
    """Both tables."""
    found = {
        table.name: index_table(stack.dynamodb, stack.resource(table.name), table, write=arguments.yes)
        for table in TABLES
    }
    rows = [
        (name, counts["read"], counts["missing"], counts["left over"], counts["changed"], counts["unreadable"])
        for name, counts in found.items()
    ]
    to_write = sum(counts["missing"] + counts["left over"] for counts in found.values())
    left = sum(counts["changed"] for counts in found.values()) if arguments.yes else to_write
    unreadable = sum(counts["unreadable"] for counts in found.values())
    hint = [] if arguments.yes or not left else ["dry run: --yes writes them"]
    return Report(
        {name: dict(counts) for name, counts in found.items()},
        [
            Table(
                "the index of what waits",
                ("table", "items", "were missing", "were left over", "changed meanwhile", "unreadable"),
                rows,
            ),
            *hint,
        ],
        ExitStatus.FOUND if left or unreadable else ExitStatus.OK,
    )


def index_table(client: "DynamoDBClient", name: str, table: IndexedTable, *, write: bool) -> Counter[str]:
    """Give each item that waits its entry in the index, and take it from each other one; returns how many of what."""
    counts = Counter[str]()
    for item in _items(client, name, table):
        counts["read"] += 1
        try:
            shard = shard_of(item["order_id"]) if table.waits(item["status"]) else None
        except (KeyError, ValueError):
            counts["unreadable"] += 1
            continue
        if item.get("waiting_shard") == shard:
            continue
        counts["missing" if shard else "left over"] += 1
        if write and not _write(client, name, table, item, shard):
            counts["changed"] += 1
    return counts


def _items(client: "DynamoDBClient", name: str, table: IndexedTable) -> Iterator[Mapping[str, Any]]:
    start: dict[str, Any] = {}
    while True:
        page = client.scan(
            TableName=name,
            ProjectionExpression=", ".join([*table.key, "waiting_shard", "#status"]),
            ExpressionAttributeNames={"#status": "status"},
            **start,
        )
        yield from map(from_item, page["Items"])
        if "LastEvaluatedKey" not in page:
            return
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def _write(
    client: "DynamoDBClient", name: str, table: IndexedTable, item: Mapping[str, Any], shard: str | None
) -> bool:
    """Whether the item still had the status that was read."""
    try:
        client.update_item(
            TableName=name,
            Key=to_item({key: item[key] for key in table.key}),
            UpdateExpression="SET waiting_shard = :shard" if shard else "REMOVE waiting_shard",
            ConditionExpression="#status = :status",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues=expression_values(status=item["status"], shard=shard),
        )
    except client.exceptions.ConditionalCheckFailedException:
        return False
    return True
