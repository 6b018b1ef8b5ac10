"""One execution environment of charge_order, and the poller that feeds it: a batch after the other, until it is ended.

Writes one line of JSON for each batch: when it began and ended, and the receive count of each message.
"""

import json
import os
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from charge_order.app import handler
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.self_check import SELF_CHECK
from testing.harness import LambdaContext

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef


class Invocation(LambdaContext):
    """Lambda's context, whose time runs out."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # The base class's time is fixed.
        return int((self._ends_at - time.monotonic()) * 1000)


def main() -> None:
    timeout = float(os.environ["FUNCTION_TIMEOUT_SECONDS"])
    url = os.environ["PAYMENTS_QUEUE_URL"]
    sqs = boto3.client("sqs")
    with Path(sys.argv[1]).open("a") as log, Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        outcomes = handler(dict(SELF_CHECK), Invocation(timeout))
        print(json.dumps({"ready": outcomes}), file=log, flush=True)
        while True:
            received = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=BATCH_SIZE, WaitTimeSeconds=1, AttributeNames=["All"]
            ).get("Messages", [])
            if not received:
                continue
            begun_at = time.time()
            failed = handler({"Records": [record(each) for each in received]}, Invocation(timeout))
            line = {
                "begun_at": begun_at,
                "ended_at": time.time(),
                "receives": [int(each["Attributes"]["ApproximateReceiveCount"]) for each in received],
            }
            print(json.dumps(line), file=log, flush=True)
            again = {each["itemIdentifier"] for each in failed["batchItemFailures"]}
            done = [each for each in received if each["MessageId"] not in again]
            if done:
                sqs.delete_message_batch(
                    QueueUrl=url,
                    Entries=[{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(done)],
                )


def record(message: "MessageTypeDef") -> dict[str, Any]:
    """A message as Lambda passes it on."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:payments",
        "awsRegion": "us-east-1",
    }


if __name__ == "__main__":
    main()
