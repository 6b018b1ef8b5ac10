"""Why an order was charged once: each mechanism has its sentence, and only if it was at work."""

from typing import Any

import pytest

from console.lines import HELD, STRIPE_REQUEST, TIMED_OUT, Line
from console.why import why_once

CONFIRM, CREATE = "POST /v1/payment_intents/{id}/confirm", "POST /v1/payment_intents"
RETRIEVE = "GET /v1/payment_intents/{id}"


def line(at: int, message: str, count: int = 1, **fields: Any) -> Line:
    return Line(at, message, "charge_order", "w", {"message_id": "m", "receive_count": count, **fields})


def request(at: int, endpoint: str, **fields: Any) -> Line:
    return Line(at, STRIPE_REQUEST, "charge_order", "w", {"endpoint": endpoint, **fields})


CLAIMED, CONFIRMED, DIED = line(1, "payment claimed"), request(2, CONFIRM), Line(3, TIMED_OUT, worker="w")
REPLAYED = request(4, CONFIRM, replayed="true")
WAITED = line(3, "message waits")
AGAIN, RETRIEVED, CREATED = line(4, "payment claimed", 2), request(5, RETRIEVE), request(4, CREATE, replayed="true")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([CLAIMED, CONFIRMED], "Delivered once, charged once."),
        ([CLAIMED, DIED, AGAIN, RETRIEVED], "Delivered twice, charged once. A worker died after Stripe had charged."),
        ([CLAIMED, request(2, RETRIEVE), DIED], "Delivered once, charged once."),
        ([CLAIMED, CONFIRMED, REPLAYED], "Stripe replayed its answer."),
        ([CLAIMED, CREATED, RETRIEVED], "led to the same PaymentIntent."),
        ([CLAIMED, line(2, HELD)], "held until an operator had looked at Stripe."),
        (
            [CLAIMED, line(2, "duplicate waits for the lease", 2)],
            "A claim was refused once, since a worker had the lease",
        ),
        (
            [CLAIMED, *(line(2, "duplicate ignored: ended", n) for n in (2, 3, 4))],
            "A claim was refused 3 times, since the payment had",
        ),
        ([CLAIMED, request(2, CONFIRM, status="5xx")], "although it had charged"),
        ([CLAIMED, WAITED, request(5, CONFIRM, status="2xx")], "charged once. Nothing could be charged at first"),
        ([CLAIMED, request(2, CONFIRM, status="2xx"), WAITED], "Delivered once, charged once."),
        ([CLAIMED, *[Line(at, "event processed", "stripe_webhook") for at in (3, 4)]], "2 webhooks came"),
    ],
)
def test_each_mechanism_that_was_at_work_is_named(lines: list[Line], said: str) -> None:
    """By what the log shows; a request before a worker's death proves nothing."""
    told = why_once(lines, 1)
    assert said in told
    for word in ("died", "at first", "although"):
        assert (word in told) == (word in said)


@pytest.mark.parametrize(("lines", "charges"), [([], 1), ([CLAIMED], 0), ([CLAIMED], 2)])
def test_nothing_is_said_without_one_charge(lines: list[Line], charges: int) -> None:
    """Two charges are no success, and without a delivery the log says nothing."""
    assert why_once(lines, charges) == ""
