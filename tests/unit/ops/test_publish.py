"""`publish`: the order's rows change in one counter alone, so that their streams emit them again."""

import time
from typing import Any

from publish_events.mapping import order_event_from_item, payment_outcome_from_item
from tests.support.operated_stack import FINAL, FREE, OperatedStack

ORDER_ID = "ord_" + "a" * 32
TABLES = ("OrdersTable", "PaymentsTable")


def rows(operated: OperatedStack) -> list[dict[str, Any]]:
    """The order's items, in DynamoDB's JSON."""
    return [dict(operated.stack.item(table, order_id=ORDER_ID) or {}) for table in TABLES]


def test_the_rows_of_an_order_are_touched_and_nothing_else(operated: OperatedStack) -> None:
    """Each run changes each row, without which its stream emits nothing. The events say the same; that of the order is
    another message, which a FIFO topic takes. A dry run, and an order that is not there, change nothing."""
    operated.place(order_id=ORDER_ID)
    operated.claim(ORDER_ID, **FREE, **FINAL, state="SUCCEEDED", finalized_at=int(time.time()))
    before = rows(operated)
    status, document, _ = operated.ops("publish", ORDER_ID)
    assert (status, [each["table"] for each in document["rows"]], rows(operated)) == (1, [*TABLES], before)
    for touches in ("1", "2"):
        assert operated.ops("publish", ORDER_ID, "--yes")[0] == 0
        assert rows(operated) == [{**row, "touches": {"N": touches}} for row in before]
    for mapping, row, touched in zip(
        (order_event_from_item, payment_outcome_from_item), before, rows(operated), strict=True
    ):
        first, again = mapping(row), mapping(touched)
        assert first is not None
        assert again is not None
        assert (again.data, again.id == first.id) == (first.data, mapping is payment_outcome_from_item)
    other = "ord_" + "b" * 32
    assert operated.ops("publish", other, "--yes")[:2] == (1, {"rows": []})
    assert operated.stack.item("OrdersTable", order_id=other) is None
