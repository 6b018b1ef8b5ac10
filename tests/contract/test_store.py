"""The payment store's conditional writes follow the protocol, on DynamoDB Local and in the simulation."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.after_charge import AfterCharge
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import Finalize, FrozenRequest, Payment
from onecharge.payments.rows import AlreadyEnded, Claimed, HeldByAnother, Superseded, WriteRefused
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import SHARDS, from_item, shard_of, to_item
from tests.contract.conftest import Endpoint
from tests.shop.builders import ORDER_ID, REQUEST, T0, intent
from tests.support.harness import create_table

LEASE_SECONDS = 35
LATER = T0 + LEASE_SECONDS
OTHER_REQUEST = replace(REQUEST, amount_minor=1, currency="USD", customer_id="cus_2", placed_at=T0 + 1)
PAID = Finalize(PaymentState.SUCCEEDED, "pi_1", 0)
DECLINED = Finalize(PaymentState.DECLINED, "pi_1", 0, code="lost_card", declined_charge_id="ch_1")
REQUIRES_ACTION = Finalize(PaymentState.REQUIRES_ACTION, "pi_1", 0)
CLOSED = (PaymentState.SUCCEEDED, PaymentState.CANCELED, PaymentState.NEEDS_REVIEW)
UNPAID = (PaymentState.DECLINED, PaymentState.REQUIRES_ACTION)


@pytest.fixture
def store(dynamodb: Any, payments: str) -> PaymentStore:
    return PaymentStore(dynamodb, payments)


def claim(
    store: PaymentStore,
    request: FrozenRequest = REQUEST,
    *,
    attempt: int = 1,
    payment_method: str = "pm_card_visa",
    owner: str = "one",
    at: int = T0,
) -> Any:
    return store.claim(
        request,
        attempt=attempt,
        payment_method=payment_method,
        correlation_id="c",
        owner=owner,
        now=at,
        lease_seconds=LEASE_SECONDS,
    )


def claimed(store: PaymentStore, **given: Any) -> Payment:
    result = claim(store, **given)
    assert isinstance(result, Claimed)
    row: Payment = result.row
    return row


def request_cancel(store: PaymentStore, request: FrozenRequest = REQUEST, *, attempt: int = 1, at: int = T0) -> Payment:
    return store.request_cancel(request, attempt=attempt, payment_method="pm_of_cancel", correlation_id="x", now=at)


def claim_to_cancel(store: PaymentStore, *, owner: str = "canceler", at: int = T0) -> Any:
    return store.claim_to_cancel(ORDER_ID, owner=owner, now=at, lease_seconds=LEASE_SECONDS)


def finalized(store: PaymentStore, state: PaymentState, **given: Any) -> Payment:
    return store.finalize(claimed(store, **given), Finalize(state, "pi_1", 0), now=T0 + 1)


def read(store: PaymentStore) -> Payment:
    payment = store.read(ORDER_ID)
    assert payment is not None
    return payment


def item(store: PaymentStore) -> dict[str, Any]:
    key = to_item({"order_id": ORDER_ID})
    return from_item(store.client.get_item(TableName=store.table, Key=key, ConsistentRead=True)["Item"])


# ---------------------------------------------------------------- claim


def test_the_first_claim_creates_the_row(store: PaymentStore) -> None:
    """It has a lease, generation 0 and the frozen request, and no time to live."""
    payment = claimed(store)
    assert payment == Payment(
        request=REQUEST,
        attempt=1,
        payment_method="pm_card_visa",
        state=PaymentState.PENDING,
        lease_owner="one",
        lease_expires_at=LATER,
        revision=T0 + 1,
        claimed_at=T0,
        attempt_claimed_at=T0,
        correlation_id="c",
    )
    assert read(store) == payment
    assert "expires_at" not in item(store)


def test_a_refused_claim_returns_the_end_of_the_lease(store: PaymentStore) -> None:
    """The failed condition returns the row, so no read is needed."""
    claimed(store)
    assert claim(store, owner="two", at=LATER - 1) == HeldByAnother(LATER)


def test_an_expired_lease_is_taken_over(store: PaymentStore) -> None:
    """The frozen request and the attempt's payment method stay, whatever the message contains."""
    claimed(store)
    payment = claimed(store, request=OTHER_REQUEST, payment_method="pm_other", owner="two", at=LATER)
    assert (payment.request, payment.payment_method) == (REQUEST, "pm_card_visa")
    assert (payment.lease_owner, payment.lease_expires_at, payment.revision) == ("two", LATER + LEASE_SECONDS, T0 + 2)


@pytest.mark.parametrize(
    ("state", "attempt"), [*((state, 1) for state in (*CLOSED, *UNPAID)), *((state, 2) for state in CLOSED)]
)
def test_an_ended_attempt_is_never_claimed(store: PaymentStore, state: PaymentState, attempt: int) -> None:
    """A closed order is never claimed for a later one, either. The refused claim returns the row."""
    final = finalized(store, state)
    assert claim(store, attempt=attempt, at=T0 + 10**7) == AlreadyEnded(final)
    assert read(store) == final


@pytest.mark.parametrize("state", UNPAID)
def test_a_later_attempt_takes_over_an_unpaid_row(store: PaymentStore, state: PaymentState) -> None:
    """PaymentIntent and frozen request stay; the payment method is its own."""
    finalized(store, state)
    payment = claimed(store, request=OTHER_REQUEST, attempt=2, payment_method="pm_second", owner="two")
    assert (payment.attempt, payment.payment_method, payment.state) == (2, "pm_second", PaymentState.PENDING)
    assert (payment.payment_intent_id, payment.request) == ("pi_1", REQUEST)
    assert "expires_at" not in item(store)


def test_a_later_attempt_takes_over_an_unfinished_one_after_its_lease(store: PaymentStore) -> None:
    """Before that it is refused."""
    claimed(store)
    assert claim(store, attempt=2, owner="two", at=LATER - 1) == HeldByAnother(LATER)
    assert claimed(store, attempt=2, owner="two", at=LATER).attempt == 2


def test_a_lower_attempt_is_superseded(store: PaymentStore) -> None:
    """The later attempt may be claimed, released, declined, or require action."""
    finalized(store, PaymentState.DECLINED)
    held = claimed(store, attempt=2, owner="two", at=LATER)
    assert claim(store, at=LATER) == Superseded(held)
    store.release_lease(held)
    assert isinstance(claim(store, at=LATER), Superseded)
    for attempt, state in enumerate(UNPAID, start=3):
        final = finalized(store, state, attempt=attempt, at=LATER)
        assert claim(store, attempt=attempt - 1, at=T0 + 10**7) == Superseded(final)


def test_the_first_claim_freezes_the_attempts_payment_method(store: PaymentStore) -> None:
    """A duplicate of the message with another card does not change it."""
    finalized(store, PaymentState.DECLINED)
    store.release_lease(claimed(store, attempt=2, payment_method="pm_second"))
    assert claimed(store, attempt=2, payment_method="pm_third").payment_method == "pm_second"


def test_the_next_attempt_knows_the_declined_charge(store: PaymentStore) -> None:
    """It distinguishes its own decline by it. The previous attempt's decline code is removed."""
    store.finalize(claimed(store), DECLINED, now=T0)
    assert claimed(store, attempt=2).declined_charge_id == "ch_1"
    assert "decline_code" not in item(store)


def test_the_declined_charge_belongs_to_the_current_payment_intent(store: PaymentStore) -> None:
    """A decline without a charge removes it; a refused payment method changes nothing at Stripe, so it stays."""
    store.finalize(claimed(store), DECLINED, now=T0)
    refused = Finalize(PaymentState.DECLINED, code="payment_method_unknown")
    assert store.finalize(claimed(store, attempt=2), refused, now=T0).declined_charge_id == "ch_1"
    without = replace(DECLINED, payment_intent_id="pi_2", declined_charge_id=None)
    assert store.finalize(claimed(store, attempt=3), without, now=T0).declined_charge_id is None


# ---------------------------------------------------------------- writes of the lease owner


def test_the_lease_owner_writes_the_payment_intents_id(store: PaymentStore) -> None:
    """Its generation is written, too. Replacing it requires the lease and the id that is replaced."""
    first = claimed(store)
    written = store.write_payment_intent(first, "pi_0", 0)
    assert (written.payment_intent_id, written.generation, written.revision) == ("pi_0", 0, T0 + 2)
    with pytest.raises(WriteRefused):
        store.write_payment_intent(first, "pi_x", 0)
    with pytest.raises(WriteRefused):
        store.write_payment_intent(replace(written, payment_intent_id="pi_other"), "pi_x", 1)
    replaced = store.write_payment_intent(written, "pi_1", 1)
    assert (replaced.payment_intent_id, replaced.generation) == ("pi_1", 1)


def test_writing_the_id_returns_a_cancellation_request(store: PaymentStore) -> None:
    """It arrived after the claim: the lease owner does not confirm."""
    payment = claimed(store)
    request_cancel(store, at=T0 + 5)
    assert store.write_payment_intent(payment, "pi_0", 0).cancel_requested_at == T0 + 5


def test_a_released_row_can_be_claimed_immediately(store: PaymentStore) -> None:
    """The release stores what Stripe responded."""
    store.release_lease(claimed(store), generation=3, refused_at=T0 + 2, stripe_request_id="req_1")
    assert "lease_owner" not in item(store)
    payment = claimed(store, owner="two")
    assert (payment.lease_owner, payment.generation, payment.refused_at) == ("two", 3, T0 + 2)


@pytest.mark.parametrize("state", [*CLOSED, *UNPAID])
def test_finalize_stores_the_outcome(store: PaymentStore, state: PaymentState) -> None:
    """The lease ends. Only a terminal row expires, after the retention time; one that requires action is unfinished."""
    final = replace(DECLINED, state=state, advice_code="a", stripe_message="m", stripe_request_id="req_1")
    store.release_lease(claimed(store), refused_at=T0)
    payment = store.finalize(claimed(store), final, now=T0 + 9)
    assert (payment.state, payment.payment_intent_id, payment.finalized_at) == (state, "pi_1", T0 + 9)
    assert (payment.lease_owner, payment.lease_expires_at, payment.refused_at) == (None, 0, None)
    stored = item(store)
    assert (stored["decline_code"], stored["advice_code"]) == ("lost_card", "a")
    assert (stored["stripe_message"], stored["stripe_request_id"]) == ("m", "req_1")
    expires_at = None if state is PaymentState.REQUIRES_ACTION else T0 + 9 + RETENTION_SECONDS
    assert stored.get("expires_at") == expires_at
    assert ("unfinished_shard" in stored) is (state is PaymentState.REQUIRES_ACTION)


def test_no_lease_owner_writes_to_a_final_row(store: PaymentStore) -> None:
    """The one that finalized it does not, either."""
    payment = claimed(store)
    store.finalize(payment, PAID, now=T0)
    before = read(store)
    assert_no_write(store, payment)
    assert read(store) == before


def assert_no_write(store: PaymentStore, payment: Payment) -> None:
    """Every write that requires the lease is refused."""
    writes: list[Callable[[], object]] = [
        lambda: store.write_payment_intent(payment, "pi_x", 9),
        lambda: store.finalize(payment, DECLINED, now=T0),
        lambda: store.release_lease(payment),
    ]
    for write in writes:
        with pytest.raises(WriteRefused):
            write()


def test_a_worker_without_its_lease_writes_nothing(store: PaymentStore) -> None:
    """The lease was taken over by a duplicate, by a later attempt, or released."""
    slow = claimed(store)
    for attempt, at in ((1, LATER), (2, LATER + LEASE_SECONDS)):
        fast = claimed(store, owner=f"owner {attempt}", attempt=attempt, at=at)
        assert_no_write(store, slow)
        assert read(store) == fast
    store.release_lease(fast)
    with pytest.raises(WriteRefused):
        store.finalize(fast, PAID, now=T0)


def test_a_lost_row_ends_its_lease(store: PaymentStore) -> None:
    """Neither the missing row nor the one that is claimed next can be written: lease owners are random."""
    before = claimed(store, owner="before")
    store.client.delete_item(TableName=store.table, Key=to_item({"order_id": ORDER_ID}))
    assert_no_write(store, before)
    assert store.read(ORDER_ID) is None
    anew = claimed(store, owner="anew")
    assert_no_write(store, before)
    assert read(store) == anew


def test_a_lease_is_for_one_attempt(store: PaymentStore) -> None:
    """The same lease owner cannot write for another attempt."""
    payment = claimed(store)
    with pytest.raises(WriteRefused):
        store.finalize(replace(payment, attempt=2), PAID, now=T0)
    with pytest.raises(WriteRefused):
        store.write_payment_intent(replace(payment, attempt=2), "pi_0", 0)


@pytest.mark.parametrize("final", [DECLINED, REQUIRES_ACTION])
def test_a_canceling_order_is_not_finalized_as_unpaid(store: PaymentStore, final: Finalize) -> None:
    """DECLINED would remove it from the index of unfinished rows, with a PaymentIntent that can still be confirmed."""
    payment = claimed(store)
    request_cancel(store)
    with pytest.raises(WriteRefused):
        store.finalize(payment, final, now=T0)
    assert "unfinished_shard" in item(store)
    assert store.finalize(payment, PAID, now=T0).state is PaymentState.SUCCEEDED


# ---------------------------------------------------------------- cancel


def test_a_cancellation_before_any_claim_creates_the_row(store: PaymentStore) -> None:
    """It has the frozen request and no lease, and is in the index of unfinished rows."""
    payment = request_cancel(store)
    assert (payment.request, payment.state, payment.cancel_requested_at) == (REQUEST, PaymentState.PENDING, T0)
    assert (payment.lease_owner, payment.lease_expires_at, payment.revision) == (None, 0, T0 + 1)
    assert item(store)["unfinished_shard"] == shard_of(ORDER_ID)
    assert claimed(store).cancel_requested_at == T0


@pytest.mark.parametrize("state", UNPAID)
def test_a_cancellation_of_an_unpaid_row_is_stored(store: PaymentStore, state: PaymentState) -> None:
    """The row is unfinished again: in the index, without a time to live."""
    finalized(store, state)
    payment = request_cancel(store, attempt=1, at=T0 + 9)
    assert (payment.state, payment.cancel_requested_at) == (state, T0 + 9)
    stored = item(store)
    assert "expires_at" not in stored
    assert stored["unfinished_shard"] == shard_of(ORDER_ID)
    assert isinstance(claim_to_cancel(store, at=T0 + 9), Claimed)


def test_a_cancellation_needs_no_lease(store: PaymentStore) -> None:
    """The lease owner keeps its lease, and nothing else of the row changes."""
    payment = claimed(store)
    requested = request_cancel(store, OTHER_REQUEST, attempt=7, at=T0 + 1)
    assert requested == replace(payment, cancel_requested_at=T0 + 1, revision=T0 + 2)
    assert request_cancel(store, at=T0 + 8).cancel_requested_at == T0 + 1
    assert claim_to_cancel(store, at=LATER - 1) == HeldByAnother(LATER)
    assert isinstance(claim_to_cancel(store, at=LATER), Claimed)


@pytest.mark.parametrize("state", CLOSED)
def test_a_cancellation_of_a_final_row_changes_nothing(store: PaymentStore, state: PaymentState) -> None:
    """It returns the final row."""
    final = finalized(store, state)
    assert request_cancel(store) == final == read(store)
    assert claim_to_cancel(store, at=LATER) == AlreadyEnded(final)


def test_only_a_canceling_row_is_claimed_to_cancel(store: PaymentStore) -> None:
    """A missing row is not created, and one that requires action is not claimed."""
    assert claim_to_cancel(store) == HeldByAnother(T0)
    assert store.read(ORDER_ID) is None
    finalized(store, PaymentState.REQUIRES_ACTION)
    assert isinstance(claim_to_cancel(store, at=LATER), HeldByAnother)
    assert read(store).state is PaymentState.REQUIRES_ACTION


def test_a_row_claimed_to_cancel_keeps_its_attempt(store: PaymentStore) -> None:
    """It is finalized for that attempt."""
    finalized(store, PaymentState.DECLINED)
    store.finalize(claimed(store, attempt=2), DECLINED, now=T0)
    request_cancel(store)
    payment = claim_to_cancel(store).row
    assert (payment.attempt, payment.state, payment.lease_owner) == (2, PaymentState.PENDING, "canceler")
    assert store.finalize(payment, Finalize(PaymentState.CANCELED, "pi_1"), now=T0).state is PaymentState.CANCELED


# ---------------------------------------------------------------- webhooks and reconciliation


def test_a_reconciled_outcome_is_written_on_the_revision_that_was_read(store: PaymentStore) -> None:
    """It needs no lease, and a worker that has one loses it."""
    held = claimed(store)
    assert store.finalize_if_unchanged(held, PAID, now=T0 + 9)
    with pytest.raises(WriteRefused):
        store.finalize(held, DECLINED, now=T0)
    payment = read(store)
    assert (payment.state, payment.finalized_at, payment.lease_owner) == (PaymentState.SUCCEEDED, T0 + 9, None)
    assert "unfinished_shard" not in item(store)


def test_a_changed_row_is_not_overwritten(store: PaymentStore) -> None:
    """A worker, a cancellation, a refund, a dispute or a re-emission may have changed it. A lost one stays lost."""
    stale = claimed(store)
    store.write_payment_intent(stale, "pi_0", 0)
    assert not store.finalize_if_unchanged(stale, PAID, now=T0)
    for change in (
        lambda: request_cancel(store),
        lambda: store.record_after_charge(read(store), AfterCharge(0, {"dp_1": "needs_response"}), now=T0),
        lambda: store.reemit_outcome(read(store), now=T0),
    ):
        before = read(store)
        change()
        assert not store.finalize_if_unchanged(before, PAID, now=T0)
        assert not store.reemit_outcome(before, now=T0)
    before = read(store)
    store.client.delete_item(TableName=store.table, Key=to_item({"order_id": ORDER_ID}))
    assert not store.finalize_if_unchanged(before, PAID, now=T0)
    assert store.read(ORDER_ID) is None


def test_a_late_success_overwrites_a_decline(store: PaymentStore) -> None:
    """Stripe's later status wins."""
    final = finalized(store, PaymentState.DECLINED)
    assert store.finalize_if_unchanged(final, PAID, now=T0 + 100)
    assert read(store).state is PaymentState.SUCCEEDED


def test_a_lost_row_is_recovered_once(store: PaymentStore) -> None:
    """The PaymentIntent's metadata have what it needs. An existing row is never overwritten."""
    found = intent(generation=2)
    assert store.recover(ORDER_ID, found, charged_at=T0 + 5, review=None, correlation_id="recovered", now=T0 + 9)
    payment = read(store)
    assert (payment.request, payment.state, payment.payment_intent_id) == (REQUEST, PaymentState.SUCCEEDED, "pi_1")
    # Its first revision is higher than any of the lost row.
    assert (payment.generation, payment.finalized_at, payment.revision) == (2, T0 + 5, T0 + 10)
    # If a person puts it back to PENDING, it is not overdue immediately.
    assert (payment.payment_method, payment.attempt_claimed_at) == ("", T0 + 9)
    assert item(store)["expires_at"] == T0 + 5 + RETENTION_SECONDS
    assert not store.recover(
        ORDER_ID, replace(found, payment_intent_id="pi_2"), charged_at=T0, review=None, correlation_id="x", now=T0
    )
    assert read(store) == payment
    assert claim(store, at=LATER) == AlreadyEnded(payment)


def test_the_refunded_amount_is_written_on_the_revision_that_was_read(store: PaymentStore) -> None:
    """It may decrease. A value that was read before the row's last write is refused."""
    before = finalized(store, PaymentState.SUCCEEDED)
    assert store.record_after_charge(before, AfterCharge(1099), now=T0)
    assert store.record_after_charge(read(store), AfterCharge(500), now=T0)
    assert not store.record_after_charge(before, AfterCharge(1099), now=T0)
    assert read(store).amount_refunded_minor == 500


def test_what_followed_is_written_on_the_revision_that_was_read(store: PaymentStore) -> None:
    """The row keeps each dispute, and publishes the most urgent one's status; what is over is removed."""
    before = finalized(store, PaymentState.SUCCEEDED)
    disputes = {"dp_2": "won", "dp_1": "needs_response"}
    after = AfterCharge(0, disputes, "review")
    assert before.after_charge == AfterCharge()
    assert store.record_after_charge(before, after, now=T0)
    assert not store.record_after_charge(before, AfterCharge(0, {"dp_1": "lost"}), now=T0)
    assert (read(store).after_charge, item(store)["dispute_status"]) == (after, "needs_response")
    assert store.record_after_charge(read(store), AfterCharge(), now=T0)
    assert not {"disputes", "dispute_status", "fraud_suspicion"} & item(store).keys()


def test_an_attempts_age_counts_from_its_first_claim(store: PaymentStore) -> None:
    """Neither another claim nor a cancellation changes it. The next attempt has its own."""
    ages = []
    for attempt, at in ((1, T0), (1, LATER), (2, LATER + LATER - T0)):
        payment = claimed(store, attempt=attempt, at=at)
        ages.append((payment.claimed_at, payment.attempt_claimed_at))
    assert ages == [(T0, T0), (LATER, T0), (2 * LATER - T0, 2 * LATER - T0)]
    request_cancel(store)
    assert read(store).attempt_claimed_at == 2 * LATER - T0


def test_reemit_increases_only_the_revision(store: PaymentStore) -> None:
    """It also writes last_emitted_at. The stream carries the outcome again."""
    final = finalized(store, PaymentState.SUCCEEDED)
    assert store.reemit_outcome(final, now=T0 + 9)
    assert read(store) == replace(final, last_emitted_at=T0 + 9, revision=T0 + 9)


# ---------------------------------------------------------------- the index of unfinished rows


def unfinished(store: PaymentStore, *, claimed_before: int, limit: int = 100) -> list[str]:
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


def test_the_index_contains_unfinished_rows_only(store: PaymentStore) -> None:
    """They are PENDING, REQUIRES_ACTION, or have a cancellation to finish. A final row leaves the index."""
    ends: dict[str, Callable[[Payment], object]] = {
        "pending": lambda _: None,
        "released": store.release_lease,
        "requires action": lambda payment: store.finalize(payment, REQUIRES_ACTION, now=T0),
        "declined": lambda payment: store.finalize(payment, DECLINED, now=T0),
        "paid": lambda payment: store.finalize(payment, PAID, now=T0),
        "paid, reconciled": lambda payment: store.finalize_if_unchanged(payment, PAID, now=T0),
        "declined, canceling": lambda payment: request_cancel(store, store.finalize(payment, DECLINED, now=T0).request),
    }
    ids = {name: f"ord_{number:032x}" for number, name in enumerate(ends)}
    for name, order_id in ids.items():
        ends[name](claimed(store, request=replace(REQUEST, order_id=order_id)))
    waiting = {ids[name] for name in ("pending", "released", "requires action", "declined, canceling")}
    assert set(unfinished(store, claimed_before=T0)) == waiting
    assert unfinished(store, claimed_before=T0 - 1) == []


def test_the_index_is_paged_oldest_first(store: PaymentStore) -> None:
    """Each row is read once."""
    for number in range(30):
        claim(store, request=replace(REQUEST, order_id=f"ord_{number:032x}"), at=T0 - number)
    found = unfinished(store, claimed_before=T0, limit=2)
    assert sorted(found) == [f"ord_{number:032x}" for number in range(30)]
    for shard in range(SHARDS):
        of_shard = [int(order_id[4:], 16) for order_id in found if shard_of(order_id) == str(shard)]
        assert of_shard == sorted(of_shard, reverse=True)


# ---------------------------------------------------------------- costs and races


def test_every_method_makes_one_request(endpoint: Endpoint) -> None:
    """A new order costs three writes and no read, a duplicate one write; the reconciler's read is consistent."""
    client = endpoint.client()
    store = PaymentStore(client, create_table(client, f"payments-{uuid4()}", "PaymentsTable"))
    sent: list[tuple[str, Any]] = []
    client.meta.events.register(
        "provide-client-params.dynamodb",
        lambda params, model, **_: sent.append((model.name, params.get("ConsistentRead"))),
    )
    store.finalize(store.write_payment_intent(claimed(store), "pi_1", 0), PAID, now=T0)
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
