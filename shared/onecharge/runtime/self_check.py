"""A function's self-check: can this version, as it is deployed, reach what it works with?

CodeDeploy invokes the function check_release before a new version gets any traffic; that invokes the new version with
SELF_CHECK. Every handler answers it (functions.py) with the outcome of its probes. A probe only reads: no order, no
message and no money changes.

No event of API Gateway's, SQS's, DynamoDB's or EventBridge's can be equal to SELF_CHECK, so nobody outside can send it.
"""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from botocore.config import Config

from onecharge.runtime.aws import aws_client, client_config, error_code
from onecharge.runtime.dynamodb import to_item

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

SELF_CHECK: Final = {"onecharge": "self-check"}
"""The event that asks for a self-check."""

OK: Final = "ok"

type Probe = Callable[[], object]
"""Reads something once; raises if it cannot. What it returns does not matter, and is shown nowhere."""


class SelfCheckFailed(Exception):
    """A function's self-check did not end well; the text says why, and holds nothing secret."""


_NOBODY = "self-check"
"""A key that no item has."""


def run_probes(probes: Mapping[str, Probe]) -> dict[str, str]:
    """For each probe `ok`, or the kind of error that it raised. Never its text, which may hold an address or a key."""
    return {name: _outcome(probe) for name, probe in probes.items()}


def failed_probes(outcomes: Mapping[str, Any]) -> list[str]:
    """The probes that did not end as `ok`, with what they ended as; of no probes at all, that there are none."""
    failed = [f"{name}: {outcome}" for name, outcome in outcomes.items() if outcome != OK]
    return failed if outcomes else ["no probes"]


def require_self_check(client: "LambdaClient", function: str) -> None:
    """Invoke the function with SELF_CHECK. Raises SelfCheckFailed, and botocore's errors if it cannot be invoked."""
    invoked = client.invoke(FunctionName=function, Payload=json.dumps(SELF_CHECK).encode())
    answer = json.loads(invoked["Payload"].read())
    if invoked.get("FunctionError"):
        # Its message is in the function's own log; the type alone says as much as may be shown here.
        raise SelfCheckFailed(f"it raised {answer.get('errorType', 'an error')}")
    if failed := failed_probes(answer):
        raise SelfCheckFailed(", ".join(failed))


def _outcome(probe: Probe) -> str:
    try:
        probe()
    except Exception as error:
        return error_code(error)
    return OK


def table_probe(table: str, *key: str) -> Probe:
    """Reads an item that is not there, by the table's key attributes."""
    return lambda: aws_client("dynamodb", config=client_config()).get_item(
        TableName=table, Key=to_item(dict.fromkeys(key, _NOBODY))
    )


def queue_probe(url: str) -> Probe:
    """Reads an attribute of the queue."""
    return lambda: aws_client("sqs", config=client_config()).get_queue_attributes(
        QueueUrl=url, AttributeNames=["QueueArn"]
    )


def topic_probe(arn: str) -> Probe:
    """Reads the topic's attributes."""
    return lambda: aws_client("sns", config=client_config()).get_topic_attributes(TopicArn=arn)


def function_probe(function: str) -> Probe:
    """Asks the function for its own self-check; raises SelfCheckFailed unless that is well."""
    config = Config(connect_timeout=1, read_timeout=20, retries={"total_max_attempts": 1})
    return lambda: require_self_check(aws_client("lambda", config=config), function)
