"""The stream records that could not be published, and how their items are published after a fix.

    list         what is in the FailedRecordsBucket: of which item, since when, why
    republish    publish_events is invoked with each item as it is now, as if it had just changed; then the record is
                 deleted. An item that still cannot be published keeps its record.

A duplicate is harmless: the item decides what is sent, and its consumers ignore what they know already.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from onecharge.runtime.failed_records import key_of, table_of
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.output import Report, Table

TABLES = ("OrdersTable", "OrderRefundsTable", "PaymentsTable", "RefundsTable")
"""The tables whose streams are published, by logical id."""

PUBLISHED = "published, or nothing left to publish"
GONE = "the item is gone: its record is kept (runbook: Restore a table)"
STILL_UNPUBLISHABLE = "still cannot be published: correct the item"
NOT_NOW = "not published now: SNS or S3 does not answer; try again"


@dataclass(frozen=True)
class FailedRecord:
    """One record in one object of the bucket; an object that Lambda wrote has those of a whole batch."""

    key: str
    since: str
    reason: str
    table: str
    """The table's logical id, or its name if the stack has no such table."""
    record: Mapping[str, Any]

    @property
    def table_name(self) -> str:
        return table_of(self.record)

    @property
    def item_key(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record["dynamodb"]["Keys"]
        return found

    @property
    def item(self) -> str:
        """Its key attributes, as a person reads them."""
        return " ".join(next(iter(value.values())) for value in self.item_key.values())


def add_arguments(parser: ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    subcommands.add_parser("list", help="what is in the bucket")
    republish = subcommands.add_parser("republish", help="publish the items as they are now")
    republish.add_argument("keys", nargs="*", metavar="KEY", help="objects of the bucket (default: all)")


def run(stack: Stack, arguments: Namespace) -> Report:
    bucket = Bucket(stack)
    chosen = getattr(arguments, "keys", [])
    records = [each for each in bucket.records() if not chosen or each.key in chosen]
    is_change = arguments.subcommand == "republish"
    results = bucket.republish(records) if is_change and arguments.yes else [""] * len(records)
    found = [
        {"key": each.key, "table": each.table, "item": each.item, "since": each.since, "reason": each.reason}
        | {"result": result}
        for each, result in zip(records, results, strict=True)
    ]
    table = Table.of(f"failed records of stack {stack.name}", "key table item since reason result", found)
    is_done = all(result == PUBLISHED for result in results)
    hint = ["dry run: --yes publishes these items"] if is_change and not arguments.yes and not is_done else []
    return Report({"failed_records": found}, [table, *hint], ExitStatus.OK if is_done else ExitStatus.FOUND)


class Bucket:
    """The FailedRecordsBucket of a stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._s3 = stack.client("s3")
        self._name = stack.resource("FailedRecordsBucket")

    def records(self) -> Iterator[FailedRecord]:
        """Every record in it, by the keys of the objects."""
        logical_ids = {self._stack.resource(name): name for name in TABLES}
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name):
            for key in [each["Key"] for each in page.get("Contents", [])]:
                invocation = json.loads(self._s3.get_object(Bucket=self._name, Key=key)["Body"].read())
                reasons = [
                    (invocation.get("requestContext") or {}).get("condition"),
                    (invocation.get("responseContext") or {}).get("functionError"),
                ]
                reason = " ".join(filter(None, reasons))
                for record in json.loads(invocation["payload"])["Records"]:
                    name = table_of(record)
                    yield FailedRecord(key, invocation["timestamp"], reason, logical_ids.get(name, name), record)

    def republish(self, records: list[FailedRecord]) -> list[str]:
        """Publish the item of each, and delete the objects of which all is published; returns a result for each."""
        results = [self._republish(each) for each in records]
        for key in sorted({each.key for each in records}):
            of_object = [result for each, result in zip(records, results, strict=True) if each.key == key]
            if all(result == PUBLISHED for result in of_object):
                # The bucket has versions: it can be restored for 30 days.
                self._s3.delete_object(Bucket=self._name, Key=key)
        return results

    def _republish(self, failed: FailedRecord) -> str:
        key = dict(failed.item_key)
        answer = self._stack.dynamodb.get_item(TableName=failed.table_name, Key=key, ConsistentRead=True)
        if "Item" not in answer:
            return GONE
        # A new event id: if it is put aside again, that is seen, and no earlier object is taken for it.
        record = {
            **failed.record,
            "eventID": f"republished-{uuid4()}",
            "eventName": "MODIFY",
            "dynamodb": {"Keys": failed.item_key, "NewImage": answer["Item"]},
        }
        function = self._stack.resource("PublishEventsFunction")
        payload = json.dumps({"Records": [record]}).encode()
        invoked = self._stack.client("lambda").invoke(FunctionName=function, Payload=payload)
        if "FunctionError" in invoked:
            return NOT_NOW
        if self._s3.list_objects_v2(Bucket=self._name, Prefix=key_of(record))["KeyCount"]:
            self._s3.delete_object(Bucket=self._name, Key=key_of(record))  # The first record stays.
            return STILL_UNPUBLISHABLE
        return PUBLISHED
