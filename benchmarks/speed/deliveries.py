"""What Lambda is invoked with: batches of orders as SQS delivers them, after the sample event of events/."""

import json
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from testing.harness import PROJECT

BATCH = 10
"""BatchSize in template.yaml."""

Event = dict[str, Any]


def fresh(orders: int = BATCH) -> Event:
    """A batch of orders that nobody has seen yet, as the SNS subscription delivers them (raw message delivery)."""
    [sample] = json.loads((PROJECT / "events/charge_order/order_placed.json").read_text())["Records"]
    return {"Records": [_record(sample) for _ in range(orders)]}


def again(event: Event) -> Event:
    """The same messages, delivered once more."""
    return {
        "Records": [
            {
                **record,
                "receiptHandle": f"AQEB-{uuid4()}",
                "attributes": {**record["attributes"], "ApproximateReceiveCount": "2"},
            }
            for record in event["Records"]
        ]
    }


def _record(sample: dict[str, Any]) -> dict[str, Any]:
    placed = datetime.fromtimestamp(int(time.time()) - 1, UTC).isoformat().replace("+00:00", "Z")
    message, order_id = json.loads(sample["body"]), f"ord_{uuid4().hex}"
    message |= {"id": f"{order_id}:1:placed", "subject": order_id, "time": placed}
    message["data"] |= {"order_id": order_id, "placed_at": placed}
    return {
        **sample,
        "messageId": str(uuid4()),
        "receiptHandle": f"AQEB-{uuid4()}",
        "body": json.dumps(message, separators=(",", ":")),
    }
