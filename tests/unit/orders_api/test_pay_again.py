"""POST /orders/{order_id}/payments: one attempt for each key, only after a decline."""

import json
from typing import Any

import pytest

from onecharge.contract.events import ATTEMPTS_MAX
from testing.orders_api import NOW, OTHER_CARD, Client


def test_another_card_is_another_attempt(client: Client) -> None:
    """Accepted while the order is PAYMENT_DECLINED: it is PENDING again, with the new card."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED", _1={"status": "PAYMENT_DECLINED", "decline_code": "expired_card"})
    status, body, _ = client.to(f"{order_id}/payments", OTHER_CARD)
    assert (status, body["status"]) == (202, "PENDING")
    [item] = client.stored()
    assert (item["attempt"]["N"], item["payment_method"]["S"]) == ("2", "pm_card_mastercard")
    assert item["attempt_placed_at"]["S"] == NOW.isoformat()
    attempts = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert [(each["attempt"], each["status"]) for each in attempts] == [(1, "PAYMENT_DECLINED"), (2, "PENDING")]


def test_two_keys_at_once_make_one_attempt(client: Client) -> None:
    """The second finds the order PENDING; a retry of the first is replayed."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    first = client.to(f"{order_id}/payments", OTHER_CARD, key="first")
    second = client.to(f"{order_id}/payments", OTHER_CARD, key="second")
    again = client.to(f"{order_id}/payments", OTHER_CARD, key="first")
    assert [first[0], second[0], again[0]] == [202, 409, 202]
    assert (again[1], again[2]["Idempotent-Replayed"]) == (first[1], "true")
    assert client.stored()[0]["attempt"]["N"] == "2"


def declined_with(client: Client, order_id: str, payment_method: str, key: str) -> tuple[int, dict[str, Any]]:
    """Pay again with this card, which is declined, too; returns the response."""
    status, body, _ = client.to(f"{order_id}/payments", {"payment_method": payment_method}, key=key)
    client.set_status(order_id, "PAYMENT_DECLINED")
    return status, body


def test_one_key_has_one_effect_for_ever(client: Client) -> None:
    """Card A (key KA) declined, card B (KB) declined: a late retry of KA is replayed and charges nothing."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    first = declined_with(client, order_id, "pm_A", "KA")
    assert declined_with(client, order_id, "pm_B", "KB")[0] == 202
    status, body, headers = client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key="KA")
    assert ((status, body), headers["Idempotent-Replayed"]) == (first, "true")
    [item] = client.stored()
    assert (item["status"]["S"], item["attempt"]["N"], item["payment_method"]["S"]) == ("PAYMENT_DECLINED", "3", "pm_B")


@pytest.mark.parametrize("status", ["PAYMENT_DECLINED", "PENDING", "PAID", "CANCELED"])
def test_a_used_key_with_another_card_is_refused(client: Client, status: str) -> None:
    """422 with every status, and nothing changes; the key that placed the order is used, too."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    declined_with(client, order_id, "pm_A", "KA")
    client.set_status(order_id, status)
    before = client.stored()
    for key in ("KA", "key-0"):
        code, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "pm_B"}, key=key)
        assert (code, problem["type"]) == (422, "urn:onecharge:problem:idempotency-key-reused")
    assert client.stored() == before


def test_attempt_101_is_refused_and_not_stored(client: Client) -> None:
    """409; the order stays readable, and a retry of the last attempt is still replayed."""
    order_id = client.placed()
    for attempt in range(2, ATTEMPTS_MAX + 1):
        client.set_status(order_id, "PAYMENT_DECLINED")
        assert client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key=f"K{attempt}")[0] == 202
    client.set_status(order_id, "PAYMENT_DECLINED")
    before = client.stored()
    status, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key="K101")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:attempts-exhausted")
    assert client.stored() == before
    assert client.get(f"/orders/{order_id}")[0] == 200
    assert client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key="K100")[0] == 202


def test_do_not_try_again_refuses_the_same_card(client: Client) -> None:
    """409 for that payment method, also after another card was declined; any other one is accepted."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    client.set_attributes(order_id, refused_payment_methods=["pm_card_visa"])
    before = client.stored()
    status, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "pm_card_visa"}, key="a")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:payment-method-refused")
    assert client.stored() == before
    assert declined_with(client, order_id, "pm_B", "b")[0] == 202
    assert client.to(f"{order_id}/payments", {"payment_method": "pm_card_visa"}, key="c")[0] == 409
    assert client.to(f"{order_id}/payments", {"payment_method": "pm_B"}, key="d")[0] == 202


def test_an_order_that_waits_does_not_expire(client: Client) -> None:
    """Neither a new one nor one that is paid again."""
    order_id = client.placed()
    assert "expires_at" not in client.stored()[0]
    client.set_status(order_id, "PAYMENT_DECLINED")
    client.set_attributes(order_id, expires_at=1)
    client.to(f"{order_id}/payments", OTHER_CARD)
    assert "expires_at" not in client.stored()[0]


@pytest.mark.parametrize("status", ["PENDING", "PAID", "REQUIRES_ACTION", "NEEDS_REVIEW", "CANCELING", "CANCELED"])
def test_only_a_declined_order_is_paid_again(client: Client, status: str) -> None:
    """409 that names the order's status."""
    order_id = client.placed()
    client.set_status(order_id, status)
    code, problem, _ = client.to(f"{order_id}/payments", OTHER_CARD)
    assert (code, problem["type"]) == (409, "urn:onecharge:problem:not-declined")
    assert status in problem["detail"]
    assert client.stored()[0]["attempt"]["N"] == "1"


@pytest.mark.parametrize("body", [{}, {"payment_method": 1}, {**OTHER_CARD, "amount": 1}], ids=str)
def test_a_payment_that_names_no_method_is_refused(client: Client, body: dict[str, Any]) -> None:
    """400, and nothing changes."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    assert client.to(f"{order_id}/payments", body)[0] == 400
    assert client.stored()[0]["attempt"]["N"] == "1"


def test_a_card_number_is_no_payment_method(client: Client) -> None:
    """400, and neither the log nor the table has it."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    status, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "4242424242424242"})
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:card-number")
    assert "4242" not in client.log.text + json.dumps(client.stored())


@pytest.mark.parametrize("path", ["ord_00000000000000000000000000000000", "nothing"])
def test_an_unknown_order_is_not_found(client: Client, path: str) -> None:
    """404."""
    assert client.to(f"{path}/payments", OTHER_CARD)[0] == 404
