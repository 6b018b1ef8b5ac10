"""GET /orders/{order_id}: the status of an order, its attempts, and why each was declined."""

import pytest

from orders_api.declines import DECLINED, message_for
from tests.support.orders_api import OTHER_CARD, Client, order


def test_an_order_is_shown(client: Client) -> None:
    """What POST responded, and more."""
    _, placed, _ = client.post(order())
    status, found, _ = client.get(f"/orders/{placed['order_id']}")
    assert (status, placed.items() <= found.items()) == (200, True)


@pytest.mark.parametrize("order_id", ["ord_" + "0" * 32, "4242424242424242", "%00", "ord_'", "\x00", "\ud800"])
def test_an_unknown_order_is_not_found(client: Client, order_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """404, and the id in the request is not repeated."""
    status, problem, headers = client.get(f"/orders/{order_id}")
    assert (status, headers["Content-Type"]) == (404, "application/problem+json")
    assert order_id not in client.published_by(problem, capsys)


def test_an_order_shows_its_attempts(client: Client) -> None:
    """Each with its status, its decline code, and a message that a shop can show."""
    order_id = client.placed()
    assert client.get(f"/orders/{order_id}")[1]["attempts"] == [{"attempt": 1, "status": "PENDING"}]
    outcome = {"status": "PAYMENT_DECLINED", "decline_code": "insufficient_funds"}
    client.set_status(order_id, "PAYMENT_DECLINED", _1=outcome)
    message = "This card has insufficient funds. Please try another card."
    assert client.get(f"/orders/{order_id}")[1]["attempts"] == [{"attempt": 1, "message": message, **outcome}]


def test_a_decline_has_a_message_of_its_own() -> None:
    """If the same card may succeed, the message does not ask for another one."""
    same_card = "authentication_required duplicate_transaction issuer_not_available payment_method_used".split()
    same_card += ["reenter_transaction"]
    assert [code for code in same_card if "another card" in message_for(code)] == []
    ours = "currency_not_supported payment_method_of_another_customer payment_method_unactivated".split()
    ours += ["payment_method_unknown"]
    assert [code for code in same_card + ours if message_for(code) == DECLINED] == []


def test_the_suspicion_of_an_issuer_is_not_shown() -> None:
    """The customer reads only that the card was declined; so does one whose code is not known."""
    codes = ("fraudulent", "lost_card", "stolen_card", "a_code_of_tomorrow", None)
    assert {message_for(code) for code in codes} == {DECLINED} == {"The card was declined. Please try another card."}


def test_an_earlier_attempt_that_succeeded_late_has_paid(client: Client) -> None:
    """The current attempt is shown as CANCELED: nothing confirms it any more."""
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    client.to(f"{order_id}/payments", OTHER_CARD)
    client.set_status(order_id, "PAID", _1={"status": "PAID"})
    client.set_attributes(order_id, paid_attempt=1)
    attempts = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert [(each["attempt"], each["status"]) for each in attempts] == [(1, "PAID"), (2, "CANCELED")]


def test_an_order_that_requires_action_says_what_to_do(client: Client) -> None:
    """In every response that shows it, for whoever has no page yet; no other order says anything."""
    order_id = client.requires_action()
    [listed] = client.get("/orders")[1]["orders"]
    for shown in (client.get(f"/orders/{order_id}")[1], listed):
        assert "3-D Secure" in shown["next_step"]
        assert f"GET /orders/{order_id}/payment" in shown["next_step"]
    client.set_status(order_id, "PAID")
    assert "next_step" not in client.get(f"/orders/{order_id}")[1]


def test_a_paid_order_shows_when_it_was_paid(client: Client) -> None:
    """An order that is not paid has no such field."""
    order_id = client.paid()
    assert "paid_at" not in client.get(f"/orders/{order_id}")[1]
    client.set_attributes(order_id, paid_at="2026-11-01T09:00:02+00:00")
    assert client.get(f"/orders/{order_id}")[1]["paid_at"] == "2026-11-01T09:00:02+00:00"


@pytest.mark.parametrize("reason", ["expired", "not_chargeable", None])
def test_a_canceled_order_says_why(client: Client, reason: str | None) -> None:
    """Unless a person canceled it."""
    order_id = client.placed()
    client.set_status(order_id, "CANCELED")
    if reason:
        client.set_attributes(order_id, cancel_reason=reason)
    assert client.get(f"/orders/{order_id}")[1].get("cancel_reason") == reason


def test_a_dispute_is_shown(client: Client) -> None:
    """With Stripe's status; an order without a dispute has no such field."""
    order_id = client.paid()
    assert "dispute_status" not in client.get(f"/orders/{order_id}")[1]
    client.set_attributes(order_id, dispute_status="needs_response")
    assert client.get(f"/orders/{order_id}")[1]["dispute_status"] == "needs_response"
