"""The state machines of orders and refunds: drawn once, and the drawing is what the code does."""

import re

import pytest

from onecharge.contract.states import OrderStatus
from onecharge.orders import refunds, transitions
from onecharge.orders.refunds import REFUND_OUTCOMES
from onecharge.orders.transitions import (
    CANCEL,
    CANCEL_UNPAID,
    OPEN,
    OUTCOMES,
    PAY_AGAIN,
    RETRY,
    REVIEW_OTHER_MONEY,
    WAITING,
    Transition,
    waits,
)

OUTCOME_EDGES = {(str(origin), str(each.status)) for each in OUTCOMES.values() for origin in each.origins}
MOVES = [PAY_AGAIN, CANCEL, RETRY, REVIEW_OTHER_MONEY, CANCEL_UNPAID, *OUTCOMES.values()]


def edges_of(drawing: str) -> set[tuple[str, str]]:
    """`A ─► B | C` as A to B and A to C, from every line that has such a form and no other."""
    lines = re.findall(r"^ +([A-Z_]+) ─► ([A-Z_]+(?: \| [A-Z_]+)*)$", drawing, re.MULTILINE)
    return {(origin, target) for origin, targets in lines for target in targets.split(" | ")}


def test_the_drawing_has_every_outcome_of_a_payment() -> None:
    """From each status to each that update_order may give it, and no other."""
    assert edges_of(transitions.__doc__ or "") == OUTCOME_EDGES


def test_what_is_final_counts_whatever_its_revision_and_attempt() -> None:
    """PAID and CANCELED, as at Stripe; all other outcomes are ordered by the revision of the payment's row."""
    final = {each.status for each in OUTCOMES.values() if each.is_terminal}
    assert final == {OrderStatus.PAID, OrderStatus.CANCELED}
    assert {each.status for each in OUTCOMES.values() if each.of_any_attempt} == {*final, OrderStatus.NEEDS_REVIEW}


@pytest.mark.parametrize("transition", MOVES, ids=lambda each: each.status)
def test_a_paid_order_is_never_moved(transition: Transition) -> None:
    """And a CANCELED one only to CANCELED."""
    assert OrderStatus.PAID not in transition.origins
    assert OrderStatus.CANCELED not in transition.origins or transition.status is OrderStatus.CANCELED


def test_what_waits_may_still_become_paid_or_canceled() -> None:
    """Every status that is not terminal can; and every one that waits is among them."""
    assert set(OrderStatus) - OPEN == {OrderStatus.PAID, OrderStatus.CANCELED}
    assert {status for status in OrderStatus if waits(status)} == {*WAITING, OrderStatus.NEEDS_REVIEW} < OPEN


def test_the_drawing_of_refunds_has_every_outcome() -> None:
    """Of a refund, from each status to each that update_order may give it."""
    edges = {(str(origin), str(each.status)) for each in REFUND_OUTCOMES.values() for origin in each.origins}
    assert edges_of(refunds.__doc__ or "") == edges
