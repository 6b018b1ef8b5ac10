"""The client secret: shown by GET /orders/{order_id} while REQUIRES_ACTION, and stored nowhere."""

import json

import pytest
from botocore.exceptions import ReadTimeoutError

from onecharge.contract.states import OrderStatus
from orders_api.payments import AnswerUnknown
from testing.orders_api import Client


def test_the_client_secret_is_fetched_and_not_stored(client: Client) -> None:
    """The question is about the present attempt; neither the table nor the log has the secret."""
    order_id, client.payments.secret = client.requires_action(), "pi_1_secret_2"
    status, body, headers = client.get(f"/orders/{order_id}")
    assert (status, body["client_secret"], headers["Cache-Control"]) == (200, "pi_1_secret_2", "no-store")
    assert [(question.order_id, question.attempt) for question in client.payments.asked_for_secrets] == [(order_id, 1)]
    assert "secret_2" not in client.log.text + json.dumps(client.stored())


@pytest.mark.parametrize("status", sorted(set(OrderStatus) - {OrderStatus.REQUIRES_ACTION}))
def test_no_other_order_has_a_client_secret(client: Client, status: str) -> None:
    """The payment service is not asked."""
    order_id, client.payments.secret = client.placed(), "pi_1_secret_2"
    client.set_status(order_id, status)
    assert "client_secret" not in client.get(f"/orders/{order_id}")[1]
    assert client.payments.asked_for_secrets == []


@pytest.mark.parametrize("answer", [AnswerUnknown(), ReadTimeoutError(endpoint_url="https://lambda"), None], ids=str)
def test_without_an_answer_the_order_is_shown_without_its_client_secret(
    client: Client, answer: Exception | None
) -> None:
    """200: the status is shown all the same. A failure is counted."""
    order_id, client.payments.secret = client.requires_action(), answer
    status, body, _ = client.get(f"/orders/{order_id}")
    assert (status, body["status"]) == (200, "REQUIRES_ACTION")
    assert "client_secret" not in body
    assert client.counted["ClientSecretUnavailable"] == (1 if answer else 0)


def test_a_limit_that_is_reached_shows_the_order_all_the_same(client: Client) -> None:
    """Without its client secret, for now. It is counted, and no warning: customers may ask as often as they like."""
    order_id, client.payments.ask_again = client.requires_action(), True
    status, body, _ = client.get(f"/orders/{order_id}")
    assert (status, body["status"]) == (200, "REQUIRES_ACTION")
    assert "client_secret" not in body
    assert client.counted["ClientSecretUnavailable"] == 1
    assert "client secret unavailable" not in client.log.text


def test_a_list_never_asks_for_client_secrets(client: Client) -> None:
    """However many of its orders require action."""
    client.requires_action()
    client.payments.secret = "pi_1_secret_2"
    _, body, _ = client.get("/orders")
    assert [each["status"] for each in body["orders"]] == ["REQUIRES_ACTION"]
    assert "client_secret" not in body["orders"][0]
    assert client.payments.asked_for_secrets == []
