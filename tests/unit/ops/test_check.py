"""`ops check` moves no real money, and finds what is wrong with a deployment."""

import base64
import json
import shlex
import sys
from typing import Any
from unittest.mock import Mock

import pytest

from ops.check import Check, NotWell, Result, refuse_live_mode, routes_with_token
from ops.errors import Problem
from tests.support.harness import load_template
from tests.support.operated_stack import OperatedStack


@pytest.mark.parametrize("key", ["sk_test_1", "rk_test_1"])
def test_a_key_of_test_mode_is_taken(key: str) -> None:
    """A restricted one, too."""
    refuse_live_mode(Mock(**{"own_secret.return_value": key}))


@pytest.mark.parametrize("key", ["sk_live_1", "rk_live_1", "later"])
def test_any_other_key_is_refused(key: str) -> None:
    """It is what the order would be charged with."""
    stack: Any = Mock(**{"own_secret.return_value": key})
    with pytest.raises(Problem, match="no key of Stripe's test mode"):
        refuse_live_mode(stack)


def token(**claims: str) -> str:
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


def result_of(what: str, operated: OperatedStack, customers: str = "t", staffs: str = "t") -> Result:
    """What a check says that gets these tokens; no API answers it, and nothing listens at port 9."""
    program = f"import sys; print({staffs!r} if '--scope' in sys.argv else {customers!r})"
    check = Check(operated.stack, "http://127.0.0.1:9", shlex.join([sys.executable, "-c", program]), 1)
    check.run()
    [result] = [each for each in check.results if each.what == what]
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
        assert (seen.is_well, seen.detail) == (state == "Enabled", detail)


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
    assert result_of("a customer's token is not the staff's", operated, token(**given), staffs).is_well is is_well


def test_each_route_is_asked_without_a_token() -> None:
    """Of the deployed template, but the webhook's, which takes Stripe's signature instead."""
    resources = load_template()["Resources"].values()
    events = [each for resource in resources for each in resource.get("Properties", {}).get("Events", {}).values()]
    routes = [each["Properties"] for each in events if each["Type"] == "HttpApi"]
    asked = {(each["Method"], each["Path"]) for each in routes if each["Path"] != "/stripe/events"}
    assert {(method, path.replace("ord_none", "{order_id}")) for method, path in routes_with_token()} == asked


@pytest.mark.parametrize(("name", "is_well"), [("shop-Overdue", False), ("shop-prod-Overdue", True)])
def test_another_stacks_alarm_is_not_its_own(name: str, is_well: bool) -> None:
    """The other stack's name begins with this one's and a hyphen."""
    pages = [{"MetricAlarms": [{"AlarmName": name}]}]
    client = Mock(**{"get_paginator.return_value.paginate.return_value": pages})
    stack: Any = Mock(created_at=0, **{"client.return_value": client})
    stack.name = "shop"
    check = Check(stack, "https://api", "token", 1)
    if is_well:
        check._alarms()  # One check of many.
    else:
        with pytest.raises(NotWell, match=name):
            check._alarms()
