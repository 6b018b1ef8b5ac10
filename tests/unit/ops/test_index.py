"""`python -m ops index`: what waits is in its index, whichever release wrote it."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import pytest

from onecharge.contract.refunds import RefundStatus
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import waits as refund_waits
from onecharge.orders.transitions import waits
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.shards import shard_of
from ops import index
from ops.errors import ExitStatus
from testing.operated_stack import OperatedStack
from testing.simulation.dynamodb import MemoryDynamoDB, NoFaults

LEFT_BY_OTHERS: Mapping[str, Mapping[str, str]] = {"none": {}, "another": {"waiting_shard": "other"}}


def test_every_item_gets_the_entry_that_its_status_asks_for(operated: OperatedStack) -> None:
    """Of every status, with an entry or without one: a dry run writes nothing, and says what it would write."""
    items = [
        ("OrdersTable", {"order_id": f"ord_{status}_{left}", "status": status, **attributes}, waits(status))
        for status in OrderStatus
        for left, attributes in LEFT_BY_OTHERS.items()
    ]
    items += [
        (
            "OrderRefundsTable",
            {"order_id": "ord_1", "refund_id": f"{status}_{left}", "status": status, **attributes},
            refund_waits(status),
        )
        for status in RefundStatus
        for left, attributes in LEFT_BY_OTHERS.items()
    ]
    for table, item, _ in items:
        operated.dynamodb.put_item(TableName=operated.stack.resource(table), Item=to_item(item))
    assert index.run(operated.stack, Namespace(yes=False)).status is ExitStatus.FOUND
    assert shards(operated, items) == [item.get("waiting_shard") for _, item, _ in items]
    assert index.run(operated.stack, Namespace(yes=True)).status is ExitStatus.OK
    assert shards(operated, items) == [shard_of(item["order_id"]) if is_kept else None for _, item, is_kept in items]
    assert index.run(operated.stack, Namespace(yes=False)).status is ExitStatus.OK


def shards(operated: OperatedStack, items: list[tuple[str, dict[str, Any], bool]]) -> list[str | None]:
    found = []
    for table, item, _ in items:
        key = to_item({name: item[name] for name in ("order_id", "refund_id") if name in item})
        stored = operated.dynamodb.get_item(TableName=operated.stack.resource(table), Key=key, ConsistentRead=True)[
            "Item"
        ]
        found.append(stored.get("waiting_shard", {}).get("S"))
    return found


@pytest.mark.parametrize("status", ["ON_HOLD", None, 7])
def test_an_item_that_cannot_be_read_hides_no_other(operated: OperatedStack, status: Any) -> None:
    """Its status is none that this release knows: it is left alone, and said; those behind it get their entries."""
    unreadable = {"order_id": "ord_0", "status": status, "waiting_shard": "other"}
    items = [
        ("OrdersTable", unreadable, False),
        *[("OrdersTable", {"order_id": f"ord_{number}", "status": "PENDING"}, True) for number in range(1, 9)],
    ]
    for table, item, _ in items:
        operated.dynamodb.put_item(TableName=operated.stack.resource(table), Item=to_item(item))
    report = index.run(operated.stack, Namespace(yes=True))
    assert report.status is ExitStatus.FOUND
    assert report.document["OrdersTable"] == {"read": 9, "missing": 8, "unreadable": 1}
    assert shards(operated, items) == ["other", *[shard_of(item["order_id"]) for _, item, _ in items[1:]]]
    assert index.run(operated.stack, Namespace(yes=True)).status is ExitStatus.FOUND


def test_an_item_that_moves_meanwhile_is_left_alone() -> None:
    """Whoever has moved it has written the attribute: the command says that it has to run once more."""

    class Paid(NoFaults):
        """The order is paid before the command writes."""

        def pause(self, where: str) -> None:
            if where == "dynamodb UpdateItem":
                dynamodb.tables["orders"]["ord_1",] = to_item({"order_id": "ord_1", "status": "PAID"})

    dynamodb = MemoryDynamoDB(keys={"orders": ("order_id",)})
    dynamodb.put_item(TableName="orders", Item=to_item({"order_id": "ord_1", "status": "PENDING"}))
    dynamodb.io = Paid()
    [orders, *_] = index.TABLES
    counts = index.index_table(dynamodb, "orders", orders, write=True)  # type: ignore[arg-type]  # What it uses.
    assert counts == {"read": 1, "missing": 1, "changed": 1}
    assert "waiting_shard" not in dynamodb.tables["orders"]["ord_1",]
