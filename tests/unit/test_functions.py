"""A function's handler: its parts are those of the process, and its metrics are always flushed."""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import boto3
import pytest

from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.parts import Parts, part
from tests.support.functions import parts_of
from tests.support.harness import LambdaContext, Sample, load_template


class TableParts(Parts):
    """Has one environment variable, and counts the flushes of its metrics."""

    made: list["TableParts"]
    """All of them, in the order in which they were made."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.counts.flush = self.flush  # type: ignore[method-assign]
        self.flushed = 0
        self.made.append(self)

    def flush(self) -> None:
        self.flushed += 1

    @part
    def table(self) -> str:
        return self.environment["TABLE"]


@pytest.fixture(autouse=True)
def no_parts_yet() -> None:
    TableParts.made = []


def new_handler() -> Any:
    """A handler that answers with its table, and raises the event's error if it holds one."""

    @lambda_handler(TableParts)
    def handler(parts: TableParts, event: dict[str, Any], context: object) -> str:
        """Answer."""
        if "error" in event:
            raise event["error"]
        return f"{parts.table} {event['name']} {type(context).__name__}"

    return handler


def test_all_invocations_share_the_parts(monkeypatch: pytest.MonkeyPatch, lambda_context: LambdaContext) -> None:
    """Made of the environment as it is at the first invocation: decorating reads none of it."""
    monkeypatch.delenv("TABLE", raising=False)
    handler = new_handler()
    assert TableParts.made == []
    monkeypatch.setenv("TABLE", "orders")
    with pytest.raises(ZeroDivisionError):
        handler({"error": ZeroDivisionError()}, lambda_context)
    monkeypatch.setenv("TABLE", "another")
    assert handler({"name": "a"}, lambda_context) == "orders a LambdaContext"
    assert handler({"name": "b"}, lambda_context) == "orders b LambdaContext"
    assert len(TableParts.made) == 1


def test_metrics_are_flushed_after_each_invocation(
    monkeypatch: pytest.MonkeyPatch, lambda_context: LambdaContext
) -> None:
    """Also after one that raises; the error is Lambda's to see."""
    monkeypatch.setenv("TABLE", "orders")
    handler = new_handler()
    handler({"name": "a"}, lambda_context)
    with pytest.raises(ZeroDivisionError):
        handler({"error": ZeroDivisionError()}, lambda_context)
    [parts] = TableParts.made
    assert parts.flushed == 2


@pytest.mark.parametrize(
    "function",
    [
        "charge_order",
        "update_order",
        "refund_charge",
    ],
)
def test_a_queue_function_consumes_its_queue(
    aws: None, monkeypatch: pytest.MonkeyPatch, lambda_context: LambdaContext, sample: Sample, function: str
) -> None:
    """With the variables that template.yaml gives it: a poison message reaches the DLQ of its own queue."""
    sqs = boto3.client("sqs")
    resource = "".join(word.title() for word in function.split("_")) + "Function"
    variables = load_template()["Resources"][resource]["Properties"]["Environment"]["Variables"]
    [dlq] = [name for name in variables if name.endswith("_DLQ_URL")]
    for name in variables:
        is_queue = name.endswith("_QUEUE_URL") or name == dlq
        url = sqs.create_queue(QueueName=name)["QueueUrl"] if is_queue else "30"
        monkeypatch.setenv(name, url)
    app = import_module(f"{function}.app")
    handler = lambda_handler(parts_of(function))(app.handler.__wrapped__)
    [record] = sample("charge_order/order_placed")["Records"]
    record["body"] = "{}"
    assert handler({"Records": [record]}, lambda_context) == {"batchItemFailures": []}
    [dead_letter] = sqs.receive_message(QueueUrl=os.environ[dlq])["Messages"]
    assert dead_letter["Body"] == record["body"]
