"""Every row that claims, workers, cancellations and Stripe's later events can make, from each of them to the next.

The store's writes are held to DynamoDB's behaviour by tests/contract/test_store.py.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments import payments_table
from onecharge.payments.charge_rules import Outcome, final_changes
from onecharge.payments.payments_table import TERMINAL, Payment, PaymentStore, WriteRefused
from onecharge.payments.sync_rules import find_difference, recovered
from onecharge.runtime.dynamodb import from_item, to_item
from tests.shop.builders import INDEXES, ORDER_ID, PAYMENTS, REQUEST, SHOP, T0, TABLES, intent, order
from tests.shop.dynamodb import MemoryDynamoDB

LATER = T0 + 100
"""When each lease has expired."""
LEASE: dict[str, Any] = {"correlation_id": "c", "lease_seconds": 35}
STATUSES = ("requires_payment_method", "requires_action", "succeeded", "canceled")
KEPT = (*vars(REQUEST), "payment_intent_id", "cancel_requested_at", "payment_method_1", "payment_method_2")
"""Attributes that never change once they are written."""

type Item = dict[str, Any]


def writes(store: PaymentStore, row: Payment | None) -> Iterator[Callable[[], object]]:
    """Every write that may follow when the row is this one."""
    for now in (T0, LATER):
        for attempt in (1, 2):
            yield partial(store.claim, order(attempt=attempt), now=now, **LEASE)
        yield partial(store.claim, order(), to_cancel=True, now=now, **LEASE)
    yield partial(store.request_cancel, ORDER_ID, now=T0)
    if row is None:
        yield partial(store.insert, ORDER_ID, recovered(intent(), T0), now=T0)
        return
    yield partial(store.give_back, row)
    yield partial(store.store_id, row, "pi_1")
    yield partial(store.store_id, row, "pi_2")
    yield partial(store.write_if_unchanged, row, {"last_emitted_at": LATER}, now=LATER)
    own = intent(payment_intent_id=row.payment_intent_id) if row.payment_intent_id else None
    for state in {*PaymentState} - {PaymentState.PENDING}:
        yield partial(store.finalize, row, final_changes(Outcome(state, own), T0), now=T0)
    for status in STATUSES:
        shown = intent(status)
        difference = find_difference(row, shown, shop=SHOP, now=LATER, requires_action_seconds=0)
        if difference and difference.changes:
            yield partial(store.write_if_unchanged, row, difference.changes, now=LATER)


def check(before: Item | None, after: Item) -> None:
    """What holds of each row, and of each write."""
    state, is_canceling = PaymentState(after["state"]), "cancel_requested_at" in after
    waits = state in (PaymentState.PENDING, PaymentState.REQUIRES_ACTION)
    assert not is_canceling or state in (PaymentState.PENDING, *TERMINAL)
    assert ("unfinished_shard" in after) == ("unfinished_claimed_at" in after) == waits
    assert ("expires_at" in after) is not waits
    assert ("lease_owner" in after) <= (state is PaymentState.PENDING)
    if before is None:
        return
    assert before["revision"] < after["revision"]
    assert before["attempt"] <= after["attempt"]
    assert {name: before[name] for name in KEPT if name in before}.items() <= after.items()
    assert state == before["state"] or before["state"] not in TERMINAL


def test_every_write_keeps_the_rows_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is indexed exactly while it waits, and expires otherwise. What is final, frozen or requested stays. What
    is to be canceled is PENDING, until it is final."""
    monkeypatch.setattr(payments_table, "token_hex", lambda _: "owner")
    dynamodb: Any = MemoryDynamoDB(keys=TABLES, indexes=INDEXES)
    store, key = PaymentStore(dynamodb, PAYMENTS), to_item({"order_id": ORDER_ID})

    def read() -> Item | None:
        item = dynamodb.get_item(TableName=PAYMENTS, Key=key, ConsistentRead=True).get("Item")
        return from_item(item) if item else None

    def put(item: Item | None) -> Payment | None:
        dynamodb.delete_item(TableName=PAYMENTS, Key=key)
        if item:
            dynamodb.put_item(TableName=PAYMENTS, Item=to_item(item))
        return store.read(ORDER_ID)

    seen: set[frozenset[tuple[str, Any]]] = set()
    states: set[tuple[str, bool]] = set()
    rest: list[Item | None] = [None]
    while rest:
        before = rest.pop()
        for write in writes(store, put(before)):
            put(before)
            with suppress(WriteRefused):
                write()
            after = read()
            if after is None or after == before:
                continue
            check(before, after)
            kind = frozenset((name, value) for name, value in after.items() if name != "revision")
            if kind not in seen:
                seen.add(kind)
                states.add((after["state"], "cancel_requested_at" in after))
                rest.append(after)
    assert {state for state, is_canceling in states if not is_canceling} == {*PaymentState}
    assert {state for state, is_canceling in states if is_canceling} == {PaymentState.PENDING, *TERMINAL}
