"""The ledger does what the protocol asks of it, on every DynamoDB that we can run."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from onecharge.payments.ledger import AlreadySettled, Claimed, Ledger, NotDeclinedBefore

from onecharge.dynamodb import from_item, to_item
from onecharge.payments.leases import HeldByAnother, LeaseLost
from onecharge.payments.protocol import ChargeRow, FrozenRequest
from onecharge.states import PaymentState
from tests.conftest import PROJECT, create_table
from tests.contract.conftest import Endpoint
from tests.contract.racers import CLAIMS_PER_RACER, THREADS
from tests.simulation.dynamodb import MemoryDynamoDB

T0 = 1_800_000_000
LEASE_SECONDS = 35
REQUEST = FrozenRequest("ord_" + "a" * 32, 1, 1099, "EUR", '{"amount":1099}')
OTHER_REQUEST = FrozenRequest(REQUEST.order_id, 1, 1, "USD", '{"amount":1}')


@pytest.fixture
def ledger(dynamodb: Any, charges: str) -> Ledger:
    """The ledger on each DynamoDB, and on the one in memory that the simulation runs on."""
    return Ledger(dynamodb, charges)


def claim(ledger: Ledger, request: FrozenRequest = REQUEST, *, at: int = T0) -> Any:
    return ledger.claim(request, correlation_id="c", placed_at=T0, now=at, lease_seconds=LEASE_SECONDS)


def claimed(ledger: Ledger, *, at: int = T0) -> ChargeRow:
    outcome = claim(ledger, at=at)
    assert isinstance(outcome, Claimed)
    return outcome.row


def settle(ledger: Ledger, row: ChargeRow, state: PaymentState = PaymentState.SUCCEEDED) -> None:
    ledger.settle(row, state, payment_intent_id="pi_1", code=None, now=T0 + 1)


def test_the_first_claim_makes_the_row(ledger: Ledger) -> None:
    """With a lease, the first fencing token, key generation 0 and the frozen request."""
    row = claimed(ledger)
    assert row.request == REQUEST
    assert (row.state, row.fencing_token, row.lease_expires_at) == (PaymentState.CLAIMED, 1, T0 + LEASE_SECONDS)
    assert (row.key_generation, row.key_opened_at, row.placed_at, row.looking_since) == (0, T0, T0, None)


def test_a_second_claim_learns_who_holds_the_row(ledger: Ledger) -> None:
    """From the refusal itself, until when it has to wait."""
    claimed(ledger)
    assert claim(ledger, at=T0 + LEASE_SECONDS - 1) == HeldByAnother(T0 + LEASE_SECONDS)


def test_an_expired_lease_is_taken_over_with_a_higher_token(ledger: Ledger) -> None:
    """And the request that was frozen first stays."""
    claimed(ledger)
    outcome = claim(ledger, OTHER_REQUEST, at=T0 + LEASE_SECONDS)
    assert isinstance(outcome, Claimed)
    assert outcome.row.request == REQUEST
    assert outcome.row.fencing_token == 2


def test_a_settled_row_is_never_claimed_again(ledger: Ledger) -> None:
    """However much later; the duplicate learns what was charged."""
    settle(ledger, claimed(ledger))
    assert claim(ledger, at=T0 + 10**7) == AlreadySettled(PaymentState.SUCCEEDED, REQUEST.fingerprint, T0 + 1)


def test_a_settled_row_is_told_of_again(ledger: Ledger) -> None:
    """By a write that the table's stream carries, and that changes nothing of what the row says."""
    settle(ledger, claimed(ledger))
    before = ledger.read(REQUEST.order_id, 1)
    ledger.tell_again(REQUEST, PaymentState.SUCCEEDED, now=T0 + 10)
    assert told_again_at(ledger) == T0 + 10
    assert claim(ledger) == AlreadySettled(PaymentState.SUCCEEDED, REQUEST.fingerprint, T0 + 10)
    assert ledger.read(REQUEST.order_id, 1) == before


def test_a_row_that_moved_on_or_is_gone_is_not_told_of(ledger: Ledger) -> None:
    """Its move was told, and a row that its time to live deleted is not made anew."""
    ledger.tell_again(REQUEST, PaymentState.SUCCEEDED, now=T0 + 10)
    assert ledger.read(REQUEST.order_id, 1) is None
    settle(ledger, claimed(ledger))
    ledger.tell_again(REQUEST, PaymentState.REQUIRES_ACTION, now=T0 + 10)
    assert told_again_at(ledger) is None


def told_again_at(ledger: Ledger) -> int | None:
    key = to_item({"order_id": REQUEST.order_id, "attempt": 1})
    item = ledger.client.get_item(TableName=ledger.table, Key=key, ConsistentRead=True)["Item"]
    return from_item(item).get("told_again_at")


def test_a_settled_row_never_changes(ledger: Ledger) -> None:
    """Not even by its own holder."""
    row = claimed(ledger)
    settle(ledger, row)
    with pytest.raises(LeaseLost):
        settle(ledger, row, PaymentState.DECLINED)
    with pytest.raises(LeaseLost):
        ledger.hand_back(row, look_first=True, now=T0)


def test_a_worker_that_lost_its_lease_cannot_write(ledger: Ledger) -> None:
    """Its fencing token is too old: nothing that it does reaches the row."""
    slow = claimed(ledger)
    fast = claimed(ledger, at=T0 + LEASE_SECONDS)
    for write in (
        lambda: settle(ledger, slow),
        lambda: ledger.hand_back(slow, look_first=False, now=T0),
        lambda: ledger.open_new_key(slow, now=T0),
    ):
        with pytest.raises(LeaseLost):
            write()
    settle(ledger, fast)


def test_a_row_handed_back_can_be_claimed_at_once(ledger: Ledger) -> None:
    """The same key goes on; nothing says look."""
    ledger.hand_back(claimed(ledger), look_first=False, now=T0 + 2)
    row = claimed(ledger, at=T0 + 2)
    assert (row.looking_since, row.fencing_token, row.key_generation) == (None, 2, 0)


def test_a_row_remembers_since_when_it_is_looked_for(ledger: Ledger) -> None:
    """Later looks do not move that time, or its grace would never pass."""
    for at in (T0, T0 + 10, T0 + 20):
        ledger.hand_back(claimed(ledger, at=at), look_first=True, now=at)
    assert claimed(ledger, at=T0 + 20).looking_since == T0


def test_a_new_key_is_written_before_it_is_used(ledger: Ledger) -> None:
    """The next generation, opened now, and nothing to look for."""
    ledger.hand_back(claimed(ledger), look_first=True, now=T0)
    row = ledger.open_new_key(claimed(ledger, at=T0 + 1), now=T0 + 1)
    assert (row.key_generation, row.key_opened_at, row.looking_since) == (1, T0 + 1, None)
    assert row.idempotency_key.endswith(":1:1")


SECOND = FrozenRequest(REQUEST.order_id, 2, 1099, "EUR", "{}")


def test_a_second_attempt_follows_a_decline(ledger: Ledger) -> None:
    """A new card is a new row, with a key and a fencing token of its own."""
    settle(ledger, claimed(ledger), PaymentState.DECLINED)
    outcome = claim(ledger, SECOND)
    assert isinstance(outcome, Claimed)
    assert (outcome.row.request, outcome.row.fencing_token) == (SECOND, 1)
    assert outcome.row.idempotency_key.endswith(":2:0")


@pytest.mark.parametrize("state", [PaymentState.SUCCEEDED, PaymentState.REQUIRES_ACTION, PaymentState.NEEDS_REVIEW])
def test_a_second_attempt_follows_nothing_else(ledger: Ledger, state: PaymentState) -> None:
    """Neither a row that is settled otherwise, nor an open one, nor none: and no row is made."""
    assert claim(ledger, SECOND) == NotDeclinedBefore(None)
    row = claimed(ledger)
    assert claim(ledger, SECOND) == NotDeclinedBefore(PaymentState.CLAIMED)
    settle(ledger, row, state)
    assert claim(ledger, SECOND) == NotDeclinedBefore(state)


def test_a_second_attempt_has_duplicates_too(ledger: Ledger) -> None:
    """They learn the same from the canceled transaction."""
    settle(ledger, claimed(ledger), PaymentState.DECLINED)
    outcome = claim(ledger, SECOND)
    assert claim(ledger, SECOND) == HeldByAnother(T0 + LEASE_SECONDS)
    settle(ledger, outcome.row)
    assert claim(ledger, SECOND) == AlreadySettled(PaymentState.SUCCEEDED, SECOND.fingerprint, T0 + 1)


class Overtaken:
    """A client through which something else happens between a transaction and the read after it."""

    def __init__(self, client: Any, meanwhile: Callable[[], object]) -> None:
        self.client, self.meanwhile = client, meanwhile

    def __getattr__(self, name: str) -> Any:
        if name == "get_item":
            self.meanwhile()
        return getattr(self.client, name)


def test_a_second_attempt_that_was_overtaken_holds_nothing(ledger: Ledger) -> None:
    """Its lease had expired before it read the row: what it reads is another's lease, or another's charge."""
    settle(ledger, claimed(ledger), PaymentState.DECLINED)
    later = T0 + LEASE_SECONDS
    slow = Ledger(Overtaken(ledger.client, lambda: claim(ledger, SECOND, at=later)), ledger.table)  # type: ignore[arg-type]
    assert claim(slow, SECOND) == HeldByAnother(later + LEASE_SECONDS)

    def charged_by_another() -> None:
        settle(ledger, claim(ledger, SECOND, at=later + 2 * LEASE_SECONDS).row)

    slow = Ledger(Overtaken(ledger.client, charged_by_another), ledger.table)  # type: ignore[arg-type]
    outcome = claim(slow, SECOND, at=later + LEASE_SECONDS)
    assert outcome == AlreadySettled(PaymentState.SUCCEEDED, SECOND.fingerprint, T0 + 1)


def test_a_row_is_read_as_it_is(ledger: Ledger) -> None:
    """With what it was settled as; and no row is None."""
    assert ledger.read(REQUEST.order_id, 1) is None
    settle(ledger, claimed(ledger))
    row = ledger.read(REQUEST.order_id, 1)
    assert row is not None
    assert (row.request, row.state, row.payment_intent_id) == (REQUEST, PaymentState.SUCCEEDED, "pi_1")
    assert (row.settled_at, row.correlation_id) == (T0 + 1, "c")


def test_all_rows_are_read_page_by_page(ledger: Ledger) -> None:
    """Each of them once, whatever the size of a page; then it is over."""
    orders = {f"ord_{number:032x}" for number in range(7)}
    for order_id in orders:
        claim(ledger, FrozenRequest(order_id, 1, 1099, "EUR", "{}"))
    seen: list[str] = []
    after = None
    for _ in range(4):
        rows, after = ledger.page(after=after, limit=2)
        seen += [row.request.order_id for row in rows]
    assert sorted(seen) == sorted(orders)
    assert after is None or ledger.page(after=after, limit=2) == ([], None)


def test_a_row_is_taken_over_only_when_its_lease_has_expired(ledger: Ledger) -> None:
    """And only as it was read: then it has the higher token, and whoever had it before can write no more."""
    row = claimed(ledger)
    assert ledger.take_over(row, now=T0 + LEASE_SECONDS - 1, lease_seconds=LEASE_SECONDS) is None
    ours = ledger.take_over(row, now=T0 + LEASE_SECONDS, lease_seconds=LEASE_SECONDS)
    assert ours is not None
    assert (ours.fencing_token, ours.lease_expires_at) == (2, T0 + 2 * LEASE_SECONDS)
    assert ledger.take_over(row, now=T0 + 10**6, lease_seconds=LEASE_SECONDS) is None
    with pytest.raises(LeaseLost):
        settle(ledger, row)
    settle(ledger, ours)
    assert ledger.take_over(ours, now=T0 + 10**6, lease_seconds=LEASE_SECONDS) is None


@pytest.mark.parametrize("state", [PaymentState.SUCCEEDED, PaymentState.DECLINED])
def test_what_the_bank_decides_settles_a_row_once(ledger: Ledger, state: PaymentState) -> None:
    """A row that waits for it, and no other; the PaymentIntent's id stays."""
    row = claimed(ledger)
    assert not ledger.decide(row, state, code=None, now=T0)
    settle(ledger, row, PaymentState.REQUIRES_ACTION)
    assert ledger.decide(row, state, code="card_declined", now=T0 + 9)
    assert not ledger.decide(row, PaymentState.DECLINED, code=None, now=T0 + 10)
    decided = ledger.read(REQUEST.order_id, 1)
    assert decided is not None
    assert (decided.state, decided.payment_intent_id, decided.settled_at) == (state, "pi_1", T0 + 9)


def test_each_method_makes_one_request(ledger: Ledger) -> None:
    """A fresh order costs two, a duplicate one, and neither a read."""
    if isinstance(ledger.client, MemoryDynamoDB):
        return  # It has no HTTP underneath to count at.
    sent: list[str] = []
    ledger.client.meta.events.register(
        "before-call.dynamodb", lambda model, **_: sent.append(model.name), unique_id=str(uuid4())
    )
    settle(ledger, claimed(ledger))
    claim(ledger)
    assert sent == ["UpdateItem"] * 3


def test_32_writers_in_two_processes_have_one_winner_for_each_of_200_orders(endpoint: Endpoint) -> None:
    """Two processes of 16 threads, all after the same orders."""
    table = create_table(endpoint.client(), f"race-{uuid4()}", "ChargesTable")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contract.racers", table],
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
