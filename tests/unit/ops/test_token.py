"""`ops token`: an access token of the stack's own user pool, or of the issuer that the environment names."""

from typing import Any
from unittest.mock import Mock

import pytest
import responses

from ops import token
from ops.command_line import parser
from ops.errors import Problem
from ops.output import Report


@pytest.fixture(autouse=True)
def no_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN_ENDPOINT", "CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)


def run(stack: Any, *words: str) -> Report:
    return token.run(stack, parser().parse_args(["token", "cus_1", *words]))


def test_a_token_of_the_stacks_own_user_pool(http: responses.RequestsMock) -> None:
    """Of its client for machines, without the staff's scope unless it is asked for."""
    outputs = {"MachinesClientId": "machines", "UserPoolId": "us-east-1_1", "SignInUrl": "https://shop/oauth2"}
    stack = Mock(output=outputs.__getitem__)
    described = stack.client.return_value.describe_user_pool_client
    described.return_value = {"UserPoolClient": {"ClientSecret": "s"}}
    http.post("https://shop/oauth2/token", json={"access_token": "a.b.c"})
    for words, scope in (((), "onecharge%2Forders"), (("--scope", "onecharge/refund"), "onecharge%2Frefund")):
        assert run(stack, *words).parts == ["a.b.c"]
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
    assert run(Mock()).document == {"access_token": "a.b.c"}
    assert http.calls[-1].request.body == "grant_type=client_credentials&audience=shop"
    http.replace("POST", "https://issuer/token", json={"error": "secret"}, status=401)
    with pytest.raises(Problem, match=r"no access token from TOKEN_ENDPOINT 'https://issuer/token': KeyError"):
        run(Mock())
