"""POST /orders/{order_id}/refunds: never more is refunded than was paid, and once for each key."""

from datetime import timedelta
from typing import Any

import pytest

from onecharge.contract.states import OrderStatus
from tests.support.orders_api import NOW, STAFF, Client, order


def test_a_part_of_a_paid_order_is_refunded(client: Client) -> None:
    """202 with the refund in the order's currency; from then on the order shows it."""
    order_id = client.paid()
    status, refund, headers = client.to(f"{order_id}/refunds", {"amount": 1000})
    assert (status, headers["Location"]) == (202, f"/orders/{order_id}")
    assert (refund["status"], refund["amount"], refund["currency"]) == ("PENDING", 1000, "EUR")
    _, shown, _ = client.get(f"/orders/{order_id}")
    assert shown["amount_refunded"] == 1000
    assert [(each["refund_id"], each["amount"]) for each in shown["refunds"]] == [(refund["refund_id"], 1000)]


def test_a_refund_names_the_attempt_that_paid(client: Client) -> None:
    """It may be an earlier one that succeeded late. A refund that waits does not expire."""
    order_id = client.paid()
    client.set_attributes(order_id, attempt=2, paid_attempt=1)
    refund_id = client.to(f"{order_id}/refunds", {"amount": 100})[1]["refund_id"]
    [item] = client.dynamodb.scan(TableName="refunds")["Items"]
    assert (item["refund_id"]["S"], item["attempt"]["N"]) == (refund_id, "1")
    assert "expires_at" not in item


def test_a_refund_keeps_who_wanted_it_and_why(client: Client) -> None:
    """For the staff: no response shows it."""
    order_id = client.paid()
    _, refund, _ = client.to(f"{order_id}/refunds", {"amount": 100, "reason": "a cup was broken"})
    [item] = client.dynamodb.scan(TableName="refunds")["Items"]
    assert (item["requested_by"]["S"], item["reason"]["S"]) == (STAFF["sub"], "a cup was broken")
    assert "broken" not in str([refund, client.get(f"/orders/{order_id}")[1]])
    for reason in ("", "a cup\nrfd_1 became SUCCEEDED", "\x1b[2J"):
        assert client.to(f"{order_id}/refunds", {"reason": reason}, key="b")[0] == 400


def test_a_refund_without_an_amount_is_of_all_that_is_left(client: Client) -> None:
    """After that nothing is left."""
    order_id = client.paid()
    client.to(f"{order_id}/refunds", {"amount": 1000}, key="a")
    assert client.to(f"{order_id}/refunds", key="b")[1]["amount"] == 1500
    status, problem, _ = client.to(f"{order_id}/refunds", key="c")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:more-than-is-left")


def test_a_retry_of_a_refund_is_replayed(client: Client) -> None:
    """The same response each time, though nothing more is left."""
    order_id = client.paid()
    answers = [client.to(f"{order_id}/refunds")[:2] for _ in range(3)]
    assert answers == [answers[0]] * 3
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 2500


@pytest.mark.parametrize(("first", "second"), [({"amount": 10}, {"amount": 11}), ({}, {"amount": 2500})])
def test_a_key_reused_for_another_amount_is_refused(client: Client, first: Any, second: Any) -> None:
    """422, and nothing more is reserved."""
    order_id = client.paid()
    client.to(f"{order_id}/refunds", first)
    before = client.stored()
    status, problem, _ = client.to(f"{order_id}/refunds", second)
    assert (status, problem["type"]) == (422, "urn:onecharge:problem:idempotency-key-reused")
    assert client.stored() == before


@pytest.mark.parametrize("amount", [2501, 99_999_999])
def test_no_more_is_refunded_than_was_paid(client: Client, amount: int) -> None:
    """409, and nothing is reserved."""
    order_id = client.paid()
    assert client.to(f"{order_id}/refunds", {"amount": amount})[0] == 409
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 0


def test_refunds_made_in_the_dashboard_count(client: Client) -> None:
    """Stripe's total and what waits are shown, and no more than the rest can be refunded."""
    order_id = client.paid()
    client.to(f"{order_id}/refunds", {"amount": 1000}, key="waits")
    client.set_attributes(order_id, stripe_refunded_minor=700)
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 1700
    assert client.to(f"{order_id}/refunds", {"amount": 801}, key="a")[0] == 409
    assert client.to(f"{order_id}/refunds", key="b")[1]["amount"] == 800


@pytest.mark.parametrize(
    ("dispute", "status"),
    [
        *((each, 409) for each in ("needs_response", "under_review", "lost", "appeal_needs_response", "of next year")),
        ("won", 202),
        ("prevented", 409),
        *((f"warning_{each}", 202) for each in ("needs_response", "under_review", "closed")),
    ],
)
def test_a_disputed_payment_is_not_refunded(client: Client, dispute: str, status: int) -> None:
    """409 while it is open, and once it is lost; an inquiry takes no money. A retry of an accepted one is replayed."""
    order_id = client.paid()
    accepted = client.to(f"{order_id}/refunds", {"amount": 1}, key="before")[:2]
    client.set_attributes(order_id, dispute_status=dispute)
    assert client.to(f"{order_id}/refunds", {"amount": 1}, key="before")[:2] == accepted == (202, accepted[1])
    answer, body, _ = client.to(f"{order_id}/refunds", {"amount": 1}, key="after")
    assert (answer, body.get("type")) == (status, "urn:onecharge:problem:disputed" if status == 409 else None)


def test_only_a_paid_order_is_refunded(client: Client) -> None:
    """409 that names the order's status."""
    order_id = client.paid()
    for status in {*OrderStatus} - {OrderStatus.PAID}:
        client.set_status(order_id, status)
        answer, problem, _ = client.to(f"{order_id}/refunds", {"amount": 1})
        assert (answer, problem["type"]) == (409, "urn:onecharge:problem:not-paid")
        assert status in problem["detail"]


def test_a_refund_is_refused_before_its_payment_is_forgotten(client: Client) -> None:
    """409 from day 425 after the payment, however late that was; a retry of an accepted one is replayed."""
    order_id = client.paid()
    client.set_attributes(order_id, paid_at=(NOW + timedelta(days=3)).isoformat())
    client.now = NOW + timedelta(days=428, seconds=-1)
    accepted = client.to(f"{order_id}/refunds", {"amount": 1}, key="a")[:2]
    client.now = NOW + timedelta(days=428)
    assert client.to(f"{order_id}/refunds", {"amount": 1}, key="a")[:2] == accepted == (202, accepted[1])
    status, problem, _ = client.to(f"{order_id}/refunds", {"amount": 1}, key="b")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:paid-too-long-ago")
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 1


def test_a_bad_refund_is_refused(client: Client) -> None:
    """400 that says where and how."""
    bodies: list[Any] = [{"amount": 0}, {"amount": -1}, {"amount": 10.5}, {"amount": "10"}, {"sum": 10}, [10]]
    order_id = client.paid()
    for body in bodies:
        status, problem, _ = client.to(f"{order_id}/refunds", body)
        assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request"), body


def test_a_refund_of_three_decimals_ends_with_a_zero(client: Client) -> None:
    """As a charge does: Stripe accepts no other."""
    order_id = str(client.post(order(currency="kwd"))[1]["order_id"])
    client.set_status(order_id, "PAID")
    assert client.to(f"{order_id}/refunds", {"amount": 15})[0] == 400
    assert client.to(f"{order_id}/refunds", {"amount": 20})[0] == 202


def test_a_refund_of_no_order_is_not_found(client: Client) -> None:
    """404."""
    assert client.to("ord_" + "0" * 32 + "/refunds")[0] == 404


@pytest.mark.parametrize(("body", "decided"), [({}, (202, 500)), ({"amount": 1000}, (409, None))], ids=str)
def test_a_refund_that_meets_another_is_decided_again(client: Client, body: Any, decided: Any) -> None:
    """By what the other refund left."""
    order_id = client.paid()
    client.overtaken.meanwhile.append(lambda: client.to(f"{order_id}/refunds", {"amount": 2000}, key="other"))
    status, shown, _ = client.to(f"{order_id}/refunds", body, key="this")
    assert (status, shown.get("amount")) == decided


def test_a_refund_that_always_meets_another_is_503(client: Client) -> None:
    """After three tries, and nothing of it is stored."""
    order_id = client.paid()

    def overtake() -> None:
        # The other one itself meets none.
        waiting, client.overtaken.meanwhile = client.overtaken.meanwhile, []
        client.to(f"{order_id}/refunds", {"amount": 1}, key=f"other-{len(waiting)}")
        client.overtaken.meanwhile = waiting

    client.overtaken.meanwhile += [overtake] * 3
    status, problem, _ = client.to(f"{order_id}/refunds", key="this")
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 3
