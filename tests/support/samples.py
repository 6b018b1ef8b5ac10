"""What a function is invoked with beside the samples in events/: each is made of one of these."""

import json
from collections.abc import Mapping
from typing import Any

from onecharge.runtime.dynamodb import to_item
from tests.support.harness import Sample

REFUND_ID = "rfd_55555555555555555555555555555555"
_REFUND = {"refund_id": REFUND_ID, "attempt": 1, "amount_minor": 1000, "currency": "EUR", "correlation_id": "c"}

STREAMED: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "order_expired": ("order_stored", "", {}),
    "cancel_requested": (
        "order_stored",
        "",
        {"status": "CANCELING", "cancel_requested_at": "2026-11-01T09:30:00+00:00"},
    ),
    "payment_declined": (
        "payment_succeeded",
        "",
        {"state": "DECLINED", "decline_code": "insufficient_funds", "advice_code": "try_again_later"},
    ),
    "refund_stored": (
        "order_stored",
        "order-refunds",
        {
            **_REFUND,
            "status": "PENDING",
            "waiting_shard": "7",
            "fingerprint": "0" * 64,
            "requested_at": "2026-11-01T10:00:00+00:00",
        },
    ),
    "refund_succeeded": (
        "payment_succeeded",
        "refunds",
        {**_REFUND, "state": "SUCCEEDED", "stripe_refund_id": "re_1", "finalized_at": 1793527202, "revision": 2},
    ),
}
"""Of each change: the sample that it is made of, its table if that is another one, and what differs."""


def stream_record(sample: Sample, name: str) -> dict[str, Any]:
    """The record of DynamoDB's stream as which the change of this name reaches publish_events."""
    like, table, changes = STREAMED.get(name, (name, "", {}))
    record: dict[str, Any] = sample(f"publish_events/{like}")["Records"][0]
    change = record["dynamodb"]
    if name == "order_expired":
        del change["NewImage"]
        return record | {"eventName": "REMOVE"}
    if table:
        change["Keys"] |= to_item({"refund_id": REFUND_ID})
        change["NewImage"] = dict(change["Keys"])
        record["eventSourceARN"] = record["eventSourceARN"].replace(f"table/{like.split('_')[0]}s", f"table/{table}")
    change["NewImage"] |= to_item(changes)
    return record


def outcome_body(sample: Sample, type_: str, **data: Any) -> str:
    """The message of an outcome, such as `payment.declined`, with these data too."""
    of, _, kind = type_.partition(".")
    message = json.loads(sample(f"update_order/{of}_succeeded")["Records"][0]["body"].replace("succeeded", kind))
    return json.dumps(message | {"data": message["data"] | data})


def api_event(event: dict[str, Any], method: str, path: str, body: Any = None) -> dict[str, Any]:
    """The event as another request of the same caller."""
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["requestContext"]["http"]["method"] = method
    return event | {"body": None if body is None else json.dumps(body)}


def stripe_event(sample: Sample, type_: str, **changes: Any) -> dict[str, Any]:
    """Another event of Stripe's, not signed yet; its object has these attributes too."""
    http = sample("stripe_webhook/payment_intent_succeeded")
    body = json.loads(http["body"]) | {"type": type_}
    body["data"]["object"] |= changes
    return http | {"body": json.dumps(body)}


def unsigned(sample: Sample) -> dict[str, Any]:
    """A request to the webhook's endpoint that has no signature."""
    http = sample("stripe_webhook/payment_intent_succeeded")
    del http["headers"]["stripe-signature"]
    return http
