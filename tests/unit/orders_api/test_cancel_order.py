"""POST /orders/{order_id}/cancel: an order is canceled unless it is paid."""

from datetime import timedelta

import pytest
from botocore.exceptions import ReadTimeoutError

from onecharge.orders.schema import RETENTION_SECONDS
from orders_api.payments import AnswerUnknown
from testing.orders_api import NOW, OTHER_CARD, Client


@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION", "CANCELING"])
def test_an_order_is_canceled_by_the_payment_services_answer(client: Client, status: str) -> None:
    """The question has the order; a second request gets the same response."""
    order_id = client.placed()
    client.set_status(order_id, status)
    client.payments.answers = ["CANCELED"]
    for _ in range(2):
        code, body, _ = client.to(f"{order_id}/cancel")
        assert (code, body["status"]) == (200, "CANCELED")
    assert [(question.order.order_id, question.order.attempt) for question in client.payments.asked] == [(order_id, 1)]
    assert client.to(f"{order_id}/payments", OTHER_CARD)[0] == 409


@pytest.mark.parametrize(("answer", "problem"), [("PAID", "already-paid"), ("NEEDS_REVIEW", "needs-review")])
def test_if_the_charge_won_the_cancellation_is_refused(client: Client, answer: str, problem: str) -> None:
    """409, and the order does not change."""
    order_id = client.placed()
    client.payments.answers = [answer]
    code, body, _ = client.to(f"{order_id}/cancel")
    assert (code, body["type"]) == (409, f"urn:onecharge:problem:{problem}")
    assert client.stored()[0]["status"]["S"] == "PENDING"


@pytest.mark.parametrize(("status", "problem"), [("PAID", "already-paid"), ("NEEDS_REVIEW", "needs-review")])
def test_a_decided_order_needs_no_question(client: Client, status: str, problem: str) -> None:
    """409 without asking the payment service."""
    order_id = client.placed()
    client.set_status(order_id, status)
    assert client.to(f"{order_id}/cancel")[1]["type"] == f"urn:onecharge:problem:{problem}"
    assert client.payments.asked == []


@pytest.mark.parametrize(
    ("ends_as", "code", "shown"),
    [("CANCELED", 200, "CANCELED"), ("PAID", 409, "CANCELING"), ("CANCELING", 202, "CANCELING")],
)
@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION"])
def test_a_cancellation_during_an_outage_is_stored(
    client: Client, status: str, ends_as: str, code: int, shown: str
) -> None:
    """202 CANCELING, and no other card from then on; each request asks again, until it ends as Stripe says."""
    order_id = client.placed()
    client.set_status(order_id, status)
    client.payments.answers = ["CANCELING", ends_as]
    accepted, body, _ = client.to(f"{order_id}/cancel")
    assert (accepted, body["status"], client.stored()[0]["status"]["S"]) == (202, "CANCELING", "CANCELING")
    assert client.to(f"{order_id}/payments", OTHER_CARD, key="another")[0] == 409
    assert client.to(f"{order_id}/cancel")[0] == code
    assert client.stored()[0]["status"]["S"] == shown
    assert len(client.payments.asked) == 2


def test_a_cancellation_waits_since_its_first_request(client: Client) -> None:
    """A second request does not change `cancel_requested_at`."""
    order_id = client.placed()
    client.payments.answers = ["CANCELING", "CANCELING"]
    client.to(f"{order_id}/cancel")
    asked_at = client.stored()[0]["cancel_requested_at"]["S"]
    client.now += timedelta(hours=1)
    client.to(f"{order_id}/cancel")
    assert asked_at == client.stored()[0]["cancel_requested_at"]["S"] == NOW.isoformat()


@pytest.mark.parametrize(("answer", "code"), [("CANCELED", 200), ("CANCELING", 202)])
def test_an_attempt_made_meanwhile_is_canceled_too(client: Client, answer: str, code: int) -> None:
    """The payment service has canceled the whole payment, all its attempts included."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    client.payments.answers = [answer]
    client.payments.meanwhile = lambda: client.to(f"{order_id}/payments", OTHER_CARD)
    assert client.to(f"{order_id}/cancel")[0] == code
    assert client.stored()[0]["status"]["S"] == answer
    assert client.stored()[0]["attempt"]["N"] == "2"


@pytest.mark.parametrize(("moved_to", "code"), [("PAID", 409), ("CANCELED", 200), ("NEEDS_REVIEW", 409)])
def test_an_outcome_written_meanwhile_decides(client: Client, moved_to: str, code: int) -> None:
    """The answer is CANCELING, but update_order wrote an outcome before: the response is the order's status."""
    order_id = client.placed()
    client.payments.answers = ["CANCELING"]
    client.payments.meanwhile = lambda: client.set_status(order_id, moved_to)
    assert client.to(f"{order_id}/cancel")[0] == code
    assert client.stored()[0]["status"]["S"] == moved_to


@pytest.mark.parametrize("error", [AnswerUnknown(), ReadTimeoutError(endpoint_url="https://lambda")], ids=str)
def test_without_an_answer_nothing_is_canceled(client: Client, error: Exception) -> None:
    """503 try-again, and the order does not change."""
    order_id = client.placed()
    client.payments.answers = [error]
    code, problem, _ = client.to(f"{order_id}/cancel")
    assert (code, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert client.stored()[0]["status"]["S"] == "PENDING"


def test_a_canceled_order_shows_its_attempt_as_canceled(client: Client) -> None:
    """Though its last outcome was REQUIRES_ACTION."""
    order_id = client.requires_action()
    client.payments.answers = ["CANCELED"]
    _, body, _ = client.to(f"{order_id}/cancel")
    assert body["attempts"] == [{"attempt": 1, "status": "CANCELED"}]


def test_a_canceled_order_expires(client: Client) -> None:
    """Counted from its cancellation; while CANCELING it does not."""
    order_id = client.placed()
    client.payments.answers = ["CANCELING", "CANCELED"]
    client.to(f"{order_id}/cancel")
    assert "expires_at" not in client.stored()[0]
    client.to(f"{order_id}/cancel")
    assert int(client.stored()[0]["expires_at"]["N"]) == int(NOW.timestamp()) + RETENTION_SECONDS


@pytest.mark.parametrize("path", ["ord_00000000000000000000000000000000", "nothing"])
def test_an_unknown_order_is_not_found(client: Client, path: str) -> None:
    """404."""
    assert client.to(f"{path}/cancel")[0] == 404
