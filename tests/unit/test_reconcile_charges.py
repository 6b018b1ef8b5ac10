"""reconcile_charges: what no delivery settles is settled from what Stripe shows; what no rule settles is reported.

DynamoDB and Stripe are in memory here, held to the others' behaviour by tests/contract.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from onecharge.payments.ledger import Claimed, Ledger
from onecharge.payments.settling import Settler
from reconcile_charges.progress import ProgressStore

from onecharge.payments.protocol import ChargeRow
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.states import PaymentState
from reconcile_charges.reconcile import (
    ABANDONED_SECONDS,
    ROWS_HELD_FOR_SECONDS,
    SETTLING_SECONDS,
    ReconcileCharges,
)
from tests.conftest import Log
from tests.contract.test_stripe_gateway import request_for
from tests.simulation.dynamodb import MemoryDynamoDB, NoFaults
from tests.simulation.stripe import MemoryStripe, PaymentIntent, stripe_in_memory

T0 = 1_800_000_000
LEASE_SECONDS = 35
_3DS = "pm_card_threeDSecure2Required"


@dataclass
class Shop:
    """A ledger, a Stripe, and a clock that the test sets."""

    log: Log
    io: NoFaults = field(default_factory=lambda: NoFaults(T0))
    counted: list[str] = field(default_factory=list)
    steps_left: int = 10**6

    def __post_init__(self) -> None:
        self.dynamodb: Any = MemoryDynamoDB(
            keys={"Charges": ("order_id", "attempt"), "Reconciliation": ("name",)}, io=self.io
        )
        self.stripe = MemoryStripe(io=self.io)
        self.ledger = Ledger(self.dynamodb, "Charges")
        self.gateway = StripeGateway(stripe_in_memory(self.stripe))

    def charge(self, order: str = "a", *, state: PaymentState | None = None, **changes: Any) -> PaymentIntent:
        """A worker charges the order; settles it as `state`, or is killed before."""
        request = request_for(order, **changes)
        claim = self.ledger.claim(
            request, correlation_id="c", placed_at=self.io.time, now=self.io.time, lease_seconds=LEASE_SECONDS
        )
        assert isinstance(claim, Claimed)
        self.gateway.charge(request, claim.row.idempotency_key)
        intent = self.stripe.intents[-1]
        if state:
            self.ledger.settle(claim.row, state, payment_intent_id=intent.id, code=None, now=self.io.time)
        return intent

    def reconcile(self, *, seconds_later: int = 0) -> None:
        self.io.time += seconds_later
        settler = Settler(
            ledger=self.ledger,
            gateway=self.gateway,
            lease_seconds=125,
            clock=lambda: self.io.time,
            logger=self.log.logger,
            count=self.counted.append,
        )
        ReconcileCharges(
            ledger=self.ledger,
            gateway=self.gateway,
            settler=settler,
            progress=ProgressStore(self.dynamodb, "Reconciliation"),
            clock=lambda: self.io.time,
            has_time=self._has_time,
            logger=self.log.logger,
            count=self.counted.append,
        )()

    def _has_time(self) -> bool:
        self.steps_left -= 1
        return self.steps_left >= 0

    def row(self, order: str = "a", attempt: int = 1) -> ChargeRow:
        row = self.ledger.read(request_for(order).order_id, attempt)
        assert row is not None
        return row

    def forget(self, order: str) -> None:
        self.dynamodb.tables["Charges"].pop((request_for(order).order_id, "1"))


@pytest.fixture
def shop(log: Log) -> Shop:
    return Shop(log)


def test_a_charge_whose_worker_and_message_are_gone_is_settled(shop: Shop) -> None:
    """From Stripe's event alone, with the charge's id."""
    intent = shop.charge()
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert (shop.row().state, shop.row().payment_intent_id) == (PaymentState.SUCCEEDED, intent.id)
    assert shop.counted == ["Reconciled.SUCCEEDED"]


def test_a_decline_is_settled_too(shop: Shop) -> None:
    """With its code, so that a new card may be tried."""
    shop.charge(payment_method="pm_card_visa_chargeDeclined")
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert shop.row().state is PaymentState.DECLINED


def test_a_row_that_a_worker_holds_is_left_to_it(shop: Shop) -> None:
    """Its lease is alive."""
    shop.charge()
    shop.io.time += SETTLING_SECONDS + 1
    held = shop.row()
    assert shop.ledger.take_over(held, now=shop.io.time, lease_seconds=LEASE_SECONDS)
    shop.reconcile()
    assert shop.row().state is PaymentState.CLAIMED
    assert shop.counted == []


def test_what_has_just_happened_is_left_to_whoever_does_it(shop: Shop) -> None:
    """Events are read when they are old enough for it to be settled; and then they are read."""
    shop.charge()
    shop.reconcile(seconds_later=SETTLING_SECONDS - 1)
    assert shop.row().state is PaymentState.CLAIMED
    shop.reconcile(seconds_later=2)
    assert shop.row().state is PaymentState.SUCCEEDED


def test_three_d_secure_is_settled_as_the_bank_decided(shop: Shop) -> None:
    """Even if no webhook ever told of it."""
    intent = shop.charge(state=PaymentState.REQUIRES_ACTION, payment_method=_3DS)
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert shop.row().state is PaymentState.REQUIRES_ACTION
    shop.stripe.becomes(intent, "succeeded")
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert shop.row().state is PaymentState.SUCCEEDED


def test_three_d_secure_is_settled_however_late_it_is_noticed(shop: Shop) -> None:
    """A reconciler that failed for longer than Stripe keeps events, and a webhook that was lost: its row has a turn."""
    intent = shop.charge(state=PaymentState.REQUIRES_ACTION, payment_method=_3DS)
    shop.stripe.becomes(intent, "succeeded")
    shop.stripe.events.clear()
    shop.reconcile(seconds_later=ROWS_HELD_FOR_SECONDS + 1)
    assert shop.row().state is PaymentState.SUCCEEDED


def test_a_failed_three_d_secure_is_canceled_before_it_counts_as_declined(shop: Shop) -> None:
    """Or the customer's page could confirm it once more, beside the next attempt."""
    intent = shop.charge(state=PaymentState.REQUIRES_ACTION, payment_method=_3DS)
    shop.stripe.becomes(intent, "requires_payment_method")
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert (shop.row().state, intent.status) == (PaymentState.DECLINED, "canceled")


def test_one_that_succeeds_while_it_is_canceled_is_paid(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stripe refuses to cancel it; what it says then holds."""
    intent = shop.charge(state=PaymentState.REQUIRES_ACTION, payment_method=_3DS)
    shop.stripe.becomes(intent, "requires_payment_method")

    class PaidMeanwhile(NoFaults):
        def pause(self, where: str) -> None:
            if where == "stripe cancel":
                shop.stripe.becomes(intent, "succeeded")

    shop.stripe.io = PaidMeanwhile(T0 + SETTLING_SECONDS + 1)
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert shop.row().state is PaymentState.SUCCEEDED


def test_a_charge_that_no_row_knows_is_reported(shop: Shop) -> None:
    """It is somebody's money: an alarm, with the order and the PaymentIntent."""
    intent = shop.charge(state=PaymentState.SUCCEEDED)
    shop.forget("a")
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert shop.counted == ["ChargeUnknownToLedger", "Alarm"]
    [line] = [line for line in shop.log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["payment_intent_id"]) == (request_for().order_id, intent.id)


def test_a_row_that_stripe_does_not_know_is_reported(shop: Shop) -> None:
    """As after a deploy with the key of another account."""
    shop.charge(state=PaymentState.SUCCEEDED)
    shop.stripe.intents.clear()
    shop.stripe.events.clear()
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert shop.counted == ["RowUnknownToStripe", "Alarm"]
    assert shop.row().state is PaymentState.SUCCEEDED


@pytest.mark.parametrize("state", [PaymentState.DECLINED, PaymentState.SUCCEEDED])
def test_a_settled_row_that_stripe_contradicts_is_reported_and_left(shop: Shop, state: PaymentState) -> None:
    """A second charge of one attempt, or one of a declined attempt: rows never change, a person has to see it."""
    shop.charge(state=state)
    shop.gateway.charge(request_for(), "a key that nobody should use")
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert Counter(shop.counted)["LedgerDiffersFromStripe"] >= 1
    assert shop.row().state is state


def test_an_abandoned_claim_is_reported_once_no_message_can_come_back(shop: Shop) -> None:
    """Nothing was charged, and nobody will: it needs a redrive."""
    claim = shop.ledger.claim(request_for(), correlation_id="c", placed_at=T0, now=T0, lease_seconds=LEASE_SECONDS)
    assert isinstance(claim, Claimed)
    shop.reconcile(seconds_later=LEASE_SECONDS + ABANDONED_SECONDS - 1)
    assert shop.counted == []
    shop.reconcile(seconds_later=1)
    assert shop.counted == ["AbandonedClaim", "Alarm"]
    # A redriven message can claim it at once, and has the same key.
    again = shop.ledger.claim(
        request_for(), correlation_id="c", placed_at=T0, now=shop.io.time, lease_seconds=LEASE_SECONDS
    )
    assert isinstance(again, Claimed)
    assert again.row.idempotency_key == claim.row.idempotency_key


def test_what_agrees_costs_no_request_to_stripe(shop: Shop) -> None:
    """But for the page of events, and one for each row on its turn; and old rows have no turn."""
    for order in "abc":
        shop.charge(order, state=PaymentState.SUCCEEDED)
    asked: list[str] = []

    class Asked(NoFaults):
        def pause(self, where: str) -> None:
            asked.append(where)

    shop.stripe.io = Asked(T0)
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert asked == ["stripe events", *["stripe retrieve"] * 3]
    assert shop.counted == []
    shop.reconcile(seconds_later=ROWS_HELD_FOR_SECONDS)
    assert asked.count("stripe retrieve") == 3


def test_a_run_is_bounded_and_the_next_one_goes_on(shop: Shop) -> None:
    """With time for a few steps each, the runs together settle all of it, and nothing twice."""
    for number in range(12):
        shop.charge(f"{number:x}")
    shop.io.time += SETTLING_SECONDS + 1
    for settled in (3, 6, 9, 12):
        shop.steps_left = 3
        shop.reconcile()
        assert len(shop.counted) == settled
    assert {shop.row(f"{number:x}").state for number in range(12)} == {PaymentState.SUCCEEDED}
    assert Counter(shop.counted) == {"Reconciled.SUCCEEDED": 12}


def test_an_interrupted_run_loses_nothing(shop: Shop) -> None:
    """Stripe breaks off in the middle: the next run reads the same events again."""
    shop.charge("a")
    shop.charge("b")
    shop.stripe.down = True
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    assert shop.counted == ["ReconcileInterrupted"]
    shop.stripe.down = False
    shop.reconcile()
    assert {shop.row(order).state for order in "ab"} == {PaymentState.SUCCEEDED}


def test_a_reconciler_that_was_off_for_months_starts_where_stripe_still_has_events(shop: Shop) -> None:
    """The event that it stopped at is long gone; what it missed, the rows' own turn finds."""
    shop.charge("a")
    shop.charge("b")
    shop.steps_left = 1
    shop.reconcile(seconds_later=SETTLING_SECONDS + 1)
    shop.stripe.events.clear()
    shop.steps_left = 10**6
    shop.reconcile(seconds_later=90 * 24 * 3600)
    assert {shop.row(order).state for order in "ab"} == {PaymentState.SUCCEEDED}


def test_two_runs_at_once_do_no_harm(shop: Shop) -> None:
    """One of them notices that the other has gone on, and stops."""
    shop.charge()
    shop.io.time += SETTLING_SECONDS + 1
    started: list[bool] = []

    class Twice(NoFaults):
        def pause(self, where: str) -> None:
            if where == "stripe events" and not started:
                started.append(True)
                shop.reconcile()

    shop.stripe.io = Twice(shop.io.time)
    shop.reconcile()
    assert shop.counted == ["Reconciled.SUCCEEDED"]
    assert "another run goes on" in [line["message"] for line in shop.log.lines]
