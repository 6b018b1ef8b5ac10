"""Idempotency keys, and what a fault executes and stores. The parity record has the replays of ordinary answers."""

from typing import Any

import pytest

from stripe_standin.faults import Executed, Fault, FaultPlan, FaultRule
from stripe_standin.messages import Response, Ticket
from stripe_standin.tests.support import CREATE, VISA, Stripe, short

DAY = 24 * 3600


def replayed(response: Response) -> bool:
    return response.headers.get("Idempotent-Replayed") == "true"


@pytest.mark.parametrize(("age", "is_forgotten"), [(DAY - 1, False), (DAY, True)])
def test_a_key_is_forgotten_after_24_hours(stripe: Stripe, age: int, is_forgotten: bool) -> None:
    """The same request is then a new one."""
    first = stripe.post("payment_intents", CREATE, "a").body["id"]
    stripe.time += age
    assert (stripe.post("payment_intents", CREATE, "a").body["id"] != first) is is_forgotten


def test_a_key_is_for_one_endpoint(stripe: Stripe) -> None:
    """With the same parameters, too; the id is part of the path."""
    stripe.confirm(stripe.created(), key="a")
    assert stripe.confirm(stripe.created(), key="a").body["error"]["type"] == "idempotency_error"


def test_a_key_in_use_is_never_forgotten(stripe: Stripe) -> None:
    """409 until its request ends, however long that takes."""
    ticket = stripe.engine.begin(stripe.request("POST", "payment_intents", CREATE, "a"))
    assert isinstance(ticket, Ticket)
    stripe.time += 2 * DAY
    assert short(stripe.post("payment_intents", CREATE, "a")) == (409, "idempotency_key_in_use")
    assert stripe.account.keys.delete() == 0
    stripe.engine.carry_out(ticket)
    stripe.time -= 2 * DAY
    assert replayed(stripe.post("payment_intents", CREATE, "a"))
    assert stripe.account.keys.delete("a") == 1
    assert not replayed(stripe.post("payment_intents", CREATE, "a"))


NOW, LATER = Executed.NOW, Executed.LATER


@pytest.mark.parametrize(
    ("fault", "status", "is_stored", "paid"),
    [
        (FaultRule(Fault.ERROR_500_BEFORE), 500, True, 0),
        (FaultRule(Fault.ERROR_500_AFTER), 500, True, 1),
        (FaultRule(Fault.RESPONSE, status=500, stored=True, executed=LATER, seconds=300), 500, True, 1),
        (FaultRule(Fault.RESPONSE, status=403, error={"code": "account_invalid"}), 403, False, 0),
        (FaultRule(Fault.RESPONSE, status=502, executed=NOW), 502, False, 1),
        (FaultRule(Fault.UNAVAILABLE_503), 503, False, 0),
        (FaultRule(Fault.UNAVAILABLE_503, stored=True), 503, True, 0),
        (FaultRule(Fault.RATE_LIMIT_429), 429, False, 0),
        (FaultRule(Fault.DROP_AFTER), 200, True, 1),
        (FaultRule(Fault.STAYS_PROCESSING), 200, True, 0),
        (FaultRule(Fault.STAYS_PROCESSING, status=500), 500, True, 0),
        (FaultRule(Fault.CANCELED_BY_STRIPE), 400, True, 0),
    ],
)
def test_each_fault_executes_and_stores_what_it_says(
    stripe: Stripe, fault: FaultRule, status: int, is_stored: bool, paid: int
) -> None:
    """The response does not show whether it charged; only the ledger does. A retry never charges twice."""
    confirm, given = f"payment_intents/{stripe.created()}/confirm", {"payment_method": VISA}
    assert stripe.meets(fault, confirm, given, "a").status == status
    assert len(stripe.account.ledger) == (paid if fault.executed is not LATER else 0)
    stripe.time += 300
    stripe.engine.run_due()
    assert len(stripe.account.ledger) == paid
    again = stripe.post(confirm, given, "a")
    assert (replayed(again), again.status if is_stored else status) == (is_stored, status)
    assert len(stripe.account.ledger) == (paid if is_stored else 1)


def test_a_late_execution_respects_the_status_at_that_time(stripe: Stripe) -> None:
    """A PaymentIntent that was canceled meanwhile is not charged."""
    intent = stripe.created()
    later = FaultRule(Fault.RESPONSE, status=500, stored=True, executed=LATER)
    stripe.meets(later, f"payment_intents/{intent}/confirm", {"payment_method": VISA})
    stripe.post(f"payment_intents/{intent}/cancel")
    stripe.time += 121
    stripe.engine.run_due()
    assert (stripe.intent(intent).status, stripe.account.ledger) == ("canceled", [])


def test_a_late_request_that_its_key_has_answered_is_executed_once(stripe: Stripe) -> None:
    later = FaultRule(Fault.RESPONSE, stored=True, executed=LATER, seconds=300)
    stripe.meets(later, "payment_intents", CREATE, "a")
    stripe.time += 300
    assert len(stripe.get("payment_intents").body["data"]) == 1


@pytest.mark.parametrize("another_comes", [False, True])
def test_a_late_request_that_no_key_stores_may_be_the_first(stripe: Stripe, another_comes: bool) -> None:
    """Its response is the key's from then on, unless another request came under the key meanwhile. The object is as old
    as the request, so it is not the newest of a list; its event has the time at which it appeared."""
    stripe.time += 1
    stripe.meets(FaultRule(Fault.RESPONSE, executed=LATER, seconds=3600), "payment_intents", CREATE, "a")
    stripe.time += 1
    stripe.post("payment_intents", CREATE, "a" if another_comes else "b")
    stripe.time += 3600
    assert replayed(stripe.post("payment_intents", CREATE, "a"))
    ages = [stripe.time - each["created"] for each in stripe.get("payment_intents").body["data"]]
    assert ages == ([3600] if another_comes else [3600, 3601])
    assert another_comes or stripe.account.events[-1]["created"] == stripe.time - 1


CONFIRM, OF_INTENT = "/v1/payment_intents/*/confirm", "/v1/*/pi_*"


@pytest.mark.parametrize(
    ("rule", "met"),
    [
        ({"path": CONFIRM}, [True, False, False]),
        ({"path": CONFIRM, "times": 2}, [True, True, False]),
        ({"path": CONFIRM, "match": {"amount": "1099"}, "times": None}, [True, True, False]),
        ({"path": CONFIRM, "match": {"amount": "3000"}}, [False, False, False]),
        ({"path": OF_INTENT, "method": "GET", "api_key": "sk_test_x"}, [False, False, True]),
        ({"path": OF_INTENT, "method": "GET", "api_key": "sk_test_other"}, [False, False, False]),
    ],
)
def test_a_fault_meets_the_requests_that_match(stripe: Stripe, rule: dict[str, Any], met: list[bool]) -> None:
    """By method, path, API key and parameters, also those of the PaymentIntent's create: here two confirms, a read."""
    plan, path = FaultPlan(), f"payment_intents/{stripe.created()}"
    plan.rules = [FaultRule(Fault.RATE_LIMIT_429, stored=True, times=None), FaultRule(Fault.UNAVAILABLE_503, **rule)]
    confirm, retrieve = stripe.request("POST", f"{path}/confirm"), stripe.request("GET", path)
    created_with = stripe.engine.created_with(confirm)
    sent = (confirm, confirm, retrieve)
    assert [bool(plan.find(each, before_execution=True, created_with=created_with)) for each in sent] == met
