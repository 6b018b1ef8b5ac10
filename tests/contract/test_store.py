"""The writes of the payment's rows: each on every row that it may meet, made or refused, and what it returns.

test_replay.py sends the same requests to moto's DynamoDB.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments import payments_table
from onecharge.payments.charge_rules import Outcome, final_changes
from onecharge.payments.deliveries import is_duplicate
from onecharge.payments.disputes import Dispute
from onecharge.payments.payments_table import TERMINAL, Payment, PaymentStore, WriteRefused
from onecharge.payments.sync_rules import recovered
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import SHARDS, from_item, shard_of, to_item
from tests.shop.builders import ORDER_ID, PAYMENTS, REQUEST, T0, intent, order
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.harness import create_table

PENDING, SUCCEEDED, DECLINED, REQUIRES_ACTION, CANCELED = PaymentState
LEASE, LATER, ATTEMPT = 35, T0 + 35, 2
FROZEN: dict[str, Any] = vars(REQUEST)
OTHERS: dict[str, Any] = {
    "amount_minor": 1,
    "currency": "USD",
    "customer_id": "cus_2",
    "placed_at": datetime.fromtimestamp(T0 + 1, UTC),
}


class Rows:
    """The table with one row, and its writes."""

    def __init__(self) -> None:
        client: Any = MemoryDynamoDB()
        create_table(client, PAYMENTS, "PaymentsTable")
        self.client = client
        self.store: Any = PaymentStore(client, PAYMENTS)

    def put(self, state: PaymentState, **more: Any) -> Payment:
        """The row of the second attempt, claimed at T0 by `one`."""
        item = {
            **FROZEN,
            **{"attempt": ATTEMPT, "state": state, "revision": 5, "claimed_at": T0, "correlation_id": "c"},
            **{"lease_owner": "one", "lease_expires_at": LATER, "payment_method_1": "pm_1", "payment_method_2": "pm_2"},
            **more,
        }
        self.client.put_item(TableName=PAYMENTS, Item=to_item(item))
        return self.read()

    def read(self) -> Payment:
        row: Payment = self.store.read(ORDER_ID)
        return row

    @property
    def item(self) -> dict[str, Any]:
        [item] = self.client.tables[PAYMENTS].values()
        return from_item(item)

    def claim(self, attempt: int = 1, *, at: int = LATER, to_cancel: bool = False, **changes: Any) -> Payment | None:
        """The row, or None if the claim is refused, with the row as it is."""
        asked, about = order(attempt=attempt, payment_method="pm_x", **changes), {"correlation_id": "x", "now": at}
        before, refused = self.store.read(asked.order_id), None
        try:
            row: Payment = self.store.claim(asked, **about, lease_seconds=LEASE, to_cancel=to_cancel)
        except WriteRefused as error:
            refused = error
        after = self.store.read(asked.order_id)
        assert after == (refused.row if refused else row)
        assert not refused or after == before
        return None if refused else row

    def refuses(self, write: Callable[[], object]) -> bool:
        """Whether the write is refused, and has changed nothing."""
        before = list(self.client.tables.get(PAYMENTS, {}).values())
        try:
            write()
        except WriteRefused:
            assert list(self.client.tables.get(PAYMENTS, {}).values()) == before
            return True
        return False


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    monkeypatch.setattr(payments_table, "token_hex", lambda _: "owner")
    return Rows()


# ---------------------------------------------------------------- claim


@pytest.mark.parametrize("state", PaymentState)
def test_every_claim_of_every_row(rows: Rows, state: PaymentState) -> None:
    """What is claimed keeps what it froze, its PaymentIntent and payment methods; the result of the attempt before is
    gone. A refused message is a duplicate, if its attempt or the payment has ended; else it waits."""
    for attempt, at in product((1, 2, 3), (LATER - 1, LATER)):
        before = rows.put(state, payment_intent_id="pi_0", reason="lost_card", finalized_at=T0, expires_at=T0)
        claimed = rows.claim(attempt, at=at, **OTHERS)
        is_next = state is DECLINED and attempt > ATTEMPT
        is_free = state is PENDING and attempt >= ATTEMPT and at == LATER
        assert (claimed is not None) == (is_next or is_free), (attempt, at)
        assert is_duplicate(before, attempt) == (state in TERMINAL or (state is not PENDING and attempt <= ATTEMPT))
        assert is_duplicate(before, None) == (state in TERMINAL)
        if not claimed:
            continue
        row = rows.read()
        assert claimed == row
        assert (row.request, row.payment_intent_id, row.correlation_id) == (REQUEST, "pi_0", "c")
        assert (row.attempt, row.payment_method) == (attempt, "pm_2" if attempt == ATTEMPT else "pm_x")
        assert (row.state, row.lease_owner, row.lease_expires_at, row.revision) == (PENDING, "owner", at + LEASE, 6)
        assert not {"reason", "finalized_at", "expires_at"} & rows.item.keys()
        assert rows.claim(attempt, at=at) == claimed  # boto3 has sent it again.


# ---------------------------------------------------------------- writes of the lease owner

SHOWN = intent(amount_refunded_minor=400, dispute=Dispute("dp_1", "won"))
CHANGES: dict[str, dict[str, Any]] = {
    "its own": {},
    "another's lease": {"lease_owner": "two"},
    "nobody's": {"lease_owner": None},
    "another attempt": {"attempt": 3},
    "final": {"state": SUCCEEDED},
    "has an id": {"payment_intent_id": "pi_9"},
    "canceling": {"cancel_requested_at": T0},
}


@pytest.mark.parametrize("change", [*CHANGES, "lost"])
def test_only_its_lease_owner_writes_a_row(rows: Rows, change: str) -> None:
    """Another owner or attempt, or an end, refuses each write. An id is stored once; a cancellation refuses the states
    that are not final, since their PaymentIntent could still be confirmed."""
    is_ours = change in ("its own", "has an id", "canceling")
    writes: dict[str, Callable[[Payment], object]] = {
        "id": lambda row: rows.store.store_id(row, "pi_x"),
        "release": lambda row: rows.store.give_back(row, stripe_request_id="req_1"),
    }
    for state in {*PaymentState} - {PENDING}:
        writes[state] = lambda row, state=state: rows.store.finalize(
            row, final_changes(Outcome(state, SHOWN, "why"), T0 + 9), now=T0 + 9
        )  # type: ignore[misc]
    for name, write in writes.items():
        read = rows.put(PENDING)
        if change == "lost":
            rows.client.tables[PAYMENTS].clear()
        else:
            rows.put(**{"state": PENDING, **CHANGES[change]})
        allowed = is_ours and (change != "has an id" or name != "id")
        allowed &= change != "canceling" or name in ("id", "release", *TERMINAL)
        assert rows.refuses(lambda: write(read)) is not allowed, name  # noqa: B023
        if not allowed:
            continue
        row, item = rows.read(), rows.item
        if name == "id":
            assert (row.payment_intent_id, row.lease_owner, row.revision) == ("pi_x", "one", 6)
            continue
        assert (row.lease_owner, row.lease_expires_at) == (None, 0)
        if name == "release":
            assert item["stripe_request_id"] == "req_1"
            continue
        assert (row.state, row.reason, row.payment_intent_id) == (name, "why", "pi_1")
        assert (row.finalized_at, row.revision) == (T0 + 9, T0 + 9)
        facts = (400, Dispute("dp_1", "won")) if name == SUCCEEDED else (0, None)
        assert (row.amount_refunded_minor, row.dispute) == facts
        assert item.get("expires_at") == (None if name == REQUIRES_ACTION else T0 + 9 + RETENTION_SECONDS)


# ---------------------------------------------------------------- cancel


@pytest.mark.parametrize("state", PaymentState)
def test_every_cancellation_of_every_row(rows: Rows, state: PaymentState) -> None:
    """What is not final is claimed to cancel, whatever its attempt, once its lease is free. A worker that has the row
    finds the request there. Its first time stays, and nothing else changes."""
    for attempt, at, before in product((1, 2, 3), (LATER - 1, LATER), (None, T0)):
        rows.put(state, cancel_requested_at=before, expires_at=T0)
        claimed = rows.claim(attempt, at=at, to_cancel=True, **OTHERS)
        assert (claimed is not None) == (state not in TERMINAL and at == LATER)
        if claimed:
            assert (claimed.state, claimed.attempt, claimed.request) == (PENDING, ATTEMPT, REQUEST)
            assert (claimed.cancel_requested_at, claimed.lease_owner) == (before or LATER, "owner")
            assert "expires_at" not in rows.item
        row = rows.put(state, cancel_requested_at=before)
        assert rows.refuses(lambda: rows.store.request_cancel(ORDER_ID, now=LATER)) == bool(before or state != PENDING)
        if state is PENDING:
            asked = replace(row, cancel_requested_at=before or LATER, revision=row.revision + (before is None))
            assert rows.read() == asked


# ---------------------------------------------------------------- webhooks, reconcile and operators


@pytest.mark.parametrize("revision", [4, 5, 6])
def test_a_row_is_written_on_the_revision_that_was_read(rows: Rows, revision: int) -> None:
    """It needs no lease, and a worker that has one loses it. None removes an attribute; a lost row stays lost."""
    read = rows.put(PENDING, dispute_id="dp_1", dispute_status="won")
    rows.put(PENDING, dispute_id="dp_1", dispute_status="won", revision=revision)
    changes = {**final_changes(Outcome(SUCCEEDED, intent()), T0 + 9), "dispute_id": None}
    write = lambda: rows.store.write_if_unchanged(read, changes, now=T0)  # noqa: E731
    assert rows.refuses(write) is (revision != 5)
    if revision == 5:
        assert (rows.read().state, rows.read().lease_owner, rows.read().revision) == (SUCCEEDED, None, T0)
        assert "dispute_id" not in rows.item
    rows.client.tables[PAYMENTS].clear()
    assert rows.refuses(write)


def test_a_lost_row_is_recovered_once(rows: Rows) -> None:
    """Its revision is the present time's. A row that exists is never overwritten."""
    shown = intent(charged_at=T0 + 5, amount_refunded_minor=400)
    assert rows.store.insert(ORDER_ID, recovered(shown, T0 + 9), now=T0 + 9)
    row = rows.read()
    assert (row.state, row.payment_intent_id, row.payment_method) == (SUCCEEDED, "pi_1", "")
    assert (row.request.amount_minor, row.request.customer_id) == (REQUEST.amount_minor, REQUEST.customer_id)
    assert (row.amount_refunded_minor, row.finalized_at, row.revision) == (400, T0 + 5, T0 + 10)
    assert rows.item["expires_at"] == T0 + 5 + RETENTION_SECONDS
    rows.put(PENDING)
    assert rows.refuses(lambda: rows.store.insert(ORDER_ID, recovered(shown, T0 + 9), now=T0 + 9))


def test_the_index_is_paged_oldest_first(rows: Rows) -> None:
    """Each unfinished row is read once, and a row that has ended not at all."""
    for number in range(30):
        rows.claim(1, order_id=f"ord_{number:032x}", at=T0 - number)
    rows.store.finalize(rows.claim(), final_changes(Outcome(CANCELED), T0), now=T0)
    for before, expected in ((T0, range(30)), (T0 - 20, range(20, 30))):
        found: list[int] = []
        for shard in map(str, range(SHARDS)):
            of_shard, after = list[str](), None
            while not of_shard or after:
                page, after = rows.store.unfinished(shard, claimed_before=before, after=after, limit=2)
                of_shard += page
                if not page:
                    break
            assert of_shard == sorted(of_shard, reverse=True)
            assert {shard_of(each) for each in of_shard} <= {shard}
            found += [int(each[4:], 16) for each in of_shard]
        assert sorted(found) == list(expected)
