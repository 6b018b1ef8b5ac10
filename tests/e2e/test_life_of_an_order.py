"""The whole life of an order on the deployed stack: declined, another card, canceled, whichever wins."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

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


def test_a_late_retry_of_an_earlier_card_charges_nothing(shop: DeployedShop) -> None:
    """Card A (key KA) declined, card B declined: KA again is replayed, and refused with another card."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    key = str(uuid4())
    first = shop.post(f"{order_id}/payments", key, payment_method=DECLINED_CARD)
    assert shop.decided_status(order_id) == "PAYMENT_DECLINED"
    assert shop.post(f"{order_id}/payments", payment_method=DECLINED_CARD).status_code == 202
    assert shop.decided_status(order_id) == "PAYMENT_DECLINED"
    late = shop.post(f"{order_id}/payments", key, payment_method=DECLINED_CARD)
    assert (late.status_code, late.text, late.headers["Idempotent-Replayed"]) == (202, first.text, "true")
    assert shop.post(f"{order_id}/payments", key, payment_method="pm_card_visa").status_code == 422
    assert len(shop.get(order_id).json()["attempts"]) == 3
    assert shop.charges(order_id) == []


def test_the_client_secret_is_shown_to_whoever_has_to_act(shop: DeployedShop) -> None:
    """Of the order's PaymentIntent, from Stripe; in no table and in no log."""
    order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    secret = shop.client_secret(order_id)
    assert secret
    intents = [each for each in shop.stripe.ledger().payment_intents if each["metadata"].get("order_id") == order_id]
    assert any(secret.startswith(each["id"]) for each in intents)
    key = {"order_id": {"S": order_id}}
    stored = shop.stack.aws.client("dynamodb").get_item(TableName=shop.stack.orders_table, Key=key)["Item"]
    assert secret not in str(stored) + shop.log()


def test_two_cards_at_once_make_one_attempt(shop: DeployedShop) -> None:
    """One is accepted, the other refused; one charge."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(lambda card: shop.post(f"{order_id}/payments", payment_method=card), ["pm_card_visa"] * 2)
        )
    assert sorted(answer.status_code for answer in answers) == [202, 409]
    assert shop.decided_status(order_id) == "PAID"
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
    intents = [each for each in shop.stripe.ledger().payment_intents if each["metadata"].get("order_id") == order_id]
    assert {each["status"] for each in intents} <= {"canceled", "requires_payment_method"}
    assert shop.charges(order_id) == []


@on_both
def test_whichever_wins_the_race_the_answer_is_true(shop: DeployedShop) -> None:
    """Canceled the moment they were placed: either canceled and never charged, or charged once and said to be."""
    for _ in range(6):
        order_id = shop.order().json()["order_id"]
        answer = eventually(
            lambda order_id=order_id: shop.post(f"{order_id}/cancel"),  # type: ignore[misc]
            lambda answer: answer.status_code in (200, 409),  # And no longer CANCELING.
        )
        if answer.status_code == 200:
            assert shop.decided_status(order_id) == "CANCELED"
            assert shop.charges(order_id) == []
        else:
            assert answer.json()["type"] == "urn:onecharge:problem:already-paid"
            assert shop.decided_status(order_id) == "PAID"
            assert len(shop.charges(order_id)) == 1
