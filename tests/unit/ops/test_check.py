"""`check` and `token`: no real money moves, what is wrong with a deployment is found, and a token is printed."""

import base64
import json
import shlex
import sys
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
import responses

from ops import check, token
from ops.check import Check, NotWell
from ops.command_line import parser
from ops.errors import Problem
from ops.output import Report
from tests.support.operated_stack import OperatedStack

KEYS = {"sk_test_1": True, "rk_test_1": True, "sk_live_1": False, "rk_live_1": False, "later": False, "": False}


@pytest.mark.parametrize(("key", "is_taken"), KEYS.items())
def test_only_a_key_of_test_mode_is_taken(key: str, is_taken: bool) -> None:
    """It is what the order would be charged with."""
    stack: Any = Mock(api_url="https://api", **{"secret.return_value": key})
    arguments = parser().parse_args(["check"])
    if is_taken:
        assert check.run(stack, arguments).is_dry_run
    else:
        with pytest.raises(Problem, match="no key of Stripe's test mode"):
            check.run(stack, arguments)


def token_of(**claims: str) -> str:
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
    details = {"Enabled": "no event source mapping is disabled", "Disabled": "OrdersTable: mapping u1 is disabled"}
    for state, detail in details.items():
        operated.mappings[:] = [{"UUID": "u1", "EventSourceArn": arn, "State": state}]
        seen = result_of("every stream and queue is read", operated)
        assert (seen["is_well"], seen["detail"]) == (state == "Enabled", detail)


@pytest.mark.parametrize(
    ("given", "is_well"),
    [
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
    staffs = token_of(sub="machine", scope="onecharge/refund")
    assert result_of("a customer's token is not the staff's", operated, token_of(**given), staffs)["is_well"] is is_well


def test_another_stacks_alarm_is_not_its_own() -> None:
    """The other stack's name begins with this one's and a hyphen."""
    for name, is_well in (("shop-OrderWaits", False), ("shop-prod-OrderWaits", True)):
        pages = [{"MetricAlarms": [{"AlarmName": name}]}]
        client = Mock(**{"get_paginator.return_value.paginate.return_value": pages})
        described = {"CreationTime": datetime.fromtimestamp(0, UTC)}
        stack: Any = Mock(described=described, **{"client.return_value": client})
        stack.name = "shop"
        made = Check(stack, "https://api", "token", 1)
        if is_well:
            assert made.alarms() == "none"
        else:
            with pytest.raises(NotWell, match="OrderWaits"):
                made.alarms()


# ---------------------------------------------------------------- token


def printed(stack: Any, *words: str) -> Report:
    return token.run(stack, parser().parse_args(["token", "cus_1", *words]))


def test_a_token_of_the_stacks_own_user_pool(http: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its client for machines, without the staff's scope unless it is asked for."""
    for name in ("TOKEN_ENDPOINT", "CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    outputs = {"MachinesClientId": "machines", "UserPoolId": "us-east-1_1", "SignInUrl": "https://shop/oauth2"}
    stack = Mock(output=outputs.__getitem__)
    described = stack.client.return_value.describe_user_pool_client
    described.return_value = {"UserPoolClient": {"ClientSecret": "s"}}
    http.post("https://shop/oauth2/token", json={"access_token": "a.b.c"})
    for words, scope in (((), "onecharge%2Forders"), (("--scope", "onecharge/refund"), "onecharge%2Frefund")):
        assert printed(stack, *words).text == "a.b.c"
        described.assert_called_with(UserPoolId="us-east-1_1", ClientId="machines")
        sent = http.calls[-1].request
        assert sent.body == f"grant_type=client_credentials&scope={scope}"
        assert sent.headers["Authorization"].startswith("Basic ")


def test_a_token_of_an_issuer_of_ones_own(http: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names it. An answer without a token is not shown: it may hold a secret."""
    given = {"TOKEN_ENDPOINT": "https://issuer/token", "CLIENT_ID": "a", "CLIENT_SECRET": "b", "TOKEN_AUDIENCE": "shop"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    http.post("https://issuer/token", json={"access_token": "a.b.c"})
    assert printed(Mock()).document == {"access_token": "a.b.c"}
    assert http.calls[-1].request.body == "grant_type=client_credentials&audience=shop"
    http.replace("POST", "https://issuer/token", json={"error": "secret"}, status=401)
    with pytest.raises(Problem, match=r"no access token from TOKEN_ENDPOINT 'https://issuer/token': KeyError"):
        printed(Mock())
