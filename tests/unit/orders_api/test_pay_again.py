"""POST /orders/{order_id}/payments: one attempt for each key, only after a decline."""

from typing import Any

import pytest

from onecharge.contract.states import OrderStatus
from orders_api.pay_again import ATTEMPTS_MAX
from tests.support.orders_api import NOW, OTHER_CARD, Client


def test_another_card_is_another_attempt(client: Client) -> None:
    """Accepted while the order is PAYMENT_DECLINED: it is PENDING again, with the new card."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED", _1={"status": "PAYMENT_DECLINED", "decline_code": "expired_card"})
    client.set_attributes(order_id, waiting_since="2026-01-01T00:00:00+00:00")
    status, body, _ = client.to(f"{order_id}/payments", OTHER_CARD)
    assert (status, body["status"]) == (202, "PENDING")
    [item] = client.stored()
    assert (item["attempt"]["N"], item["payment_method"]["S"]) == ("2", "pm_card_mastercard")
    assert item["waiting_since"]["S"] == NOW.isoformat()
    attempts = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert [(each["attempt"], each["status"]) for each in attempts] == [(1, "PAYMENT_DECLINED"), (2, "PENDING")]


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


def test_an_order_has_a_limit_of_attempts(client: Client) -> None:
    """409 that says why, and nothing changes: attempt 9. Until then the same card may be tried again."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    client.set_attributes(order_id, attempt=ATTEMPTS_MAX - 1)
    assert declined_with(client, order_id, "pm_A", "KA")[0] == 202
    before = client.stored()
    status, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key="KB")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:attempts-exhausted")
    assert client.stored() == before


def test_an_order_that_waits_does_not_expire(client: Client) -> None:
    """Neither a new one nor one that is paid again."""
    order_id = client.placed()
    assert "expires_at" not in client.stored()[0]
    client.set_status(order_id, "PAYMENT_DECLINED")
    client.set_attributes(order_id, expires_at=1)
    client.to(f"{order_id}/payments", OTHER_CARD)
    assert "expires_at" not in client.stored()[0]


def test_only_a_declined_order_is_paid_again(client: Client) -> None:
    """409 that names the order's status."""
    order_id = client.placed()
    for status in {*OrderStatus} - {OrderStatus.PAYMENT_DECLINED}:
        client.set_status(order_id, status)
        code, problem, _ = client.to(f"{order_id}/payments", OTHER_CARD)
        assert (code, problem["type"]) == (409, "urn:onecharge:problem:not-declined")
        assert status in problem["detail"]
    assert client.stored()[0]["attempt"]["N"] == "1"


def test_a_payment_that_names_no_method_is_refused(client: Client) -> None:
    """400, and nothing changes."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    bodies: list[dict[str, Any]] = [{}, {"payment_method": 1}, {**OTHER_CARD, "amount": 1}]
    kinds = [client.to(f"{order_id}/payments", body)[1]["type"] for body in bodies]
    assert kinds == ["urn:onecharge:problem:invalid-request"] * 3
    assert client.stored()[0]["attempt"]["N"] == "1"


def test_an_unknown_order_is_not_found(client: Client) -> None:
    """404."""
    paths = ("ord_" + "0" * 32, "nothing")
    assert [client.to(f"{path}/payments", OTHER_CARD)[0] for path in paths] == [404, 404]
