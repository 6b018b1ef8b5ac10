"""Refunds: each is made once, however often it is delivered, wherever a worker stops, whatever Stripe answers.

DynamoDB and Stripe are in memory, behind the clients' own interfaces.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import stripe

from onecharge.contract.refunds import RefundRequestedEvent, RefundState
from onecharge.contract.states import PaymentState
from onecharge.payments.apply_event import RefundDiscrepancy, apply_event
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import FoundIntent
from onecharge.payments.charges.store import PaymentStore, payment_of
from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.canceled_orders import refund_canceled_order
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import (
    REFUND_RULES,
    SPENT_KEY_SECONDS,
    FoundRefund,
    FrozenRefund,
    RefundAction,
    RefundResponseKind,
    kind_of,
    kind_of_refund,
    refund_id_of_canceled_order,
)
from onecharge.payments.refunds.refund import RefundTools, refund
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_events import EventDeferred, RefundEvent
from onecharge.payments.stripe_responses import Failure, ResponseKind, classify
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS, REFUSED_SECONDS, RETENTION_SECONDS
from onecharge.payments.work import REEMIT_AFTER_SECONDS, Unfinished, work
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from onecharge.runtime.dynamodb import from_item
from onecharge.runtime.parallel import one_after_another
from refund_charge.app import Application
from refund_charge.refund import refund_charge
from testing.harness import PROJECT, Log, Sample, load_template, number_of
from testing.simulation.dynamodb import MemoryDynamoDB, NoFaults
from testing.simulation.refunds import (
    AMOUNT_MINOR,
    BOUNDS,
    DAY,
    HOUR,
    ORDER_ID,
    PAYMENT_INTENT,
    PAYMENTS,
    REFUNDS,
    T0,
    MemoryRefunds,
    error,
    paid,
    requested,
)
from testing.tools import charge_tools, reconcile_tools, refund_tools

REFUND_ID = requested(0, 400).data.refund_id


@dataclass
class Service:
    """The payment service over a DynamoDB and a Stripe in memory, with an order that is paid."""

    log: Log
    event: RefundRequestedEvent = field(default_factory=lambda: requested(0, 400))
    counted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.io = NoFaults(T0 + 1)
        keys = {PAYMENTS: ("order_id",), REFUNDS: ("order_id", "refund_id")}
        self.dynamodb: Any = MemoryDynamoDB(keys=keys, io=self.io)
        self.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid()}
        self.stripe = MemoryRefunds(self.io)

    def tools(self, *, clock_differs: int = 0) -> RefundTools:
        """What the next delivery refunds with: the Stripe key as it is now."""
        instruments = Instruments(lambda: self.io.time + clock_differs, self.log.logger, self.counted.append)
        return refund_tools(self.store, StripeRefunds(self.stripe.client()), instruments)

    @property
    def store(self) -> RefundStore:
        return RefundStore(self.dynamodb, REFUNDS)

    def deliver(self, event: RefundRequestedEvent | None = None, *, clock_differs: int = 0) -> Disposition:
        tools = self.tools(clock_differs=clock_differs)
        return refund_charge(event or self.event, tools, PaymentStore(self.dynamodb, PAYMENTS))

    def happens(self, status: str = "failed", **changes: Any) -> RefundDiscrepancy | None:
        """Stripe sends an event of the first refund; returns how its row differs, None if that is not asked."""
        event = RefundEvent(
            event_id="evt_1",
            type="refund.failed",
            created=T0,
            order_id=ORDER_ID,
            payment_intent_id=PAYMENT_INTENT,
            stripe_refund_id="re_0",
            status=status,
            refund_id=self.event.data.refund_id,
        )
        refund, payments = self.tools(), PaymentStore(self.dynamodb, PAYMENTS)
        gateway = StripeGateway(self.stripe.client(), one_after_another)
        tools = reconcile_tools(charge_tools(payments, gateway, refund.instruments), refund.store)
        already = len(self.counted)
        apply_event(replace(event, **changes), tools)
        found = [each.partition(".")[2] for each in self.counted[already:] if each.startswith("RefundDiscrepancy")]
        return RefundDiscrepancy[found[-1]] if found else None

    def loses_the_answer(self) -> None:
        """The refund is made, and this worker does not learn of it: the SDK does not send it again."""
        self.reached_through(Answers("drop after"))
        assert self.deliver() == BackOff()
        assert (self.refunded, self.row["state"]) == ([400], "PENDING")

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
        return [from_item(row) for row in self.dynamodb.tables.get(REFUNDS, {}).values()]

    @property
    def row(self) -> dict[str, Any]:
        [row] = self.rows
        return row

    @property
    def refunded(self) -> list[int]:
        return [each.amount for each in self.stripe.refunds if each.is_live]


@pytest.fixture
def service(log: Log) -> Service:
    return Service(log)


class At(NoFaults):
    """Does something at the n-th boundary, or at the first one of a name, and counts the boundaries."""

    def __init__(self, where: int | str, do: Callable[[], object]) -> None:
        super().__init__()
        self.where, self.do, self.passed = where, do, 0
        self.is_done = False

    def pause(self, where: str) -> None:
        self.passed += 1
        if not self.is_done and self.where in (self.passed - 1, where):
            self.is_done = True
            self.do()


class Answers(NoFaults):
    """Stripe answers requests to refund, or lookups, in this way, so often."""

    def __init__(self, kind: str, times: int = 1, where: str = "stripe refund") -> None:
        super().__init__()
        self.kind, self.times, self.where = kind, times, where

    def fault(self, where: str, kinds: Any) -> str | None:
        if where == self.where and self.kind in kinds and self.times > 0:
            self.times -= 1
            return self.kind
        return None


def crash() -> None:
    raise KeyboardInterrupt


# ---------------------------------------------------------------- refund twice


def test_refund_twice_a_lost_answer_and_then_another_accounts_404(service: Service) -> None:
    """The refund is made, its answer is lost, the secret is another account's for five minutes: nothing has FAILED."""
    service.loses_the_answer()
    service.stripe.is_other_account = True
    for _ in range(5):
        service.passes(60)
        assert service.deliver() == BackOff()
        assert (service.row["state"], "Alarm" in service.counted) == ("PENDING", True)
    service.stripe.is_other_account = False
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded) == ("SUCCEEDED", [400])


def test_a_404_of_the_payment_intent_is_retried_with_an_alarm(service: Service) -> None:
    """Whether the other account's list says 404 too, or shows nothing."""

    class ShowsNothing(NoFaults):
        def happens(self, what: str) -> bool:
            return "shows nothing" in what

    service.stripe.is_other_account = True
    for io in (NoFaults(), ShowsNothing()):
        service.reached_through(io)
        service.counted.clear()
        assert service.deliver() == BackOff()
        assert service.row["state"] == "PENDING"
        assert "Alarm" in service.counted


@pytest.mark.parametrize("lost", ["answer", "row", "key", "row and key"])
def test_a_refund_that_was_made_is_found_before_every_post(service: Service, lost: str) -> None:
    """Whatever was lost of it."""
    service.loses_the_answer()
    if "row" in lost:
        service.dynamodb.tables[REFUNDS].clear()
    if "key" in lost:
        service.passes(25 * HOUR)
        assert service.stripe.keys == {}
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded) == ("SUCCEEDED", [400])


def test_two_workers_that_both_find_nothing_make_one_refund(service: Service) -> None:
    """A day later, with every key forgotten and clocks that differ by five minutes: both send the same key."""
    service.passes(25 * HOUR)
    service.reached_through(At("stripe refund", lambda: assert_equal(service.deliver(clock_differs=299), Done())))
    assert service.deliver() == BackOff()
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded) == ("SUCCEEDED", [400])


def assert_equal(one: object, other: object) -> None:
    assert one == other


def test_a_500_that_is_executed_late_is_made_once(service: Service) -> None:
    """Its key is spent: nothing is sent any more, and the lookup finds it."""
    service.reached_through(Answers("500 later"))
    assert [service.deliver(), service.deliver()] == [BackOff(), BackOff()]
    assert service.row["key_spent_at"] == service.io.time
    for _ in range(19):
        service.passes(HOUR)
        assert service.deliver() == BackOff()
        assert service.refunded == []
    service.passes(HOUR)
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded) == ("SUCCEEDED", [400])


def test_a_500_that_is_never_executed_is_for_a_person_after_a_day(service: Service) -> None:
    """With an alarm each time. Once its key is spent nothing is sent any more, which a late execution could join."""
    service.reached_through(Answers("500 never"))
    assert [service.deliver(), service.deliver()] == [BackOff(), BackOff()]
    service.reached_through(sends := At("stripe refund", lambda: None))
    service.passes(1)
    assert service.deliver() == BackOff()
    service.passes(SPENT_KEY_SECONDS - 2)
    assert service.deliver() == BackOff()
    service.passes(1)
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded, sends.is_done) == ("NEEDS_REVIEW", [], False)
    assert service.counted.count("Alarm") == 4


def test_a_500_whose_key_may_be_forgotten_is_not_sent_again(service: Service) -> None:
    """No delivery came for a day: the former request may still be executed beside a new one."""
    service.reached_through(Answers("500 later"))
    service.stripe.late_seconds = 30 * HOUR
    assert service.deliver() == BackOff()
    service.passes(25 * HOUR)
    assert (service.stripe.keys, service.deliver()) == ({}, BackOff())
    assert service.refunded == []
    service.passes(5 * HOUR)
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded) == ("SUCCEEDED", [400])


@pytest.mark.parametrize("kind", ["drop before", "429", "503", "401", "502 unstored", "500 after", "drop after"])
def test_whatever_stripe_answers_the_refund_is_made_once(service: Service, kind: str) -> None:
    """The next delivery looks it up, and sends the same key if there is none."""
    service.reached_through(Answers(kind, times=2))
    dispositions = [service.deliver() for _ in range(3)]
    assert dispositions[-1] == Done()
    assert (service.row["state"], service.refunded) == ("SUCCEEDED", [400])


def test_a_replayed_success_is_looked_up(service: Service) -> None:
    """Another worker has made it in between, and the bank has returned it since: the stored answer says `pending`."""

    def made_and_returned() -> None:
        request = FrozenRefund.of(service.event.data, PAYMENT_INTENT)
        assert StripeRefunds(service.stripe.client()).create(request).refund
        service.stripe.refunds[0].status = "failed"

    service.reached_through(At("stripe refund", made_and_returned))
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded) == ("FAILED", [])


@pytest.mark.parametrize(("hours", "overdue"), [(23, 0), (25, 1)])
def test_a_refund_that_is_unfinished_for_a_day_is_an_alarm(service: Service, hours: int, overdue: int) -> None:
    """In each delivery: an outage alone is none."""
    service.reached_through(Answers("503"))
    service.passes(hours * HOUR)
    assert service.deliver() == BackOff()
    assert (service.counted.count("RefundOverdue"), service.counted.count("Alarm")) == (overdue, overdue)


# ---------------------------------------------------------------- one delivery, many deliveries


def test_a_refund_is_made_once_however_often_it_is_delivered(service: Service) -> None:
    """Ten deliveries, before and after Stripe has forgotten the key."""
    assert {service.deliver() for _ in range(5)} == {Done()}
    service.passes(3 * DAY)
    assert {service.deliver() for _ in range(5)} == {Done()}
    assert (service.refunded, service.row["state"]) == ([400], "SUCCEEDED")
    assert service.row["expires_at"] == service.row["finalized_at"] + RETENTION_SECONDS


def test_two_refunds_of_an_order_are_two(service: Service) -> None:
    """Each has its own row and key, though their amounts are alike."""
    service.deliver()
    service.deliver(service.changed(refund_id="rfd_" + "b" * 32))
    assert service.refunded == [400, 400]


PAUSES = 11
"""Of one delivery: before and after each request, and while Stripe has it."""


def test_a_delivery_has_so_many_boundaries(service: Service) -> None:
    """So that the two tests below leave none out; a fresh refund is two requests to Stripe, and three to DynamoDB."""
    service.reached_through(io := At(-1, lambda: None))
    service.deliver()
    assert io.passed == PAUSES


@pytest.mark.parametrize("place", range(PAUSES))
@pytest.mark.parametrize("forgotten", [False, True], ids=["at once", "after the key is forgotten"])
def test_a_worker_that_crashes_anywhere_loses_and_doubles_nothing(
    service: Service, place: int, *, forgotten: bool
) -> None:
    """The next delivery finds the row, the lease expired, and ends with the one refund."""
    service.reached_through(At(place, crash))
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    service.passes(BOUNDS.lease_seconds)
    for _ in range(3):
        if forgotten:
            service.passes(25 * HOUR)
        service.deliver()
    assert service.deliver() == Done()
    assert (service.refunded, service.row["state"]) == ([400], "SUCCEEDED")


@pytest.mark.parametrize("place", range(PAUSES))
@pytest.mark.parametrize("late", [0, BOUNDS.lease_seconds], ids=["beside a live lease", "after the lease"])
def test_a_second_delivery_at_any_moment_refunds_nothing_twice(service: Service, place: int, late: int) -> None:
    """Between any two steps of the first one, which goes on afterwards as if nothing had been."""
    answers: list[Disposition] = []

    def deliver_meanwhile() -> None:
        service.io.time += late
        answers.append(service.deliver())

    service.reached_through(At(place, deliver_meanwhile))
    answers.append(service.deliver())
    service.passes(BOUNDS.lease_seconds)
    assert service.deliver() == Done()
    assert (service.refunded, service.row["state"]) == ([400], "SUCCEEDED")
    assert all(isinstance(answer, Done | RetryAfter | BackOff) for answer in answers)


def test_a_late_duplicate_reemits_the_outcome(service: Service) -> None:
    """The order service asks again for what is PENDING there: the outcome's own stream record may be lost."""
    service.deliver()
    revision = service.row["revision"]
    service.passes(REEMIT_AFTER_SECONDS - 1)
    service.deliver()
    assert (service.row["revision"], "OutcomeReemitted" in service.counted) == (revision, False)
    service.passes(1)
    assert service.deliver() == Done()
    assert (service.row["revision"], service.row["last_emitted_at"]) == (revision + 1, service.io.time)
    service.deliver()
    assert service.counted.count("OutcomeReemitted") == 1


@pytest.mark.parametrize("state", [state for state in PaymentState if state is not PaymentState.SUCCEEDED])
def test_a_refund_waits_for_its_payment(service: Service, state: PaymentState) -> None:
    """And claims nothing meanwhile."""
    service.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid(state)}
    assert service.deliver() == BackOff()
    service.dynamodb.tables[PAYMENTS].clear()
    assert service.deliver() == BackOff()
    assert service.rows == []


@pytest.mark.parametrize("changes", [{"amount_minor": AMOUNT_MINOR + 1}, {"currency": "USD"}])
def test_more_than_was_charged_is_poison(service: Service, changes: dict[str, Any]) -> None:
    """It is not even sent."""
    with pytest.raises(PoisonMessage):
        service.deliver(service.changed(**changes))
    assert service.refunded == []


def test_a_refund_from_the_future_is_poison(service: Service) -> None:
    """Further than clocks differ."""
    service.io.time = T0 - FUTURE_MAX_SECONDS
    assert service.deliver() == Done()
    service.io.time -= 1
    with pytest.raises(PoisonMessage):
        service.deliver(service.changed(refund_id="rfd_" + "b" * 32))


def test_what_was_frozen_first_holds(service: Service) -> None:
    """A message that says something else under the same id changes nothing, and raises an alarm."""
    service.deliver()
    assert service.deliver(service.changed(amount_minor=2)) == Done()
    assert service.refunded == [400]
    assert "Alarm" in service.counted


def test_a_lookup_that_fails_is_repeated(service: Service) -> None:
    """Nothing is guessed while Stripe is down, and nothing is sent."""
    service.reached_through(Answers("503", times=2, where="stripe list"))
    assert service.deliver() == BackOff()
    assert service.stripe.keys == {}
    assert service.deliver() == Done()
    assert service.refunded == [400]


def test_a_list_that_is_too_long_is_inconclusive(service: Service) -> None:
    """An alarm, and nothing is sent."""

    class Endless:
        def list(self, parameters: Mapping[str, Any]) -> Any:
            return SimpleNamespace(
                data=[SimpleNamespace(id="re_x", payment_intent=PAYMENT_INTENT, metadata=None)],
                has_more=True,
                url="/v1/refunds",
            )

    client: Any = SimpleNamespace(v1=SimpleNamespace(refunds=Endless()))
    tools = replace(service.tools(), gateway=StripeRefunds(client))
    request = FrozenRefund.of(service.event.data, PAYMENT_INTENT)
    claim: Any = service.store.claim(request, correlation_id="c", owner="w", now=T0, lease_seconds=35)
    result = work(lambda row: refund(row, tools), claim.row, tools.store, tools.instruments)
    assert result == Unfinished("lookup inconclusive")
    assert "Alarm" in service.counted


def test_every_page_of_the_list_is_read() -> None:
    """The refund may be the oldest of many."""
    made = [SimpleNamespace(id=f"re_{n}", payment_intent=PAYMENT_INTENT, metadata=None) for n in range(5)]
    ours = {"refund_id": REFUND_ID, "order_id": ORDER_ID}
    metadata = SimpleNamespace(to_dict=lambda: ours)
    money = {"amount": 400, "currency": "eur", "status": "succeeded"}
    made.append(SimpleNamespace(id="re_5", payment_intent=PAYMENT_INTENT, metadata=metadata, **money))

    def page(parameters: Mapping[str, Any]) -> Any:
        ids = [each.id for each in made]
        start = ids.index(parameters["starting_after"]) + 1 if "starting_after" in parameters else 0
        return SimpleNamespace(data=made[start : start + 2], has_more=start + 2 < len(made), url="/v1/refunds")

    client: Any = SimpleNamespace(v1=SimpleNamespace(refunds=SimpleNamespace(list=page)))
    [found] = StripeRefunds(client).find_refunds(PAYMENT_INTENT, REFUND_ID)
    assert found == FoundRefund("re_5", "succeeded", 400, "EUR")


def test_with_too_little_time_left_nothing_is_sent(service: Service) -> None:
    """The lookup took all of it: the next delivery looks up again."""
    service.reached_through(At("stripe list answered", lambda: service.passes(20)))
    assert service.deliver() == BackOff()
    assert (service.refunded, service.row["lease_expires_at"]) == ([], 0)
    assert service.deliver() == Done()


# ---------------------------------------------------------------- what has FAILED


def test_what_stripe_refuses_has_failed(service: Service) -> None:
    """Somebody has refunded by hand: never more than was paid, the code says why, the amount is free again."""
    service.stripe.make(AMOUNT_MINOR, {})
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["failure_code"]) == ("FAILED", "charge_already_refunded")
    assert service.refunded == [AMOUNT_MINOR]
    assert "Alarm" in service.counted


def test_a_worker_that_released_its_lease_sends_nothing_any_more(service: Service) -> None:
    """So a refusal after it is a failure."""
    service.reached_through(Answers("401"))
    assert service.deliver() == BackOff()
    service.stripe.make(AMOUNT_MINOR, {})
    assert service.deliver() == Done()
    assert service.row["state"] == "FAILED"


def test_a_refusal_is_looked_up_before_it_is_failed(service: Service) -> None:
    """It may say no more than that this refund has been made meanwhile, after its key was forgotten."""

    def made_meanwhile() -> None:
        service.stripe.make(AMOUNT_MINOR, {"refund_id": REFUND_ID, "order_id": ORDER_ID})
        service.stripe.refunds[0].amount = AMOUNT_MINOR

    event = service.changed(amount_minor=AMOUNT_MINOR)
    service.reached_through(At("stripe refund", made_meanwhile))
    assert service.deliver(event) == Done()
    assert (service.row["state"], service.refunded) == ("SUCCEEDED", [AMOUNT_MINOR])


def test_a_refusal_is_no_failure_while_an_earlier_worker_may_still_send(service: Service) -> None:
    """The slow worker has looked up and not yet sent; meanwhile another is refused, and there is room again."""

    def another_is_refused() -> None:
        by_hand = service.stripe.make(AMOUNT_MINOR, {})
        assert service.deliver(clock_differs=299) == Done()
        assert service.row["state"] == "NEEDS_REVIEW"
        by_hand.status = "failed"  # type: ignore[union-attr]  # There was enough left.

    service.reached_through(At("stripe refund", another_is_refused))
    service.deliver()
    assert (service.row["state"], service.refunded) == ("NEEDS_REVIEW", [400])


def test_a_refusal_is_no_failure_while_an_earlier_request_may_be_executed(service: Service) -> None:
    """The gateway answered 502 and passed the request on; meanwhile it is refused, and there is room again."""
    service.reached_through(Answers("502 later"))
    assert service.deliver() == BackOff()
    assert service.row["unanswered_at"] == service.io.time
    by_hand = service.stripe.make(AMOUNT_MINOR, {})
    assert service.deliver() == Done()
    by_hand.status = "failed"  # type: ignore[union-attr]  # There was enough left.
    service.passes(DAY)
    assert (service.row["state"], service.refunded) == ("NEEDS_REVIEW", [400])


def test_an_answer_about_another_refund_is_none(service: Service) -> None:
    """Ours may have been made all the same: an alarm, and it is looked up before it is sent again."""

    class Crossed(MemoryRefunds):
        def _create(self, parameters: Mapping[str, Any], key: str, is_other: bool) -> Any:
            of_another = SimpleNamespace(to_dict=lambda: {"order_id": "ord_" + "b" * 32, "refund_id": REFUND_ID})
            made = vars(super()._create(parameters, key, is_other))
            return SimpleNamespace(**{**made, "id": "re_9", "status": "failed", "metadata": of_another})

    service.stripe = Crossed(service.io)
    assert service.deliver() == BackOff()
    assert (service.row["state"], service.row["unanswered_at"]) == ("PENDING", service.io.time)
    assert "Alarm" in service.counted
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["stripe_refund_id"]) == ("SUCCEEDED", "re_0")
    assert service.refunded == [400]


def test_an_invalid_request_waits_an_hour_for_us(service: Service) -> None:
    """With an alarm and Stripe's words on the row; then a person has to review it."""

    class Refuses(NoFaults):
        def pause(self, where: str) -> None:
            if where == "stripe refund":
                raise error(400, type="invalid_request_error", code="parameter_unknown", message="no such parameter")

    service.reached_through(Refuses())
    assert service.deliver() == BackOff()
    assert (service.row["refused_at"], service.row["stripe_message"]) == (service.io.time, "no such parameter")
    service.passes(REFUSED_SECONDS)
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["failure_code"]) == ("NEEDS_REVIEW", "parameter_unknown")


def test_two_refunds_of_one_id_are_for_a_person(service: Service) -> None:
    """They should not exist; none is made besides."""
    for _ in range(2):
        service.stripe.make(400, {"refund_id": REFUND_ID})
    assert service.deliver() == Done()
    assert (service.row["state"], service.refunded) == ("NEEDS_REVIEW", [400, 400])


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("succeeded", "SUCCEEDED"),
        ("pending", "SUCCEEDED"),
        ("failed", "FAILED"),
        ("canceled", "FAILED"),
        ("requires_action", "NEEDS_REVIEW"),
        ("something new", "NEEDS_REVIEW"),
    ],
)
def test_each_status_of_a_refund_at_stripe(service: Service, status: str, state: str) -> None:
    """As Stripe documents them; found by the lookup."""
    service.stripe.make(400, {"refund_id": REFUND_ID})
    service.stripe.refunds[0].status = status
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["stripe_refund_id"]) == (state, "re_0")


def test_a_refund_of_other_money_is_for_a_person(service: Service) -> None:
    """It is not what was asked for."""
    request = FrozenRefund.of(service.event.data, PAYMENT_INTENT)
    for found in (FoundRefund("re_1", "succeeded", 399, "EUR"), FoundRefund("re_1", "succeeded", 400, "USD")):
        assert kind_of_refund(request, found) is RefundResponseKind.OTHER_MONEY
    assert REFUND_RULES[RefundResponseKind.OTHER_MONEY].state is RefundState.NEEDS_REVIEW


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(None), RefundResponseKind.UNKNOWN),
        (error(409, type="idempotency_error", code="idempotency_key_in_use"), RefundResponseKind.UNKNOWN),
        (error(429, type="rate_limit_error"), RefundResponseKind.UNKNOWN),
        (error(500, type="api_error"), RefundResponseKind.UNKNOWN),
        (error(500, type="api_error", replay=True), RefundResponseKind.KEY_SPENT),
        (error(424, type="api_error", replay=True), RefundResponseKind.KEY_SPENT),
        (error(400, type="idempotency_error"), RefundResponseKind.KEY_SPENT),
        (error(401, type="invalid_request_error"), RefundResponseKind.ACCOUNT),
        (error(403, type="invalid_request_error"), RefundResponseKind.ACCOUNT),
        (error(404, type="invalid_request_error", code="resource_missing"), RefundResponseKind.ACCOUNT),
        (error(400, type="invalid_request_error", code="balance_insufficient"), RefundResponseKind.ACCOUNT),
        (error(400, type="invalid_request_error", code="charge_already_refunded"), RefundResponseKind.REFUSED),
        (error(400, type="invalid_request_error", code="charge_disputed"), RefundResponseKind.REFUSED),
        (error(400, type="invalid_request_error", code="amount_too_large"), RefundResponseKind.REFUSED),
        (
            error(
                400,
                type="invalid_request_error",
                message="Refund amount (€4.00) is greater than unrefunded amount on charge (€1.00)",
            ),
            RefundResponseKind.REFUSED,
        ),
        (error(400, type="invalid_request_error", code="parameter_unknown"), RefundResponseKind.INVALID),
        (error(402, type="card_error", code="card_declined"), RefundResponseKind.INVALID),
    ],
)
def test_each_answer_is_of_one_kind(answer: stripe.StripeError, kind: RefundResponseKind) -> None:
    """What is not recognized is never taken for a refusal."""
    assert kind_of(classify(answer)) is kind


_ROW_OF = {
    RefundAction.RETRY: "stays PENDING: looked up, then sent again",
    RefundAction.LOOK_UP_ONLY: "stays PENDING: looked up, never sent again; after a day NEEDS_REVIEW",
    RefundAction.REFUSE: "stays PENDING: looked up, then sent again; after an hour NEEDS_REVIEW",
    RefundAction.LOOK_UP_THEN_FAIL: (
        "looked up once more, then FAILED; NEEDS_REVIEW if an earlier worker or request may still make it"
    ),
}
_MESSAGE_OF = {
    RefundAction.FINALIZE: "done",
    RefundAction.LOOK_UP_THEN_FAIL: "done",
    RefundAction.RETRY: "backoff",
    RefundAction.LOOK_UP_ONLY: "backoff, then done",
    RefundAction.REFUSE: "backoff, then done",
}


def test_the_documented_rules_of_refunds_are_the_code_s() -> None:
    """Row by row: docs/protocol.md says of each answer what the code does."""
    in_code = [
        [
            kind.value,
            _ROW_OF.get(rule.action, str(rule.state)),
            _MESSAGE_OF[rule.action] + (", alarm" if rule.alarm else ""),
        ]
        for kind, rule in REFUND_RULES.items()
    ]
    text = (PROJECT / "docs/protocol.md").read_text().split("## Refunds")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in row] for row in rows[2:]] == in_code


def test_only_a_refusal_or_a_returned_refund_fails() -> None:
    """So that no outage and no wrong secret frees an amount that may be refunded."""
    failing = {kind for kind, rule in REFUND_RULES.items() if rule.state is RefundState.FAILED}
    assert failing == {RefundResponseKind.RETURNED, RefundResponseKind.REFUSED}
    assert {kind_of(Failure(kind)) for kind in ResponseKind} <= REFUND_RULES.keys()
    assert {rule.action for rule in REFUND_RULES.values()} == set(RefundAction)


# ---------------------------------------------------------------- refund.failed after success


def test_refund_failed_after_success(service: Service) -> None:
    """The row becomes FAILED with Stripe's reason, an alarm is raised, and the amount can be refunded again."""
    service.deliver()
    service.stripe.refunds[0].status = "failed"
    assert service.happens() is RefundDiscrepancy.RETURNED
    assert (service.row["state"], service.row["failure_code"]) == ("FAILED", "expired_or_canceled_card")
    assert service.row["stripe_refund_id"] == "re_0"
    assert {"Alarm", "RefundDiscrepancy.RETURNED"} <= set(service.counted)
    assert service.deliver(service.changed(refund_id="rfd_" + "b" * 32)) == Done()
    assert service.refunded == [400]


def test_late_repeated_and_disordered_events_are_harmless(service: Service) -> None:
    """What Stripe shows decides, and it is asked if an event says something else than the row."""
    service.deliver()
    assert service.happens("failed") is RefundDiscrepancy.NONE
    assert service.row["state"] == "SUCCEEDED"
    service.stripe.refunds[0].status = "failed"
    assert service.happens("pending") is None
    assert service.happens("failed") is RefundDiscrepancy.RETURNED
    revision = service.row["revision"]
    for status, asked in (("failed", None), ("succeeded", RefundDiscrepancy.NONE), ("failed", None)):
        assert service.happens(status) is asked
    assert (service.row["state"], service.row["revision"]) == ("FAILED", revision)
    assert service.deliver() == Done()
    assert service.row["state"] == "FAILED"


def test_an_event_that_overtakes_its_worker(service: Service) -> None:
    """The worker was answered `pending` and would write SUCCEEDED; the only event that says otherwise has come."""

    def bank_returns() -> None:
        service.stripe.refunds[0].status = "failed"
        assert service.happens() is RefundDiscrepancy.RETURNED

    service.reached_through(At(9, bank_returns))
    assert service.deliver() == BackOff()
    assert service.deliver() == Done()
    assert (service.row["state"], "WriteRefused" in service.counted) == ("FAILED", True)


def test_a_worker_that_overtakes_an_event(service: Service) -> None:
    """The row changes between the handler's read and its write: it reads again."""
    service.reached_through(At("stripe refund answered", crash))
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    service.passes(BOUNDS.lease_seconds)
    service.stripe.refunds[0].status = "failed"
    service.reached_through(At("stripe list", lambda: assert_equal(service.deliver(), Done())))
    assert service.happens() is None
    assert service.row["state"] == "FAILED"


def test_a_refund_that_failed_and_has_no_row(service: Service) -> None:
    """Its row is written anew, so that the order service receives the outcome."""
    service.deliver()
    service.dynamodb.tables[REFUNDS].clear()
    service.stripe.refunds[0].status = "failed"
    assert service.happens() is RefundDiscrepancy.LOST_ROW
    row = service.row
    assert (row["state"], row["amount_minor"], row["currency"], row["attempt"]) == ("FAILED", 400, "EUR", 1)
    assert service.deliver() == Done()
    assert service.refunded == []


@pytest.mark.parametrize("refund_id", [None, "", "R-17", "rfd_1"])
def test_a_refund_by_hand_is_ignored(service: Service, refund_id: str | None) -> None:
    """It has no refund id, or one of somebody else's, and is the charge's business."""
    service.stripe.make(1, {})
    service.stripe.refunds[0].status = "failed"
    assert service.happens(refund_id=refund_id) is None
    assert service.rows == []


def test_an_event_that_stripe_does_not_confirm_is_deferred(service: Service) -> None:
    """The secret may be another account's: Stripe delivers the event again."""
    service.deliver()
    service.stripe.refunds[0].status = "failed"
    service.stripe.is_other_account = True
    with pytest.raises((EventDeferred, stripe.StripeError)):
        service.happens()
    assert service.row["state"] == "SUCCEEDED"
    service.stripe.is_other_account = False
    assert service.happens() is RefundDiscrepancy.RETURNED


def test_a_refund_that_is_made_although_it_failed_is_an_alarm(service: Service) -> None:
    """By design it cannot be; if it is, somebody has to see it."""
    service.stripe.make(AMOUNT_MINOR, {})
    service.deliver()
    service.stripe.refunds[0].status = "failed"
    service.stripe.make(400, {"refund_id": REFUND_ID})
    service.counted.clear()
    assert service.happens(stripe_refund_id="re_1") is RefundDiscrepancy.MADE_AFTER_FAILED
    assert (service.row["state"], "Alarm" in service.counted) == ("FAILED", True)


# ---------------------------------------------------------------- a canceled order that is charged


INTENT = FoundIntent(PAYMENT_INTENT, "succeeded", AMOUNT_MINOR, "EUR")


def refund_canceled(service: Service) -> str:
    """Refund it; returns the refund's state."""
    refund_canceled_order(payment_of(paid()), INTENT, service.tools())
    return str(service.row["state"])


def test_a_canceled_order_that_is_charged_is_refunded(service: Service) -> None:
    """All of it, once, with an alarm; and the order service is not bothered with a refund that it does not know."""
    for _ in range(3):
        assert refund_canceled(service) == RefundState.SUCCEEDED
    assert service.refunded == [AMOUNT_MINOR]
    assert (service.row["is_internal"], "Alarm" in service.counted) == (True, True)
    assert service.row["refund_id"] == refund_id_of_canceled_order(ORDER_ID, PAYMENT_INTENT)


def test_a_canceled_orders_refund_goes_on_where_it_was(service: Service) -> None:
    """The event is deferred, and delivered again; a worker that holds the refund is not disturbed."""
    service.reached_through(At("stripe refund answered", crash))
    with pytest.raises(KeyboardInterrupt):
        refund_canceled(service)
    with pytest.raises(EventDeferred):
        refund_canceled(service)
    service.passes(BOUNDS.lease_seconds)
    assert refund_canceled(service) == RefundState.SUCCEEDED
    assert service.refunded == [AMOUNT_MINOR]


def test_each_payment_intent_of_a_canceled_order_has_its_refund(service: Service) -> None:
    """Should there be two."""
    ids = {refund_id_of_canceled_order(*each) for each in itertools.product((ORDER_ID, "ord_b"), ("pi_1", "pi_2"))}
    assert len(ids) == 4


def test_an_internal_refund_that_has_no_row_is_recovered_as_internal(service: Service) -> None:
    """Its outcome must not reach the order service either."""
    refund_canceled(service)
    service.dynamodb.tables[REFUNDS].clear()
    service.stripe.refunds[0].status = "failed"
    refund_id = refund_id_of_canceled_order(ORDER_ID, PAYMENT_INTENT)
    assert service.happens(refund_id=refund_id) is RefundDiscrepancy.LOST_ROW
    assert service.row["is_internal"] is True


def test_the_template_gives_the_function_its_environment(aws: None) -> None:
    """Every variable that the application reads."""
    function = load_template()["Resources"]["RefundChargeFunction"]["Properties"]
    given = {name: number_of(name) or "x" for name in function["Environment"]["Variables"]}
    Application(given)
    assert {"PAYMENTS_TABLE", "REFUNDS_TABLE"} <= given.keys()


def test_the_sample_is_a_refund_that_can_be_handled(sample: Sample) -> None:
    """events/refund_charge speaks the contract."""
    body = str(sample("refund_charge/refund_requested")["Records"][0]["body"])
    assert RefundRequestedEvent.model_validate_json(body).data.amount_minor == 1000
