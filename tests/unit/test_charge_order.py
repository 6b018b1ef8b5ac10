"""charge_order: claim, charge, settle. Deliveries of one order, however many, make one charge.

Stripe is a scripted gateway here; the real client against a stand-in that charges is in tests/contract.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
import stripe
from onecharge.payments.ledger import Ledger
from publish_events.facts import event_in

from charge_order.charge import TELL_AGAIN_SECONDS, ChargeOrder
from onecharge.deliveries import BackOff, Done, PoisonMessage, RetryAfter
from onecharge.dynamodb import from_item, to_item
from onecharge.events import OrderPlacedEvent
from onecharge.payments.protocol import Answer, FoundIntent, FrozenRequest, Reply
from onecharge.payments.stripe_gateway import LookInconclusive
from onecharge.payments.time_bounds import ABSENCE_GRACE_SECONDS, CLOCK_DIFFERENCE_SECONDS, KEY_HORIZON_SECONDS
from tests.conftest import Log, Sample

LEASE_SECONDS = 35
PAID = Reply(Answer.SUCCEEDED, "pi_1")


@dataclass
class ScriptedStripe:
    """Answers each charge with the next reply of the script, and remembers what was asked of it."""

    replies: list[Reply | BaseException]
    found: list[FoundIntent] | Exception = field(default_factory=list)
    charges: list[tuple[FrozenRequest, str]] = field(default_factory=list)
    confirmations: list[Reply] = field(default_factory=list)
    looks: int = 0
    during_charge: Callable[[], None] = lambda: None

    def charge(self, request: FrozenRequest, idempotency_key: str) -> Reply:
        self.charges.append((request, idempotency_key))
        self.during_charge()
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def confirm(self, request: FrozenRequest, payment_intent_id: str) -> Reply:
        return self.confirmations.pop(0)

    def look(self, request: FrozenRequest, *, placed_at: int, appears_until: int, now: int) -> list[FoundIntent]:
        self.looks += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@dataclass
class Worker:
    """charge_order over a table of moto's, a scripted Stripe, and a clock that the test sets."""

    event: OrderPlacedEvent
    table: str
    log: Log
    stripe: ScriptedStripe
    now: float
    counted: list[str] = field(default_factory=list)

    def deliver(self, event: OrderPlacedEvent | None = None) -> Any:
        charge_order = ChargeOrder(
            ledger=Ledger(boto3.client("dynamodb"), self.table),
            gateway=self.stripe,  # type: ignore[arg-type]  # The two methods that are used.
            lease_seconds=LEASE_SECONDS,
            clock=lambda: self.now,
            logger=self.log.logger,
            count=self.counted.append,
        )
        return charge_order(event or self.event)

    @property
    def row(self) -> dict[str, Any]:
        [item] = boto3.client("dynamodb").scan(TableName=self.table)["Items"]
        return from_item(item)


@pytest.fixture
def worker(charges_table: str, sample: Sample, log: Log) -> Worker:
    event = OrderPlacedEvent.model_validate_json(sample("charge_order/order_placed")["Records"][0]["body"])
    return Worker(event, charges_table, log, ScriptedStripe([PAID]), now=event.data.placed_at.timestamp() + 1)


def test_an_order_is_charged_and_settled(worker: Worker) -> None:
    """The row says so, with the PaymentIntent's id and the request that was frozen."""
    assert worker.deliver() == Done()
    assert worker.row["state"] == "SUCCEEDED"
    assert worker.row["payment_intent_id"] == "pi_1"
    assert worker.row["fingerprint"] == FrozenRequest.of(worker.event.data).fingerprint


def test_a_duplicate_of_a_settled_order_costs_nothing(worker: Worker) -> None:
    """It is done with, and Stripe is not asked."""
    worker.deliver()
    assert [worker.deliver() for _ in range(5)] == [Done()] * 5
    assert len(worker.stripe.charges) == 1


def test_whoever_asks_late_is_told_again(worker: Worker) -> None:
    """What the attempt came to, through the table's stream: the first record of it may be lost. Stripe is not asked."""
    worker.deliver()
    worker.now += TELL_AGAIN_SECONDS - 1
    worker.deliver()
    assert "told_again_at" not in worker.row
    worker.now += 2
    settled = worker.row
    assert worker.deliver() == Done()
    assert worker.row == settled | {"told_again_at": int(worker.now)}
    worker.now += TELL_AGAIN_SECONDS - 1
    worker.deliver()
    assert worker.counted.count("OutcomeToldAgain") == 1
    assert len(worker.stripe.charges) == 1
    told, told_again = (
        event_in({"eventName": "MODIFY", "dynamodb": {"NewImage": to_item(row)}}) for row in (settled, worker.row)
    )
    assert told is not None
    assert told == told_again


def test_a_duplicate_waits_while_the_order_is_being_charged(worker: Worker) -> None:
    """It is not acknowledged: it comes back when the lease has ended."""
    seen: list[Any] = []
    worker.stripe.during_charge = lambda: seen.append(worker.deliver())
    assert worker.deliver() == Done()
    assert seen == [RetryAfter(LEASE_SECONDS + 1)]
    assert len(worker.stripe.charges) == 1


def test_a_tampered_duplicate_changes_nothing(worker: Worker) -> None:
    """What was frozen first is what is charged, and the difference is an alarm."""
    worker.stripe.replies = [Reply(Answer.NO_ANSWER), PAID]
    assert worker.deliver() == BackOff()
    tampered = worker.event.model_copy(
        update={"data": worker.event.data.model_copy(update={"amount_minor": 1, "payment_method": "pm_other"})}
    )
    assert worker.deliver(tampered) == Done()
    assert worker.stripe.charges[0] == worker.stripe.charges[1]
    assert worker.row["amount_minor"] == worker.event.data.amount_minor
    assert "Alarm" in worker.counted


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (Reply(Answer.DECLINED, "pi_1", "insufficient_funds"), "DECLINED"),
        (Reply(Answer.REQUIRES_ACTION, "pi_1"), "REQUIRES_ACTION"),
        (Reply(Answer.OTHER_REQUEST), "NEEDS_REVIEW"),
        (Reply(Answer.OTHER_AMOUNT, "pi_1"), "NEEDS_REVIEW"),
        (Reply(Answer.REFUSED, code="resource_missing"), "NEEDS_REVIEW"),
    ],
)
def test_a_certain_answer_is_final(worker: Worker, reply: Reply, state: str) -> None:
    """The row is settled, the message done, and later deliveries charge nothing."""
    worker.stripe.replies = [reply]
    assert [worker.deliver(), worker.deliver()] == [Done(), Done()]
    assert worker.row["state"] == state
    assert worker.row.get("decline_code") == reply.code
    assert len(worker.stripe.charges) == 1


@pytest.mark.parametrize(
    "answer", [Answer.NO_ANSWER, Answer.KEY_IN_USE, Answer.RATE_LIMITED, Answer.UNAVAILABLE, Answer.BAD_API_KEY]
)
def test_an_unknown_outcome_is_tried_again_under_the_same_key(worker: Worker, answer: Answer) -> None:
    """The row stays CLAIMED without a lease to wait for; nothing but the same key is sent."""
    worker.stripe.replies = [Reply(answer), Reply(answer), PAID]
    assert worker.deliver() == BackOff()
    assert worker.row["state"] == "CLAIMED"
    assert [worker.deliver(), worker.deliver()] == [BackOff(), Done()]
    assert len({key for _, key in worker.stripe.charges}) == 1


def test_after_a_500_stripe_is_looked_at_first(worker: Worker) -> None:
    """What the look finds is settled; the charge is not sent again."""
    worker.stripe.replies = [Reply(Answer.SERVER_ERROR)]
    worker.stripe.found = [FoundIntent("pi_9", "succeeded", worker.event.data.amount_minor, "EUR")]
    assert [worker.deliver(), worker.deliver()] == [BackOff(), Done()]
    assert (worker.row["state"], worker.row["payment_intent_id"]) == ("SUCCEEDED", "pi_9")
    assert (len(worker.stripe.charges), worker.stripe.looks) == (1, 1)


def test_after_a_500_without_a_charge_a_new_key_is_opened_but_not_before_the_grace(worker: Worker) -> None:
    """The next generation is in the row before Stripe sees it."""
    generations: list[int] = []
    worker.stripe.replies = [Reply(Answer.SERVER_ERROR), PAID]
    worker.stripe.during_charge = lambda: generations.append(worker.row["key_generation"])
    assert [worker.deliver(), worker.deliver()] == [BackOff(), BackOff()]
    worker.now += ABSENCE_GRACE_SECONDS
    assert worker.deliver() == Done()
    assert [key.rpartition(":")[2] for _, key in worker.stripe.charges] == ["0", "1"]
    assert generations == [0, 1]


def test_an_old_message_is_looked_up_first(worker: Worker) -> None:
    """Redriven from the DLQ on day 13, with the ledger lost: the charge of day one is found, none is made."""
    worker.now += 13 * 24 * 3600
    worker.stripe.found = [FoundIntent("pi_9", "succeeded", worker.event.data.amount_minor, "EUR")]
    assert worker.deliver() == Done()
    assert worker.stripe.charges == []
    assert worker.row["payment_intent_id"] == "pi_9"


@pytest.mark.parametrize("error", [stripe.APIConnectionError("…"), stripe.APIError("…", http_status=500)])
def test_a_look_that_fails_proves_nothing(worker: Worker, error: Exception) -> None:
    """The message comes back, and looks again."""
    worker.now += KEY_HORIZON_SECONDS
    worker.stripe.found = error
    assert worker.deliver() == BackOff()
    assert worker.stripe.charges == []
    assert worker.row["state"] == "CLAIMED"


def test_a_look_that_we_may_not_make_is_an_alarm(worker: Worker) -> None:
    """A restricted key that cannot read, or a list too long to read: somebody has to see it."""
    worker.now += KEY_HORIZON_SECONDS
    for error in (stripe.PermissionError("…", http_status=403), LookInconclusive()):
        worker.stripe.found = error
        assert worker.deliver() == BackOff()
    assert worker.counted.count("Alarm") == 2


def test_an_unconfirmed_payment_intent_is_confirmed_and_settled(worker: Worker) -> None:
    """That very one; while its answer is unknown, it is looked for again."""
    worker.now += KEY_HORIZON_SECONDS
    worker.stripe.found = [FoundIntent("pi_9", "requires_confirmation", worker.event.data.amount_minor, "EUR")]
    worker.stripe.confirmations = [Reply(Answer.NO_ANSWER), Reply(Answer.SUCCEEDED, "pi_9")]
    assert [worker.deliver(), worker.deliver()] == [BackOff(), Done()]
    assert (worker.row["state"], worker.row["payment_intent_id"]) == ("SUCCEEDED", "pi_9")
    assert worker.stripe.charges == []


def test_a_crashed_worker_is_followed_by_the_next_delivery(worker: Worker) -> None:
    """Until its lease has ended nobody charges; then the same key is sent again."""
    worker.stripe.replies = [KeyboardInterrupt(), PAID]  # The worker is killed.
    with pytest.raises(KeyboardInterrupt):
        worker.deliver()
    worker.now += LEASE_SECONDS - 1
    assert worker.deliver() == RetryAfter(2)
    worker.now += 1
    assert worker.deliver() == Done()
    assert worker.row["fencing_token"] == 2
    assert worker.stripe.charges[0] == worker.stripe.charges[1]


def test_a_worker_that_lost_its_lease_writes_nothing(worker: Worker) -> None:
    """It was so slow that another took over: the row is the other's."""

    def another_takes_over() -> None:
        worker.stripe.during_charge = lambda: None
        worker.now += LEASE_SECONDS
        assert worker.deliver() == Done()

    worker.stripe.replies = [PAID, Reply(Answer.DECLINED, "pi_2", "generic_decline")]
    worker.stripe.during_charge = another_takes_over
    assert worker.deliver() == BackOff()
    assert (worker.row["state"], worker.row["payment_intent_id"]) == ("SUCCEEDED", "pi_1")


def second_attempt(event: OrderPlacedEvent) -> OrderPlacedEvent:
    data = event.data.model_copy(update={"attempt": 2, "payment_method": "pm_other"})
    return event.model_copy(update={"data": data})


def test_a_second_attempt_waits_for_the_first_to_be_declined(worker: Worker) -> None:
    """And then charges the new card, under a key of its own."""
    worker.stripe.replies = [Reply(Answer.NO_ANSWER), Reply(Answer.DECLINED, "pi_1", "lost_card"), PAID]
    again = second_attempt(worker.event)
    assert worker.deliver(again) == BackOff()
    worker.deliver()
    assert worker.deliver(again) == BackOff()
    worker.deliver()
    assert worker.deliver(again) == Done()
    assert [key.split(":", 2)[2] for _, key in worker.stripe.charges] == ["1:0", "1:0", "2:0"]


def test_a_paid_order_is_never_attempted_again(worker: Worker) -> None:
    """The message goes to the DLQ, where somebody sees it; Stripe is not asked."""
    worker.deliver()
    with pytest.raises(PoisonMessage, match="SUCCEEDED"):
        worker.deliver(second_attempt(worker.event))
    assert len(worker.stripe.charges) == 1


def test_a_time_yet_to_come_is_poison(worker: Worker) -> None:
    """It would switch the freshness rule off."""
    worker.now -= CLOCK_DIFFERENCE_SECONDS + 2
    with pytest.raises(PoisonMessage, match="in the future"):
        worker.deliver()


def test_each_delivery_is_one_log_line(worker: Worker) -> None:
    """With order id, attempt and correlation id."""
    worker.deliver()
    worker.deliver()
    expected = {"order_id": worker.event.subject, "attempt": 1, "correlation_id": worker.event.correlationid}
    assert len(worker.log.lines) == 2
    assert all(line.items() >= expected.items() for line in worker.log.lines)
