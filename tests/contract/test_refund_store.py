"""The refund store's conditional writes follow the protocol, on DynamoDB Local and in the simulation."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from onecharge.contract.refunds import RefundState
from onecharge.payments.refund_changes import AlreadyEnded, Claimed, HeldByAnother
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.refund_rules import FinalizeRefund, FrozenRefund, Refund
from onecharge.payments.rows import WriteRefused
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import from_item, to_item
from tests.contract.conftest import Endpoint
from tests.support.harness import create_table

T0 = 1_800_000_000
LEASE_SECONDS = 35
REQUEST = FrozenRefund("ord_" + "a" * 32, "rfd_" + "b" * 32, 1, 1000, "EUR", "pi_1", T0)
SUCCEEDED = FinalizeRefund(RefundState.SUCCEEDED, "re_1")
FAILED = FinalizeRefund(RefundState.FAILED, "re_1", "lost_or_stolen_card", alarm=Cause.REFUND_FAILED)


@pytest.fixture
def store(dynamodb: Any) -> RefundStore:
    return RefundStore(dynamodb, create_table(dynamodb, f"refunds-{uuid4()}", "RefundsTable"))


def claim(store: RefundStore, *, owner: str = "w1", at: int = T0, request: FrozenRefund = REQUEST) -> Any:
    return store.claim(request, correlation_id="c", owner=owner, now=at, lease_seconds=LEASE_SECONDS)


def claimed(store: RefundStore, *, owner: str = "w1", at: int = T0) -> Refund:
    outcome = claim(store, owner=owner, at=at)
    assert isinstance(outcome, Claimed)
    row: Refund = outcome.row
    return row


def item(store: RefundStore) -> dict[str, Any]:
    key = to_item({"order_id": REQUEST.order_id, "refund_id": REQUEST.refund_id})
    return from_item(store.client.get_item(TableName=store.table, Key=key, ConsistentRead=True)["Item"])


def test_a_refund_has_one_lease_owner_at_a_time(store: RefundStore) -> None:
    """A refused claim returns the end of the lease. An expired lease is taken over; the earlier claim stays open."""
    refund = claimed(store)
    assert (refund.request, refund.state, refund.lease_owner) == (REQUEST, RefundState.PENDING, "w1")
    assert (refund.open_claims, refund.revision, refund.correlation_id) == (1, 1, "c")
    assert "expires_at" not in item(store)
    assert claim(store, owner="w2", at=T0 + LEASE_SECONDS - 1) == HeldByAnother(T0 + LEASE_SECONDS)
    taken = claimed(store, owner="w2", at=T0 + LEASE_SECONDS)
    assert (taken.lease_owner, taken.open_claims, taken.revision) == ("w2", 2, 2)


def test_a_claim_whose_answer_was_lost_is_repeated(store: RefundStore) -> None:
    """boto3 sends it again: the claim that refuses it is its own."""
    assert claimed(store) == claimed(store)


def test_the_first_claim_freezes_the_request(store: RefundStore) -> None:
    """A later message cannot change it."""
    store.release_lease(claimed(store))
    other = replace(REQUEST, amount_minor=1, currency="USD", payment_intent_id="pi_2", attempt=2, requested_at=T0 + 9)
    assert claim(store, request=other).row.request == REQUEST


def test_a_release_stores_stripes_response(store: RefundStore) -> None:
    """The refund can be claimed immediately. A released claim is not open."""
    store.release_lease(
        claimed(store), unanswered_at=T0, sending_stopped_at=T0 + 1, refused_at=T0 + 2, stripe_message="m"
    )
    refund = claimed(store, owner="w2")
    assert (refund.unanswered_at, refund.sending_stopped_at, refund.refused_at) == (T0, T0 + 1, T0 + 2)
    assert (refund.open_claims, refund.revision) == (1, 3)
    assert item(store)["stripe_message"] == "m"


def test_a_final_refund_is_never_claimed(store: RefundStore) -> None:
    """Its owner can write nothing anymore. It expires after the retention time."""
    refund = claimed(store)
    final = store.finalize(refund, SUCCEEDED, now=T0 + 1)
    assert (final.state, final.stripe_refund_id, final.finalized_at) == (RefundState.SUCCEEDED, "re_1", T0 + 1)
    assert (final.lease_owner, item(store)["expires_at"]) == (None, T0 + 1 + RETENTION_SECONDS)
    assert claim(store, at=T0 + 10**7) == AlreadyEnded(final)
    with pytest.raises(WriteRefused):
        store.finalize(refund, FAILED, now=T0 + 2)
    with pytest.raises(WriteRefused):
        store.release_lease(refund)


def test_a_worker_without_its_lease_cannot_write(store: RefundStore) -> None:
    """Another worker has claimed the row; or the row was lost and claimed again."""
    slow = claimed(store)
    claimed(store, owner="w2", at=T0 + LEASE_SECONDS)
    for lost in (False, True):
        if lost:
            key = to_item({"order_id": REQUEST.order_id, "refund_id": REQUEST.refund_id})
            store.client.delete_item(TableName=store.table, Key=key)
            claimed(store, owner="w3")
        with pytest.raises(WriteRefused):
            store.finalize(slow, FAILED, now=T0)
        with pytest.raises(WriteRefused):
            store.release_lease(slow, refused_at=T0)
        with pytest.raises(WriteRefused):
            store.write_key_number(slow, 1)
    assert item(store)["state"] == "PENDING"


def test_reconciliation_writes_on_the_revision_that_was_read(store: RefundStore) -> None:
    """It needs no lease. A write is refused if the row has changed since the read."""
    refund = claimed(store)
    assert store.read(REQUEST.order_id, REQUEST.refund_id) == refund
    final = store.finalize(refund, SUCCEEDED, now=T0 + 1)
    assert not store.finalize_if_unchanged(refund, FAILED, now=T0 + 2)
    assert store.finalize_if_unchanged(final, FAILED, now=T0 + 2)
    failed = store.read(REQUEST.order_id, REQUEST.refund_id)
    assert failed
    assert (failed.state, failed.failure_code, failed.revision) == (RefundState.FAILED, "lost_or_stolen_card", T0 + 2)
    assert item(store)["expires_at"] == T0 + 2 + RETENTION_SECONDS


def test_an_event_finalizes_a_refund_that_a_worker_holds(store: RefundStore) -> None:
    """The worker's later write is refused."""
    refund = claimed(store)
    assert store.finalize_if_unchanged(refund, FAILED, now=T0 + 1)
    with pytest.raises(WriteRefused):
        store.finalize(refund, SUCCEEDED, now=T0 + 2)
    assert isinstance(claim(store, at=T0 + 99), AlreadyEnded)


def test_reemit_increases_only_the_revision(store: RefundStore) -> None:
    """It also writes last_emitted_at. It is refused if the row has changed since the read."""
    final = store.finalize(claimed(store), SUCCEEDED, now=T0 + 1)
    assert store.reemit_outcome(final, now=T0 + 900)
    assert not store.reemit_outcome(final, now=T0 + 901)
    emitted = store.read(REQUEST.order_id, REQUEST.refund_id)
    assert emitted == replace(final, last_emitted_at=T0 + 900, revision=T0 + 900)


def test_a_lost_row_is_recovered_once(store: RefundStore) -> None:
    """It has all attributes that its event needs."""
    assert store.recover(REQUEST, FAILED, correlation_id="evt_1", now=T0)
    assert not store.recover(REQUEST, SUCCEEDED, correlation_id="evt_2", now=T0)
    outcome = claim(store)
    assert isinstance(outcome, AlreadyEnded)
    assert (outcome.row.request, outcome.row.state) == (REQUEST, RefundState.FAILED)
    published = {"failure_code", "stripe_refund_id", "finalized_at", "revision", "correlation_id", "amount_minor"}
    assert published <= item(store).keys()


def test_concurrent_workers_claim_each_refund_once(endpoint: Endpoint) -> None:
    """32 workers claim the same 40 refunds."""
    client = endpoint.client()
    store = RefundStore(client, create_table(client, f"refunds-{uuid4()}", "RefundsTable"))

    def race(number: int) -> int:
        outcomes = [
            claim(store, owner=f"w{number}", request=replace(REQUEST, refund_id=f"rfd_{refund:032x}"))
            for refund in range(40)
        ]
        return sum(isinstance(outcome, Claimed) for outcome in outcomes)

    with ThreadPoolExecutor(32) as threads:
        assert sum(threads.map(race, range(32))) == 40
