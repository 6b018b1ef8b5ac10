"""`ops check` moves no real money, and finds what is wrong with a deployment."""

import shlex
import sys
from typing import Any
from unittest.mock import Mock

import pytest

from ops.check import Check, refuse_live_mode
from ops.errors import Problem
from tests.support.operated_stack import OperatedStack


@pytest.mark.parametrize("key", ["sk_test_1", "rk_test_1"])
def test_a_key_of_test_mode_is_taken(key: str) -> None:
    """A restricted one, too."""
    refuse_live_mode(Mock(**{"secret.return_value": key}))


@pytest.mark.parametrize("key", ["sk_live_1", "rk_live_1", "later"])
def test_any_other_key_is_refused(key: str) -> None:
    """It is what the order would be charged with."""
    stack: Any = Mock(**{"secret.return_value": key})
    with pytest.raises(Problem, match="no key of Stripe's test mode"):
        refuse_live_mode(stack)


def test_a_stream_that_no_function_reads_is_found(operated: OperatedStack) -> None:
    """Its orders are stored and not published, and no alarm is on for a day."""
    arn = f"arn:aws:dynamodb:us-east-1:1:table/{operated.stack.resource('OrdersTable')}/stream/2026"
    for state, detail in (
        ("Enabled", "no event source mapping is disabled"),
        ("Disabled", "OrdersTable: mapping u1 is disabled"),
    ):
        operated.mappings[:] = [{"UUID": "u1", "EventSourceArn": arn, "State": state}]
        # Nothing listens at port 9.
        check = Check(operated.stack, "http://127.0.0.1:9", shlex.join([sys.executable, "-c", "print('t')"]), 1)
        check.run()
        [seen] = [each for each in check.results if each.what == "every stream and queue is read"]
        assert (seen.is_well, seen.detail) == (state == "Enabled", detail)
