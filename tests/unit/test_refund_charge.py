"""refund_charge: each refund is made once, however often it is delivered and wherever a worker stops.

DynamoDB and Stripe are in memory here, and the clients' own interfaces are what stands between.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from onecharge.payments.ledger import Ledger

from charge_order.charge import ChargeOrder
from onecharge.deliveries import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from onecharge.dynamodb import from_item
from onecharge.events import OrderPlacedEvent, RefundRequestedEvent
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.time_bounds import ABSENCE_GRACE_SECONDS, KEY_HORIZON_SECONDS
from refund_charge.ledger import RefundLedger
from refund_charge.protocol import FoundRefund, FrozenRefund, reply_for
from refund_charge.refund import RefundCharge
from refund_charge.stripe_refunds import StripeRefunds
from tests.conftest import Log, Sample
from tests.simulation.dynamodb import MemoryDynamoDB, NoFaults
from tests.simulation.stripe import MemoryStripe, Refund, stripe_in_memory

LEASE_SECONDS = 35


@dataclass
class Payments:
    """The payment service over a DynamoDB and a Stripe in memory, an order that is paid, and a refund of it."""

    placed: OrderPlacedEvent
    event: RefundRequestedEvent
    log: Log
    counted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.io = NoFaults(int(self.event.data.requested_at.timestamp()) + 1)
        keys = {"Charges": ("order_id", "attempt"), "RefundLedger": ("order_id", "refund_id")}
        self.dynamodb: Any = MemoryDynamoDB(keys=keys, io=self.io)
        self.stripe = MemoryStripe(io=self.io)
        client, charges = stripe_in_memory(self.stripe), Ledger(self.dynamodb, "Charges")
        shared: dict[str, Any] = {
            "lease_seconds": LEASE_SECONDS,
            "clock": lambda: self.io.time,
            "logger": self.log.logger,
            "count": self.counted.append,
        }
        self.charge_order = ChargeOrder(ledger=charges, gateway=StripeGateway(client), **shared)
        self.refund_charge = RefundCharge(
            charges=charges,
            ledger=RefundLedger(self.dynamodb, "RefundLedger"),
            refunds=StripeRefunds(client),
            **shared,
        )

    def charge(self) -> None:
        assert self.charge_order(self.placed) == Done()

    def deliver(self, event: RefundRequestedEvent | None = None) -> Disposition:
        return self.refund_charge(event or self.event)

    def changed(self, **changes: Any) -> RefundRequestedEvent:
        return self.event.model_copy(update={"data": self.event.data.model_copy(update=changes)})

    def reached_through(self, io: NoFaults) -> None:
        """All that reaches DynamoDB and Stripe from now on passes through it."""
        io.time = self.io.time
        self.io = self.dynamodb.io = self.stripe.io = io

    def passes(self, seconds: int) -> None:
        self.io.time += seconds
        self.stripe.time_has_passed()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [from_item(row) for row in self.dynamodb.tables.get("RefundLedger", {}).values()]

    @property
    def state(self) -> str:
        [row] = self.rows
        return str(row["state"])

    @property
    def refunded(self) -> list[int]:
        return [refund.amount for refund in self.stripe.refunds]


@pytest.fixture
def uncharged(sample: Sample, log: Log) -> Payments:
    def body(name: str) -> str:
        return str(sample(name)["Records"][0]["body"])

    return Payments(
        OrderPlacedEvent.model_validate_json(body("charge_order/order_placed")),
        RefundRequestedEvent.model_validate_json(body("refund_charge/refund_requested")),
        log,
    )


@pytest.fixture
def payments(uncharged: Payments) -> Payments:
    uncharged.charge()
    return uncharged


def test_a_refund_is_made_once_however_often_it_is_delivered(payments: Payments) -> None:
    """Ten deliveries, before and after Stripe has forgotten the key."""
    assert {payments.deliver() for _ in range(5)} == {Done()}
    payments.passes(3 * 24 * 3600)
    assert {payments.deliver() for _ in range(5)} == {Done()}
    assert (payments.refunded, payments.state) == ([1000], "SUCCEEDED")


def test_two_refunds_of_an_order_are_two(payments: Payments) -> None:
    """Each has its own row and key."""
    payments.deliver()
    payments.deliver(payments.changed(refund_id="rfd_" + "b" * 32, amount_minor=97))
    assert payments.refunded == [1000, 97]


class At(NoFaults):
    """Does something at the n-th boundary, and counts the boundaries."""

    def __init__(self, place: int, do: Callable[[], object]) -> None:
        super().__init__()
        self.place, self.do, self.passed = place, do, 0

    def pause(self, where: str) -> None:
        self.passed += 1
        if self.passed == self.place + 1:
            self.do()


PAUSES = 9
"""Of one delivery: before and after each request, and while Stripe has it."""


def test_a_delivery_has_so_many_boundaries(payments: Payments) -> None:
    """So that the two tests below leave none out."""
    payments.reached_through(io := At(-1, lambda: None))
    payments.deliver()
    assert io.passed == PAUSES


@pytest.mark.parametrize("place", range(PAUSES))
@pytest.mark.parametrize("forgotten", [False, True], ids=["at once", "after the key is forgotten"])
def test_a_worker_that_crashes_anywhere_loses_and_doubles_nothing(
    payments: Payments, place: int, *, forgotten: bool
) -> None:
    """The next delivery finds the row, the lease expired, and ends with the one refund."""

    def crash() -> None:
        raise KeyboardInterrupt

    payments.reached_through(At(place, crash))
    with pytest.raises(KeyboardInterrupt):
        payments.deliver()
    payments.passes(LEASE_SECONDS)
    for _ in range(3):
        if forgotten:
            payments.passes(25 * 3600)
        payments.deliver()
    assert payments.deliver() == Done()
    assert (payments.refunded, payments.state) == ([1000], "SUCCEEDED")


@pytest.mark.parametrize("place", range(PAUSES))
@pytest.mark.parametrize("late", [0, LEASE_SECONDS], ids=["beside a live lease", "after the lease"])
def test_a_second_delivery_at_any_moment_refunds_nothing_twice(payments: Payments, place: int, late: int) -> None:
    """Between any two steps of the first one, which goes on afterwards as if nothing had been."""
    answers: list[Disposition] = []

    def deliver_meanwhile() -> None:
        payments.io.time += late
        answers.append(payments.deliver())

    payments.reached_through(At(place, deliver_meanwhile))
    answers.append(payments.deliver())
    payments.passes(LEASE_SECONDS)
    assert payments.deliver() == Done()
    assert (payments.refunded, payments.state) == ([1000], "SUCCEEDED")
    assert all(isinstance(answer, Done | RetryAfter | BackOff) for answer in answers)


@dataclass
class Answers(NoFaults):
    """Stripe answers a refund in this way, once."""

    kind: str
    met_it: bool = False
    time: int = 0

    def fault(self, where: str, kinds: Any) -> str | None:
        if where == "stripe refund" and self.kind in kinds and not self.met_it:
            self.met_it = True
            return self.kind
        return None


@pytest.mark.parametrize("kind", ["drop before", "429", "503", "401", "500 before", "500 after", "drop after"])
def test_whatever_stripe_answers_the_refund_is_made_once(payments: Payments, kind: str) -> None:
    """A 500 is looked at, and the absent refund is sent under another key once it cannot appear any more."""
    payments.reached_through(Answers(kind))
    payments.deliver()
    payments.deliver()
    if kind == "500 before":
        assert payments.refunded == []
    payments.passes(ABSENCE_GRACE_SECONDS)
    assert payments.deliver() == Done()
    assert (payments.refunded, payments.state) == ([1000], "SUCCEEDED")
    assert payments.rows[0]["key_generation"] == (1 if kind == "500 before" else 0)


def test_a_wrong_api_key_fails_no_refund(payments: Payments) -> None:
    """It backs off, and somebody is told."""
    payments.reached_through(Answers("401"))
    assert payments.deliver() == BackOff()
    assert (payments.state, "Alarm" in payments.counted) == ("CLAIMED", True)


def test_a_message_that_is_days_old_is_looked_at_first(payments: Payments) -> None:
    """Even if its row is lost: the refund that Stripe shows is the one that was made."""
    payments.deliver()
    payments.dynamodb.tables["RefundLedger"].clear()
    payments.stripe.keys.clear()
    payments.passes(KEY_HORIZON_SECONDS)
    assert payments.deliver() == Done()
    assert (payments.refunded, payments.state) == ([1000], "SUCCEEDED")


def test_a_key_that_has_just_gone_out_of_use_may_still_refund(payments: Payments) -> None:
    """What was sent last has a quarter of an hour to appear, before another key is opened."""
    payments.passes(KEY_HORIZON_SECONDS)
    assert payments.deliver() == BackOff()
    assert payments.refunded == []
    payments.passes(ABSENCE_GRACE_SECONDS)
    assert payments.deliver() == Done()
    assert payments.refunded == [1000]


def test_what_stripe_refuses_has_failed(payments: Payments) -> None:
    """Somebody has refunded past this protocol: never more than was paid, and the code says why."""
    [intent] = payments.stripe.intents
    payments.stripe.refund({"payment_intent": intent.id}, "by hand")
    assert payments.deliver() == Done()
    [row] = payments.rows
    assert (row["state"], row["failure_code"]) == ("FAILED", "charge_already_refunded")
    assert payments.refunded == [3097]


def test_a_refund_waits_for_its_charge(uncharged: Payments) -> None:
    """And claims nothing meanwhile."""
    assert uncharged.deliver() == BackOff()
    assert uncharged.rows == []
    uncharged.charge()
    assert uncharged.deliver() == Done()


@pytest.mark.parametrize("changes", [{"amount_minor": 3098}, {"currency": "USD"}])
def test_more_than_was_charged_is_poison(payments: Payments, changes: dict[str, Any]) -> None:
    """It is not even sent."""
    with pytest.raises(PoisonMessage):
        payments.deliver(payments.changed(**changes))
    assert payments.refunded == []


def test_a_refund_from_the_future_is_poison(payments: Payments) -> None:
    """It would never be looked at first."""
    payments.io.time -= 3600
    with pytest.raises(PoisonMessage):
        payments.deliver()


def test_what_was_frozen_first_holds(payments: Payments) -> None:
    """A message that says something else under the same id changes nothing, and somebody is told."""
    payments.deliver()
    assert payments.deliver(payments.changed(amount_minor=2)) == Done()
    assert payments.refunded == [1000]
    assert "Alarm" in payments.counted


def test_two_refunds_of_one_id_are_for_a_person(payments: Payments) -> None:
    """They should not exist; none is made besides."""
    [intent] = payments.stripe.intents
    for key in ("x", "y"):
        metadata = {"refund_id": payments.event.data.refund_id}
        payments.stripe.refund({"payment_intent": intent.id, "amount": 1000, "metadata": metadata}, key)
    payments.passes(KEY_HORIZON_SECONDS)
    assert payments.deliver() == Done()
    assert payments.state == "NEEDS_REVIEW"
    assert payments.refunded == [1000, 1000]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("succeeded", "SUCCEEDED"),
        ("pending", "SUCCEEDED"),
        ("failed", "FAILED"),
        ("canceled", "FAILED"),
        ("requires_action", "NEEDS_REVIEW"),
    ],
)
def test_each_status_of_a_refund_at_stripe(payments: Payments, status: str, state: str) -> None:
    """As Stripe documents them; found by a look."""
    [intent] = payments.stripe.intents
    metadata = intent.metadata.__class__({"refund_id": payments.event.data.refund_id})
    payments.stripe.refunds.append(Refund("re_1", 1000, "eur", intent.id, metadata, status))
    payments.passes(KEY_HORIZON_SECONDS)
    assert payments.deliver() == Done()
    assert payments.state == state


def test_a_refund_of_other_money_is_for_a_person(payments: Payments) -> None:
    """It is not what was asked for."""
    request = FrozenRefund.of(payments.event.data, "pi_1")
    assert reply_for(request, FoundRefund("re_1", "succeeded", 999, "EUR")).answer.name == "OTHER_AMOUNT"
    assert reply_for(request, FoundRefund("re_1", "succeeded", 1000, "USD")).answer.name == "OTHER_AMOUNT"


def test_a_look_that_fails_is_repeated(payments: Payments) -> None:
    """Nothing is guessed while Stripe is down."""
    payments.passes(KEY_HORIZON_SECONDS + ABSENCE_GRACE_SECONDS)
    payments.stripe.down = True
    assert payments.deliver() == BackOff()
    payments.stripe.down = False
    assert payments.deliver() == Done()
    assert payments.refunded == [1000]
