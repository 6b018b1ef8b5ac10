"""`check` and `token`: no real money moves, what is wrong with a deployment is found, and a token is printed."""

from typing import Any
from unittest.mock import Mock

import pytest
import responses

from ops import check, token
from ops.command_line import parser
from ops.output import FOUND, Problem, Report
from tests.support.operated_stack import OperatedStack

API = "https://shop.example"
KEYS = {"sk_test_1": True, "rk_test_1": True, "sk_live_1": False, "rk_live_1": False, "later": False, "": False}


@pytest.mark.parametrize(("key", "is_taken"), KEYS.items())
def test_only_a_key_of_test_mode_is_taken(key: str, is_taken: bool) -> None:
    """It is what the order would be charged with."""
    stack: Any = Mock(api_url=API, **{"secret.return_value": key})
    arguments = parser().parse_args(["check"])
    if is_taken:
        assert check.run(stack, arguments).is_dry_run
    else:
        with pytest.raises(Problem, match="no key of Stripe's test mode"):
            check.run(stack, arguments)


def test_the_local_stack_is_not_checked(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its API has no address that Stripe reaches, and its tokens come from elsewhere."""
    monkeypatch.delenv("API_URL", raising=False)
    with pytest.raises(Problem, match="a deployed stack"):
        operated.ops("check")


@pytest.mark.parametrize(
    ("refunded", "wrong"),
    [
        (1250, ""),
        (1249, "not refunded in full"),
        (None, "no such refund"),
        (0, "is PENDING, after"),
        (-1, "no endpoint as it should be"),
    ],
)
def test_a_deployment_is_well_if_an_order_is_paid_and_refunded(
    operated: OperatedStack,
    http: responses.RequestsMock,
    monkeypatch: pytest.MonkeyPatch,
    refunded: int | None,
    wrong: str,
) -> None:
    """In full, at Stripe too, whose endpoint is as it should be."""
    http.add_passthru(operated.stack.value("StripeApiBase"))
    http.assert_all_requests_are_fired = False
    monkeypatch.setenv("API_URL", API)
    monkeypatch.setattr(check, "access_token", lambda _, scope: f"token of {scope}")
    monkeypatch.setattr(check, "PATIENCE_SECONDS", 0)
    endpoint = operated.ops("webhook", "create", "--yes")[1]["endpoint"]
    if refunded == -1:
        operated.stack.stripe.v1.webhook_endpoints.update(endpoint, {"disabled": True})
    order_id = operated.pay(amount_minor=1250).order_id
    if refunded is None:
        operated.put_refund(order_id, refund_id="rfd_" + "a" * 32, status="SUCCEEDED")
    elif refunded > 0:
        operated.refund(order_id, refunded)
        operated.set_payment(order_id, amount_refunded_minor=refunded)
    http.get(f"{API}/prices", json={"prices": [{"sku": "mug", "currency": "EUR", "unit_amount": 1250}]})
    http.post(f"{API}/orders", json={"order_id": order_id}, status=202)
    refund = {"status": "PENDING" if refunded == 0 else "SUCCEEDED"}
    http.get(f"{API}/orders/{order_id}", json={"status": "PAID", "refunds": [refund]})
    staff = [responses.matchers.header_matcher({"Authorization": "Bearer token of onecharge/refund"})]
    http.post(f"{API}/orders/{order_id}/refunds", json={}, status=202, match=staff)
    if wrong:
        with pytest.raises(Problem, match=wrong) as problem:
            operated.ops("check", "--yes")
        assert problem.value.status == FOUND
    else:
        document = {"stack": "shop", "order_id": order_id, "paid_and_refunded": "12.50 EUR"}
        assert operated.ops("check", "--yes")[:2] == (0, document)


# ---------------------------------------------------------------- token


def printed(stack: Any, *words: str) -> Report:
    return token.run(stack, parser().parse_args(["token", "cus_1", *words]))


def test_a_token_of_the_stacks_own_user_pool(http: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its client for machines, without the staff's scope unless it is asked for."""
    for name in ("TOKEN_ENDPOINT", "CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    outputs = {"MachinesClientId": "machines", "UserPoolId": "us-east-1_1", "SignInUrl": "https://shop/oauth2"}
    stack = Mock(value=outputs.__getitem__)
    described = stack.client.return_value.describe_user_pool_client
    described.return_value = {"UserPoolClient": {"ClientSecret": "s"}}
    http.post("https://shop/oauth2/token", json={"access_token": "a.b.c"})
    for words, scope in (((), "onecharge%2Forders"), (("--scope", "onecharge/refund"), "onecharge%2Frefund")):
        assert printed(stack, *words).text == "a.b.c"
        described.assert_called_with(UserPoolId="us-east-1_1", ClientId="machines")
        assert http.calls[-1].request.body == f"grant_type=client_credentials&scope={scope}"


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
