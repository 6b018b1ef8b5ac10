"""`pending --alarms`: the orders that the mail of an alarm is about."""

import json
from argparse import Namespace
from typing import Any
from unittest.mock import Mock

from ops.errors import ExitStatus
from ops.pending import run

LINES: list[tuple[int, str]] = [
    (1_000, json.dumps({"cause": "ChargeDisputed", "order_id": "a", "message": "charge disputed"})),
    (2_000, json.dumps({"cause": "ChargeDisputed", "order_id": "b", "message": "charge disputed"})),
    (4_000, json.dumps({"cause": "Held", "order_id": "a", "message": "order held"})),
    (3_000, json.dumps({"cause": "ChargeDisputed", "order_id": "a", "message": "charge disputed", "why": "lost"})),
    # The metric's own line; a line without an alarm; one that is no JSON.
    (5_000, json.dumps({"cause": "Held", "Alarm": [1]})),
    (5_000, json.dumps({"order_id": "c", "message": "order updated"})),
    (5_000, "REPORT RequestId: 1"),
]


def alarmed(lines: list[tuple[int, str]]) -> tuple[Any, ExitStatus]:
    """What the command lists of this log."""
    stack = Mock()
    pages = [{"events": [{"timestamp": at, "message": text}]} for at, text in lines]
    stack.client.return_value.get_paginator.return_value.paginate.return_value = pages
    report = run(stack, Namespace(alarms=True, limit=100))
    return [[*each.values()] for each in report.document["alarms"]], report.status


def test_each_order_of_an_alarm_is_listed_once_the_newest_first() -> None:
    """A second dispute, which sent no mail, is there as well."""
    assert alarmed(LINES) == (
        [
            ["1970-01-01 00:00:04Z", "Held", "a", 1, "order held"],
            ["1970-01-01 00:00:03Z", "ChargeDisputed", "a", 2, "charge disputed: lost"],
            ["1970-01-01 00:00:02Z", "ChargeDisputed", "b", 1, "charge disputed"],
        ],
        ExitStatus.FOUND,
    )
    assert alarmed([]) == ([], ExitStatus.OK)
