"""The payment store's conditional writes follow the protocol, on DynamoDB Local and in the simulation.

tests/unit/payments/test_row_states.py tries them in every order.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rows import PaymentStore, final_changes
from onecharge.payments.charge_rules import Finalize
from onecharge.payments.rows import (
    AlreadyEnded,
    Claimed,
    Dispute,
    FrozenRequest,
    HeldByAnother,
    Payment,
    Superseded,
    WriteRefused,
)
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import SHARDS, from_item, shard_of, to_item
from tests.contract.conftest import Endpoint
from tests.shop.builders import ORDER_ID, REQUEST, T0, intent
from tests.support.harness import create_table

LEASE_SECONDS = 35
LATER = T0 + LEASE_SECONDS
OTHER_REQUEST = replace(REQUEST, amount_minor=1, currency="USD", customer_id="cus_2", placed_at=T0 + 1)
PAID, DECLINED = Finalize(PaymentState.SUCCEEDED, intent()), Finalize(PaymentState.DECLINED, intent(), "lost_card")
FINAL = (PaymentState.SUCCEEDED, PaymentState.CANCELED)
UNPAID = (PaymentState.DECLINED, PaymentState.REQUIRES_ACTION)


@pytest.fixture
def store(dynamodb: Any, payments: str) -> PaymentStore:
    return PaymentStore(dynamodb, payments)


def claim(
    store: PaymentStore,
    request: FrozenRequest = REQUEST,
    *,
    attempt: int = 1,
    payment_method: str = "pm_1",
    owner: str = "one",
    at: int = T0,
) -> Any:
    about = {"payment_method": payment_method, "correlation_id": "c", "owner": owner}
    return store.claim(request, attempt=attempt, now=at, lease_seconds=LEASE_SECONDS, **about)


def claimed(store: PaymentStore, **given: Any) -> Payment:
    result = claim(store, **given)
    assert isinstance(result, Claimed)
    row: Payment = result.row
    return row


def request_cancel(store: PaymentStore, request: FrozenRequest = REQUEST, *, attempt: int = 1, at: int = T0) -> Payment:
    row = store.request_cancel(request, attempt=attempt, payment_method="pm_x", correlation_id="x", now=at)
    assert row is not None
    return row


def claim_to_cancel(store: PaymentStore, *, at: int = T0) -> Any:
    return store.claim_to_cancel(ORDER_ID, owner="canceler", now=at, lease_seconds=LEASE_SECONDS)


def finalized(store: PaymentStore, state: PaymentState, **given: Any) -> Payment:
    return store.finalize(claimed(store, **given), Finalize(state, intent()), now=T0 + 1)


def read(store: PaymentStore) -> Payment:
    payment = store.read(ORDER_ID)
    assert payment is not None
    return payment


def item(store: PaymentStore) -> dict[str, Any]:
    key = to_item({"order_id": ORDER_ID})
    return from_item(store.client.get_item(TableName=store.table, Key=key, ConsistentRead=True)["Item"])


def lose(store: PaymentStore) -> None:
    store.client.delete_item(TableName=store.table, Key=to_item({"order_id": ORDER_ID}))


# ---------------------------------------------------------------- claim


def test_the_first_claim_creates_the_row(store: PaymentStore) -> None:
    """It has a lease, the frozen request and a revision of the present time."""
    payment = claimed(store)
    assert payment == Payment(
        request=REQUEST,
        attempt=1,
        payment_method="pm_1",
        state=PaymentState.PENDING,
        lease_owner="one",
        lease_expires_at=LATER,
        revision=T0 + 1,
        claimed_at=T0,
        correlation_id="c",
    )
    assert read(store) == payment


def test_a_live_lease_refuses_each_claim(store: PaymentStore) -> None:
    """The refusal returns the row, so no read is needed. The same owner's claim was sent again by boto3."""
    row = claimed(store)
    for attempt in (1, 2):
        assert claim(store, attempt=attempt, owner="two", at=LATER - 1) == HeldByAnother(LATER, row)
    assert claim(store) == Claimed(row)


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_expired_lease_is_taken_over(store: PaymentStore, attempt: int) -> None:
    """The frozen request and the first attempt's payment method stay, whatever the message contains."""
    claimed(store)
    payment = claimed(store, request=OTHER_REQUEST, attempt=attempt, payment_method="pm_2", owner="two", at=LATER)
    assert (payment.request, payment.payment_method) == (REQUEST, f"pm_{attempt}")
    assert (payment.lease_owner, payment.lease_expires_at, payment.revision) == ("two", LATER + LEASE_SECONDS, T0 + 2)


@pytest.mark.parametrize(
    ("state", "attempt"),
    [*((state, attempt) for state in FINAL for attempt in (1, 2)), *((state, 1) for state in UNPAID)],
)
def test_an_ended_attempt_is_never_claimed(store: PaymentStore, state: PaymentState, attempt: int) -> None:
    """A final row is not claimed for a later attempt, either. The refused claim returns the row."""
    final = finalized(store, state)
    assert claim(store, attempt=attempt, at=T0 + 10**7) == AlreadyEnded(final)
    assert read(store) == final


def test_a_later_attempt_takes_over_what_was_declined(store: PaymentStore) -> None:
    """The PaymentIntent stays; the payment method is its own, and frozen by its first claim."""
    finalized(store, PaymentState.DECLINED)
    payment = claimed(store, attempt=2, payment_method="pm_2", owner="two")
    assert (payment.attempt, payment.payment_method, payment.payment_intent_id) == (2, "pm_2", "pi_1")
    assert (payment.state, payment.reason, payment.finalized_at) == (PaymentState.PENDING, None, None)
    store.release(payment)
    assert claimed(store, attempt=2, payment_method="pm_3").payment_method == "pm_2"


def test_a_later_attempt_waits_for_3d_secure(store: PaymentStore) -> None:
    """The customer finishes it, or it expires; until then it is not the later attempt's."""
    final = finalized(store, PaymentState.REQUIRES_ACTION)
    assert claim(store, attempt=2, at=T0 + 10**7) == HeldByAnother(0, final)


def test_an_earlier_attempt_is_superseded(store: PaymentStore) -> None:
    """The later attempt may be claimed, released, declined, or require action."""
    finalized(store, PaymentState.DECLINED)
    held = claimed(store, attempt=2, owner="two", at=LATER)
    assert claim(store, at=LATER) == Superseded(held)
    released = store.release(held)
    assert claim(store, at=LATER) == Superseded(released)
    for attempt, state in enumerate(UNPAID, start=2):
        final = finalized(store, state, attempt=attempt, at=LATER)
        assert claim(store, attempt=attempt - 1, at=T0 + 10**7) == Superseded(final)


# ---------------------------------------------------------------- writes of the lease owner


def test_the_lease_owner_stores_the_id_once(store: PaymentStore) -> None:
    """It is never replaced. A cancellation that was requested meanwhile is returned with the row."""
    first = claimed(store)
    request_cancel(store, at=T0 + 5)
    stored = store.store_id(first, "pi_0")
    assert (stored.payment_intent_id, stored.cancel_requested_at, stored.revision) == ("pi_0", T0 + 5, T0 + 3)
    for row in (first, stored):
        with pytest.raises(WriteRefused):
            store.store_id(row, "pi_x")
    assert read(store) == stored


def test_a_released_row_can_be_claimed_immediately(store: PaymentStore) -> None:
    """The release stores what Stripe answered."""
    store.release(claimed(store), stripe_request_id="req_1")
    assert item(store)["stripe_request_id"] == "req_1"
    assert claimed(store, owner="two").lease_owner == "two"


@pytest.mark.parametrize("state", [*FINAL, *UNPAID])
def test_finalize_stores_the_outcome(store: PaymentStore, state: PaymentState) -> None:
    """The lease ends. A success brings its refunds and its dispute; the revision is the present time at least."""
    shown = intent(amount_refunded_minor=400, dispute=Dispute("dp_1", "won"))
    payment = store.finalize(claimed(store), Finalize(state, shown, "why"), now=T0 + 9)
    assert (payment.state, payment.payment_intent_id, payment.reason) == (state, "pi_1", "why")
    assert (payment.lease_owner, payment.lease_expires_at) == (None, 0)
    assert (payment.finalized_at, payment.revision) == (T0 + 9, T0 + 9)
    after = (400, Dispute("dp_1", "won")) if state is PaymentState.SUCCEEDED else (0, None)
    assert (payment.amount_refunded_minor, payment.dispute) == after
    expires_at = None if state is PaymentState.REQUIRES_ACTION else T0 + 9 + RETENTION_SECONDS
    assert item(store).get("expires_at") == expires_at


def assert_no_write(store: PaymentStore, payment: Payment) -> None:
    """Every write that requires the lease is refused, and changes nothing."""
    before = store.read(ORDER_ID)
    writes: list[Callable[[], object]] = [
        lambda: store.store_id(payment, "pi_x"),
        lambda: store.finalize(payment, PAID, now=T0),
        lambda: store.release(payment),
    ]
    for write in writes:
        with pytest.raises(WriteRefused):
            write()
    assert store.read(ORDER_ID) == before


def test_a_worker_without_its_lease_writes_nothing(store: PaymentStore) -> None:
    """It was taken over by a duplicate or a later attempt, was released, or is of another attempt; or the row is final,
    lost, or claimed again after a loss."""
    slow = claimed(store, owner="slow")
    assert_no_write(store, replace(slow, attempt=2))
    for attempt, at in ((1, LATER), (2, LATER + LEASE_SECONDS)):
        fast = claimed(store, owner="fast", attempt=attempt, at=at)
        assert_no_write(store, slow)
    store.release(fast)
    assert_no_write(store, fast)
    final = claimed(store, attempt=2, owner="two")
    store.finalize(final, DECLINED, now=T0)
    assert_no_write(store, final)
    lose(store)
    assert_no_write(store, slow)
    claimed(store, owner="again")
    assert_no_write(store, slow)


@pytest.mark.parametrize("state", [*FINAL, *UNPAID])
def test_a_canceling_order_is_finalized_only_for_good(store: PaymentStore, state: PaymentState) -> None:
    """DECLINED would leave a PaymentIntent that can still be confirmed."""
    payment = claimed(store)
    request_cancel(store)
    if state in FINAL:
        assert store.finalize(payment, Finalize(state, intent()), now=T0).state is state
        return
    with pytest.raises(WriteRefused):
        store.finalize(payment, Finalize(state, intent()), now=T0)
    assert read(store).lease_owner == "one"


# ---------------------------------------------------------------- cancel


def test_a_cancellation_before_any_claim_creates_the_row(store: PaymentStore) -> None:
    """It has the frozen request and no lease."""
    payment = request_cancel(store)
    assert (payment.request, payment.state, payment.cancel_requested_at) == (REQUEST, PaymentState.PENDING, T0)
    assert (payment.lease_owner, payment.lease_expires_at, payment.revision) == (None, 0, T0 + 1)
    assert claimed(store).cancel_requested_at == T0


def test_a_cancellation_needs_no_lease(store: PaymentStore) -> None:
    """The lease owner keeps its lease, nothing else of the row changes, and its time stays."""
    payment = claimed(store)
    requested = request_cancel(store, OTHER_REQUEST, attempt=1, at=T0 + 1)
    assert requested == replace(payment, cancel_requested_at=T0 + 1, revision=T0 + 2)
    assert request_cancel(store, at=T0 + 8).cancel_requested_at == T0 + 1
    assert claim_to_cancel(store, at=LATER - 1) == HeldByAnother(LATER, read(store))
    assert isinstance(claim_to_cancel(store, at=LATER), Claimed)


@pytest.mark.parametrize("state", FINAL)
def test_a_cancellation_of_a_final_row_changes_nothing(store: PaymentStore, state: PaymentState) -> None:
    """It returns the final row."""
    final = finalized(store, state)
    assert request_cancel(store) == final == read(store)
    assert claim_to_cancel(store, at=LATER) == AlreadyEnded(final)


@pytest.mark.parametrize("state", UNPAID)
def test_a_canceling_row_is_claimed_for_its_attempt(store: PaymentStore, state: PaymentState) -> None:
    """Whatever attempt the message names; one without the request is not claimed, nor is a missing one created."""
    assert (claim_to_cancel(store), store.read(ORDER_ID)) == (HeldByAnother(T0), None)
    finalized(store, PaymentState.DECLINED)
    final = finalized(store, state, attempt=2)
    assert claim_to_cancel(store, at=LATER) == HeldByAnother(0, final)
    assert request_cancel(store, at=T0 + 9).state is state
    payment = claim_to_cancel(store).row
    assert (payment.attempt, payment.state, payment.lease_owner) == (2, PaymentState.PENDING, "canceler")
    assert store.finalize(payment, Finalize(PaymentState.CANCELED, intent()), now=T0).state is PaymentState.CANCELED


# ---------------------------------------------------------------- webhooks, reconcile and operators


def test_a_row_is_written_on_the_revision_that_was_read(store: PaymentStore) -> None:
    """It needs no lease, and a worker that has one loses it. None removes an attribute."""
    held = claimed(store)
    assert store.write_if_unchanged(held, final_changes(PAID, T0 + 9), now=T0 + 9)
    payment = read(store)
    assert (payment.state, payment.lease_owner, payment.revision) == (PaymentState.SUCCEEDED, None, T0 + 9)
    assert_no_write(store, held)
    for sum_, revision in ((400, T0 + 10), (0, T0 + 11)):
        assert store.write_if_unchanged(read(store), {"amount_refunded_minor": sum_, "dispute_id": None}, now=T0)
        assert (read(store).amount_refunded_minor, read(store).revision) == (sum_, revision)


def test_a_changed_row_is_not_overwritten(store: PaymentStore) -> None:
    """A worker, a cancellation or another event may have changed it. A lost one stays lost."""
    for change in (
        lambda: claimed(store),
        lambda: store.store_id(read(store), "pi_1"),
        lambda: request_cancel(store),
        lambda: store.write_if_unchanged(read(store), {"last_emitted_at": T0}, now=T0),
    ):
        before = store.read(ORDER_ID) or claimed(store, owner="first", at=T0 - LEASE_SECONDS)
        change()
        after = read(store)
        assert not store.write_if_unchanged(before, final_changes(PAID, T0), now=T0)
        assert read(store) == after
    lose(store)
    assert not store.write_if_unchanged(after, {"last_emitted_at": T0}, now=T0)
    assert store.read(ORDER_ID) is None


def test_a_lost_row_is_recovered_once(store: PaymentStore) -> None:
    """The PaymentIntent's metadata have what it needs; it expires when the lost one would have. An existing row is
    never overwritten."""
    assert store.recover(intent(charged_at=T0 + 5, amount_refunded_minor=400), now=T0 + 9)
    payment = read(store)
    assert (payment.request, payment.state, payment.payment_intent_id) == (REQUEST, PaymentState.SUCCEEDED, "pi_1")
    assert (payment.payment_method, payment.amount_refunded_minor, payment.finalized_at) == ("", 400, T0 + 5)
    # Its first revision is higher than any of the lost row.
    assert (payment.revision, item(store)["expires_at"]) == (T0 + 10, T0 + 5 + RETENTION_SECONDS)
    assert not store.recover(intent(payment_intent_id="pi_2"), now=T0)
    assert read(store) == payment
    assert claim(store, at=LATER) == AlreadyEnded(payment)


# ---------------------------------------------------------------- the index of unfinished rows


def unfinished(store: PaymentStore, *, claimed_before: int, limit: int) -> list[str]:
    """All unfinished rows, shard by shard, page by page."""
    found: list[str] = []
    for shard in range(SHARDS):
        after: dict[str, Any] | None = None
        while True:
            page, after = store.unfinished(str(shard), claimed_before=claimed_before, after=after, limit=limit)
            assert len(page) <= limit
            found += page
            if after is None:
                break
    return found


def test_the_index_is_paged_oldest_first(store: PaymentStore) -> None:
    """Each row is read once, and a row that has ended not at all."""
    for number in range(30):
        claim(store, request=replace(REQUEST, order_id=f"ord_{number:032x}"), at=T0 - number)
    finalized(store, PaymentState.SUCCEEDED)
    found = unfinished(store, claimed_before=T0, limit=2)
    assert sorted(found) == [f"ord_{number:032x}" for number in range(30)]
    for shard in range(SHARDS):
        of_shard = [int(order_id[4:], 16) for order_id in found if shard_of(order_id) == str(shard)]
        assert of_shard == sorted(of_shard, reverse=True)
    assert sorted(unfinished(store, claimed_before=T0 - 20, limit=9)) == [f"ord_{each:032x}" for each in range(20, 30)]


# ---------------------------------------------------------------- costs and races


def test_every_method_makes_one_request(endpoint: Endpoint) -> None:
    """A new order costs three writes and no read, a duplicate one write; the read is consistent."""
    client = endpoint.client()
    store = PaymentStore(client, create_table(client, f"payments-{uuid4()}", "PaymentsTable"))
    sent: list[tuple[str, Any]] = []
    client.meta.events.register(
        "provide-client-params.dynamodb",
        lambda params, model, **_: sent.append((model.name, params.get("ConsistentRead"))),
    )
    store.finalize(store.store_id(claimed(store), "pi_1"), PAID, now=T0)
    claim(store)
    read(store)
    assert sent == [*[("UpdateItem", None)] * 4, ("GetItem", True)]


def test_concurrent_workers_claim_each_order_once(endpoint: Endpoint) -> None:
    """32 workers claim the same 40 orders."""
    client = endpoint.client()
    store = PaymentStore(client, create_table(client, f"race-{uuid4()}", "PaymentsTable"))

    def race(number: int) -> int:
        requests = [replace(REQUEST, order_id=f"ord_{order:032x}") for order in range(40)]
        return sum(isinstance(claim(store, each, owner=f"w{number}"), Claimed) for each in requests)

    with ThreadPoolExecutor(32) as threads:
        assert sum(threads.map(race, range(32))) == 40
