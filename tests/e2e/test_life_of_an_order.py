"""The whole life of an order on the deployed stack: declined, another card, canceled, whichever wins."""

import pytest

from tests.support.deployed_shop import DECLINED_CARD, THREE_D_SECURE_CARD, DeployedShop, eventually
from tests.support.stacks import on_both


@on_both
def test_a_declined_order_is_paid_with_another_card(shop: DeployedShop) -> None:
    """Both attempts are shown, the first with the reason in words; one charge."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    assert shop.post(f"{order_id}/payments", payment_method="pm_card_visa").status_code == 202
    assert shop.decided_status(order_id) == "PAID"
    first, second = shop.get(order_id).json()["attempts"]
    assert (first["status"], first["decline_code"]) == ("PAYMENT_DECLINED", "insufficient_funds")
    assert first["message"] == "This card has insufficient funds. Please try another card."
    assert (second["attempt"], second["status"]) == (2, "PAID")
    assert len(shop.charges(order_id)) == 1


@on_both
@pytest.mark.parametrize(
    ("card", "status"),
    [(DECLINED_CARD, "PAYMENT_DECLINED"), (THREE_D_SECURE_CARD, "REQUIRES_ACTION")],
    ids=["declined", "3DS"],
)
def test_an_order_that_is_not_paid_is_canceled(shop: DeployedShop, card: str, status: str) -> None:
    """CANCELED is final: no other card is taken, no page can confirm it, nothing is charged."""
    order_id = shop.placed(card, status)
    requested = shop.post(f"{order_id}/cancel")
    assert (requested.status_code, requested.json()["status"]) == (202, "CANCELING")
    assert shop.decided_status(order_id) == "CANCELED"
    assert shop.post(f"{order_id}/payments", payment_method="pm_card_visa").status_code == 409
    assert {each["status"] for each in shop.intents(order_id)} <= {"canceled", "requires_payment_method"}
    assert shop.charges(order_id) == []


@on_both
def test_whichever_wins_the_race_the_answer_is_true(shop: DeployedShop) -> None:
    """Canceled the moment they were placed: either canceled and never charged, or charged once and said to be."""
    for _ in range(3):
        order_id = shop.order().json()["order_id"]
        answer = eventually(
            lambda order_id=order_id: shop.post(f"{order_id}/cancel"),  # type: ignore[misc]
            lambda answer: answer.status_code in (200, 409),  # And no longer CANCELING.
        )
        if answer.status_code == 409:
            assert answer.json()["type"] == "urn:onecharge:problem:already-paid"
        status, charges = ("CANCELED", 0) if answer.status_code == 200 else ("PAID", 1)
        assert (shop.decided_status(order_id), len(shop.charges(order_id))) == (status, charges)
