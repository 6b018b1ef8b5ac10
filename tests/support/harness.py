"""Shared by all test suites: Lambda's context, a readable log, template.yaml and its tables."""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import lambda_context

PATIENCE_SECONDS = 60
"""Nothing takes so long, and a busy machine is waited for."""
PROJECT = Path(__file__).resolve().parents[2]

Sample = Callable[[str], dict[str, Any]]


class LambdaContext(lambda_context.LambdaContext):
    """The attributes of Lambda's context object that the functions read."""

    _function_name = "function-under-test"
    _memory_limit_in_mb = 512
    _invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:function-under-test"
    _aws_request_id = "00000000-0000-4000-8000-000000000000"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 30_000


class Log:
    """A Powertools logger for one test, and the lines that it wrote."""

    def __init__(self) -> None:
        self.stream = StringIO()
        self.logger = Logger(service=f"test-{uuid.uuid4()}", stream=self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def received(messages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The event as which Lambda's event source mapping hands SQS messages to a function."""
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "eventSource": "aws:sqs",
            }
            for message in messages
        ]
    }


FUNCTIONS = sorted(path.parent.name for path in (PROJECT / "functions").glob("*/app.py"))


def parts_of(function: str) -> type[Any]:
    """The class of a function's parts: ChargeOrderParts of `charge_order`."""
    kind: type[Any] = getattr(import_module(f"{function}.app"), function.title().replace("_", "") + "Parts")
    return kind


def number_of(variable: str) -> str | None:
    """The value of an environment variable that is a number; None for another one."""
    if variable.endswith("_SECONDS"):
        return "30"
    return {"CHARGES_PER_SECOND": "100", "CHARGE_CONCURRENCY": "1"}.get(variable)


def read_template(path: Path, long_form: Callable[[str, Any], Any]) -> dict[str, Any]:
    """A CloudFormation template, with what `long_form` makes of each short form: of `!Ref x`, Ref and x."""

    class Loader(yaml.SafeLoader):
        pass

    def construct(loader: yaml.SafeLoader, name: str, node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return long_form(name, loader.construct_sequence(node, deep=True))
        if isinstance(node, yaml.MappingNode):
            return long_form(name, loader.construct_mapping(node, deep=True))
        return long_form(name, node.value)

    Loader.add_multi_constructor("!", construct)
    return dict(yaml.load(path.read_text(), Loader))  # noqa: S506  # A SafeLoader's child.


@cache
def load_template(name: str = "template.yaml") -> dict[str, Any]:
    """A template, with CloudFormation's short forms (`!Ref x`) as plain text, or a list. Parsed once: read it only."""

    def as_text(function: str, given: Any) -> Any:
        is_list = isinstance(given, list) and function in ("If", "Join", "Sub")
        return {function: given} if is_list else f"{function} {given}"

    return read_template(PROJECT / name, as_text)


@cache
def load_intrinsics() -> dict[str, Any]:
    """template.yaml with CloudFormation's short forms as objects: `{"Ref": "x"}`, `{"If": [...]}`. Read it only."""
    return read_template(PROJECT / "template.yaml", lambda function, given: {function: given})


def create_table(dynamodb: Any, name: str, logical_id: str) -> str:
    """Create the table that template.yaml declares under this logical id, with its indexes. Returns its name."""
    properties = load_template()["Resources"][logical_id]["Properties"]
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=properties["AttributeDefinitions"],
        KeySchema=properties["KeySchema"],
        BillingMode="PAY_PER_REQUEST",
        **{name: properties[name] for name in ("GlobalSecondaryIndexes",) if name in properties},
    )
    return name
