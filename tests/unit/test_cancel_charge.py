"""cancel_charge: a canceled attempt is never charged, whoever wins the race; if the charge won, the answer says so.

DynamoDB and Stripe are in memory here; every interleaving with the workers is tried in tests/simulation.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import stripe
from onecharge.payments.ledger import Ledger

from cancel_charge.cancel import CancelCharge, Cancellation
from charge_order.charge import ChargeOrder
from onecharge.deliveries import BackOff, Done, RetryAfter
from onecharge.events import OrderPlacedEvent
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.states import PaymentState
from tests.conftest import Log, Sample
from tests.simulation.dynamodb import MemoryDynamoDB, NoFaults
from tests.simulation.stripe import MemoryStripe, stripe_in_memory

LEASE_SECONDS = 35
_3DS = "pm_card_threeDSecure2Required"


@dataclass
class Payments:
    """The payment service over a DynamoDB and a Stripe in memory, and a clock that the test sets."""

    event: OrderPlacedEvent
    log: Log
    counted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.io = NoFaults(int(self.event.data.placed_at.timestamp()) + 1)
        self.dynamodb: Any = MemoryDynamoDB(keys={"Charges": ("order_id", "attempt")}, io=self.io)
        self.stripe = MemoryStripe(io=self.io)
        shared: dict[str, Any] = {
            "ledger": Ledger(self.dynamodb, "Charges"),
            "gateway": StripeGateway(stripe_in_memory(self.stripe)),
            "lease_seconds": LEASE_SECONDS,
            "clock": lambda: self.io.time,
            "logger": self.log.logger,
            "count": self.counted.append,
        }
        self.charge_order, self.cancel_charge = ChargeOrder(**shared), CancelCharge(**shared)

    def cancel(self) -> Cancellation:
        return self.cancel_charge(self.event)

    def deliver(self) -> Any:
        return self.charge_order(self.event)

    @property
    def state(self) -> str:
        [row] = self.dynamodb.tables["Charges"].values()
        return str(row["state"]["S"])


@pytest.fixture
def payments(sample: Sample, log: Log) -> Payments:
    event = OrderPlacedEvent.model_validate_json(sample("charge_order/order_placed")["Records"][0]["body"])
    return Payments(event, log)


def with_card(payments: Payments, card: str) -> Payments:
    data = payments.event.data.model_copy(update={"payment_method": card})
    payments.event = payments.event.model_copy(update={"data": data})
    return payments


def test_what_is_canceled_before_it_is_charged_never_is(payments: Payments) -> None:
    """However often it is asked and delivered afterwards."""
    assert [payments.cancel(), payments.cancel()] == [Cancellation.CANCELED] * 2
    assert [payments.deliver(), payments.deliver()] == [Done(), Done()]
    assert (payments.state, payments.stripe.charges) == ("CANCELED", [])


def test_if_the_charge_won_the_answer_says_so(payments: Payments) -> None:
    """And nothing is changed."""
    payments.deliver()
    assert payments.cancel() is Cancellation.PAID
    assert (payments.state, len(payments.stripe.charges)) == ("SUCCEEDED", 1)


def test_while_it_is_being_charged_nobody_knows(payments: Payments) -> None:
    """The lease is alive: ask again."""
    answers = []

    class AskedMeanwhile(NoFaults):
        def pause(self, where: str) -> None:
            if where == "stripe create":
                answers.append(payments.cancel())

    payments.stripe.io = AskedMeanwhile(payments.io.time)
    assert payments.deliver() == Done()
    assert answers == [Cancellation.IN_PROGRESS]
    assert payments.cancel() is Cancellation.PAID


def test_the_worker_waits_while_it_is_being_canceled(payments: Payments) -> None:
    """It meets a live lease, and then a canceled row."""
    delivered = []

    class DeliveredMeanwhile(NoFaults):
        def pause(self, where: str) -> None:
            if where == "stripe search":
                delivered.append(payments.deliver())

    payments.stripe.io = DeliveredMeanwhile(payments.io.time)
    assert payments.cancel() is Cancellation.CANCELED
    assert delivered == [RetryAfter(LEASE_SECONDS + 1)]
    assert payments.deliver() == Done()
    assert payments.stripe.charges == []


def test_a_charge_whose_worker_was_killed_is_found(payments: Payments) -> None:
    """The row says CLAIMED and its lease has expired: what Stripe shows is what is answered."""
    with pytest.raises(KeyboardInterrupt):
        killed_before_it_settles(payments)
    payments.io.time += LEASE_SECONDS
    assert payments.cancel() is Cancellation.PAID
    assert payments.state == "SUCCEEDED"


def killed_before_it_settles(payments: Payments) -> None:
    class Killed(NoFaults):
        def pause(self, where: str) -> None:
            if where == "stripe create answered":
                raise KeyboardInterrupt

    payments.stripe.io, io = Killed(payments.io.time), payments.stripe.io
    try:
        payments.deliver()
    finally:
        payments.stripe.io = io


def test_an_outcome_that_nobody_knows_is_not_canceled(payments: Payments) -> None:
    """A worker has asked Stripe and got no answer; the key stays in use, and the order is charged later, once."""
    payments.stripe.down = True
    assert payments.deliver() == BackOff()
    payments.stripe.down = False
    assert payments.cancel() is Cancellation.IN_PROGRESS
    assert payments.deliver() == Done()
    assert len(payments.stripe.charges) == 1


def test_a_declined_order_can_be_canceled(payments: Payments) -> None:
    """There is nothing left to charge."""
    with_card(payments, "pm_card_visa_chargeDeclined").deliver()
    assert payments.cancel() is Cancellation.CANCELED
    assert payments.state == "DECLINED"


def test_a_customer_at_the_bank_comes_too_late(payments: Payments) -> None:
    """The PaymentIntent is canceled at Stripe, so that no page can confirm it any more."""
    with_card(payments, _3DS).deliver()
    assert payments.cancel() is Cancellation.CANCELED
    assert (payments.state, payments.stripe.intents[0].status) == ("CANCELED", "canceled")


def test_a_customer_at_the_bank_was_faster(payments: Payments) -> None:
    """Stripe decides the race: it refuses to cancel what has succeeded."""
    with_card(payments, _3DS).deliver()
    payments.stripe.becomes(payments.stripe.intents[0], "succeeded")
    assert payments.cancel() is Cancellation.PAID
    assert payments.state == "SUCCEEDED"


def test_what_needs_review_stays_with_the_person_who_has_it(payments: Payments) -> None:
    """Only that person knows."""
    payments.deliver()
    [row] = payments.dynamodb.tables["Charges"].values()
    row["state"] = {"S": PaymentState.NEEDS_REVIEW}
    assert payments.cancel() is Cancellation.NEEDS_REVIEW


def test_without_stripe_nothing_is_promised(payments: Payments) -> None:
    """The error is raised, and a delivery goes on at once with the same key."""
    payments.stripe.down = True
    with pytest.raises(stripe.StripeError):
        payments.cancel()
    payments.stripe.down = False
    assert payments.deliver() == Done()
    assert len(payments.stripe.charges) == 1
