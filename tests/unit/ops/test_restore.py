"""`restore`: lost rows come back, rows that exist stay as they are, and Stripe's events are read again."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from ops import restore
from ops.errors import Problem
from reconcile.run import ReconcileCheckpoint
from testing.harness import create_table
from testing.operated_stack import OperatedStack

NOW = int(time.time())
WORDS = ("restore", "rows", "--table", "PaymentsTable", "--from", "restored")


def put_restored(shop: OperatedStack, order_id: str, **values: Any) -> None:
    item = to_item({"order_id": order_id, "state": "SUCCEEDED", "revision": 3, **values})
    shop.dynamodb.put_item(TableName="restored", Item=item)


@pytest.fixture
def shop(operated: OperatedStack) -> OperatedStack:
    """A stack that has lost its payments, and the table that DynamoDB restored beside it."""
    create_table(operated.dynamodb, "restored", "PaymentsTable")
    for number in range(40):
        put_restored(operated, f"ord_{number}")
    return operated


def rows(shop: OperatedStack) -> dict[str, str]:
    items = shop.dynamodb.scan(TableName=shop.stack.resource("PaymentsTable"))["Items"]
    return {each["order_id"]["S"]: each["state"]["S"] for each in items}


def test_lost_rows_come_back(shop: OperatedStack) -> None:
    """A dry run only counts them; a second run has nothing left to do."""
    status, document, _ = shop.ops(*WORDS)
    assert (status, document["rows"], rows(shop)) == (1, {restore.MISSING: 40}, {})
    assert shop.ops(*WORDS, "--yes")[1]["rows"] == {restore.COPIED: 40}
    assert rows(shop) == {f"ord_{number}": "SUCCEEDED" for number in range(40)}
    status, document, _ = shop.ops(*WORDS, "--yes")
    assert (status, document["rows"]) == (0, {restore.SAME: 40})


def test_a_row_that_exists_is_never_touched(shop: OperatedStack) -> None:
    """Whatever its state and its revision: its writer knew what happened since. It is named."""
    shop.put("PaymentsTable", order_id="ord_1", state="SUCCEEDED", revision=9)
    shop.put("PaymentsTable", order_id="ord_2", state="PENDING", revision=1)
    for words in (WORDS, (*WORDS, "--yes")):
        document = shop.ops(*words)[1]
        assert document["rows"][restore.DIFFERENT] == 2
        assert sorted(document["different"]) == ["ord_1", "ord_2"]
    assert rows(shop)["ord_2"] == "PENDING"
    assert len(rows(shop)) == 40


def test_a_row_that_appears_meanwhile_is_not_touched(shop: OperatedStack) -> None:
    """Between the scan and the write: a worker has claimed the order."""
    page = shop.dynamodb.scan(TableName="restored", Limit=2)["Items"]
    shop.put("PaymentsTable", order_id=page[0]["order_id"]["S"], state="PENDING", revision=1)
    target = shop.stack.resource("PaymentsTable")
    results = restore.copied(shop.stack, target, ["order_id"], page, is_dry_run=False)
    assert [result for _, result in results] == [restore.DIFFERENT, restore.COPIED]


def test_an_expired_row_is_not_copied(shop: OperatedStack) -> None:
    """DynamoDB would delete it again."""
    put_restored(shop, "ord_old", expires_at=NOW - 1)
    put_restored(shop, "ord_new", expires_at=NOW + 24 * 3600)
    assert shop.ops(*WORDS, "--yes")[1]["rows"] == {restore.COPIED: 41, restore.EXPIRED: 1}


def test_tables_that_do_not_match_are_refused(shop: OperatedStack) -> None:
    """The stack's own table, and one of another key."""
    own, other = shop.stack.resource("PaymentsTable"), shop.stack.resource("RefundsTable")
    for source, why in ((own, "the stack's own table"), (other, "has another key")):
        with pytest.raises(Problem, match=why):
            shop.ops("restore", "rows", "--table", "PaymentsTable", "--from", source, "--yes")


# ---------------------------------------------------------------- events


def checkpoints(shop: OperatedStack) -> CheckpointStore[ReconcileCheckpoint]:
    return CheckpointStore(shop.dynamodb, shop.stack.resource("PaymentsStateTable"), ReconcileCheckpoint)


def since(shop: OperatedStack) -> int:
    checkpoint = checkpoints(shop).read()
    assert checkpoint is not None
    return checkpoint.since


def reread(shop: OperatedStack, seconds_ago: int, *words: str) -> int:
    at = datetime.fromtimestamp(NOW - seconds_ago, UTC).isoformat()
    return shop.ops("restore", "events", "--since", at, *words)[0]


def test_reconcile_reads_the_events_again(operated: OperatedStack) -> None:
    """From the restored point in time on; a dry run changes nothing."""
    checkpoints(operated).write(ReconcileCheckpoint.first(since=NOW - 60, now=NOW))
    assert (reread(operated, 7200), since(operated)) == (1, NOW - 60)
    assert (reread(operated, 7200, "--yes"), since(operated)) == (0, NOW - 7200)
    checkpoint = checkpoints(operated).read()
    assert checkpoint is not None
    assert (checkpoint.until, checkpoint.after_event) == (NOW - 7200, None)


def test_events_are_never_skipped(operated: OperatedStack) -> None:
    """A time that reconcile has not reached yet leaves it where it is; Stripe has none older than 30 days."""
    checkpoints(operated).write(ReconcileCheckpoint.first(since=NOW - 7200, now=NOW))
    assert (reread(operated, 60, "--yes"), since(operated)) == (0, NOW - 7200)
    with pytest.raises(Problem, match="30 days"):
        reread(operated, 31 * 24 * 3600, "--yes")


def test_a_time_without_a_zone_is_refused(operated: OperatedStack) -> None:
    """It could be hours off."""
    with pytest.raises(SystemExit):
        operated.ops("restore", "events", "--since", "2026-11-21T12:00:00")
