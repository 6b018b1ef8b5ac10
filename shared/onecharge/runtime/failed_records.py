"""Puts a stream record that can never be published aside: an object in S3 has the whole record.

Lambda puts the records that it gives up into the same bucket, in the same form (AWS Lambda Developer Guide, "Retain
discarded records for a DynamoDB event source"); `payload` is the event that the function was invoked with.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from onecharge.runtime.aws import error_code

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PREFIX = "unpublishable"
"""The prefix of our keys. Lambda's own begin with `aws/lambda/`."""


def table_of(record: Mapping[str, Any]) -> str:
    """`orders` of `arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-01T00:00:00.000`."""
    return str(record["eventSourceARN"]).split("/")[1]


def key_of(record: Mapping[str, Any]) -> str:
    """The same key however often the record is delivered: `unpublishable/orders/{event id}.json`."""
    return f"{PREFIX}/{table_of(record)}/{record['eventID']}.json"


@dataclass(frozen=True)
class FailedRecords:
    """The bucket. Its client is asked for only when a record is put aside, which is nearly never."""

    client: Callable[[], "S3Client"]
    bucket: str
    now: Callable[[], datetime]

    def put(self, record: Mapping[str, Any], reason: str) -> bool:
        """Put the record aside; returns False if an earlier delivery of it did. Raises botocore's errors."""
        invocation = {
            "version": "1.0",
            "timestamp": self.now().isoformat(),
            "requestContext": {"condition": "Unpublishable"},
            "responseContext": {"functionError": reason},
            "DDBStreamBatchInfo": {"streamArn": record["eventSourceARN"], "batchSize": 1},
            "payload": json.dumps({"Records": [record]}),
        }
        try:
            self.client().put_object(
                Bucket=self.bucket,
                Key=key_of(record),
                Body=json.dumps(invocation).encode(),
                ContentType="application/json",
                IfNoneMatch="*",
            )
        except ClientError as refused:
            if error_code(refused) != "PreconditionFailed":
                raise
            return False
        return True
