"""`failed-records`: a record that was put aside is listed, and published as the item is by then, or kept."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE
from onecharge.runtime.failed_records import FailedRecords
from onecharge.runtime.topics import Topic
from ops.failed_records import GONE, NOT_NOW, PUBLISHED, STILL_UNPUBLISHABLE
from publish_events.mapping import TABLES
from publish_events.publish import NotPublished, Publisher
from tests.support.harness import Log, Sample
from tests.support.operated_stack import OperatedStack
from tests.support.silent import SILENT


class Functions:
    """publish_events, whose SNS accepts every event, unless it is down."""

    def __init__(self, shop: OperatedStack, log: Log) -> None:
        self.is_down = False
        self.published: list[dict[str, Any]] = []
        mappings = {shop.stack.resource(_logical_id(variable)): mapping for variable, mapping in TABLES.items()}
        sns: Any = self
        topics = {service: Topic(sns, "t", SILENT, SILENT) for service in (ORDER_SERVICE, PAYMENT_SERVICE)}
        now = datetime(2026, 11, 21, tzinfo=UTC)
        aside = FailedRecords(lambda: shop.s3, shop.stack.resource("FailedRecordsBucket"), now=lambda: now)
        self.publisher = Publisher(mappings, topics, aside, log.logger, SILENT)

    def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
        if self.is_down:
            return {"Successful": [], "Failed": [{"Id": "0", "Code": "InternalError", "SenderFault": False}]}
        self.published += [json.loads(entry["Message"]) for entry in PublishBatchRequestEntries]
        return {"Successful": [{"Id": entry["Id"]} for entry in PublishBatchRequestEntries], "Failed": []}

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        assert FunctionName.endswith("PublishEventsFunction")
        try:
            self.publisher.publish(json.loads(Payload)["Records"])
        except NotPublished:
            return {"FunctionError": "Unhandled"}
        return {}


def _logical_id(variable: str) -> str:
    """Of `ORDER_REFUNDS_TABLE`: OrderRefundsTable."""
    return "".join(word.title() for word in variable.split("_"))


@pytest.fixture
def functions(operated: OperatedStack, log: Log) -> Functions:
    made = Functions(operated, log)
    operated.answers["lambda"] = made
    return made


@pytest.fixture
def record(operated: OperatedStack, sample: Sample) -> dict[str, Any]:
    """Of an order whose amount is invalid."""
    [stored] = sample("publish_events/order_stored")["Records"]
    stored["dynamodb"]["NewImage"]["amount_minor"] = {"N": "-1"}
    table = operated.stack.resource("OrdersTable")
    return dict(stored) | {"eventSourceARN": f"arn:aws:dynamodb:us-east-1:1:table/{table}/stream/2026"}


def store(operated: OperatedStack, record: dict[str, Any], amount: int) -> None:
    item = {**record["dynamodb"]["NewImage"], "amount_minor": {"N": str(amount)}}
    operated.dynamodb.put_item(TableName=operated.stack.resource("OrdersTable"), Item=item)


def republish(operated: OperatedStack, *words: str) -> tuple[int, list[str]]:
    """The exit status, and the result of each record."""
    status, document, _ = operated.ops("failed-records", "republish", *words)
    return status, [each["result"] for each in document["failed_records"]]


def keys(operated: OperatedStack) -> list[str]:
    listed = operated.s3.list_objects_v2(Bucket=operated.stack.resource("FailedRecordsBucket"))
    return [each["Key"] for each in listed.get("Contents", [])]


def test_a_record_is_listed_with_its_reason(
    operated: OperatedStack, functions: Functions, record: dict[str, Any]
) -> None:
    """Which order, of which table, since when, why; nothing is changed."""
    functions.publisher.publish([record])
    status, document, _ = operated.ops("failed-records", "list")
    [listed] = document["failed_records"]
    order_id = record["dynamodb"]["Keys"]["order_id"]["S"]
    assert (listed["table"], listed["item"], listed["since"]) == ("OrdersTable", order_id, "2026-11-21T00:00:00+00:00")
    assert listed["reason"].startswith("Unpublishable ")
    assert (status, len(keys(operated)), functions.published) == (1, 1, [])


def test_a_corrected_item_is_published_as_it_is(
    operated: OperatedStack, functions: Functions, record: dict[str, Any]
) -> None:
    """Not as the record has it; then the record is gone. A dry run does neither."""
    functions.publisher.publish([record])
    store(operated, record, 1234)
    assert republish(operated) == (1, [""])
    assert (len(keys(operated)), functions.published) == (1, [])
    assert republish(operated, "--yes") == (0, [PUBLISHED])
    assert [each["data"]["amount_minor"] for each in functions.published] == [1234]
    assert keys(operated) == []


def test_what_is_not_published_keeps_its_record(
    operated: OperatedStack, functions: Functions, record: dict[str, Any]
) -> None:
    """Exactly one, the first, however often it is tried: the item is gone or still wrong, or SNS does not answer."""
    functions.publisher.publish([record])
    before = keys(operated)
    assert [republish(operated, "--yes") for _ in range(2)] == [(1, [GONE])] * 2
    store(operated, record, -1)
    assert [republish(operated, "--yes") for _ in range(2)] == [(1, [STILL_UNPUBLISHABLE])] * 2
    store(operated, record, 1234)
    functions.is_down = True
    assert [republish(operated, "--yes") for _ in range(2)] == [(1, [NOT_NOW])] * 2
    assert (keys(operated), functions.published) == (before, [])


def test_an_object_of_lambdas_is_read_too(
    operated: OperatedStack, functions: Functions, record: dict[str, Any]
) -> None:
    """It has the records of a whole batch, and goes when all of them are published."""
    other = json.loads(json.dumps(record).replace(record["dynamodb"]["Keys"]["order_id"]["S"], f"ord_{2:032x}"))
    given_up = {
        "requestContext": {"condition": "RecordAgeExceeded"},
        "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
        "timestamp": "2026-11-21T00:38:06.021Z",
        "payload": json.dumps({"Records": [record, other]}),
    }
    key = "aws/lambda/uuid/shard/2026-11-21T00.38.06-uuid"
    bucket = operated.stack.resource("FailedRecordsBucket")
    operated.s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(given_up).encode())
    store(operated, record, 1234)
    assert republish(operated, "--yes") == (1, [PUBLISHED, GONE])
    assert keys(operated) == [key]
    store(operated, other, 1234)
    assert republish(operated, key, "--yes")[0] == 0
    assert keys(operated) == []
