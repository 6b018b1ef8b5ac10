"""`failed-records`: the stream records that could not be published, and how their items are published after a mend.

    list         what is in the FailedRecordsBucket: whose record, since when, why
    republish    publish_events is invoked with each item as it is now, as if it had just changed; then the record is
                 deleted. An item that still cannot be published keeps its record.

A duplicate is harmless: the item decides what is sent, and whoever receives it ignores what it knows already.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from onecharge.runtime.aws import error_code
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.output import Report, Table
from publish_events.failed_records import key_of

HELP = "list the stream records that could not be published; publish their items after a mend"


@dataclass(frozen=True)
class FailedRecord:
    """One record in one object of the bucket; an object that Lambda wrote has those of a whole batch."""

    key: str
    since: str
    reason: str
    record: Mapping[str, Any]

    @property
    def item_key(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record["dynamodb"]["Keys"]
        return found

    @property
    def table(self) -> str:
        return str(self.record["eventSourceARN"]).split("/")[1]

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
    results = ["" for _ in records]
    if arguments.subcommand == "republish" and arguments.yes:
        results = bucket.republish(records)
    rows = [
        (each.key, each.table, each.item, each.since, each.reason, result)
        for each, result in zip(records, results, strict=True)
    ]
    names = ("key", "table", "item", "since", "reason", "result")
    left = [row for row in rows if row[-1] != PUBLISHED]
    hint = (
        [] if arguments.subcommand == "list" or arguments.yes or not left else ["dry run: --yes publishes these items"]
    )
    return Report(
        {"failed_records": [dict(zip(names, row, strict=True)) for row in rows]},
        [Table(f"failed records of stack {stack.name}", names, rows), *hint],
        ExitStatus.FOUND if left else ExitStatus.OK,
    )


PUBLISHED = "published, or nothing left to publish"
GONE = "the item is gone: its record is kept (runbook: Restore a table)"
STILL_UNPUBLISHABLE = "still cannot be published: correct the item"
NOT_NOW = "not published now: SNS or S3 does not answer; try again"


class Bucket:
    """The FailedRecordsBucket of a stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._s3 = stack.client("s3")
        self._name = stack.resource("FailedRecordsBucket")

    def keys(self) -> list[str]:
        """Of its objects."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def records(self) -> Iterator[FailedRecord]:
        """Every record in it, by the keys of the objects."""
        for key in self.keys():
            yield from self._in_object(key)

    def republish(self, records: list[FailedRecord]) -> list[str]:
        """Publish the item of each, and delete the objects of which all is published; returns a result for each."""
        results = [self._republish(each) for each in records]
        keys = {each.key for each in records}
        for key in sorted(keys):
            of_object = [result for each, result in zip(records, results, strict=True) if each.key == key]
            if all(result == PUBLISHED for result in of_object):
                # The bucket has versions: it can be restored for 30 days.
                self._s3.delete_object(Bucket=self._name, Key=key)
        return results

    def _in_object(self, key: str) -> Iterator[FailedRecord]:
        invocation = json.loads(self._s3.get_object(Bucket=self._name, Key=key)["Body"].read())
        reason = (invocation.get("responseContext") or {}).get("functionError") or ""
        condition = (invocation.get("requestContext") or {}).get("condition") or ""
        for record in json.loads(invocation["payload"])["Records"]:
            yield FailedRecord(key, invocation["timestamp"], " ".join(filter(None, (condition, reason))), record)

    def _republish(self, failed: FailedRecord) -> str:
        answer = self._stack.dynamodb.get_item(TableName=failed.table, Key=dict(failed.item_key), ConsistentRead=True)
        if "Item" not in answer:
            return GONE
        # A new event id: if it is put aside again, that is seen, and nothing that is there is taken for it.
        record = {
            **failed.record,
            "eventID": f"republished-{uuid4()}",
            "eventName": "MODIFY",
            "dynamodb": {"Keys": failed.item_key, "NewImage": answer["Item"]},
        }
        invoked = self._stack.functions.invoke(
            FunctionName=self._stack.resource("PublishEventsFunction"),
            Payload=json.dumps({"Records": [record]}).encode(),
        )
        if "FunctionError" in invoked:
            return NOT_NOW
        if self._exists(key_of(record)):
            self._s3.delete_object(Bucket=self._name, Key=key_of(record))  # The first record stays.
            return STILL_UNPUBLISHABLE
        return PUBLISHED

    def _exists(self, key: str) -> bool:
        try:
            self._s3.head_object(Bucket=self._name, Key=key)
        except ClientError as error:
            if error_code(error) not in ("404", "NoSuchKey", "NotFound"):
                raise
            return False
        return True
