"""One Lambda function in a process of its own: `worker.py HANDLER FOLDER…`, as `charge_order.app.handler build/…`.

It imports only Python's standard library besides the function, so the memory is the function's own. Each line of
standard input is a request, `{"event": {…}, "aws_seconds": 0.004}`, and one line answers it: what `invoke` returns.
DynamoDB Local answers the function's requests to DynamoDB; Aws answers those to all other services.
"""

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_READS = ("GetItem", "BatchGetItem", "Query")
_CONTEXT = SimpleNamespace(
    function_name="function-under-test",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:function-under-test",
    aws_request_id="00000000-0000-4000-8000-000000000000",
    get_remaining_time_in_millis=lambda: 30_000,
)


class Aws:
    """Takes the place of botocore's `_make_api_call`: says how long a request takes, and counts what AWS bills."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.units: list[tuple[str, float]] = []
        """A list, since threads append to it. No failed request is counted."""
        self.sent: list[str] = []
        clients: Any = importlib.import_module("botocore.client").BaseClient  # The one on the function's path.
        self._real = clients._make_api_call
        clients._make_api_call = lambda client, *request: self._call(client, *request)

    def _call(self, client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        service, ends_at = client.meta.service_model.service_name, time.perf_counter() + self.seconds
        try:
            if service != "dynamodb":
                self.units += [(service, 1)] if service in ("sns", "sqs") else []
                return self._answer(operation, parameters)
            answer = self._real(client, operation, {**parameters, "ReturnConsumedCapacity": "TOTAL"})
            consumed = answer.pop("ConsumedCapacity")  # A list if there can be several tables.
            for table in consumed if isinstance(consumed, list) else [consumed]:
                self.units.append(("read" if operation in _READS else "write", table["CapacityUnits"]))
            return answer
        finally:
            time.sleep(max(0.0, ends_at - time.perf_counter()))

    def _answer(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        match operation:
            case "GetSecretValue":
                return {"SecretString": "sk_test_bench"}
            case "PublishBatch":
                entries = parameters["PublishBatchRequestEntries"]
                self.sent += [each["Message"] for each in entries]
                return {"Successful": [{"Id": each["Id"], "MessageId": "1"} for each in entries], "Failed": []}
            case "SendMessage":
                self.sent.append(parameters["MessageBody"])
                return {"MessageId": "1"}
        raise NotImplementedError(f"the benchmark has no answer to {operation}")


def invoke(handler: Any, request: dict[str, Any], aws: Aws, log: int) -> dict[str, Any]:
    """Handle one event. CPU is that of the process with all its threads."""
    aws.seconds, aws.units, aws.sent = request["aws_seconds"], [], []
    os.ftruncate(log, 0)
    os.lseek(log, 0, os.SEEK_SET)
    started, worked = time.perf_counter(), time.process_time()
    answer = handler(request["event"], _CONTEXT)
    cpu, wall = time.process_time() - worked, time.perf_counter() - started
    sys.stdout.flush()
    # getrusage's peak begins with that of the parent: proc(5).
    peak_kb = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    text = os.pread(log, os.fstat(log).st_size, 0).decode()
    took = {"wall_ms": wall * 1000, "cpu_ms": cpu * 1000, "peak_mb": int(peak_kb) / 1000, "log": text}
    return {**took, "answer": answer, "units": aws.units, "sent": aws.sent}


def main() -> None:
    path, *folders = sys.argv[1:]
    answers, log = os.fdopen(os.dup(1), "w"), os.memfd_create("log")
    os.dup2(log, 1)  # The log is what the function prints.
    sys.path += folders
    module, _, name = path.rpartition(".")
    aws = Aws()
    handler = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        try:
            answer = invoke(handler, json.loads(line), aws, log)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
