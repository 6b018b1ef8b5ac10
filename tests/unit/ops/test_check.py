"""`ops check` moves no real money, and finds what is wrong with a deployment."""

import base64
import json
import shlex
import sys
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from ops import check
from ops.check import Check, NotWell
from ops.command_line import parser
from ops.errors import Problem
from tests.support.operated_stack import OperatedStack


@pytest.mark.parametrize(
    ("key", "is_taken"),
    [
        ("sk_test_1", True),
        ("rk_test_1", True),
        ("sk_live_1", False),
        ("rk_live_1", False),
        ("later", False),
        ("", False),
    ],
)
def test_only_a_key_of_test_mode_is_taken(key: str, is_taken: bool) -> None:
    """It is what the order would be charged with."""
    stack: Any = Mock(api_url="https://api", **{"secret.return_value": key})
    arguments = parser().parse_args(["check"])
    if is_taken:
        assert check.run(stack, arguments).document["would"].startswith("would order")
    else:
        with pytest.raises(Problem, match="no key of Stripe's test mode"):
            check.run(stack, arguments)


def token(**claims: str) -> str:
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


def result_of(what: str, operated: OperatedStack, customers: str = "t", staffs: str = "t") -> dict[str, Any]:
    """What a check says that gets these tokens; no API answers it, and nothing listens at port 9."""
    program = f"import sys; print({staffs!r} if '--scope' in sys.argv else {customers!r})"
    made = Check(operated.stack, "http://127.0.0.1:9", shlex.join([sys.executable, "-c", program]), 1)
    [result] = [each for each in made.results() if each["what"] == what]
    return result


def test_a_stream_that_no_function_reads_is_found(operated: OperatedStack) -> None:
    """Its orders are stored and not published, and no alarm is on for a day."""
    arn = f"arn:aws:dynamodb:us-east-1:1:table/{operated.stack.resource('OrdersTable')}/stream/2026"
    for state, detail in (
        ("Enabled", "no event source mapping is disabled"),
        ("Disabled", "OrdersTable: mapping u1 is disabled"),
    ):
        operated.mappings[:] = [{"UUID": "u1", "EventSourceArn": arn, "State": state}]
        seen = result_of("every stream and queue is read", operated)
        assert (seen["is_well"], seen["detail"]) == (state == "Enabled", detail)


@pytest.mark.parametrize(
    ("given", "is_well"),
    [
        ({"sub": "c"}, True),
        ({"sub": "c", "scope": "openid onecharge/orders"}, True),
        ({"sub": "c", "scope": "openid onecharge/refund"}, False),
        ({"sub": "c", "scp": "onecharge/refund"}, False),
        ({"sub": "machine", "scope": "onecharge/refund"}, True),
        ({}, True),
    ],
    ids=str,
)
def test_a_customers_token_with_the_staffs_scope_is_refused(
    operated: OperatedStack, given: dict[str, str], is_well: bool
) -> None:
    """The customer could refund. A machine's token is no customer's: it has one subject for all."""
    staffs = token(sub="machine", scope="onecharge/refund")
    assert result_of("a customer's token is not the staff's", operated, token(**given), staffs)["is_well"] is is_well


@pytest.mark.parametrize(("name", "is_well"), [("shop-OrderWaits", False), ("shop-prod-OrderWaits", True)])
def test_another_stacks_alarm_is_not_its_own(name: str, is_well: bool) -> None:
    """The other stack's name begins with this one's and a hyphen."""
    pages = [{"MetricAlarms": [{"AlarmName": name}]}]
    client = Mock(**{"get_paginator.return_value.paginate.return_value": pages})
    described = {"CreationTime": datetime.fromtimestamp(0, UTC)}
    stack: Any = Mock(described=described, **{"client.return_value": client})
    stack.name = "shop"
    made = Check(stack, "https://api", "token", 1)
    if is_well:
        made.alarms()
    else:
        with pytest.raises(NotWell, match="OrderWaits"):
            made.alarms()
