"""Lambda's side of a durable execution: it stores checkpoints, and gives each its new token.

Source: AWS Lambda API reference, "CheckpointDurableExecution". An execution is known by its ARN; its operations are
what the updates have made of them. Nothing is suspended or replayed here: no step of the benchmark waits or fails.
"""

import json
import time
from collections import defaultdict
from typing import Any
from uuid import uuid4

_STATUS = {"START": "STARTED", "SUCCEED": "SUCCEEDED", "FAIL": "FAILED", "CANCEL": "CANCELLED", "RETRY": "PENDING"}
_DETAILS = {"STEP": "StepDetails", "CONTEXT": "ContextDetails"}


def started(event: dict[str, Any]) -> dict[str, Any]:
    """What Lambda invokes a durable function with: a new execution, whose input is the event."""
    name = str(uuid4())
    execution = {
        "Id": name,
        "Type": "EXECUTION",
        "Status": "STARTED",
        "StartTimestamp": int(time.time() * 1000),
        "ExecutionDetails": {"InputPayload": json.dumps(event)},
    }
    return {
        "DurableExecutionArn": f"arn:aws:lambda:us-east-1:123456789012:function:durable/durable-execution/{name}",
        "CheckpointToken": str(uuid4()),
        "InitialExecutionState": {"Operations": [execution], "NextMarker": ""},
    }


class Checkpoints:
    """The operations of all executions."""

    def __init__(self) -> None:
        self._operations: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    def store(self, execution: str, body: bytes) -> bytes:
        """Store the updates of one request; returns its response."""
        operations = self._operations[execution]
        changed = [self._changed(operations, update) for update in json.loads(body).get("Updates", [])]
        return json.dumps({"CheckpointToken": str(uuid4()), "NewExecutionState": {"Operations": changed}}).encode()

    def _changed(self, operations: dict[str, dict[str, Any]], update: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {
            name: update[name] for name in ("Id", "ParentId", "Name", "Type", "SubType") if name in update
        }
        operation = operations.setdefault(update["Id"], {"StartTimestamp": time.time()})
        operation.update(kept, Status=_STATUS[update["Action"]])
        if update["Action"] in ("SUCCEED", "FAIL"):
            outcome = {"Result": update.get("Payload"), "Error": update.get("Error")}
            present = {name: value for name, value in outcome.items() if value is not None}
            operation |= {"EndTimestamp": time.time(), _DETAILS[update["Type"]]: present}
        return operation
