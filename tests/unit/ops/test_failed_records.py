"""`failed-records`: a record that was put aside is listed, and published as the item is by then, or kept."""

import json
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE
from onecharge.runtime.topics import Topic
from ops import failed_records
from ops.errors import ExitStatus
from ops.output import Report
from publish_events.app import NotPublished, Publisher
from publish_events.failed_records import FailedRecords
from publish_events.mapping import PublishedTables
from testing.harness import Log, Sample, create_table
from testing.silent import SILENT

BUCKET = "failed"


class Sns:
    """Accepts every event, unless it is down."""

    def __init__(self) -> None:
        self.is_down = False
        self.published: list[dict[str, Any]] = []

    def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
        if self.is_down:
            return {"Successful": [], "Failed": [{"Id": "0", "Code": "InternalError", "SenderFault": False}]}
        self.published += [json.loads(entry["Message"]) for entry in PublishBatchRequestEntries]
        return {"Successful": [{"Id": entry["Id"]} for entry in PublishBatchRequestEntries], "Failed": []}


class Shop:
    """A stack whose publish_events is the deployed code, with S3 and DynamoDB of moto's."""

    name = "shop"

    def __init__(self, log: Log) -> None:
        self.dynamodb, self.s3, self.sns = boto3.client("dynamodb"), boto3.client("s3"), Sns()
        create_table(self.dynamodb, "orders", "OrdersTable")
        self.s3.create_bucket(Bucket=BUCKET)
        tables = {"ORDERS_TABLE": "orders", "PAYMENTS_TABLE": "payments"}
        tables |= {"ORDER_REFUNDS_TABLE": "order-refunds", "REFUNDS_TABLE": "refunds"}
        topics = {service: Topic(self.sns, "t", SILENT, SILENT) for service in (ORDER_SERVICE, PAYMENT_SERVICE)}  # type: ignore[arg-type]
        now = datetime(2026, 11, 21, tzinfo=UTC)
        aside = FailedRecords(lambda: self.s3, BUCKET, now=lambda: now)
        self.publisher = Publisher(PublishedTables.of(tables), topics, aside, log.logger, SILENT)

    def client(self, _: str) -> Any:
        return self.s3

    def resource(self, logical_id: str) -> str:
        return {"FailedRecordsBucket": BUCKET, "PublishEventsFunction": "publish"}[logical_id]

    @property
    def functions(self) -> "Shop":
        return self

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        assert FunctionName == "publish"
        try:
            self.publisher.publish(json.loads(Payload)["Records"])
        except NotPublished:
            return {"FunctionError": "Unhandled"}
        return {}

    def store(self, item: dict[str, Any]) -> None:
        self.dynamodb.put_item(TableName="orders", Item=item)

    def run(self, *words: str) -> Report:
        parser = ArgumentParser()
        failed_records.add_arguments(parser)
        parser.add_argument("--yes", action="store_true")
        return failed_records.run(self, parser.parse_args(sorted(words, key=lambda word: word != "--yes")))  # type: ignore[arg-type]

    def keys(self) -> list[str]:
        return [each["Key"] for each in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]


@pytest.fixture
def shop(aws: None, log: Log) -> Shop:
    return Shop(log)


@pytest.fixture
def record(sample: Sample) -> dict[str, Any]:
    """Of an order whose amount somebody has spoiled."""
    [stored] = sample("publish_events/order_stored")["Records"]
    stored["dynamodb"]["NewImage"]["amount_minor"] = {"N": "-1"}
    return dict(stored)


def results(report: Report) -> list[str]:
    return [each["result"] for each in report.document["failed_records"]]


def test_a_record_is_listed_with_its_reason(shop: Shop, record: dict[str, Any]) -> None:
    """Which order, of which table, since when, why; nothing is changed."""
    shop.publisher.publish([record])
    report = shop.run("list")
    [listed] = report.document["failed_records"]
    order_id = record["dynamodb"]["Keys"]["order_id"]["S"]
    assert (listed["table"], listed["item"], listed["since"]) == ("orders", order_id, "2026-11-21T00:00:00+00:00")
    assert listed["reason"].startswith("Unpublishable ")
    assert (report.status, len(shop.keys()), shop.sns.published) == (ExitStatus.FOUND, 1, [])


def test_a_corrected_item_is_published_as_it_is(shop: Shop, record: dict[str, Any]) -> None:
    """Not as the record has it; then the record is gone. A dry run does neither."""
    shop.publisher.publish([record])
    shop.store({**record["dynamodb"]["NewImage"], "amount_minor": {"N": "1234"}})
    assert shop.run("republish").status is ExitStatus.FOUND
    assert (len(shop.keys()), shop.sns.published) == (1, [])
    report = shop.run("republish", "--yes")
    assert (report.status, results(report)) == (ExitStatus.OK, [failed_records.PUBLISHED])
    assert [each["data"]["amount_minor"] for each in shop.sns.published] == [1234]
    assert shop.keys() == []


@pytest.mark.parametrize("what", ["still wrong", "gone", "outage"])
def test_what_is_not_published_keeps_its_record(shop: Shop, record: dict[str, Any], what: str) -> None:
    """Exactly one, the first, however often it is tried: the item is still wrong or gone, or SNS does not answer."""
    shop.publisher.publish([record])
    before = shop.keys()
    image = record["dynamodb"]["NewImage"]
    if what != "gone":
        shop.store(image if what == "still wrong" else {**image, "amount_minor": {"N": "1234"}})
    shop.sns.is_down = what == "outage"
    wanted = {
        "still wrong": failed_records.STILL_UNPUBLISHABLE,
        "gone": failed_records.GONE,
        "outage": failed_records.NOT_NOW,
    }[what]
    for _ in range(2):
        report = shop.run("republish", "--yes")
        assert (report.status, results(report)) == (ExitStatus.FOUND, [wanted])
    assert (shop.keys(), shop.sns.published) == (before, [])


def test_an_object_of_lambdas_is_read_too(shop: Shop, record: dict[str, Any]) -> None:
    """It has the records of a whole batch, and goes when all of them are published."""
    other = json.loads(json.dumps(record).replace(record["dynamodb"]["Keys"]["order_id"]["S"], f"ord_{2:032x}"))
    given_up = {
        "requestContext": {"condition": "RecordAgeExceeded"},
        "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
        "timestamp": "2026-11-21T00:38:06.021Z",
        "payload": json.dumps({"Records": [record, other]}),
    }
    key = "aws/lambda/uuid/shard/2026-11-21T00.38.06-uuid"
    shop.s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(given_up).encode())
    shop.store({**record["dynamodb"]["NewImage"], "amount_minor": {"N": "1234"}})
    assert results(shop.run("republish", "--yes")) == [failed_records.PUBLISHED, failed_records.GONE]
    assert shop.keys() == [key]
    shop.store({**other["dynamodb"]["NewImage"], "amount_minor": {"N": "1234"}})
    assert shop.run("republish", key, "--yes").status is ExitStatus.OK
    assert shop.keys() == []
