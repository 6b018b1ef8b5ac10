"""What tests rest on: nothing that they send leaves the machine."""

from typing import Any

import boto3
import pytest
import requests
import responses

from testing.aws_in_process import SharedClients


def test_an_unknown_request_fails(http: responses.RequestsMock) -> None:
    """Stripe answers what was added, and nothing else."""
    http.get("https://api.stripe.com/v1/balance", json={"object": "balance"})
    assert requests.get("https://api.stripe.com/v1/balance", timeout=1).json() == {"object": "balance"}
    with pytest.raises(requests.ConnectionError, match="Connection refused by Responses"):
        requests.get("https://api.stripe.com/v1/charges", timeout=1)


def test_an_empty_aws_answers_beside_stripe(http: responses.RequestsMock) -> None:
    assert boto3.client("dynamodb").list_tables()["TableNames"] == []


def test_what_a_test_registers_ends_with_it(aws: None, moto: tuple[Any, SharedClients]) -> None:
    """Clients are shared by all tests; their handlers are not."""
    called: list[str] = []
    client = boto3.client("dynamodb")
    client.meta.events.register("before-call.dynamodb", lambda model, **_: called.append(model.name))
    client.list_tables()
    moto[1].forget_handlers()
    client.list_tables()
    assert called == ["ListTables"]
