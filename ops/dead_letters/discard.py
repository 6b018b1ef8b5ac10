"""Discards messages of a DLQ: each is recorded first, in a form that can be sent again, then deleted."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onecharge.orders.card_numbers import body_holds_card_number
from ops.connection import Stack
from ops.dead_letters.advice import Advice
from ops.dead_letters.letter import DeadLetter
from ops.dead_letters.queues import destination_of
from ops.dead_letters.redrive import message_to_send
from ops.output import REDACTED, redacted

SEND_AGAIN = "send_again"
"""The record's field with the request of SQS's SendMessage: `aws sqs send-message --cli-input-json` takes it."""


def record_of(
    stack: Stack, letter: DeadLetter, advice: Advice, *, because: str, by: str, now: datetime
) -> Mapping[str, Any]:
    """What is kept of the message. Secrets and card numbers are cut out of it: then it cannot be sent again."""
    body = _without_secrets(letter.body)
    attributes = {name: _without_secrets(value) for name, value in letter.attributes.items()}
    is_whole = (body, attributes) == (letter.body, letter.attributes)
    return {
        "discarded_at": now.astimezone(UTC).isoformat(),
        "discarded_by": by,
        "because": because,
        "advice": f"{advice.action}: {advice.why}",
        "dlq": letter.dlq,
        "message_id": letter.message_id,
        "reason": letter.reason,
        "order_id": letter.order_id,
        "sent_at": letter.sent_at.isoformat(),
        "attributes": attributes,
        "body": body,
        SEND_AGAIN: message_to_send(stack, letter) if is_whole and destination_of(letter) else None,
    }


def append(record: Mapping[str, Any], path: Path) -> None:
    """Append the record to the file as one line of JSON, on the disk when this returns. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # Without a buffer: one write is one line, also of several threads.
    with os.fdopen(descriptor, "ab", buffering=0) as file:
        file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
        os.fsync(file.fileno())


def _without_secrets(text: str) -> str:
    # In the parsed values, too: in the text a number could hide behind an escape.
    return REDACTED if body_holds_card_number(text) else redacted(text)
