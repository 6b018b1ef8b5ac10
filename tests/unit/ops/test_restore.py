"""`restore`: lost rows come back, rows that exist stay as they are, and Stripe's events are read again."""

import time
from argparse import ArgumentParser
from typing import Any

import boto3
import pytest

from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from ops import restore
from ops.errors import ExitStatus, Problem
from ops.output import Report
from reconcile.checkpoint import ReconcileCheckpoint
from testing.harness import create_table

NOW = int(time.time())


class Shop:
    """A stack with a Payments table, and what DynamoDB restored beside it."""

    def __init__(self) -> None:
        self.dynamodb = boto3.client("dynamodb")
        for name, logical_id in (
            ("payments", "PaymentsTable"),
            ("restored", "PaymentsTable"),
            ("orders", "OrdersTable"),
        ):
            create_table(self.dynamodb, name, logical_id)
        create_table(self.dynamodb, "payments-state", "PaymentsStateTable")
        self.checkpoints = CheckpointStore(self.dynamodb, "payments-state", ReconcileCheckpoint)

    def resource(self, logical_id: str) -> str:
        return {"PaymentsTable": "payments", "PaymentsStateTable": "payments-state"}[logical_id]

    def put(self, table: str, order_id: str, **values: Any) -> None:
        self.dynamodb.put_item(TableName=table, Item=to_item({"order_id": order_id, **values}))

    def rows(self) -> dict[str, str]:
        return {each["order_id"]["S"]: each["state"]["S"] for each in self.dynamodb.scan(TableName="payments")["Items"]}

    def run(self, *words: str) -> Report:
        parser = ArgumentParser()
        restore.add_arguments(parser)
        parser.add_argument("--yes", action="store_true")
        return restore.run(self, parser.parse_args(sorted(words, key=lambda word: word != "--yes")))  # type: ignore[arg-type]


@pytest.fixture
def shop(aws: None) -> Shop:
    shop = Shop()
    for number in range(40):
        shop.put("restored", f"ord_{number}", state="SUCCEEDED", revision=3)
    return shop


ROWS = ("rows", "--table", "PaymentsTable", "--from", "restored")


def test_lost_rows_come_back(shop: Shop) -> None:
    """A dry run only counts them; a second run has nothing left to do."""
    dry = shop.run(*ROWS)
    assert (dry.status, dry.document["rows"]) == (ExitStatus.FOUND, {restore.MISSING: 40})
    assert shop.rows() == {}
    assert shop.run(*ROWS, "--yes").document["rows"] == {restore.COPIED: 40}
    assert shop.rows() == {f"ord_{number}": "SUCCEEDED" for number in range(40)}
    again = shop.run(*ROWS, "--yes")
    assert (again.status, again.document["rows"]) == (ExitStatus.OK, {restore.SAME: 40})


def test_a_row_that_exists_is_never_touched(shop: Shop) -> None:
    """Whatever its state and its revision: its writer knew what happened since. It is named."""
    shop.put("payments", "ord_1", state="SUCCEEDED", revision=9)
    shop.put("payments", "ord_2", state="PENDING", revision=1)
    for words in (ROWS, (*ROWS, "--yes")):
        document = shop.run(*words).document
        assert document["rows"][restore.DIFFERENT] == 2
        assert sorted(document["different"]) == ["ord_1", "ord_2"]
    assert shop.rows()["ord_2"] == "PENDING"
    assert len(shop.rows()) == 40


def test_a_row_that_appears_meanwhile_is_not_touched(shop: Shop) -> None:
    """Between the scan and the write: a worker has claimed the order."""
    copy = restore.Copy(shop.dynamodb, "restored", "payments", is_dry_run=False)
    page = next(copy._pages())
    shop.put("payments", page[0]["order_id"]["S"], state="PENDING", revision=1)
    assert [copy._copy(each) for each in page[:2]] == [restore.DIFFERENT, restore.COPIED]


def test_an_expired_row_is_not_copied(shop: Shop) -> None:
    """DynamoDB would delete it again."""
    shop.put("restored", "ord_old", state="SUCCEEDED", expires_at=NOW - 1)
    shop.put("restored", "ord_new", state="SUCCEEDED", expires_at=NOW + 24 * 3600)
    assert shop.run(*ROWS, "--yes").document["rows"] == {restore.COPIED: 41, restore.EXPIRED: 1}


def test_tables_that_do_not_match_are_refused(shop: Shop) -> None:
    """The stack's own table, and one of another key."""
    create_table(shop.dynamodb, "checkpoints", "PaymentsStateTable")
    for source, why in (("payments", "the stack's own table"), ("checkpoints", "has another key")):
        with pytest.raises(Problem, match=why):
            shop.run("rows", "--table", "PaymentsTable", "--from", source, "--yes")


# ---------------------------------------------------------------- events


def at(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_reconcile_reads_the_events_again(shop: Shop) -> None:
    """From the restored point in time on, the failed ones kept; a dry run changes nothing."""
    shop.checkpoints.write(ReconcileCheckpoint.first(since=NOW - 60, now=NOW))
    assert shop.run("events", "--since", at(NOW - 7200)).status is ExitStatus.FOUND
    unchanged = shop.checkpoints.read()
    assert unchanged is not None
    assert unchanged.since == NOW - 60
    assert shop.run("events", "--since", at(NOW - 7200), "--yes").status is ExitStatus.OK
    checkpoint = shop.checkpoints.read()
    assert checkpoint is not None
    assert (checkpoint.since, checkpoint.until, checkpoint.after_event) == (NOW - 7200, NOW - 7200, None)
    assert checkpoint.again_before >= NOW


def test_events_are_never_skipped(shop: Shop) -> None:
    """A time that reconcile has not reached yet leaves it where it is; Stripe has none older than 30 days."""
    shop.checkpoints.write(ReconcileCheckpoint.first(since=NOW - 7200, now=NOW))
    shop.run("events", "--since", at(NOW - 60), "--yes")
    checkpoint = shop.checkpoints.read()
    assert checkpoint is not None
    assert checkpoint.since == NOW - 7200
    assert checkpoint.again_before >= NOW
    with pytest.raises(Problem, match="30 days"):
        shop.run("events", "--since", at(NOW - 31 * 24 * 3600), "--yes")


def test_a_time_without_a_zone_is_refused(shop: Shop) -> None:
    """It could be hours off."""
    with pytest.raises(SystemExit):
        shop.run("events", "--since", "2026-11-21T12:00:00")
