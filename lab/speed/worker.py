"""One Lambda function in a process of its own: `worker.py HANDLER FOLDER…`, as `charge_order.app.handler build/…`.

It imports nothing but Python's standard library besides the function, so CPU and memory are the function's own. Each
line of standard input is a request, and is answered with a line, both as JSON:

    {"event": {…}, "aws_seconds": 0.004, "is_metered": false}
    ─► {"answer": …, "wall_ms": …, "cpu_ms": …, "log_bytes": …, "log_end": …, "peak_kb": …,
        "calls": {…}, "units": {…}, "sent": […]}

CPU is that of the process with all its threads. The function's DynamoDB is DynamoDB Local, which answers no sooner than
after `aws_seconds`. Every other service of AWS is answered here, by the class Aws.
"""

import importlib
import json
import os
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_LOG_END_BYTES = 2000
_READS = ("GetItem", "BatchGetItem", "Query", "Scan")
_WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")


class Context:
    """The attributes of Lambda's context object (AWS Lambda Developer Guide, "Using the Lambda context object")."""

    function_name = "function-under-test"
    function_version = "1"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:function-under-test"
    aws_request_id = "00000000-0000-4000-8000-000000000000"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 30_000


class Aws:
    """What the function's clients call instead of AWS; it stands in the place of botocore's `_make_api_call`."""

    def __init__(self) -> None:
        self.seconds, self.is_metered = 0.0, False
        self.calls: list[str] = []
        self.units: list[tuple[str, float]] = []
        """Capacity units of DynamoDB by kind, table and index, as `write OrdersTable/by_customer`. Lists, since threads
        append to them."""
        self.sent: list[str] = []
        """Messages that were published to SNS or sent to SQS."""

    def take_the_place_of_botocore(self) -> None:
        clients: Any = importlib.import_module("botocore.client").BaseClient  # As it is on the function's path.
        real = clients._make_api_call

        def call(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
            service = client.meta.service_model.service_name
            self.calls.append(f"{service}.{operation}")
            ends_at = time.perf_counter() + self.seconds
            try:
                if service != "dynamodb":
                    return self._answer(operation, parameters)
                return self._metered(operation, parameters, lambda given: real(client, operation, given))
            finally:
                time.sleep(max(0.0, ends_at - time.perf_counter()))

        clients._make_api_call = call

    def _answer(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        match operation:
            case "GetSecretValue":
                return {
                    "SecretString": "sk_test_bench",
                    "VersionId": "1",
                    "CreatedDate": datetime(2026, 1, 1, tzinfo=UTC),
                }
            case "ChangeMessageVisibility":
                return {}
            case "PublishBatch":
                entries = parameters["PublishBatchRequestEntries"]
                self.sent += [each["Message"] for each in entries]
                return {"Successful": [{"Id": each["Id"], "MessageId": "1"} for each in entries], "Failed": []}
            case "SendMessage":
                self.sent.append(parameters["MessageBody"])
                return {"MessageId": "1"}
            case "CheckpointDurableExecution":  # AWS Lambda API reference. Nothing is replayed: no step fails.
                steps = [
                    each for each in parameters["Updates"] if (each["Type"], each["Action"]) == ("STEP", "SUCCEED")
                ]
                self.units.append(("durable steps", float(len(steps))))
                return {"CheckpointToken": "1", "NewExecutionState": {"Operations": []}}
        raise NotImplementedError(f"the benchmark has no answer to {operation}")

    def _metered(self, operation: str, parameters: dict[str, Any], send: Callable[[Any], Any]) -> Any:
        if not (self.is_metered and operation in (*_READS, *_WRITES)):
            return send(parameters)
        kind = "read" if operation in _READS else "write"
        try:
            answer = send({**parameters, "ReturnConsumedCapacity": "INDEXES"})
        except Exception as error:
            # A write whose condition fails costs a unit for each KB of the item (Amazon DynamoDB Developer Guide,
            # "DynamoDB read and write operations"), and none of these items is larger.
            if "ConditionalCheckFailed" in str(error):
                self.units.append((f"write {parameters['TableName']}", 1.0))
            raise
        self.units += [(f"{kind} {name}", units) for name, units in consumed(answer.pop("ConsumedCapacity", []))]
        return answer


def consumed(capacity: Any) -> Iterator[tuple[str, float]]:
    """Capacity units by table and index; a request to several tables has a list of them."""
    for table in capacity if isinstance(capacity, list) else [capacity]:
        yield table["TableName"], table["Table"]["CapacityUnits"]
        for index, units in table.get("GlobalSecondaryIndexes", {}).items():
            yield f"{table['TableName']}/{index}", units["CapacityUnits"]


def peak_kb() -> int:
    """The most memory that this process has used. (getrusage's peak begins with that of the parent: proc(5).)"""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


def invoke(handler: Any, request: Mapping[str, Any], aws: Aws, log: int) -> dict[str, Any]:
    """Handle one event."""
    aws.seconds, aws.is_metered = request["aws_seconds"], request["is_metered"]
    aws.calls, aws.units, aws.sent = [], [], []
    os.ftruncate(log, 0)
    os.lseek(log, 0, os.SEEK_SET)
    started, worked = time.perf_counter(), time.process_time()
    answer = handler(request["event"], Context())
    cpu, wall = time.process_time() - worked, time.perf_counter() - started
    sys.stdout.flush()
    units: dict[str, float] = defaultdict(float)
    for name, each in aws.units:
        units[name] += each
    return {
        "answer": answer,
        "wall_ms": wall * 1000,
        "cpu_ms": cpu * 1000,
        "log_bytes": (size := os.fstat(log).st_size),
        "log_end": os.pread(log, _LOG_END_BYTES, max(0, size - _LOG_END_BYTES)).decode(errors="replace"),
        "peak_kb": peak_kb(),
        "calls": Counter(aws.calls),
        "units": units,
        "sent": aws.sent,
    }


def main() -> None:
    """Answer each line of standard input."""
    path, *folders = sys.argv[1:]
    answers, log = os.fdopen(os.dup(1), "w"), os.memfd_create("log")
    os.dup2(log, 1)  # What the function prints is counted.
    sys.path += folders
    module, _, name = path.rpartition(".")
    aws = Aws()
    aws.take_the_place_of_botocore()
    handler = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        try:
            answer = invoke(handler, json.loads(line), aws, log)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
