"""The store does what the protocol asks of it, condition by condition, on every DynamoDB that we can run."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import Finalize, FrozenRequest, Payment
from onecharge.payments.charges.store import (
    UNFINISHED_SHARDS,
    AlreadyFinal,
    Claimed,
    PaymentStore,
    Superseded,
    shard_of,
)
from onecharge.payments.leases import HeldByAnother, LeaseLost
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import from_item, to_item
from testing.builders import ORDER_ID, REQUEST, T0, intent
from testing.harness import PROJECT, create_table
from testing.racers import CLAIMS_PER_RACER, THREADS
from testing.simulation.dynamodb import MemoryDynamoDB
from tests.contract.conftest import Endpoint

LEASE_SECONDS = 35
LATER = T0 + LEASE_SECONDS
OTHER_REQUEST = replace(REQUEST, amount_minor=1, currency="USD", customer_id="cus_2", placed_at=T0 + 1)
PAID = Finalize(PaymentState.SUCCEEDED, "pi_1", 0)
DECLINED = Finalize(PaymentState.DECLINED, "pi_1", 0, code="lost_card", declined_charge_id="ch_1")
WAITS = Finalize(PaymentState.REQUIRES_ACTION, "pi_1", 0)
OVER = (PaymentState.SUCCEEDED, PaymentState.CANCELED, PaymentState.NEEDS_REVIEW)
UNPAID = (PaymentState.DECLINED, PaymentState.REQUIRES_ACTION)


@pytest.fixture
def store(dynamodb: Any, payments: str) -> PaymentStore:
    """The store on each DynamoDB, and on the one in memory that the simulation runs on."""
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
    return result.payment


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


def test_the_first_claim_makes_the_row(store: PaymentStore) -> None:
    """With a lease, an owner, generation 0, and all that is frozen; it does not expire."""
    payment = claimed(store)
    assert payment == Payment(
        request=REQUEST,
        attempt=1,
        payment_method="pm_card_visa",
        state=PaymentState.PENDING,
        lease_owner="one",
        lease_expires_at=LATER,
        revision=1,
        claimed_at=T0,
        attempt_claimed_at=T0,
        correlation_id="c",
    )
    assert read(store) == payment
    assert "expires_at" not in item(store)


def test_a_second_claim_learns_until_when_the_row_is_held(store: PaymentStore) -> None:
    """From the refusal itself, without a read."""
    claimed(store)
    assert claim(store, owner="two", at=LATER - 1) == HeldByAnother(LATER)


def test_an_expired_lease_is_taken_over(store: PaymentStore) -> None:
    """What was frozen stays, and so does the attempt's payment method, whatever the message says by now."""
    claimed(store)
    payment = claimed(store, request=OTHER_REQUEST, payment_method="pm_other", owner="two", at=LATER)
    assert (payment.request, payment.payment_method) == (REQUEST, "pm_card_visa")
    assert (payment.lease_owner, payment.lease_expires_at, payment.revision) == ("two", LATER + LEASE_SECONDS, 2)


@pytest.mark.parametrize("state", OVER)
@pytest.mark.parametrize("attempt", [1, 2])
def test_what_is_over_is_never_claimed(store: PaymentStore, state: PaymentState, attempt: int) -> None:
    """However much later, by whatever attempt; the duplicate learns what became of it."""
    final = finalized(store, state)
    assert claim(store, attempt=attempt, at=T0 + 10**7) == AlreadyFinal(final)
    assert read(store) == final


@pytest.mark.parametrize("state", UNPAID)
def test_an_attempt_that_is_final_is_never_claimed_again(store: PaymentStore, state: PaymentState) -> None:
    """It is another's turn: the customer's, or another card's."""
    final = finalized(store, state)
    assert claim(store, at=T0 + 10**7) == AlreadyFinal(final)


@pytest.mark.parametrize("state", UNPAID)
def test_a_later_attempt_takes_over_what_was_not_paid(store: PaymentStore, state: PaymentState) -> None:
    """On the same PaymentIntent, with its own payment method; what is frozen stays."""
    finalized(store, state)
    payment = claimed(store, request=OTHER_REQUEST, attempt=2, payment_method="pm_second", owner="two")
    assert (payment.attempt, payment.payment_method, payment.state) == (2, "pm_second", PaymentState.PENDING)
    assert (payment.payment_intent_id, payment.request) == ("pi_1", REQUEST)
    assert "expires_at" not in item(store)


def test_a_later_attempt_takes_over_an_unfinished_one_whose_lease_is_free(store: PaymentStore) -> None:
    """And waits for one that is held."""
    claimed(store)
    assert claim(store, attempt=2, owner="two", at=LATER - 1) == HeldByAnother(LATER)
    assert claimed(store, attempt=2, owner="two", at=LATER).attempt == 2


def test_a_lower_attempt_is_superseded(store: PaymentStore) -> None:
    """Whether the later one is held, free, declined or waits."""
    finalized(store, PaymentState.DECLINED)
    held = claimed(store, attempt=2, at=LATER)
    assert claim(store, at=LATER) == Superseded(held)
    store.release_lease(held)
    assert isinstance(claim(store, at=LATER), Superseded)
    for attempt, state in enumerate(UNPAID, start=3):
        final = finalized(store, state, attempt=attempt, at=LATER)
        assert claim(store, attempt=attempt - 1, at=T0 + 10**7) == Superseded(final)


def test_each_attempt_s_payment_method_is_frozen(store: PaymentStore) -> None:
    """A later delivery of the second attempt cannot bring the third card in."""
    finalized(store, PaymentState.DECLINED)
    store.release_lease(claimed(store, attempt=2, payment_method="pm_second"))
    assert claimed(store, attempt=2, payment_method="pm_third").payment_method == "pm_second"


def test_what_was_declined_before_is_known_to_the_next_attempt(store: PaymentStore) -> None:
    """The charge, by which it tells its own decline; the code is the last result's, and goes."""
    store.finalize(claimed(store), DECLINED, now=T0)
    assert claimed(store, attempt=2).declined_charge_id == "ch_1"
    assert "decline_code" not in item(store)


def test_a_charge_is_known_of_the_present_payment_intent_alone(store: PaymentStore) -> None:
    """A decline without a charge forgets the one before; a refused payment method changes nothing at Stripe."""
    store.finalize(claimed(store), DECLINED, now=T0)
    refused = Finalize(PaymentState.DECLINED, code="payment_method_unknown")
    assert store.finalize(claimed(store, attempt=2), refused, now=T0).declined_charge_id == "ch_1"
    without = replace(DECLINED, payment_intent_id="pi_2", declined_charge_id=None)
    assert store.finalize(claimed(store, attempt=3), without, now=T0).declined_charge_id is None


# ---------------------------------------------------------------- as the lease owner


def test_the_id_is_written_by_the_owner(store: PaymentStore) -> None:
    """With its generation; and replaced only by who knows the one before."""
    first = claimed(store)
    written = store.write_payment_intent(first, "pi_0", 0)
    assert (written.payment_intent_id, written.generation, written.revision) == ("pi_0", 0, 2)
    with pytest.raises(LeaseLost):
        store.write_payment_intent(first, "pi_x", 0)
    with pytest.raises(LeaseLost):
        store.write_payment_intent(replace(written, payment_intent_id="pi_other"), "pi_x", 1)
    replaced = store.write_payment_intent(written, "pi_1", 1)
    assert (replaced.payment_intent_id, replaced.generation) == ("pi_1", 1)


def test_whoever_writes_the_id_sees_that_the_order_is_to_be_canceled(store: PaymentStore) -> None:
    """It asks for it after the claim, and the holder never confirms."""
    payment = claimed(store)
    request_cancel(store, at=T0 + 5)
    assert store.write_payment_intent(payment, "pi_0", 0).cancel_requested_at == T0 + 5


def test_a_released_row_can_be_claimed_at_once(store: PaymentStore) -> None:
    """What Stripe answered is kept with it."""
    store.release_lease(claimed(store), generation=3, refused_at=T0 + 2, stripe_request_id="req_1")
    assert "lease_owner" not in item(store)
    payment = claimed(store, owner="two")
    assert (payment.lease_owner, payment.generation, payment.refused_at) == ("two", 3, T0 + 2)


@pytest.mark.parametrize("state", [*OVER, *UNPAID])
def test_a_finalized_row_says_what_became_of_it(store: PaymentStore, state: PaymentState) -> None:
    """It is nobody's any more, and only its terminal state expires: long after the order."""
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


def test_a_finalized_row_is_written_by_no_owner_again(store: PaymentStore) -> None:
    """Not even by the one that finalized it."""
    payment = claimed(store)
    store.finalize(payment, PAID, now=T0)
    before = read(store)
    for write in writes_of(store, payment):
        with pytest.raises(LeaseLost):
            write()
    assert read(store) == before


def writes_of(store: PaymentStore, payment: Payment) -> list[Callable[[], object]]:
    """Everything that a worker writes on its lease."""
    return [
        lambda: store.write_payment_intent(payment, "pi_x", 9),
        lambda: store.finalize(payment, DECLINED, now=T0),
        lambda: store.release_lease(payment),
    ]


def test_a_worker_that_lost_its_lease_writes_nothing(store: PaymentStore) -> None:
    """To a later delivery of its attempt, to a later attempt, to whoever released it in between."""
    slow = claimed(store)
    for attempt, at in ((1, LATER), (2, LATER + LEASE_SECONDS)):
        fast = claimed(store, owner=f"owner {attempt}", attempt=attempt, at=at)
        for write in writes_of(store, slow):
            with pytest.raises(LeaseLost):
                write()
        assert read(store) == fast
    store.release_lease(fast)
    with pytest.raises(LeaseLost):
        store.finalize(fast, PAID, now=T0)


def test_a_lost_row_has_no_owner_of_before(store: PaymentStore) -> None:
    """Neither while it is missing nor when it has begun anew: owners are drawn at random, and do not restart."""
    before = claimed(store, owner="before")
    store.client.delete_item(TableName=store.table, Key=to_item({"order_id": ORDER_ID}))
    for write in writes_of(store, before):
        with pytest.raises(LeaseLost):
            write()
    assert store.read(ORDER_ID) is None
    anew = claimed(store, owner="anew")
    for write in writes_of(store, before):
        with pytest.raises(LeaseLost):
            write()
    assert read(store) == anew


def test_an_owner_finalizes_its_own_attempt_alone(store: PaymentStore) -> None:
    """The same owner's name is not enough."""
    payment = claimed(store)
    with pytest.raises(LeaseLost):
        store.finalize(replace(payment, attempt=2), PAID, now=T0)
    with pytest.raises(LeaseLost):
        store.write_payment_intent(replace(payment, attempt=2), "pi_0", 0)


@pytest.mark.parametrize("final", [DECLINED, WAITS])
def test_an_order_that_is_to_be_canceled_is_not_left_open(store: PaymentStore, final: Finalize) -> None:
    """DECLINED would take it off the index, with a PaymentIntent that can still be confirmed."""
    payment = claimed(store)
    request_cancel(store)
    with pytest.raises(LeaseLost):
        store.finalize(payment, final, now=T0)
    assert "unfinished_shard" in item(store)
    assert store.finalize(payment, PAID, now=T0).state is PaymentState.SUCCEEDED


# ---------------------------------------------------------------- cancel


def test_a_cancellation_of_an_order_that_nobody_has_claimed_makes_the_row(store: PaymentStore) -> None:
    """With all that a payment needs, free for whoever comes, and on the index."""
    payment = request_cancel(store)
    assert (payment.request, payment.state, payment.cancel_requested_at) == (REQUEST, PaymentState.PENDING, T0)
    assert (payment.lease_owner, payment.lease_expires_at, payment.revision) == (None, 0, 1)
    assert item(store)["unfinished_shard"] == shard_of(ORDER_ID)
    assert claimed(store).cancel_requested_at == T0


@pytest.mark.parametrize("state", UNPAID)
def test_a_cancellation_of_what_was_not_paid_is_stored(store: PaymentStore, state: PaymentState) -> None:
    """The row waits again: it does not expire, and is on the index."""
    finalized(store, state)
    payment = request_cancel(store, attempt=1, at=T0 + 9)
    assert (payment.state, payment.cancel_requested_at) == (state, T0 + 9)
    stored = item(store)
    assert "expires_at" not in stored
    assert stored["unfinished_shard"] == shard_of(ORDER_ID)
    assert isinstance(claim_to_cancel(store, at=T0 + 9), Claimed)


def test_a_cancellation_needs_no_lease(store: PaymentStore) -> None:
    """The holder keeps it, and what it holds stays as it is."""
    payment = claimed(store)
    asked = request_cancel(store, OTHER_REQUEST, attempt=7, at=T0 + 1)
    assert asked == replace(payment, cancel_requested_at=T0 + 1, revision=2)
    assert request_cancel(store, at=T0 + 8).cancel_requested_at == T0 + 1
    assert claim_to_cancel(store, at=LATER - 1) == HeldByAnother(LATER)
    assert isinstance(claim_to_cancel(store, at=LATER), Claimed)


@pytest.mark.parametrize("state", OVER)
def test_a_cancellation_of_what_is_over_changes_nothing(store: PaymentStore, state: PaymentState) -> None:
    """And says what it is."""
    final = finalized(store, state)
    assert request_cancel(store) == final == read(store)
    assert claim_to_cancel(store, at=LATER) == AlreadyFinal(final)


def test_only_a_row_that_is_to_be_canceled_is_claimed_for_that(store: PaymentStore) -> None:
    """Neither a missing one, which is not made, nor one that waits for its customer."""
    assert claim_to_cancel(store) == HeldByAnother(T0)
    assert store.read(ORDER_ID) is None
    finalized(store, PaymentState.REQUIRES_ACTION)
    assert isinstance(claim_to_cancel(store, at=LATER), HeldByAnother)
    assert read(store).state is PaymentState.REQUIRES_ACTION


def test_a_row_claimed_to_cancel_keeps_its_attempt(store: PaymentStore) -> None:
    """Whatever it is; it is finalized on it."""
    finalized(store, PaymentState.DECLINED)
    store.finalize(claimed(store, attempt=2), DECLINED, now=T0)
    request_cancel(store)
    payment = claim_to_cancel(store).payment
    assert (payment.attempt, payment.state, payment.lease_owner) == (2, PaymentState.PENDING, "canceler")
    assert store.finalize(payment, Finalize(PaymentState.CANCELED, "pi_1"), now=T0).state is PaymentState.CANCELED


# ---------------------------------------------------------------- what is learned without a message


def test_what_stripe_says_is_written_on_the_revision_that_was_read(store: PaymentStore) -> None:
    """Whoever holds the row; it loses its lease."""
    held = claimed(store)
    assert store.finalize_unclaimed(held, PAID, now=T0 + 9)
    with pytest.raises(LeaseLost):
        store.finalize(held, DECLINED, now=T0)
    payment = read(store)
    assert (payment.state, payment.finalized_at, payment.lease_owner) == (PaymentState.SUCCEEDED, T0 + 9, None)
    assert "unfinished_shard" not in item(store)


def test_a_row_that_has_changed_is_not_written(store: PaymentStore) -> None:
    """By anything: the holder, a cancellation, a refund, a re-emission; nor a row that is gone."""
    stale = claimed(store)
    store.write_payment_intent(stale, "pi_0", 0)
    assert not store.finalize_unclaimed(stale, PAID, now=T0)
    for change in (
        lambda: request_cancel(store),
        lambda: store.record_refunded(read(store), 1),
        lambda: store.record_dispute(ORDER_ID, "needs_response"),
        lambda: store.reemit_outcome(read(store), now=T0),
    ):
        before = read(store)
        change()
        assert not store.finalize_unclaimed(before, PAID, now=T0)
        assert not store.reemit_outcome(before, now=T0)
    before = read(store)
    store.client.delete_item(TableName=store.table, Key=to_item({"order_id": ORDER_ID}))
    assert not store.finalize_unclaimed(before, PAID, now=T0)
    assert store.read(ORDER_ID) is None


def test_a_success_is_written_over_a_decline(store: PaymentStore) -> None:
    """What Stripe says later wins."""
    final = finalized(store, PaymentState.DECLINED)
    assert store.finalize_unclaimed(final, PAID, now=T0 + 100)
    assert read(store).state is PaymentState.SUCCEEDED


def test_a_lost_row_is_recovered_once(store: PaymentStore) -> None:
    """From the PaymentIntent's metadata; and never over a row that there is by now."""
    found = intent(generation=2)
    assert store.recover(ORDER_ID, found, correlation_id="recovered", now=T0 + 9)
    payment = read(store)
    assert (payment.request, payment.state, payment.payment_intent_id) == (REQUEST, PaymentState.SUCCEEDED, "pi_1")
    # A revision that none of the lost row's can have reached.
    assert (payment.generation, payment.finalized_at, payment.revision) == (2, T0 + 9, T0 + 9)
    assert item(store)["expires_at"] == T0 + 9 + RETENTION_SECONDS
    assert not store.recover(ORDER_ID, replace(found, payment_intent_id="pi_2"), correlation_id="x", now=T0)
    assert read(store) == payment
    assert claim(store, at=LATER) == AlreadyFinal(payment)


def test_what_is_refunded_is_written_on_the_revision_that_was_read(store: PaymentStore) -> None:
    """It may fall; what was asked of Stripe before the row was last written is not written."""
    before = finalized(store, PaymentState.SUCCEEDED)
    assert store.record_refunded(before, 1099)
    assert store.record_refunded(read(store), 500)
    assert not store.record_refunded(before, 1099)
    assert read(store).amount_refunded_minor == 500


@pytest.mark.parametrize("closed", ["won", "lost", "warning_closed"])
def test_a_closed_dispute_does_not_open_again(store: PaymentStore, closed: str) -> None:
    """Events come in any order, and more than once."""
    assert store.record_dispute(ORDER_ID, "needs_response") is None
    finalized(store, PaymentState.SUCCEEDED)
    statuses = ["needs_response", "needs_response", "under_review", closed, closed, "needs_response"]
    results = [store.record_dispute(ORDER_ID, status) is not None for status in statuses]
    assert results == [True, False, True, True, False, False]
    assert item(store)["dispute_status"] == closed


def test_an_attempt_is_as_old_as_its_first_claim(store: PaymentStore) -> None:
    """However often it is claimed again; the next attempt is young, whatever a cancellation's message says."""
    ages = []
    for attempt, at in ((1, T0), (1, LATER), (2, LATER + LATER - T0)):
        payment = claimed(store, attempt=attempt, at=at)
        ages.append((payment.claimed_at, payment.attempt_claimed_at))
    assert ages == [(T0, T0), (LATER, T0), (2 * LATER - T0, 2 * LATER - T0)]
    request_cancel(store)
    assert read(store).attempt_claimed_at == 2 * LATER - T0


def test_an_outcome_is_reemitted_by_a_write_that_changes_nothing_else(store: PaymentStore) -> None:
    """The table's stream carries it."""
    final = finalized(store, PaymentState.SUCCEEDED)
    assert store.reemit_outcome(final, now=T0 + 9)
    assert read(store) == replace(final, last_emitted_at=T0 + 9, revision=final.revision + 1)


def test_the_row_is_read_as_it_is_now(store: PaymentStore) -> None:
    """Whatever was written a moment ago is in it: what is decided on it is written on its revision."""
    assert store.read(ORDER_ID) is None
    if isinstance(store.client, MemoryDynamoDB):
        return  # It is always consistent.
    given: list[dict[str, Any]] = []
    store.client.meta.events.register(
        "provide-client-params.dynamodb.GetItem", lambda params, **_: given.append(params)
    )
    claimed(store)
    read(store)
    assert [each["ConsistentRead"] for each in given] == [True]


# ---------------------------------------------------------------- the index of what is unfinished


def unfinished(store: PaymentStore, *, since_before: int, limit: int = 100) -> list[str]:
    """All of them, shard by shard, page by page."""
    found: list[str] = []
    for shard in range(UNFINISHED_SHARDS):
        after: dict[str, Any] | None = None
        while True:
            page, after = store.unfinished(str(shard), since_before=since_before, after=after, limit=limit)
            assert len(page) <= limit
            found += page
            if after is None:
                break
    return found


def test_the_index_holds_what_waits_and_nothing_else(store: PaymentStore) -> None:
    """PENDING, waiting for its customer, or to be canceled; whatever is final has left it."""
    ends: dict[str, Callable[[Payment], object]] = {
        "pending": lambda _: None,
        "released": store.release_lease,
        "waits": lambda payment: store.finalize(payment, WAITS, now=T0),
        "declined": lambda payment: store.finalize(payment, DECLINED, now=T0),
        "paid": lambda payment: store.finalize(payment, PAID, now=T0),
        "paid, says Stripe": lambda payment: store.finalize_unclaimed(payment, PAID, now=T0),
        "declined, to cancel": lambda payment: request_cancel(store, store.finalize(payment, DECLINED, now=T0).request),
    }
    ids = {name: f"ord_{number:032x}" for number, name in enumerate(ends)}
    for name, order_id in ids.items():
        ends[name](claimed(store, request=replace(REQUEST, order_id=order_id)))
    waiting = {ids[name] for name in ("pending", "released", "waits", "declined, to cancel")}
    assert set(unfinished(store, since_before=T0)) == waiting
    assert unfinished(store, since_before=T0 - 1) == []


def test_the_index_is_read_page_by_page_the_longest_waiting_first(store: PaymentStore) -> None:
    """Each once, whatever the size of a page."""
    for number in range(30):
        claim(store, request=replace(REQUEST, order_id=f"ord_{number:032x}"), at=T0 - number)
    found = unfinished(store, since_before=T0, limit=2)
    assert sorted(found) == [f"ord_{number:032x}" for number in range(30)]
    for shard in range(UNFINISHED_SHARDS):
        of_shard = [int(order_id[4:], 16) for order_id in found if shard_of(order_id) == str(shard)]
        assert of_shard == sorted(of_shard, reverse=True)


# ---------------------------------------------------------------- costs, and races


def test_every_method_makes_one_request(store: PaymentStore) -> None:
    """A fresh order costs three writes, a duplicate one, and neither a read."""
    if isinstance(store.client, MemoryDynamoDB):
        return  # It has no HTTP underneath to count at.
    sent: list[str] = []
    store.client.meta.events.register(
        "before-call.dynamodb", lambda model, **_: sent.append(model.name), unique_id=str(uuid4())
    )
    store.finalize(store.write_payment_intent(claimed(store), "pi_1", 0), PAID, now=T0)
    claim(store)
    assert sent == ["UpdateItem"] * 4


def test_32_writers_in_two_processes_have_one_winner_for_each_of_200_orders(endpoint: Endpoint) -> None:
    """Two processes of 16 threads, all after the same orders."""
    table = create_table(endpoint.client(), f"race-{uuid4()}", "PaymentsTable")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "testing.racers", table],
            env={
                **endpoint.environment,
                "PYTHONPATH": f"{PROJECT / 'functions'}:{PROJECT / 'shared'}",
            },
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    winners = Counter(order_id for output in outputs for order_id in output["won"])
    assert sum(output["tried"] for output in outputs) == 2 * THREADS * CLAIMS_PER_RACER == 6400
    assert len(winners) == CLAIMS_PER_RACER
    assert set(winners.values()) == {1}
