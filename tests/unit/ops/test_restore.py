"""`restore`: lost rows come back, rows that exist stay as they are, and Stripe's events are read again."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from ops import restore
from ops.errors import Problem
from tests.support.harness import create_table
from tests.support.operated_stack import FREE, OperatedStack

NOW = int(time.time())
WORDS = ("restore", "rows", "--table", "PaymentsTable", "--from", "restored")


def put_restored(shop: OperatedStack, order_id: str, **values: Any) -> None:
    item = to_item({"order_id": order_id, "state": "SUCCEEDED", "revision": 3} | values)
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
    results = [restore.copy(shop.stack, target, ["order_id"], item, is_dry_run=False) for item in page]
    assert results == [restore.DIFFERENT, restore.COPIED]


def test_a_row_loses_its_release(shop: OperatedStack) -> None:
    """A later release may have let a PaymentIntent be created under other keys; a second run sees the same row."""
    put_restored(shop, "ord_released", state="PENDING", released_at=NOW - 3600)
    for result in (restore.COPIED, restore.SAME):
        assert shop.ops(*WORDS, "--yes")[1]["rows"] == {result: 41}
        assert "released_at" not in shop.row("ord_released")


def test_an_expired_row_is_not_copied(shop: OperatedStack) -> None:
    """DynamoDB would delete it again."""
    put_restored(shop, "ord_old", expires_at=NOW - 1)
    put_restored(shop, "ord_new", expires_at=NOW + 24 * 3600)
    assert shop.ops(*WORDS, "--yes")[1]["rows"] == {restore.COPIED: 41, restore.EXPIRED: 1}


@pytest.mark.parametrize("table", ["OrdersTable", "PaymentsTable", "OrderRefundsTable", "RefundsTable"])
def test_only_a_table_of_the_same_indexes_is_copied(operated: OperatedStack, table: str) -> None:
    """Orders and Payments have the same key, and the other one's rows would keep the right ones from coming back."""
    for other in {"OrdersTable", "PaymentsTable", "OrderRefundsTable", "RefundsTable"} - {table}:
        create_table(operated.dynamodb, f"restored-{other}", other)
        with pytest.raises(Problem, match="has other keys or indexes"):
            operated.ops("restore", "rows", "--table", table, "--from", f"restored-{other}", "--yes")
    with pytest.raises(Problem, match="the stack's own table"):
        operated.ops("restore", "rows", "--table", table, "--from", operated.stack.resource(table), "--yes")


# ---------------------------------------------------------------- outcomes


def checkpoints(shop: OperatedStack) -> CheckpointStore[ReconcileCheckpoint]:
    return CheckpointStore(shop.dynamodb, shop.stack.resource("PaymentsStateTable"), ReconcileCheckpoint)


def since(shop: OperatedStack) -> int:
    checkpoint = checkpoints(shop).read()
    assert checkpoint is not None
    return checkpoint.since


def restore_since(shop: OperatedStack, seconds_ago: int, *words: str) -> tuple[int, dict[str, Any]]:
    at = datetime.fromtimestamp(NOW - seconds_ago, UTC).isoformat()
    return shop.ops("restore", "outcomes", "--since", at, *words)[:2]


@pytest.fixture
def reconciled(operated: OperatedStack) -> OperatedStack:
    """A stack whose reconcile has run until a minute ago."""
    checkpoints(operated).write(ReconcileCheckpoint(since=NOW - 60))
    return operated


def test_reconcile_reads_the_events_again(reconciled: OperatedStack) -> None:
    """Also those that Stripe created before the restored point in time, and that were applied later; a dry run changes
    nothing."""
    begin = NOW - 7200 - restore.EVENT_LATE_SECONDS
    assert (restore_since(reconciled, 7200)[0], since(reconciled)) == (1, NOW - 60)
    assert (restore_since(reconciled, 7200, "--yes")[0], since(reconciled)) == (0, begin)
    assert (restore_since(reconciled, 60, "--yes")[0], since(reconciled)) == (0, begin)


def test_events_are_never_skipped(operated: OperatedStack) -> None:
    """A time that reconcile has not reached yet leaves it where it is; Stripe has none older than 30 days."""
    behind = NOW - 60 - 2 * restore.EVENT_LATE_SECONDS
    checkpoints(operated).write(ReconcileCheckpoint(since=behind))
    assert (restore_since(operated, 60, "--yes")[0], since(operated)) == (0, behind)
    checkpoint = checkpoints(operated).read()
    assert checkpoint is not None
    assert checkpoint.version == 1
    with pytest.raises(Problem, match="30 days"):
        restore_since(operated, 31 * 24 * 3600, "--yes")


def test_a_time_without_a_zone_is_refused(operated: OperatedStack) -> None:
    """It could be hours off."""
    with pytest.raises(SystemExit):
        operated.ops("restore", "outcomes", "--since", "2026-11-21T12:00:00")


def pair(shop: OperatedStack, number: int, status: str, seen: int, state: str, revision: int, **row: Any) -> str:
    """An order that has seen a revision of its payment, and the payment's row."""
    order_id = f"ord_{number:032x}"
    shop.place(order_id=order_id, status=status, payment_revision=seen)
    shop.claim(order_id, at=NOW - 7200, **FREE)
    shop.set_payment(order_id, state=state, revision=revision, finalized_at=NOW - 99, **row)
    return order_id


def test_what_an_order_has_not_seen_is_emitted_again(reconciled: OperatedStack) -> None:
    """Orders alone were restored: the customer paid since, and nothing else asks for an order that was declined."""
    paid = pair(reconciled, 1, "PAYMENT_DECLINED", 5, "SUCCEEDED", 9)
    seen = pair(reconciled, 2, "PAID", 9, "SUCCEEDED", 9)
    pending = pair(reconciled, 3, "PENDING", 0, "PENDING", 9)
    rows = {each: reconciled.row(each) for each in (paid, seen, pending)}
    status, dry = restore_since(reconciled, 7200)
    assert (status, dry["payments"]) == (1, {restore.EMITTED: 1, restore.SEEN: 2})
    assert {each: reconciled.row(each) for each in rows} == rows
    status, done = restore_since(reconciled, 7200, "--yes")
    assert (status, done["payments"]) == (0, dry["payments"])
    row = reconciled.row(paid)
    assert (row["state"], row["last_emitted_at"] >= NOW, row["revision"] >= NOW) == ("SUCCEEDED", True, True)
    assert {each: reconciled.row(each) for each in (seen, pending)} == {each: rows[each] for each in (seen, pending)}


def test_a_row_that_is_older_than_its_order_has_seen_is_raised(reconciled: OperatedStack) -> None:
    """Payments alone were restored: what the row says counts again. One that is PENDING has nothing to say."""
    seen = NOW - 50
    order_id = pair(reconciled, 1, "PAID", seen, "SUCCEEDED", 5)
    pair(reconciled, 2, "PENDING", seen, "PENDING", 5)
    assert restore_since(reconciled, 7200, "--yes")[1]["payments"] == {restore.EMITTED: 1, restore.SEEN: 1}
    assert reconciled.row(order_id)["revision"] > seen


def test_a_revision_is_raised_above_what_a_faster_clock_has_written(reconciled: OperatedStack) -> None:
    """The clock of whoever runs this is behind: the order would go on to ignore the row."""
    order_id = pair(reconciled, 1, "PAYMENT_DECLINED", NOW + 1800, "DECLINED", 5)
    assert restore_since(reconciled, 7200, "--yes")[1]["payments"] == {restore.EMITTED: 1}
    assert reconciled.row(order_id)["revision"] > NOW + 1800


def test_payments_whose_order_is_lost_are_listed(reconciled: OperatedStack) -> None:
    """Their outcome would move nothing."""
    reconciled.pay(order_id="ord_" + "a" * 32)
    reconciled.delete("OrdersTable", order_id="ord_" + "a" * 32)
    document = restore_since(reconciled, 7200, "--yes")[1]
    assert (document["payments"], document["lost"]) == ({restore.ORDER_LOST: 1}, ["ord_" + "a" * 32])


@pytest.mark.parametrize(
    ("reserved", "refunds", "becomes"),
    [
        (None, {"PENDING": 400, "SUCCEEDED": 300, "NEEDS_REVIEW": 200, "FAILED": 100}, 900),
        (400, {"FAILED": 400}, 0),
        (400, {"PENDING": 400}, 400),
        (None, {}, None),
        # The refund itself is lost, and may have been made.
        (400, {}, 400),
        (700, {"FAILED": 300}, 700),
    ],
)
def test_what_an_order_has_reserved_follows_its_refunds(
    reconciled: OperatedStack, reserved: int | None, refunds: dict[str, int], becomes: int | None
) -> None:
    """Orders alone were restored: refunds that were requested or failed since the restored time changed it."""
    order_id = pair(reconciled, 1, "PAID", 9, "SUCCEEDED", 9)
    reconciled.set_order(order_id, reserved_minor=reserved)
    for number, (status, amount) in enumerate(refunds.items()):
        known = {"order_id": order_id, "refund_id": f"rfd_{number:032x}", "attempt": 1, "amount_minor": amount}
        given = {"currency": "EUR", "fingerprint": "f", "requested_at": "2026-11-21T12:00:00Z", "correlation_id": "c"}
        reconciled.put("OrderRefundsTable", **known, **given, status=status)
    is_lost = (reserved or 0) > sum(refunds.values())
    expected = {restore.REFUND_LOST: 1} if is_lost else {restore.RESERVED: 1} if becomes != reserved else {}
    for words, then in (((), reserved), (("--yes",), becomes)):
        assert restore_since(reconciled, 7200, *words)[1]["reservations"] == expected
        assert reconciled.get("OrdersTable", order_id=order_id).get("reserved_minor") == then


def test_a_reservation_that_changes_meanwhile_is_left(reconciled: OperatedStack) -> None:
    """A customer requests a refund between the reads and the write."""
    order_id = pair(reconciled, 1, "PAID", 9, "SUCCEEDED", 9)
    reconciled.set_order(order_id, reserved_minor=300)
    assert not restore.write_reserved(reconciled.orders, order_id, 0, instead_of=400)
    assert not restore.write_reserved(reconciled.orders, order_id, 0, instead_of=0)
    assert reconciled.order(order_id).reserved_minor == 300


def test_more_rows_than_one_request_reads_are_compared(reconciled: OperatedStack) -> None:
    """Each once."""
    reconciled.claim("ord_" + "0" * 32, **FREE)
    row = reconciled.row("ord_" + "0" * 32)
    for number in range(1, 101):
        reconciled.put("PaymentsTable", **{**row, "order_id": f"ord_{number:032x}"})
    assert restore_since(reconciled, 7200, "--yes")[1]["payments"] == {restore.ORDER_LOST: 101}
