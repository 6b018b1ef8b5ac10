"""What the staff does in the console: by the same rules as the API and `ops review`, with a reason that is kept."""

import json
from typing import Any

import pytest
import requests
import responses

from console.staff import Asked, Staff
from ops.errors import Problem
from tests.support.operated_stack import OperatedStack

ORDER_ID = "ord_" + "a" * 32
API = "http://api.test"
REFUNDS = f"{API}/orders/{ORDER_ID}/refunds"


@pytest.fixture
def staff(operated: OperatedStack) -> Staff:
    return Staff(operated.stack, API, lambda: "the-token")


def refunded(staff: Staff, amount: str, currency: str, **answer: Any) -> dict[str, Any]:
    """What the API is sent for this amount."""
    with responses.RequestsMock() as api:
        sent = api.post(REFUNDS, status=202, json={"amount": 1250, "currency": currency, **answer})
        said = staff.refund(ORDER_ID, amount=amount, reason=" a cup\n was broken", key="k")
        assert said == f"A refund of 12.50 {currency} is requested." or currency != "EUR"
        request = sent.calls[0].request
        assert (request.headers["Authorization"], request.headers["Idempotency-Key"]) == ("Bearer the-token", "k")
        return dict(json.loads(request.body or ""))


@pytest.mark.parametrize(
    ("amount", "currency", "minor"), [("12.50", "EUR", 1250), (" 12.5 ", "EUR", 1250), ("12", "JPY", 12)]
)
def test_an_amount_is_written_as_people_write_it(
    staff: Staff, operated: OperatedStack, amount: str, currency: str, minor: int
) -> None:
    """In the order's currency; the API gets minor units, and the reason in one line."""
    operated.place(order_id=ORDER_ID, status="PAID", currency=currency, amount_minor=5000)
    assert refunded(staff, amount, currency) == {"amount": minor, "reason": "a cup was broken"}


def test_all_that_is_left_is_refunded(staff: Staff, operated: OperatedStack) -> None:
    """The API knows how much that is."""
    operated.place(order_id=ORDER_ID, status="PAID")
    assert "amount" not in refunded(staff, "all", "EUR")


@pytest.mark.parametrize("amount", ["", "twelve", "1.234", "NaN", "1e999999"])
def test_what_is_no_amount_is_refused(staff: Staff, operated: OperatedStack, amount: str) -> None:
    """Before anything is sent."""
    operated.place(order_id=ORDER_ID, status="PAID")
    with pytest.raises(Problem, match="is not an amount in EUR"):
        staff.refund(ORDER_ID, amount=amount, reason="r", key="k")


@pytest.mark.parametrize(
    "answer", [{"status": 503, "json": {"message": "Service Unavailable"}}, {"body": requests.Timeout()}]
)
@responses.activate
def test_a_refund_whose_answer_got_lost_is_sent_again_under_its_key(
    staff: Staff, operated: OperatedStack, answer: dict[str, Any]
) -> None:
    """It may be stored: until the API has answered, no other refund of the order is sent, from no other tab."""
    operated.place(order_id=ORDER_ID, status="PAID")
    responses.post(REFUNDS, **answer)
    with pytest.raises(Problem, match="send the form below again"):
        staff.refund(ORDER_ID, amount="5", reason="r", key="first")
    assert staff.unanswered[ORDER_ID] == Asked(key="first", amount="5", reason="r")
    with pytest.raises(Problem, match="send that one again first"):
        staff.refund(ORDER_ID, amount="5", reason="r", key="second")
    responses.replace(responses.POST, REFUNDS, status=403, json={"message": "Forbidden"})
    with pytest.raises(Problem, match="Forbidden"):
        staff.refund(ORDER_ID, amount="5", reason="r", key="first")
    responses.replace(responses.POST, REFUNDS, status=202, json={"amount": 500, "currency": "EUR"})
    assert staff.refund(ORDER_ID, amount="5", reason="r", key="first") == "A refund of 5.00 EUR is requested."
    assert {call.request.headers["Idempotency-Key"] for call in responses.calls} == {"first"}
    assert staff.unanswered == {}


@responses.activate
def test_on_a_deployed_stack_the_token_is_a_machines_and_the_reason_names_the_person(
    operated: OperatedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ops token` asks for the staff's scope; who operates the console is known to AWS alone."""
    for name in ("TOKEN_ENDPOINT", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(name, "http://issuer.test/token" if name == "TOKEN_ENDPOINT" else "x")
    monkeypatch.setenv("API_URL", API)
    asked = responses.post("http://issuer.test/token", json={"access_token": "of-a-machine"})
    sent = responses.post(REFUNDS, status=202, json={"amount": 500, "currency": "EUR"})
    operated.place(order_id=ORDER_ID, status="PAID")
    operated.stack.endpoint_url = None
    Staff.of_deployed(operated.stack).refund(ORDER_ID, amount="5", reason="a cup was broken", key="k")
    assert "scope=onecharge%2Frefund" in str(asked.calls[0].request.body)
    request = sent.calls[0].request
    assert request.headers["Authorization"] == "Bearer of-a-machine"
    assert json.loads(request.body or "")["reason"] == f"a cup was broken ({operated.stack.caller})"


@responses.activate
def test_why_the_api_refuses_is_said(staff: Staff, operated: OperatedStack) -> None:
    """In its own words; a gateway's 403 has none but `message`."""
    operated.place(order_id=ORDER_ID, status="PAID")
    responses.post(REFUNDS, status=409, json={"detail": "The amount is more than is left of what was paid."})
    responses.post(REFUNDS, status=403, json={"message": "Forbidden"})
    for words in ("more than is left", "Forbidden"):
        with pytest.raises(Problem, match=words):
            staff.refund(ORDER_ID, amount="all", reason="r", key="k")


def test_a_cancellation_keeps_who_wanted_it_and_why(staff: Staff, operated: OperatedStack) -> None:
    """As `ops review resolve` does; the order's message cancels it at Stripe."""
    operated.place(order_id=ORDER_ID)
    assert "the order is CANCELING" in staff.cancel(ORDER_ID, reason="the customer called")
    order = operated.order(ORDER_ID)
    assert (order.status, order.canceled_by["reason"]) == ("CANCELING", "the customer called")
    assert order.canceled_by["by"].startswith("arn:")


@pytest.mark.parametrize(("status", "why"), [("PAID", "it can be refunded"), ("CANCELED", "the order is CANCELED")])
def test_an_order_that_has_ended_is_not_canceled(staff: Staff, operated: OperatedStack, status: str, why: str) -> None:
    """Nor is an order that is not there, and without a reason nothing is done."""
    operated.place(order_id=ORDER_ID, status=status)
    with pytest.raises(Problem, match=why):
        staff.cancel(ORDER_ID, reason="r")
    with pytest.raises(Problem, match="there is no such order"):
        staff.cancel("ord_" + "b" * 32, reason="r")
    for reason in ("", " ", "x" * 501):
        with pytest.raises(Problem, match="a reason is a sentence"):
            staff.refund(ORDER_ID, amount="all", reason=reason, key="k")


@pytest.mark.parametrize("card", ["4242424242424242", "4242 4242 4242 4242"])
def test_a_reason_with_a_card_number_is_refused_and_not_repeated(
    staff: Staff, operated: OperatedStack, card: str
) -> None:
    """It would be kept on the row, where nothing else holds one."""
    operated.place(order_id=ORDER_ID)
    with pytest.raises(Problem, match="card number") as refused:
        staff.cancel(ORDER_ID, reason=f"paid with {card}")
    assert card not in str(refused.value)
    assert operated.order(ORDER_ID).canceled_by == {}


def test_a_reason_is_as_long_as_the_api_takes_it_with_the_callers_name(
    staff: Staff, operated: OperatedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a deployed stack the caller's ARN follows it: what is too long is said here, and not as a wrong amount."""
    operated.place(order_id=ORDER_ID, status="PAID")
    monkeypatch.setattr(type(operated.stack), "is_local", False)
    with pytest.raises(Problem, match="a reason is a sentence"):
        staff.refund(ORDER_ID, amount="", reason="x" * 490, key="k")
