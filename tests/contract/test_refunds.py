"""Refunds' conditional writes do what the protocol asks of them, on every DynamoDB that we can run."""

from collections import defaultdict
from typing import Any
from uuid import uuid4

import pytest

from onecharge.dynamodb import from_item, to_item
from onecharge.payments.leases import HeldByAnother, LeaseLost
from onecharge.states import RefundState
from refund_charge.ledger import AlreadySettled, Claimed, RefundLedger
from refund_charge.protocol import FrozenRefund, RefundRow
from tests.conftest import create_table
from tests.simulation.dynamodb import MemoryDynamoDB

T0 = 1_800_000_000
LEASE_SECONDS = 35

# ---------------------------------------------------------------- the payment service's row

REQUEST = FrozenRefund("ord_" + "a" * 32, "rfd_" + "b" * 32, 1, 1000, "EUR", '{"amount":1000,"payment_intent":"pi_1"}')


@pytest.fixture
def ledger(dynamodb: Any) -> RefundLedger:
    if isinstance(dynamodb, MemoryDynamoDB):
        dynamodb.keys = defaultdict(lambda: ("order_id", "refund_id"))
        return RefundLedger(dynamodb, "refund-ledger")  # type: ignore[arg-type]  # A fake of it.
    return RefundLedger(dynamodb, create_table(dynamodb, f"refund-ledger-{uuid4()}", "RefundLedgerTable"))


def claim(ledger: RefundLedger, *, at: int = T0) -> Any:
    return ledger.claim(REQUEST, correlation_id="c", requested_at=T0, now=at, lease_seconds=LEASE_SECONDS)


def claimed(ledger: RefundLedger, *, at: int = T0) -> RefundRow:
    outcome = claim(ledger, at=at)
    assert isinstance(outcome, Claimed)
    return outcome.row


def test_a_refund_has_one_holder_at_a_time(ledger: RefundLedger) -> None:
    """The refusal says until when; an expired lease is taken over with a higher token."""
    row = claimed(ledger)
    assert (row.request, row.state, row.fencing_token) == (REQUEST, RefundState.CLAIMED, 1)
    assert (row.key_generation, row.key_opened_at, row.looking_since) == (0, T0, None)
    assert claim(ledger, at=T0 + LEASE_SECONDS - 1) == HeldByAnother(T0 + LEASE_SECONDS)
    assert claimed(ledger, at=T0 + LEASE_SECONDS).fencing_token == 2


def test_a_settled_refund_never_changes(ledger: RefundLedger) -> None:
    """It is not claimed again, and nobody writes to it."""
    row = claimed(ledger)
    ledger.settle(row, RefundState.SUCCEEDED, stripe_refund_id="re_1", code=None, now=T0 + 1)
    again = claim(ledger, at=T0 + 10**7)
    assert isinstance(again, AlreadySettled)
    assert again.row.state is RefundState.SUCCEEDED
    with pytest.raises(LeaseLost):
        ledger.settle(row, RefundState.FAILED, stripe_refund_id=None, code="c", now=T0 + 2)
    key = to_item({"order_id": REQUEST.order_id, "refund_id": REQUEST.refund_id})
    item = from_item(ledger.client.get_item(TableName=ledger.table, Key=key, ConsistentRead=True)["Item"])
    assert (item["stripe_refund_id"], item["settled_at"], item.get("failure_code")) == ("re_1", T0 + 1, None)


def test_a_worker_that_lost_its_lease_cannot_write(ledger: RefundLedger) -> None:
    """Its fencing token is too old."""
    slow = claimed(ledger)
    claimed(ledger, at=T0 + LEASE_SECONDS)
    for write in (
        lambda: ledger.settle(slow, RefundState.FAILED, stripe_refund_id=None, code=None, now=T0),
        lambda: ledger.hand_back(slow, look_first=True, now=T0),
        lambda: ledger.open_new_key(slow, now=T0),
    ):
        with pytest.raises(LeaseLost):
            write()


def test_a_refund_remembers_since_when_it_is_looked_for(ledger: RefundLedger) -> None:
    """Until the next key is opened, which is written before it is used."""
    for at in (T0, T0 + 10):
        ledger.hand_back(claimed(ledger, at=at), look_first=True, now=at)
    row = claimed(ledger, at=T0 + 20)
    assert row.looking_since == T0
    fresh = ledger.open_new_key(row, now=T0 + 21)
    assert (fresh.key_generation, fresh.key_opened_at, fresh.looking_since) == (1, T0 + 21, None)
    assert fresh.idempotency_key == f"refund:{REQUEST.order_id}:{REQUEST.refund_id}:1"
