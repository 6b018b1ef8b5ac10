"""`release`: what follows from a complete look at Stripe, and the command on tables and Stripe."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import product
from typing import Any

import pytest

from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge_rules import CREATE_SECONDS
from onecharge.payments.payments_table import DUPLICATE, KEYS_USED_UP, PARAMETERS_DIFFER
from onecharge.payments.stripe_responses import StripeIntent
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from ops.output import Problem
from ops.release import ALL_SECONDS, Blocked, Decision, decide
from tests.shop.builders import SHOP, intent, payment
from tests.support.operated_stack import API_KEY, FINAL, FREE, HOUR, OperatedStack

ORDER_ID, OTHER_ID = "ord_" + "d" * 32, "ord_" + "e" * 32
ROW = payment(payment_intent_id=None, **FREE)
OPEN, ACTION, PROCESSING, PAID, CANCELED = (
    *("requires_payment_method", "requires_action", "processing", "succeeded", "canceled"),
)
STRANGE: list[dict[str, Any]] = [
    *({"shop": "another"}, {"order_id": None}, {"order_id": OTHER_ID}, {"customer_id": "cus_2"}),
    *({"amount_minor": 1098}, {"currency": "USD"}),
]
"""What a person has edited or made: it may have charged the customer, whatever else is there."""


def decided(found: Sequence[StripeIntent], of: str | None = None) -> Decision | None:
    """None if a person has to look."""
    try:
        return decide(ROW, found, shop=SHOP, of=of)
    except Blocked:
        return None


def expected(found: Sequence[StripeIntent], of: str | None) -> Decision | None:
    """The rules of docs/protocol.md, "Held", each by itself; `found` is in the order of creation."""
    statuses = [each.status for each in found]
    paid = [each for each in found if each.status == PAID and of in (None, each.payment_intent_id)]
    still_open = tuple(each for each in found if each.status in (OPEN, ACTION))
    if PROCESSING in statuses or len(paid) > 1 or (of and not paid):
        return None
    if paid or CANCELED in statuses:
        return Decision(still_open, (paid or [each for each in found if each.status == CANCELED])[0])
    return Decision(still_open[1:], still_open[0] if still_open else None)


def test_what_a_look_at_stripe_means() -> None:
    """Up to three PaymentIntents of each status, in any order of the list, with and without one that is named; beside
    any of them one that names the order and does not agree."""
    wrong = list[Any]()
    for count in range(4):
        for statuses in product((OPEN, ACTION, PROCESSING, PAID, CANCELED), repeat=count):
            found = [intent(each, payment_intent_id=f"pi_{at}", created=at) for at, each in enumerate(statuses)]
            for of, listed in product((None, "pi_0", "pi_9"), (found, found[::-1])):
                if decided(listed, of) != expected(found, of):
                    wrong.append((statuses, of, decided(listed, of)))
            strange = [replace(each, **changes) for each in found[:1] for changes in STRANGE]
            wrong += [(each, found[1:]) for each in strange if decided([*found[1:], each])]
    assert wrong == []
    assert decided([replace(intent(OPEN), takes_cards=False)]) is None
    own = intent(CANCELED, payment_intent_id="pi_1", created=2 * intent(OPEN).created)
    assert decided([intent(CANCELED, cancellation_reason="duplicate"), own]) == Decision((), own)


# ---------------------------------------------------------------- on tables and Stripe


def held(operated: OperatedStack, hours: float = 25, **row: Any) -> StoredOrder:
    """An order whose worker could not create its PaymentIntent in time; Stripe has one of the shop's other orders."""
    operated.intent(OTHER_ID)
    with operated.hours_ago(hours):
        order = operated.place()
        operated.claim(order.order_id, **{**FREE, **row})
    return order


def released(operated: OperatedStack, *words: str, yes: bool = True) -> list[str]:
    """What the command says of each order; its exit status is 0 if all is done."""
    status, document, _ = operated.ops("release", *words, *(["--yes"] if yes else []))
    assert (status == 0) == all(each["done"] for each in document["orders"])
    return [each["what"] for each in document["orders"]]


def status_of(operated: OperatedStack, intent_id: str) -> str:
    return operated.stack.stripe.v1.payment_intents.retrieve(intent_id).status


def test_an_order_that_stripe_has_nothing_of_is_charged_once(operated: OperatedStack) -> None:
    """A dry run changes nothing. The window begins with the release, and the order's event is published, each time."""
    order_id = held(operated).order_id
    operated.deliver(order_id)
    assert (operated.payment(order_id).state, operated.charges(order_id)) == (PaymentState.PENDING, 0)
    before = operated.row(order_id), operated.get("OrdersTable", order_id=order_id)
    assert "would let the worker create" in released(operated, order_id, yes=False)[0]
    assert (operated.row(order_id), operated.get("OrdersTable", order_id=order_id)) == before
    released(operated, "--all")
    assert abs(int(operated.row(order_id)["released_at"]) - time.time()) < 10
    assert released(operated, order_id) == ["done: publish the order's event again: it is not held"]
    assert operated.get("OrdersTable", order_id=order_id)["touches"] == 2
    operated.deliver(order_id)
    assert (operated.payment(order_id).state, operated.charges(order_id)) == (PaymentState.SUCCEEDED, 1)
    assert "it is not held" in released(operated, order_id)[0]


def test_it_is_released_once_the_first_window_is_over_by_every_clock(operated: OperatedStack) -> None:
    """If the row is lost after its release, a worker whose clock is an hour behind would create under the first keys.

    One that is held earlier waits, too: its keys replay failures, or are known with other parameters.
    """
    over_after = (CREATE_SECONDS + FUTURE_MAX_SECONDS) / HOUR
    for early in (held(operated, over_after - 0.1), held(operated, 1, held_because=KEYS_USED_UP)):
        assert "a worker whose clock is behind" in released(operated, early.order_id)[0]
        assert operated.payment(early.order_id).released_at is None
    late = held(operated, over_after + 0.1).order_id
    released(operated, late)
    assert operated.payment(late).released_at is not None


@pytest.mark.parametrize(
    ("status", "row", "changes"),
    [
        (OrderStatus.PENDING, {}, {"state": "PENDING", "is_released": True}),
        # Its trace at Stripe outlives our tables: the worker creates, and cancels; at the old price, too.
        (OrderStatus.CANCELING, {"amount_minor": 9}, {"state": "PENDING", "is_released": True}),
        # A late duplicate has made a lost row again.
        (OrderStatus.CANCELED, {}, {"state": "CANCELED", "is_released": False}),
        (OrderStatus.PAYMENT_DECLINED, {}, {"state": "DECLINED", "is_released": False}),
        # A person's: the order is paid or lost, its customer has not agreed to the row's price, or it was placed twice.
        (OrderStatus.PAID, {}, None),
        (None, {}, None),
        (OrderStatus.PENDING, {"amount_minor": 9}, None),
        (OrderStatus.PENDING, {"held_because": PARAMETERS_DIFFER}, None),
        (OrderStatus.PENDING, {"held_because": DUPLICATE}, None),
        (OrderStatus.CANCELING, {"held_because": PARAMETERS_DIFFER, "cancel_requested_at": 1}, {"is_released": True}),
    ],
    ids=str,
)
def test_what_becomes_of_a_row_that_stripe_has_nothing_of(
    operated: OperatedStack, status: OrderStatus | None, row: dict[str, Any], changes: dict[str, Any] | None
) -> None:
    """By its order's status."""
    order_id = held(operated, **row).order_id
    if status:
        operated.set_order(order_id, status=status)
    else:
        operated.delete("OrdersTable", order_id=order_id)
    before = operated.row(order_id)
    assert ("cancel it" in released(operated, order_id)[0]) == (status is OrderStatus.CANCELING)
    after = operated.row(order_id)
    if changes is None:
        assert after == before
    else:
        found = {"state": after["state"], "is_released": "released_at" in after}
        assert found == {"state": "PENDING", **changes}


@pytest.mark.parametrize("is_found", [False, True])
def test_with_nothing_a_person_says_what_the_order_paid_before(operated: OperatedStack, *, is_found: bool) -> None:
    """A key was misused, or all that Stripe lists is a duplicate: what was charged may be older than the look."""
    order_id = held(operated, held_because=PARAMETERS_DIFFER).order_id
    if is_found:
        operated.stack.stripe.v1.payment_intents.cancel(operated.intent(order_id), {"cancellation_reason": "duplicate"})
    before = operated.row(order_id)
    assert "--nothing" in released(operated, order_id)[0]
    assert operated.row(order_id) == before
    released(operated, order_id, "--nothing")
    row = operated.payment(order_id)
    ends = (PaymentState.CANCELED, False, PARAMETERS_DIFFER) if is_found else (PaymentState.PENDING, True, None)
    assert (row.state, row.released_at is not None, row.held_because) == ends


def test_what_was_charged_is_stored_at_any_age(operated: OperatedStack) -> None:
    """With what was refunded of it, and its dispute; what else is open is canceled. Its order may be lost."""
    with operated.hours_ago(24 * 40):
        order = operated.pay()
    order_id, own = order.order_id, str(operated.payment(order.order_id).payment_intent_id)
    operated.refund(order_id, 400)
    dispute, other = operated.standin.open_dispute(own), operated.intent(order_id)
    operated.delete("PaymentsTable", order_id=order_id)
    operated.claim(order_id, at=int(datetime.fromisoformat(order.placed_at).timestamp()), **FREE)
    operated.delete("OrdersTable", order_id=order_id)
    released(operated, order_id)
    row = operated.payment(order_id)
    assert (row.state, row.payment_intent_id, row.amount_refunded_minor) == (PaymentState.SUCCEEDED, own, 400)
    assert (row.dispute, status_of(operated, other)) == ((dispute, "needs_response"), CANCELED)


MAKE: dict[str, dict[str, Any]] = {"open": {}, "canceled": {}, "paid": {"confirm": "pm_card_visa"}}


@pytest.mark.parametrize(
    ("made", "status", "words", "state", "stored"),
    [
        # One of several that are open is left: the worker confirms it, unless the order waits for another card.
        (("open", "open"), OrderStatus.PENDING, (), PaymentState.PENDING, 0),
        (("open", "open"), OrderStatus.PAYMENT_DECLINED, (), PaymentState.DECLINED, 0),
        # A person cancels it at Stripe.
        (("open",), OrderStatus.CANCELED, (), PaymentState.PENDING, None),
        # A cancellation that is found ends the order, and what is open beside it.
        (("canceled", "open"), OrderStatus.PENDING, (), PaymentState.CANCELED, 0),
        (("open", "paid"), OrderStatus.PENDING, (), PaymentState.SUCCEEDED, 1),
        (("canceled", "paid"), OrderStatus.PENDING, (), PaymentState.SUCCEEDED, 1),
        (("paid", "paid"), OrderStatus.PENDING, (), PaymentState.PENDING, None),
        (("paid", "paid"), OrderStatus.PENDING, ("--of",), PaymentState.SUCCEEDED, 1),
    ],
    ids=str,
)
def test_what_becomes_of_what_is_found(
    operated: OperatedStack,
    made: tuple[str, ...],
    status: OrderStatus,
    words: tuple[str, ...],
    state: PaymentState,
    stored: int | None,
) -> None:
    """Nothing before --yes; then what is open is canceled, but the one that is stored."""
    order_id = held(operated).order_id
    operated.set_order(order_id, status=status)
    ids = [operated.intent(order_id, **MAKE[each]) for each in made]
    if made[0] == "canceled":
        operated.stack.stripe.v1.payment_intents.cancel(ids[0])
    named = [*words, ids[1]] if words else []
    before = operated.row(order_id)
    released(operated, order_id, *named, yes=False)
    assert operated.row(order_id) == before
    released(operated, order_id, *named)
    row = operated.payment(order_id)
    assert (row.state, row.payment_intent_id) == (state, None if stored is None else ids[stored])
    for each in ids if stored is not None else ():
        assert each == row.payment_intent_id or status_of(operated, each) in (CANCELED, PAID)


@pytest.mark.parametrize(("meanwhile", "given"), [("confirm", {"payment_method": "pm_card_visa"}), ("cancel", {})])
def test_what_happens_to_one_before_it_is_canceled_stops_the_release(
    operated: OperatedStack, monkeypatch: pytest.MonkeyPatch, meanwhile: str, given: dict[str, str]
) -> None:
    """The customer's page confirms it, or a worker of an older row cancels it for the order: the next run sees it."""
    order_id = held(operated).order_id
    _, late = (operated.intent(order_id) for _ in range(2))
    cancel = type(operated.stack.payment_intents).cancel

    def too_late(self: Any, intent_id: str, reason: str) -> Any:
        getattr(self.client.v1.payment_intents, meanwhile)(intent_id, given)
        return cancel(self, intent_id, reason)

    monkeypatch.setattr(type(operated.stack.payment_intents), "cancel", too_late)
    assert "run it again" in released(operated, order_id)[0]
    assert operated.payment(order_id).payment_intent_id is None
    monkeypatch.undo()
    released(operated, order_id)
    assert operated.payment(order_id).payment_intent_id == late


@pytest.mark.parametrize(
    "edited",
    [{"metadata": {"order_id": OTHER_ID}}, {"metadata": {}}, {"amount": 100}, {"description": f"Order {OTHER_ID}"}],
    ids=str,
)
def test_what_a_person_has_edited_at_stripe_blocks(operated: OperatedStack, edited: dict[str, Any]) -> None:
    """One of metadata, description and amount names the order no more, or another one, too: nothing is written."""
    order_id = held(operated).order_id
    operated.intent(order_id, **edited)
    assert "do not agree" in released(operated, order_id)[0]
    assert operated.payment(order_id).payment_intent_id is None


@pytest.mark.parametrize(("placed", "early"), [(80, 81.9), (30, 74.9)])
def test_a_look_begins_before_the_order_was_placed_first(operated: OperatedStack, placed: float, early: float) -> None:
    """Clocks may be an hour wrong each. Two days before its row was made: it was perhaps lost and placed again, and may
    have paid the first time."""
    with operated.hours_ago(placed):
        order = operated.place()
    with operated.hours_ago(early):
        found = operated.intent(order.order_id)
    operated.claim(order.order_id, at=int(time.time()) - 25 * HOUR, **FREE)
    released(operated, order.order_id)
    assert operated.payment(order.order_id).payment_intent_id == found


def test_another_accounts_key_releases_nothing(operated: OperatedStack) -> None:
    """It does not have the youngest order's PaymentIntent, so that it shows none of these orders either. Where no row
    names one, and Stripe's list has nothing of the shop, a person looks, and says so of one order."""
    with operated.hours_ago(25):
        order_id = operated.place().order_id
        operated.claim(order_id, **FREE)
    for words in ([order_id], ["--all"]):
        with pytest.raises(Problem, match=r"nothing shows.*-m ops release ORDER --nothing --yes"):
            released(operated, *words)
    forgets = held(operated, payment_intent_id=operated.intent(ORDER_ID)).order_id
    operated.pay()
    operated.standin.assign_api_key(API_KEY, "acct_other")
    for words in ([order_id], ["--all"], [forgets, "--forget"]):
        with pytest.raises(Problem, match="another account's"):
            released(operated, *words)
    assert operated.payment(order_id).released_at is None
    assert operated.payment(forgets).payment_intent_id is not None


def test_a_worker_that_has_the_row_is_waited_for(operated: OperatedStack) -> None:
    """And a row that changes during the look is not written."""
    order_id = held(operated, lease_owner="w", lease_expires_at=int(time.time()) + HOUR).order_id
    assert "a worker has it" in released(operated, order_id)[0]
    operated.set_payment(order_id, **FREE)
    memory = operated.dynamodb

    class Claims:
        """Claims the row once the look has begun."""

        def __getattr__(self, name: str) -> Any:
            if name == "get_paginator":
                operated.set_payment(order_id, revision=operated.row(order_id)["revision"] + 1)
            return getattr(memory, name)

    operated.stack.__dict__["dynamodb"] = Claims()
    del operated.stack.payments
    assert "has changed" in released(operated, order_id)[0]
    assert operated.payment(order_id).released_at is None


def test_all_takes_what_is_held_and_names_what_is_old(operated: OperatedStack) -> None:
    """Neither what is young, nor what has a PaymentIntent, nor what has ended; an old one goes by its id."""
    young, old = held(operated).order_id, held(operated, ALL_SECONDS / HOUR + 1).order_id
    held(operated, CREATE_SECONDS / HOUR - 0.1)
    held(operated, payment_intent_id=operated.intent(ORDER_ID))
    held(operated, state="DECLINED", **FINAL)
    status, document, _ = operated.ops("release", "--all", "--yes")
    assert (status, {each["order_id"]: each["done"] for each in document["orders"]}) == (1, {young: True, old: False})
    released(operated, old)
    assert operated.payment(old).released_at is not None


def test_a_row_forgets_what_a_wrong_key_has_made(operated: OperatedStack) -> None:
    """One order, by its name; not what this account has. Then it is held, or created in time."""
    operated.pay()
    # Its message is delivered again and again: it was claimed last, and other orders are released all the same.
    order_id = held(operated, payment_intent_id="pi_elsewhere", released_at=1, claimed_at=int(time.time()) + 9).order_id
    assert "would let the worker create" in released(operated, held(operated).order_id, yes=False)[0]
    assert "would let it forget pi_elsewhere" in released(operated, order_id, "--forget", yes=False)[0]
    released(operated, order_id, "--forget")
    row = operated.payment(order_id)
    assert (row.payment_intent_id, row.released_at) == (None, None)
    known = held(operated, payment_intent_id=operated.intent(order_id)).order_id
    busy = held(operated, payment_intent_id="pi_elsewhere", lease_expires_at=int(time.time()) + HOUR).order_id
    paid = held(operated, payment_intent_id="pi_elsewhere", state="SUCCEEDED", **FINAL).order_id
    for refused in (known, busy, paid):
        before = operated.row(refused)
        released(operated, refused, "--forget")
        assert operated.row(refused) == before
    with pytest.raises(Problem, match="for one order"):
        released(operated, "--all", "--forget")
