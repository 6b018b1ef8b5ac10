"""A function makes its parts at their first use and flushes its metrics; no sample event of AWS is an error."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from threading import Barrier
from time import sleep
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onecharge.contract.refund_events import RefundOutcomeEvent
from onecharge.payments.stripe_responses import Deferred
from onecharge.runtime.parts import Parts, lambda_handler, part
from refund_charge.app import RefundChargeParts
from tests.support.fake_sns import FakeSns
from tests.support.harness import LambdaContext, Sample, load_template, parts_of


class Slow(Parts):
    """Parts that take a while to make."""

    made = failures = flushed = 0

    @part
    def bucket(self) -> object:
        """Fails as often as it is told to."""
        self.made += 1
        sleep(0.05)
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError
        return object()

    @part
    def user(self) -> tuple[str, object]:
        """Made of another part."""
        return self.environment["NAME"], self.bucket


def test_a_part_is_made_at_its_first_use_for_all_threads() -> None:
    """Two would be two rate limits, or two copies of a secret. One that could not be made is made at the next use."""
    parts, together = Slow({"NAME": "a"}), Barrier(2)
    parts.failures = 1
    with pytest.raises(ZeroDivisionError):
        _ = parts.user

    def use(name: str) -> Any:
        together.wait()
        return getattr(parts, name)

    with ThreadPoolExecutor(2) as threads:
        [(name, of_user), bucket] = threads.map(use, ["user", "bucket"])
    assert (name, parts.made) == ("a", 2)
    assert of_user is bucket is parts.bucket


def test_all_invocations_share_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made of the environment as it is at the first invocation. Metrics are flushed after one that raises, too."""
    flushed = list[str]()

    @lambda_handler(Slow)
    def handler(parts: Slow, event: dict[str, Any], context: object) -> str:
        """Answer, or raise the event's error."""
        parts.counts.flush = lambda: flushed.append("")  # type: ignore[method-assign]
        if "error" in event:
            raise event["error"]
        return f"{parts.user[0]}{event['name']}"

    monkeypatch.setenv("NAME", "orders ")
    with pytest.raises(ZeroDivisionError):
        handler({"error": ZeroDivisionError()}, LambdaContext())
    monkeypatch.setenv("NAME", "another")
    assert [handler({"name": name}, LambdaContext()) for name in "ab"] == ["orders a", "orders b"]
    assert len(flushed) == 3


def test_threads_that_are_refused_at_the_same_time_share_one_exception(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore would make it at the first refusal, without a lock: it exists before."""
    client = Parts({}).dynamodb
    made = "botocore.errorfactory.ClientExceptionsFactory.create_client_exceptions"
    monkeypatch.setattr(made, lambda *_: pytest.fail("made when it was asked for"))
    assert issubclass(client.exceptions.ConditionalCheckFailedException, ClientError)


def test_a_request_has_two_tries_of_three_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record takes a bounded time of its invocation, whatever AWS does."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    config: Any = Parts({}).client("sqs").meta.config
    assert config.connect_timeout + config.read_timeout == 3
    assert config.retries == {"mode": "standard", "total_max_attempts": 2}


# ---------------------------------------------------------------- what a function is invoked with

SQS = {
    **{"messageId": "19dd0b57", "receiptHandle": "MessageReceiptHandle", "body": "Hello from SQS!"},
    "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1523232000000", "SenderId": "123456789012"},
    **{"messageAttributes": {}, "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:Q"},
}
STREAM = {
    **{"eventID": "1", "eventVersion": "1.0", "eventName": "INSERT", "eventSource": "aws:dynamodb"},
    "dynamodb": {"Keys": {"Id": {"N": "101"}}, "NewImage": {"Message": {"S": "New item!"}, "Id": {"N": "101"}}},
    "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/ExampleTableWithStream/stream/2015-06-27",
}
HTTP_CONTEXT = {
    "authorizer": {"jwt": {"claims": {"claim1": "value1"}, "scopes": ["scope1"]}},
    "http": {"method": "POST", "path": "/path/to/resource", "protocol": "HTTP/1.1", "sourceIp": "192.168.0.1/32"},
    **{"accountId": "123456789012", "requestId": "id", "routeKey": "$default", "stage": "$default"},
}
SAMPLES: dict[str, dict[str, Any]] = {
    "sqs": {"Records": [SQS]},
    "sns": {"Records": [{"EventVersion": "1.0", "EventSource": "aws:sns", "Sns": {"Type": "Notification"}}]},
    "dynamodb": {"Records": [STREAM]},
    "http": {
        **{"version": "2.0", "routeKey": "$default", "rawPath": "/path/to/resource", "headers": {"Header1": "value1"}},
        **{"requestContext": HTTP_CONTEXT, "body": "eyJ0ZXN0IjoiYm9keSJ9", "isBase64Encoded": True},
    },
    "rest-api": {"path": "/path", "httpMethod": "POST", "requestContext": {"httpMethod": "POST", "requestId": "c6af"}},
    "hello-world": {"key1": "value1", "requestContext": None},
}
"""As `sam local generate-event` and the console make them, without what nothing reads."""
OWN = {
    **dict.fromkeys(("charge_order", "update_order", "refund_charge"), "sqs"),
    **dict.fromkeys(("orders_api", "get_payment", "stripe_webhook"), "http"),
    "publish_events": "dynamodb",
}
"""The function's event source."""


@pytest.mark.parametrize("source", SAMPLES)
@pytest.mark.parametrize("function", OWN)
def test_a_sample_event_of_aws_is_no_error(
    aws: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], function: str, source: str
) -> None:
    """With the variables of template.yaml. Another queue's message is poison, in this function's DLQ; another table's
    record is skipped with an alarm; another path is a problem, 404. What another source sends is not ours, as the log
    or the problem says, and no alarm."""
    sqs = boto3.client("sqs")
    resource = f"{function.title().replace('_', '')}Function"
    variables = load_template()["Resources"][resource]["Properties"]["Environment"]["Variables"]
    dlqs = [name for name in variables if name.endswith("_DLQ_URL")]
    for name in variables:
        is_queue = name.endswith("_QUEUE_URL") or name in dlqs
        monkeypatch.setenv(name, sqs.create_queue(QueueName=name)["QueueUrl"] if is_queue else "30")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"{function} {source}")
    handler = lambda_handler(parts_of(function))(import_module(f"{function}.app").handler.__wrapped__)
    answer, is_own = handler(SAMPLES[source], LambdaContext()), source == OWN[function]
    printed = capsys.readouterr().out
    if OWN[function] == "http":
        problem, expected = json.loads(answer["body"]), (404, "not-found") if is_own else (400, "not-http")
        assert (answer["statusCode"], problem["type"].split(":")[-1]) == expected
        correlation_id = "id" if is_own else LambdaContext().aws_request_id
        assert problem["correlation_id"] == answer["headers"]["X-Correlation-Id"] == correlation_id
    else:
        assert answer == (None if function == "publish_events" else {"batchItemFailures": []})
        assert ("not ours" in printed) is not is_own
    dead = [each for dlq in dlqs for each in sqs.receive_message(QueueUrl=os.environ[dlq]).get("Messages", [])]
    assert [each["Body"] for each in dead] == ["Hello from SQS!"] * (is_own and source == "sqs")
    assert ('"Alarm"' in printed) is (is_own and source == "dynamodb")


@pytest.mark.parametrize("refuses", [False, True])
def test_an_outcome_that_sns_refuses_is_not_told(sample: Sample, refuses: bool) -> None:
    """PublishBatch answers 200 all the same: what published it learns it, and is delivered again."""
    sns, body = FakeSns(), sample("update_order/refund_succeeded")["Records"][0]["body"]
    sns.refuses = lambda _: "Throttled" if refuses else None
    parts = RefundChargeParts({"PAYMENT_EVENTS_TOPIC_ARN": "payments-topic"})
    parts.__dict__["sns"] = sns
    with pytest.raises(Deferred) if refuses else nullcontext():
        parts.publish(RefundOutcomeEvent.model_validate_json(body))
    assert [topic for topic, _ in sns.sent] == ["payments-topic"] * (not refuses)
