"""One schedule: deliveries of orders, interleaved at every boundary, on a virtual clock, with faults, from choices.

Every choice is taken from one `Choices`, so a schedule is repeated to the byte by repeating them. The code that
runs is the deployed code, down to its calls of boto3's client and of Stripe's; only the world around it is in memory.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar

import stripe
from botocore.exceptions import BotoCoreError, ClientError
from greenlet import greenlet

from lab.simulation.choices import Choices
from lab.simulation.replaced import replaced
from lab.simulation.service import (
    CANCELED,
    DECLINED,
    IN_WORK,
    MAY_BECOME,
    MESSAGE,
    ORDERS,
    PAID,
    RECONCILE_BOUNDS,
    WAITS,
    WEBHOOK_BOUNDS,
    AlarmLog,
    SimulatedPayments,
    State,
    WaitingOrders,
    attempt_of_confirm,
    order_of,
)
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge_rules import CREATE_SECONDS
from onecharge.payments.payment_intents import description_of
from onecharge.payments.payments_table import Payment, payment_of
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import Consumer, Disposition
from onecharge.runtime.queues import Delivery
from ops.output import Problem
from ops.release import Blocked, Release, Seen
from stripe_standin import attempts
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.payment_methods import PaymentMethod
from tests.shop.builders import BOUNDS, DAY, HOUR, INDEXES, PAYMENTS, PAYMENTS_STATE, T0, TABLES, order
from tests.shop.dynamodb import Io, Item, MemoryDynamoDB
from tests.shop.sdk import client_of
from tests.shop.stripe import REASONS_BY_HAND, USUAL_FAULTS, ShopStripe
from tests.support.silent import SILENT

VISIBILITY_SECONDS = 180
MAX_RECEIVE_COUNT = 500
RECONCILE_EVERY_SECONDS = 1800
OPERATOR_BOUNDS = TimeBounds(900)
_FAULTY_STEPS_MAX = 1000
_CANCELS_MAX = 3
_ACTS_MAX = 6
_ROUNDS_MAX = 8
_REDRIVES_MAX = 2
_JUMPS_SECONDS = (1, 20, 40)
_ANOTHER_CARD_SECONDS = (0, 60, HOUR, 23 * HOUR)
"""How long a customer takes to try another card."""
_LATE_SECONDS = 2 * DAY + HOUR
"""By then Stripe has executed each request that it has answered with a 500 and executes at all."""
_RECONCILED_SECONDS = 14 * DAY
"""The reconciler reads events of 29 days, and runs every few minutes: before a schedule leaps on, they are read."""
_CLOCKS_SECONDS = 80 * 60
"""How far two workers' clocks differ at most."""
_UNSTORED = ("drop before", "drop after", "time-out", "503", "429", "429 lock_timeout", "401", "502", "424")
"""Faults that no key replays as a failure."""
DISPUTES = ("warning_needs_response", "needs_response", "under_review", "lost", "appeal_needs_response", "won")
_OPERATOR_STOPS = (Problem, stripe.StripeError, BotoCoreError, ClientError)


def switch_to_scheduler(worker: greenlet) -> None:
    """Suspend the worker, which runs in this greenlet, until the scheduler, which started it, lets it go on."""
    scheduler = worker.parent
    assert scheduler is not None, "a worker is suspended by itself alone"
    scheduler.switch()


Mutate = Callable[[Any], None]
"""Breaks a world on purpose."""


class Crash(BaseException):
    """The worker is gone, as by a kill: nothing of it runs any more."""


class Violation(AssertionError):
    """An invariant does not hold; carries what happened up to there."""

    def __init__(self, what: str, timeline: Sequence[tuple[int, str]]) -> None:
        super().__init__(what, timeline)
        self.what, self.timeline = what, list(timeline)

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"{seconds:>8} s  {event}" for seconds, event in self.timeline)])


def violation_of(world: "World") -> Violation | None:
    """The schedule's violation. It counts only if each function that is replaced was called."""
    found = None
    with replaced(world.service.replaced) as mocks:
        try:
            world.run()
        except Violation as violation:
            found = violation
    assert found is None or all(mock.called for mock in mocks), f"unbroken, and {found}"
    return found


@dataclass
class Message:
    """A message of the queue, with the time until which it is hidden, and how often it was received."""

    id: str
    body: str
    visible_at: int
    receives: int = 0
    in_flight: bool = False


@dataclass
class Worker:
    """One running invocation: of a delivery, or without a message the reconciler, a webhook or the operator."""

    name: str
    message: Message | None
    started_at: int
    timeout_seconds: int
    run: greenlet
    label: str = "start"
    clock_offset_seconds: int = 0  # How far its clock is ahead of the world's, or behind it.
    is_charging: bool = False  # It handles a delivery of an order: only such workers confirm, and finalize as owners.
    has_alarmed: bool = False
    must_not_confirm: bool = False  # It has claimed, or written, a row whose cancellation was requested before.


@dataclass(frozen=True)
class Scenario:
    """What is delivered, and what may go wrong."""

    # For each order the cards of its attempts; how often each is delivered, and how long before the order was placed.
    orders: tuple[tuple[str, ...], ...] = (("pm_card_visa",),)
    copies: int = 2
    placed_ago_seconds: tuple[int, ...] = (0,)
    # At each request, or boundary. A jump is time that passes at a boundary: up to longer than a worker may run.
    fault_probability: float = 0.0
    crash_probability: float = 0.0
    jump_probability: float = 0.0
    # After one of these times messages are delivered again, so often; or those redriven that went to the DLQ.
    redeliveries: int = 0
    redrive_probability: float = 0.0
    waits_seconds: tuple[int, ...] = (HOUR, 4200, DAY, 13 * DAY)
    lose_rows: bool = False  # Meanwhile, as a restored backup does.
    tampered: bool = False  # A redelivery says something else than the first delivery did, as after a deployment.
    zombies: bool = False  # A worker may live on past its timeout: nothing but its lease holds it back.
    cancels: bool = False  # Customers ask to cancel, at any time and more than once.
    persons: tuple[str, ...] = ()  # What they do at Stripe: cancel, edit metadata.
    two_shops: bool = False  # Another shop charges in the same Stripe account, and its events come to us.
    cards_inactive_probability: float = 0.0  # At each step, of card payments not being active for a while.
    reconciles: bool = False  # The reconciler runs beside the deliveries.
    webhooks: bool = False  # Stripe sends its events: in any order, repeated, late or, with a reconciler, never.
    clock_skew_seconds: int = 0  # Each worker has a clock of its own; with Stripe's, they differ by this much.
    # At each step: rows are lost, or put back to an older version of themselves, whichever workers hold them.
    row_loss_probability: float = 0.0
    stale_row_probability: float = 0.0
    stripe_faults: frozenset[str] | None = USUAL_FAULTS  # None is all of them.
    wrong_account_probability: float = 0.0  # At each step, of the API key being another, empty account's for a while.
    operates_with_other_key: bool = False  # The operator's API key may be that of another account.

    @property
    def is_harsh(self) -> bool:
        """Stripe fails in more ways, stored under the key or not; a 500 may take effect two days later."""
        return self.stripe_faults is None or not self.stripe_faults <= USUAL_FAULTS


@dataclass
class World(Io):
    """Everything that a schedule touches: a clock, a queue, workers, Stripe, tables, persons, and what goes wrong."""

    scenario: Any
    choices: Choices
    mutate: Mutate | None = None
    """Breaks the world on purpose, to see that it is caught."""
    time: int = T0
    faults_on: bool = True
    coverage: Counter[str] = field(default_factory=Counter)
    timeline: list[tuple[int, str]] = field(default_factory=list)
    steps: int = 0

    STEPS_MAX: ClassVar[int] = 20_000
    ZOMBIE_SECONDS: ClassVar[int] = 840
    """How old a worker may become that lives on past its timeout: less than the 15 minutes of the protocol."""
    MESSAGE: ClassVar[Any] = MESSAGE
    """What the queue has."""

    def __post_init__(self) -> None:
        keys = {**TABLES, ORDERS: ("order_id",)}
        self.dynamodb: MemoryDynamoDB = MemoryDynamoDB(keys=keys, indexes=INDEXES, io=self)
        self.stripe = ShopStripe(io=self, faults=self.scenario.stripe_faults, page_max=2)
        self.queue: list[Message] = []
        self.dlq: list[tuple[str, str]] = []
        self.cancels = self.acts = self.redrives = self.made = self.charges_seen = 0
        self.workers: list[Worker] = []
        self.current: Worker | None = None
        # By order:
        self.states: dict[str, State] = {}
        self.holders: dict[str, Worker | None] = {}
        self.versions: dict[str, list[Item]] = {}  # What each row has been, for a restore.
        self.lost: set[str] = set()  # Their rows were lost, or replaced by older ones.
        self.disturbed: set[str] = set()  # Of these while workers were at work: their leases prove nothing.
        self.canceling: dict[str, OrderPlacedEvent] = {}  # The order service asks again until there is an outcome.
        self.stopped: dict[str, str] = {}  # The PaymentIntent that a person has canceled in the Dashboard.
        self.told: set[tuple[str, State]] = set()  # Outcomes, to the order service.
        self.stored: set[tuple[str, str]] = set()  # Each row with each PaymentIntent that it has named.
        # By PaymentIntent:
        self.edited: dict[str, dict[str, str]] = {}  # The metadata as it was before a person's edit.
        self.confirm_keys: dict[tuple[str, int], str] = {}  # And by attempt.
        self.secrets_out: set[str] = set()  # Those whose client secret a page may have.
        self.alarms: dict[str, set[str]] = {}  # Causes, by the order or the PaymentIntent that the alarm has named.
        self.clock_direction = (-1, 1)[self.choices.pick(2)] if self.scenario.clock_skew_seconds else 0
        self.changed = False  # Whether a row or a charge has, since the invariants were checked.
        self.broken: str | None = None
        self.reconciled_at = self.time
        self.has_stored_failure = False  # A confirm's key may replay a failure: its attempt ends DECLINED.
        self.acknowledged: set[str] = set()  # Stripe's events.
        self.max_receive_count = MAX_RECEIVE_COUNT
        self.restored_loses: tuple[str, ...] = ("released_at",)  # The runbook's command does not restore it.
        self.service = SimulatedPayments(self.dynamodb, client_of(self.stripe), self.clock, AlarmLog(self.alarmed))
        self.placed_at = T0 - self.one_of(self.scenario.placed_ago_seconds)
        events = [
            _order(place, attempt, card, self.placed_at)
            for place, cards in enumerate(self.scenario.orders)
            for attempt, card in enumerate(cards, start=1)
        ]
        self.orders = [event for event in events if event.data.attempt == 1]
        """The attempts that their customers have made so far."""
        self.attempts_to_come = {(each.data.order_id, each.data.attempt): each for each in events}
        for event in self.orders:
            key = {"order_id": {"S": event.data.order_id}}
            self.dynamodb.tables.setdefault(ORDERS, {})[event.data.order_id,] = key
        self.service.read_events_again(self.placed_at)
        self.released_orders: Any = WaitingOrders(self._stored_order)
        self.prepare()
        if self.mutate:
            self.mutate(self)
        self.consumer: Any = Consumer(
            model=self.MESSAGE,
            handle=self.handle,
            queue=self,  # type: ignore[arg-type]  # change_visibility and dead_letter, below.
            logger=SILENT,
            count=SILENT,
            jitter=lambda: 0.5,
        )

    def prepare(self) -> None:
        """What a world of another kind has before it is broken."""

    def handle(self, event: Any) -> Disposition:
        assert self.current
        self.current.is_charging = isinstance(event, OrderPlacedEvent)
        return self.service.handle(event)

    @property
    def rows(self) -> dict[tuple[str, ...], Item]:
        """The Payments table."""
        return self.dynamodb.tables.setdefault(PAYMENTS, {})

    def row(self, order_id: str) -> Payment | None:
        return payment_of(self.rows[order_id,]) if (order_id,) in self.rows else None

    # ------------------------------------------------------------ what the clients see

    def clock(self) -> int:
        """The time by the clock of the worker that runs now."""
        return self.time + (self.current.clock_offset_seconds if self.current else 0)

    def pause(self, where: str) -> None:
        worker = self.current
        assert worker is not None
        worker.label = where
        switch_to_scheduler(worker.run)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        if not (self.faults_on and self.choices.happens(self.fault_probability(where))):
            return None
        kind = kinds[self.choices.pick(len(kinds))]
        self._note(f"{where}: {kind}", fault=f"{where}: {kind}")
        self.has_stored_failure |= where == "stripe confirm" and kind not in _UNSTORED
        return kind

    def fault_probability(self, where: str) -> float:
        return float(self.scenario.fault_probability)

    def happens(self, what: str) -> bool:
        if happens := self.choices.happens(0.7):
            self._note(what, fault=what)
        return happens

    def met(self, what: str) -> None:
        self.coverage[what] += 1

    def _note(self, what: str, fault: str = "") -> None:
        self.timeline.append((self.time - T0, what))
        if fault:
            self.met(fault)

    def alarmed(self, cause: str, about: Mapping[str, Any]) -> None:
        if self.current:
            self.current.has_alarmed = True
        for name in ("order_id", "payment_intent_id"):
            self.alarms.setdefault(str(about.get(name)), set()).add(cause)
        self.met(f"alarm: {cause}")

    def pass_time(self, seconds: int, *, fault: str = "") -> None:
        self.time += max(0, seconds)
        self._note(f"{seconds} s pass", fault=fault or ("days pass" if seconds >= DAY else ""))
        self.stripe.time_has_passed()

    def one_of[Option](self, options: Sequence[Option]) -> Option:
        return options[self.choices.pick(len(options))] if len(options) > 1 else options[0]

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        message = next((each for each in self.queue if each.id == delivery.message_id), None)
        self.pause("sqs ChangeMessageVisibility")
        if message is not None:
            message.visible_at = self.time + seconds

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.pause("sqs SendMessage")
        self.dlq.append((delivery.body, reason))

    # ------------------------------------------------------------ the invariants of a write, and of a confirm

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        """The tables' streams. A violation is raised by the next check: here, the code under test would catch it."""
        if table == ORDERS:
            self.ask_again(str((new or {})["order_id"]["S"]))
        elif table == PAYMENTS and new is not None:
            self._wrote_row(payment_of(old) if old is not None else None, payment_of(new))
            if old is not None and self.scenario.stale_row_probability:
                self.versions.setdefault(new["order_id"]["S"], []).append(old)

    def _wrote_row(self, was: Payment | None, row: Payment) -> None:
        order_id = row.request.order_id
        before = self.states.get(order_id, IN_WORK)
        if row.state not in MAY_BECOME[before]:
            self.broken = f"row {order_id} went from {before} to {row.state}"
        if was is not None:
            self._check_change(was, row)
        self.states[order_id], self.changed = row.state, True
        if row.payment_intent_id:
            self.stored.add((order_id, row.payment_intent_id))
        is_claimed = row.lease_owner is not None and (was is None or row.lease_owner != was.lease_owner)
        names_another = was is not None and row.payment_intent_id != was.payment_intent_id
        if self.current and (is_claimed or names_another):
            self.current.must_not_confirm = row.cancel_requested_at is not None
        if was is None or row.state is not was.state:
            self._tell(row)
            is_alarming = row.state is PAID and (was is None or was.state is DECLINED)
            if is_alarming and self.current and not self.current.has_alarmed:
                self.broken = f"{order_id} is {row.state} without its alarm: it is lost if the worker is killed now"
        if is_claimed:
            self.holders[order_id] = self.current
        elif was is not None and was.state is IN_WORK and self.current and self.current.is_charging:
            is_owner = self.holders.get(order_id) is self.current or order_id in self.disturbed
            self.broken = self.broken if is_owner else "a worker that had lost its lease wrote to the row"

    def _check_change(self, was: Payment, row: Payment) -> None:
        if row.request != was.request:
            self.broken = "what was frozen has changed"
        if row.revision <= was.revision:
            self.broken = "a write did not move the revision on"
        is_held = row.held_because is not None and row.payment_intent_id is None
        if was.payment_intent_id and row.payment_intent_id != was.payment_intent_id and not is_held:
            self.broken = "the PaymentIntent that a row names has changed"
        if was.cancel_requested_at and not row.cancel_requested_at:
            self.broken = "a request to cancel was forgotten"
        if was.cancel_requested_at and was.state is IN_WORK and row.state in (DECLINED, WAITS):
            self.broken = f"a row that is to be canceled was finalized as {row.state}"

    def _tell(self, row: Payment) -> None:
        """The row's stream carries it to the order service, and on to the customer: it cannot be unsaid."""
        if row.state is IN_WORK:
            return
        order_id = row.request.order_id
        self.told.add((order_id, row.state))
        if row.state is PAID and not self._charges_of(order_id):
            self.broken = f"{order_id} is {PAID}, and not charged"
        if row.state is WAITS:  # The page may use the client secret from now on.
            self.secrets_out.add(str(row.payment_intent_id))
        another = self.attempts_to_come.get((order_id, row.attempt + 1)) if row.state is DECLINED else None
        if another and another not in self.orders:
            self.orders.append(another)
            self._send_copies(another, later_seconds=self.one_of(_ANOTHER_CARD_SECONDS))

    def confirms(self, intent: PaymentIntent, key: str) -> None:
        """Stripe executes a confirm of ours, now or later."""
        worker, is_late = self.current, key in self.stripe.executed_late
        self.changed = True
        if worker and not is_late and not worker.is_charging and worker.message is None:
            self.broken = f"{worker.name} confirms"
        if worker and not is_late and worker.is_charging and worker.must_not_confirm:
            self.broken = "a worker confirms that has claimed the row after its cancellation was requested"
        if (order_of(intent), intent.id) not in self.stored:
            self.broken = "a PaymentIntent is confirmed that was never stored"
        if self.confirm_keys.setdefault((intent.id, attempt_of_confirm(key)), key) != key:
            self.broken = "an attempt's confirm has a second key"

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Deliver, with faults; then without, until all is idle; raises Violation when an invariant breaks."""
        for event in self.orders:
            self._send_copies(event)
        self.run_until_idle()
        for _ in range(self.scenario.redeliveries):
            self._wait_for_long()
            self._may_lose_a_row()
            event = self.one_of(self.orders)
            # The first delivery freezes the request: only later ones are changed.
            is_later = self.row(event.data.order_id) is not None or bool(self.lost)
            self.send(self._maybe_changed(event, **({"amount_minor": self.one_of((1, 2099))} if is_later else {})))
            self.run_until_idle()
        self.faults_on = False
        self._repair()
        self._check_nothing_is_lost()
        self._settle()
        self._check_the_end()

    def _repair(self) -> None:
        """Nothing goes wrong any more, and persons undo their edits."""
        self._store_the_right_key()
        self.stripe.behavior.takes_cards = True
        for intent in self.stripe.intents:
            if intent.id in self.edited:
                self.stripe.edit_by_hand(intent, **self.edited[intent.id])
        if self.lost:
            # The runbook has the reconciler read Stripe's events again.
            self.service.read_events_again(self.placed_at)
            self.pass_time(2 * HOUR)
            self.reconcile()
            self.run_until_idle()
            ours = {event.data.order_id for event in self.orders}
            for charge in self.stripe.charges:
                is_known = self.row(order_of(charge)) or charge.id in self.edited or order_of(charge) not in ours
                if not is_known and self.stripe.is_ours(charge.id):
                    raise Violation(f"{charge.id} has succeeded, and its row stays lost", self.timeline)

    def _store_the_right_key(self) -> None:
        self.stripe.of_account = max((self._account_of(payment_of(row)) for row in self.rows.values()), default=0)

    def _settle(self) -> None:
        """The order service asks again, and the reconciler and the operator come: as they do all the time."""
        for event in self.orders:
            self.send(event)
        for order_id in self.canceling:
            self.ask_again(order_id)
        self.run_until_idle()
        self.pass_time(_LATE_SECONDS if self.scenario.is_harsh else 2 * HOUR)
        for _ in range(_ROUNDS_MAX):
            if self.scenario.webhooks:
                self._send_what_is_not_acknowledged()
            waits = [event.data.order_id for event in self.orders if self._is_unfinished(event.data.order_id)]
            if not waits:
                return
            self.reconcile()
            self.run_until_idle()
            self._check_held_rows_are_seen()
            self.operate()
            self.run_until_idle()
            for order_id in waits:
                self.ask_again(order_id)
            self.run_until_idle()
            self.pass_time(DAY)

    def _is_unfinished(self, order_id: str) -> bool:
        """It waits, or is not as Stripe says, or not as the customer has asked."""
        state = self.states.get(order_id)
        is_ignored = order_id in self.canceling and state not in (CANCELED, PAID)
        is_behind = (state is PAID) != bool(self._charges_of(order_id))
        return state in (None, IN_WORK, WAITS) or is_ignored or is_behind

    def _send_what_is_not_acknowledged(self) -> None:
        for _ in range(_ROUNDS_MAX):
            left = [each for each in self.stripe.events if each["id"] not in self.acknowledged]
            for event in left:
                self.send_webhook(event)
            self.run_until_idle()
            if not left:
                return

    def ask_again(self, order_id: str) -> None:
        """The order service publishes the order's present event."""
        if order_id in self.canceling:
            self._send(CancelRequestedEvent.of(self.canceling[order_id].data, correlation_id="c").model_dump_json())
        else:
            self.send([each for each in self.orders if each.data.order_id == order_id][-1])

    def send(self, event: OrderPlacedEvent) -> None:
        """A new message, as a first delivery, a redrive or a republication makes one."""
        self._send(event.model_dump_json())

    def _send_copies(self, event: OrderPlacedEvent, *, later_seconds: int = 0) -> None:
        for copy in range(self.scenario.copies):
            self._send((self._maybe_changed(event) if copy else event).model_dump_json(), later_seconds=later_seconds)

    def _send(self, body: str, *, later_seconds: int = 0) -> None:
        self.made += 1
        self.queue.append(Message(f"m{self.made}", body, self.time + later_seconds))

    def run_until_idle(self) -> None:
        """Go on until no message is left."""
        while self.queue or self.workers:
            self.steps += 1
            if self.steps > _FAULTY_STEPS_MAX:
                # Nothing goes wrong permanently.
                self.faults_on = False
                self._store_the_right_key()
            if self.steps > self.STEPS_MAX:
                raise Violation("the schedule does not come to an end", self.timeline)
            self.step()
            self.check()

    def step(self) -> None:
        """One worker goes on to its next boundary, or one message is received, or time passes."""
        if self.faults_on:
            self._let_others_act()
        else:
            self.stripe.behavior.takes_cards = True
        ready = [each for each in self.queue if each.visible_at <= self.time and not each.in_flight]
        if self.workers or ready:
            either: list[Worker | Message] = [*self.workers, *ready]
            chosen = self.one_of(either)
            self._resume(chosen) if isinstance(chosen, Worker) else self._receive(chosen)
            return
        self._let_the_bank_decide(1.0)
        if self._stripe_sends(0.5) or not self.queue:
            return
        seconds = min(each.visible_at for each in self.queue) - self.time
        if self._would_leave_events_unread(seconds):
            self.reconcile()
            return
        self.pass_time(seconds)
        if self.faults_on and seconds >= HOUR:
            self._may_lose_a_row()
        if self.scenario.reconciles and self.time >= self.reconciled_at + RECONCILE_EVERY_SECONDS:
            self.reconcile()

    def _would_leave_events_unread(self, seconds: int) -> bool:
        """Whether time may leap so far only after the reconciler, which runs every few minutes, has read them."""
        checkpoint = self.dynamodb.tables[PAYMENTS_STATE].get((ReconcileCheckpoint.job,))
        since = int(checkpoint["since"]["N"]) if checkpoint else T0
        return self.time + seconds >= since + _RECONCILED_SECONDS

    def _receive(self, message: Message) -> None:
        message.receives += 1
        if message.receives > self.max_receive_count:
            self.queue.remove(message)
            self.dlq.append((message.body, "receive count"))
            return
        if self.faults_on and self.redrives < _REDRIVES_MAX and self.choices.happens(self.scenario.redrive_probability):
            # The function cannot even start for days: the message is in the DLQ until somebody redrives it.
            self.redrives += 1
            message.receives, message.visible_at = 0, self.time + self.one_of(self.scenario.waits_seconds)
            self._note(f"{message.id} is in the DLQ until {message.visible_at - T0} s", fault="redrive")
            return
        delivery = Delivery(message.id, message.id, message.receives, message.body)
        message.visible_at, message.in_flight = self.time + VISIBILITY_SECONDS, True
        name = f"{message.id}#{message.receives}"
        worker = self.start(name, lambda: self.consumer.process(delivery), BOUNDS, message)
        self._note(f"{worker.name} received")
        self._resume(worker)

    def start(self, name: str, run: Callable[[], object], bounds: TimeBounds, message: Message | None = None) -> Worker:
        worker = Worker(name, message, self.time, bounds.function_timeout_seconds, greenlet(run))
        if skew_seconds := self.scenario.clock_skew_seconds:
            worker.clock_offset_seconds = self.clock_direction * self.one_of((0, skew_seconds, skew_seconds // 2))
            if ahead := worker.clock_offset_seconds:
                self._note(f"{name} has a clock that is {ahead} s ahead", fault="clock differs")
        self.workers.append(worker)
        return worker

    def _resume(self, worker: Worker) -> None:
        if self.faults_on and self.choices.happens(self.scenario.jump_probability):
            self.pass_time(self.one_of(_JUMPS_SECONDS), fault="delay")
        age_seconds = self.time - worker.started_at
        killed = age_seconds >= worker.timeout_seconds
        if killed and self.scenario.zombies and self.faults_on and age_seconds < self.ZOMBIE_SECONDS:
            killed = self.choices.happens(0.3)
            self.coverage["zombie"] += not killed
        # The operator's command makes many requests, and would mostly end in a crash.
        crash_probability = self.scenario.crash_probability / (20 if worker.name.startswith("operator") else 1)
        if killed or (self.faults_on and self.choices.happens(crash_probability)):
            after = "after" if worker.label.endswith("answered") else "before"
            fault = "killed at the time-out" if killed else f"crash {after} the effect"
            self._note(f"{worker.name} {'killed' if killed else 'crashes'} at {worker.label}", fault=fault)
            self.crash(worker)
            return
        self.current = worker
        done = worker.run.switch()
        if worker.run.dead:
            self._note(worker.name + (" done" if done or not worker.message else " not done"))
            self._gone(worker)
            if done and worker.message in self.queue:
                self.queue.remove(worker.message)
        else:
            self._note(f"{worker.name} at {worker.label}")

    def crash(self, worker: Worker) -> None:
        """The worker is gone, wherever it is."""
        self._gone(worker)
        self.current = worker
        try:
            if worker.run:
                worker.run.throw(Crash)
        except Crash:
            pass

    def _gone(self, worker: Worker) -> None:
        self.workers.remove(worker)
        if worker.message:
            worker.message.in_flight = False

    def _wait_for_long(self) -> None:
        self._let_the_bank_decide(0.6)
        if self._stripe_sends(0.5):
            self.run_until_idle()
        seconds = self.one_of(self.scenario.waits_seconds)
        while self._would_leave_events_unread(seconds):
            self.reconcile()
            self.run_until_idle()
        self.pass_time(seconds)
        if self.scenario.reconciles or self.choices.happens(0.3):
            self.reconcile()
            self.run_until_idle()
        if any(map(self._is_held, self.rows.values())) and self.choices.happens(0.7):
            self.operate()
            self.run_until_idle()

    # ------------------------------------------------------------ others, who act at any time

    def _let_others_act(self) -> None:
        scenario, happens, intents = self.scenario, self.choices.happens, self.stripe.intents
        self._let_rows_go()
        if happens(0.2 if self.stripe.of_account else scenario.wrong_account_probability):
            self.stripe.of_account = 1 - self.stripe.of_account
            self._note(f"the API key is of account {self.stripe.of_account}", fault="API key of another account")
        if happens(scenario.cards_inactive_probability):
            self.stripe.behavior.takes_cards ^= True
            self._note(f"card payments: {self.stripe.behavior.takes_cards}")
        if scenario.cancels and self.cancels < _CANCELS_MAX and happens(0.04):
            self.cancels += 1
            event = self.one_of(self.orders)
            self.canceling[event.data.order_id] = event
            self.ask_again(event.data.order_id)
            self.met("cancel: requested")
        if scenario.persons and intents and self.acts < _ACTS_MAX and happens(0.03):
            self.acts += 1
            getattr(self, f"_{self.one_of(scenario.persons)}")(self.one_of(intents))
        if scenario.two_shops and self.acts < _ACTS_MAX and happens(0.03):
            self.acts += 1
            self._charge_in_another_shop()
        self._let_the_bank_decide(0.05)
        self._stripe_sends(0.05)
        if any(each.message is None for each in self.workers):
            return
        if scenario.reconciles and happens(0.01):
            self.reconcile()
        if self.orders and self.time >= self.placed_at + CREATE_SECONDS and happens(0.02):
            self.operate()

    def _let_rows_go(self) -> None:
        """Rows may be lost, or be older than they were, whichever workers hold them."""
        if self.rows and self.choices.happens(self.scenario.row_loss_probability):
            order_id = self._any_row()
            self.disturbed.add(order_id)
            self.lose(order_id)
        if self.versions and self.choices.happens(self.scenario.stale_row_probability):
            order_id = self.one_of(sorted(self.versions))
            item = self.one_of(self.versions[order_id])
            self.disturbed.add(order_id)
            self.lost.add(order_id)
            self.rows[order_id,] = {name: item[name] for name in item.keys() - set(self.restored_loses)}
            self.states[order_id] = payment_of(item).state
            self._note(f"row {order_id[-4:]} is put back: {item['state']['S']}", fault="row stale")

    def _may_lose_a_row(self) -> None:
        """While nobody is at work."""
        if self.scenario.lose_rows and self.rows and self.choices.happens(0.5):
            self.lose(self._any_row())

    def _any_row(self) -> str:
        return self.one_of(sorted(order_id for (order_id,) in self.rows))

    def lose(self, *order_ids: str) -> None:
        for order_id in order_ids:
            del self.rows[order_id,]
            self.states.pop(order_id, None)
            self.holders.pop(order_id, None)
            self.lost.add(order_id)
            self._note(f"row {order_id[-4:]} lost", fault="row lost")

    def _maybe_changed(self, event: OrderPlacedEvent, **changes: object) -> OrderPlacedEvent:
        if not (self.scenario.tampered and self.choices.happens(0.7)):
            return event
        self._note("the next message says something else", fault="other request")
        data = event.data.model_copy(update={"customer_id": "cus_2", **changes})
        return event.model_copy(update={"data": data})

    def _cancel(self, intent: PaymentIntent) -> None:
        """A person cancels it in the Dashboard. If the row names it, the order is not to be charged."""
        reason, row = self.one_of(REASONS_BY_HAND), self.row(order_of(intent))
        if self.stripe.cancel_by_hand(intent, reason):
            self._note(f"a person cancels {intent.id}: {reason}", fault="canceled in the Dashboard")
            if row and row.payment_intent_id == intent.id:
                self.stopped[order_of(intent)] = intent.id

    def _edit(self, intent: PaymentIntent) -> None:
        """A person edits metadata in the Dashboard, until they are told to undo it."""
        others = [each.data.order_id for each in self.orders if each.data.order_id != order_of(intent)]
        change = self.one_of([{"note": "gift"}, {"customer_id": "cus_9"}, *({"order_id": each} for each in others)])
        self.edited.setdefault(intent.id, dict(intent.metadata))
        self.stripe.edit_by_hand(intent, **change)
        self._note(f"a person edits {intent.id}: {change}", fault="metadata edited")

    def _charge_in_another_shop(self) -> None:
        """Its order's id is not among ours: it hashes the shop."""
        order_id, ours = f"ord_{9000 + self.acts:032x}", self.stripe.ours
        about = {"shop": "another", "order_id": order_id, "customer_id": "cus_1"}
        made = PaymentIntent(f"pi_shop_{self.acts}", 1099, "eur", self.time, about)
        made.description = description_of(order_id)
        ours.all(PaymentIntent)[made.id] = made
        attempts.take_money(ours, made, PaymentMethod("pm_card_visa", 0, "pm_card_visa"))
        self._note(f"another shop charges {made.id}", fault="another shop")

    # ------------------------------------------------------------ the bank, webhooks, the reconciler, the operator

    def _let_the_bank_decide(self, probability: float) -> None:
        """The customer finishes 3-D Secure, or fails to and tries again on the same page, with another card."""
        for intent in self.stripe.intents if self.secrets_out else ():
            tries_again = intent.status == "requires_payment_method"
            if intent.id not in self.secrets_out or not (tries_again or intent.status == "requires_action"):
                continue
            if not self.choices.happens(probability / 4 if tries_again else probability):
                continue
            pays = self.choices.pick(2) == 0
            if tries_again:
                self.stripe.customer_confirms(intent, "pm_card_visa" if pays else "pm_card_visa_chargeDeclined")
                self.met("3-D Secure tried again")
            else:
                self.stripe.bank_decides(intent, pays=pays)
            self.changed = True
            self._note(f"the bank says {'yes' if pays else 'no'} to {intent.id}", fault="3-D Secure decided")

    def _stripe_sends(self, probability: float) -> bool:
        """One of its events, whichever, once or twice; whether it did. An event may be sent again at any time."""
        if not (self.scenario.webhooks and self.stripe.events and self.choices.happens(probability)):
            return False
        event = self.one_of(self.stripe.events)
        for _ in range(1 + self.choices.pick(2)):
            self.send_webhook(event)
        return True

    def send_webhook(self, event: Mapping[str, Any]) -> None:
        """Stripe sends the event to the function, which acknowledges it, or has it sent again."""

        def run() -> None:
            if self.service.receive(event, lambda metric: self.met(f"webhook: {metric}")):
                self.acknowledged.add(event["id"])

        self.made += 1
        self.start(f"webhook{self.made}", run, WEBHOOK_BOUNDS)
        self._note(f"webhook{self.made} sent: {event['id']} {event['type']}")

    def reconcile(self) -> None:
        """The schedule starts the reconciler."""
        self.reconciled_at = self.time
        ends_at = self.time + RECONCILE_BOUNDS.function_timeout_seconds

        def run() -> None:
            self.service.reconcile(lambda metric: self.met(f"reconciler: {metric}"), lambda: ends_at - self.time)

        self.made += 1
        self.start(f"reconciler{self.made}", run, RECONCILE_BOUNDS)

    def operate(self) -> None:
        """The operator releases what is held, as `ops release --all` does it."""
        named = (payment_of(row).payment_intent_id for row in self.rows.values())
        has_ours = any(intent_id and self.stripe.is_ours(intent_id) for intent_id in named)
        is_wrong = self.faults_on and self.scenario.operates_with_other_key and has_ours and self.choices.happens(0.5)
        client = client_of(self.stripe, account=int(is_wrong))

        def run() -> None:
            rows: list[Payment] = []
            try:
                command = self.service.release(self.released_orders, client)
                rows = command.held(command.stripe_now())
                seen = command.look(rows) if is_wrong else self._look(command, rows)
                for row in rows:
                    self._note(self._released(command, row, seen))
            except _OPERATOR_STOPS as error:
                self._note(f"the operator's command ends: {error}", fault=f"release: {type(error).__name__}")
                for row in rows:  # As the order service does, whatever was written.
                    self.ask_again(row.request.order_id)

        self.made += 1
        self.start(f"operator{self.made}", run, OPERATOR_BOUNDS)

    def _look(self, command: Release, rows: list[Payment]) -> Seen:
        """If nothing shows whose account it is, the person looks there, and says so."""
        try:
            return command.look(rows)
        except Problem:
            self.met("release: a person says whose account it is")
            return replace(command, has_looked=True).look(rows)

    def _released(self, command: Release, row: Payment, seen: Seen) -> str:
        try:
            what = self._released_by_a_person(command, row, seen)
        except Blocked as blocked:
            what = f"blocked: {blocked}"
            # Its own write may have changed the row, and the answer was lost: the order service asks again.
            self.ask_again(row.request.order_id)
        [told, *_] = re.split(r"pi_| until | at 20", what.partition(": ")[2])
        self.met(f"release: {told.strip() or 'of several'}")
        return what

    def _released_by_a_person(self, command: Release, row: Payment, seen: Seen) -> str:
        """Who is asked for --nothing looks for what the order paid, and says it if that is nothing."""
        try:
            return command.release(row, seen)
        except Blocked as blocked:
            if "--nothing" not in str(blocked) or self._charges_of(row.request.order_id):
                raise
            self.met("release: a person says that Stripe has nothing")
            return replace(command, has_looked=True).release(row, seen)

    def _stored_order(self, order_id: str) -> StoredOrder:
        """The order as the order service has it."""
        told = next((each for each in (PAID, CANCELED) if (order_id, each) in self.told), None)
        waits = OrderStatus.CANCELING if order_id in self.canceling else OrderStatus.PENDING
        status = {PAID: OrderStatus.PAID, CANCELED: OrderStatus.CANCELED}.get(told, waits) if told else waits
        last = [each.data for each in self.orders if each.data.order_id == order_id][-1]
        given = {"fingerprint": "f", "correlation_id": "c", "waiting_since": last.placed_at, "status": status}
        return StoredOrder.model_validate({**last.model_dump(), **given, "placed_at": last.placed_at.isoformat()})

    # ------------------------------------------------------------ the invariants

    def _charges_of(self, order_id: str) -> list[PaymentIntent]:
        return [charge for charge in self.stripe.charges if order_of(charge) == order_id]

    def _intents_of(self, order_id: str) -> list[PaymentIntent]:
        return [intent for intent in self.stripe.intents if order_of(intent) == order_id]

    def _is_held(self, item: Item) -> bool:
        row = payment_of(item)
        began_at = int(item.get("released_at", {"N": str(self.placed_at)})["N"])
        may_not = "held_because" in item or self.time >= began_at + CREATE_SECONDS
        return row.state is IN_WORK and row.payment_intent_id is None and may_not

    def check(self) -> None:
        """After each step; what concerns a row is seen when it is written."""
        if self.broken:
            raise Violation(self.broken, self.timeline)
        if not self.changed:
            return
        self.changed = False
        charges = self.stripe.charges
        for charge in charges[self.charges_seen :]:
            self._check_charge(charge)
        self.charges_seen = len(charges)
        for charge in charges:
            if (order_of(charge), CANCELED) in self.told:
                raise Violation(f"{charge.description} was said to be canceled, and is charged", self.timeline)

    def _check_charge(self, charge: PaymentIntent) -> None:
        """At most one success an order, ever, over all accounts; with the frozen money; not after a cancellation."""
        order_id = order_of(charge)
        if len(self._charges_of(order_id)) > 1:
            raise Violation(f"{order_id} was charged more than once", self.timeline)
        row = self.row(order_id)
        agrees = not row or (charge.amount, charge.currency.upper()) == (row.request.amount_minor, row.request.currency)
        if not agrees and not self._may_differ(order_id):
            raise Violation(f"{order_id} was charged something else than was frozen", self.timeline)
        if by_hand := self.stopped.get(order_id):
            raise Violation(f"{order_id} is charged, though a person has canceled {by_hand}", self.timeline)

    def _may_differ(self, order_id: str) -> bool:
        """Whether its row was lost, and a message that says something else has made another one."""
        return self.scenario.tampered and order_id in self.lost

    def _check_nothing_is_lost(self) -> None:
        """No message is left: each order is finalized or held, whether or not anybody sends it again."""
        for order_id in {event.data.order_id for event in self.orders} - self.lost:
            row, alarms = self.row(order_id), self.alarms.get(order_id, set())
            if row is None:
                raise Violation(f"{order_id} is lost: no message is left of it", self.timeline)
            is_old = self.time - self.placed_at >= CREATE_SECONDS - _CLOCKS_SECONDS
            is_known = not alarms.isdisjoint({Cause.STRIPE_INCONCLUSIVE, Cause.REQUEST_REFUSED, Cause.HELD})
            is_held = (row.payment_intent_id is None and (is_old or is_known)) or self._is_elsewhere(order_id)
            if row.state is IN_WORK and not is_held:
                raise Violation(f"{order_id} is left {IN_WORK}: no message is left of it", self.timeline)

    def _check_held_rows_are_seen(self) -> None:
        for (order_id,), item in self.rows.items():
            is_old = self.time >= self.placed_at + CREATE_SECONDS + DAY and payment_of(item).lease_owner is None
            if self._is_held(item) and is_old and Cause.HELD not in self.alarms.get(order_id, ()):
                raise Violation(f"{order_id} is held, and nobody knows", self.timeline)

    def _check_the_end(self) -> None:
        """When the faults have stopped and all is idle."""
        self.check()
        last = {event.data.order_id: event for event in self.orders}
        for order_id, event in last.items():
            if self._is_excused(order_id):
                self.met("ended with an alarm")
            else:
                self._check_the_end_of(order_id, event)
        if strangers := {order_id for (order_id,) in self.rows} - last.keys():
            raise Violation(f"rows of another shop: {strangers}", self.timeline)
        if self.dlq:
            raise Violation(f"payable messages in the DLQ: {self.dlq}", self.timeline)

    def _is_excused(self, order_id: str) -> bool:
        """Whether no rule ends this order, and an alarm has said so: a person has to undo what was changed."""
        intents = self._intents_of(order_id)
        causes = set[str]().union(*(self.alarms.get(each, ()) for each in (order_id, *(each.id for each in intents))))
        takes_no_cards = any("card" not in each.payment_method_types for each in intents)
        may_differ = self._may_differ(order_id) or "edit" in self.scenario.persons or takes_no_cards
        has_alarm = not causes.isdisjoint({Cause.MONEY_DIFFERS, Cause.ROW_LOST, Cause.HELD})
        return may_differ and self._is_unfinished(order_id) and has_alarm

    def _is_elsewhere(self, order_id: str) -> bool:
        """Whether another account's API key made its PaymentIntent, and an alarm has said so."""
        row = self.row(order_id)
        is_known = Cause.STRIPE_ACCOUNT in self.alarms.get(order_id, ())
        return is_known and row is not None and self._account_of(row) == 1

    def _account_of(self, row: Payment) -> int:
        """The account whose API key a person stores, if the row's PaymentIntent is not found."""
        return int(row.payment_intent_id is not None and not self.stripe.is_ours(row.payment_intent_id))

    def _check_the_end_of(self, order_id: str, last: OrderPlacedEvent) -> None:
        state, charges, row = self.states.get(order_id), self._charges_of(order_id), self.row(order_id)
        self.met(f"ended: {state}")
        if row is None or state in (None, IN_WORK, WAITS):
            raise Violation(f"{order_id} is left {state}", self.timeline)
        is_canceled = any(each.status == "canceled" for each in self._intents_of(order_id))
        may_differ = self._may_differ(order_id)
        is_calm = not (self.lost or self.has_stored_failure or self.scenario.is_harsh)
        pays, is_last = last.data.payment_method == "pm_card_visa", row.attempt == last.data.attempt
        wrong = {
            f"it has {len(charges)} charges at Stripe": (state is PAID) != bool(charges),
            "it names another PaymentIntent": charges and row.payment_intent_id != charges[0].id,
            "it was charged another amount": charges and charges[0].amount != last.data.amount_minor and not may_differ,
            "it was said to be canceled": (order_id, CANCELED) in self.told and state is not CANCELED,
            "it was to be canceled": row.cancel_requested_at and state not in (CANCELED, PAID),
            "Stripe has canceled nothing": state is CANCELED and not may_differ and not is_canceled,
            "its card pays": is_calm and pays and state not in (PAID, CANCELED),
            f"attempt {row.attempt} was not its last": is_calm and state is DECLINED and not is_last,
        }
        for why, is_wrong in wrong.items():
            if is_wrong:
                raise Violation(f"{order_id} is {state}, and {why}", self.timeline)


@cache
def _order(place: int, attempt: int, card: str, placed_at: int) -> OrderPlacedEvent:
    about = {"order_id": f"ord_{place:032x}", "attempt": attempt, "amount_minor": 1099 + place}
    placed = order(**about, payment_method=card, placed_at=datetime.fromtimestamp(placed_at, UTC))
    return OrderPlacedEvent.of(placed, correlation_id="c")
