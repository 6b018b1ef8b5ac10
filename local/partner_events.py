"""A shim for one gap of the emulator: PutPartnerEvents, with which Stripe puts events onto its bus, delivers nothing.

This does what EventBridge does with such an event: it looks for the bus's rules that match, and sends the envelope to
their targets. On AWS none of this is used.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from local.emulator import REGION, Emulator

PARTNER_EVENT_SOURCE = "aws.partner/stripe.com/ed_test_local"
"""Of the local run's event destination."""


def envelope_of(event: Mapping[str, Any], *, account: str, source: str = PARTNER_EVENT_SOURCE) -> dict[str, Any]:
    """Stripe's event as EventBridge delivers it. Source: Stripe documentation, "Send events to Amazon EventBridge"."""
    return {
        "version": "0",
        "id": str(uuid4()),
        "detail-type": event["type"],
        "source": source,
        "account": account,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [],
        "detail": dict(event),
    }


def put_partner_event(emulator: Emulator, event: Mapping[str, Any], *, source: str = PARTNER_EVENT_SOURCE) -> int:
    """Put Stripe's event onto its bus; returns to how many targets it was sent."""
    events, sqs = emulator.client("events"), emulator.client("sqs")
    account = emulator.client("sts").get_caller_identity()["Account"]
    envelope = json.dumps(envelope_of(event, account=account, source=source))
    sent = 0
    for rule in events.list_rules(EventBusName=PARTNER_EVENT_SOURCE)["Rules"]:
        if not events.test_event_pattern(EventPattern=rule["EventPattern"], Event=envelope)["Result"]:
            continue
        for target in events.list_targets_by_rule(Rule=rule["Name"], EventBusName=PARTNER_EVENT_SOURCE)["Targets"]:
            url = sqs.get_queue_url(QueueName=target["Arn"].rpartition(":")[2])["QueueUrl"]
            sqs.send_message(QueueUrl=url, MessageBody=envelope)
            sent += 1
    return sent
