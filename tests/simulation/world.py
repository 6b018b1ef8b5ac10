"""One schedule: deliveries of orders, interleaved at every boundary, on a virtual clock, with faults, from choices.

Every choice is taken from one `Choices`, so a schedule is repeated to the byte by repeating them. The code that
runs is the deployed code: Consumer, ChargeOrder and the protocol; only the world around it is in memory.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from greenlet import getcurrent, greenlet

from charge_order.charge import ChargeOrder
from charge_order.protocol import ChargeRow
from charge_order.time_bounds import TimeBounds
from onecharge.deliveries import Consumer, Delivery
from onecharge.events import OrderPlaced, OrderPlacedEvent
from onecharge.states import ChargeState
from tests.silent import SILENT
from tests.simulation.memory import MemoryLedger, MemoryStripe

BOUNDS = TimeBounds.of(30)
VISIBILITY_SECONDS = 180
MAX_RECEIVE_COUNT = 500
T0 = 1_800_000_000
DAY = 24 * 3600
_STEPS_MAX = 4000
_ZOMBIE_SECONDS = 300


class Choices(Protocol):
    """Where a schedule's choices come from."""

    def pick(self, options: int) -> int:
        """One of so many options, from 0."""

    def happens(self, probability: float) -> bool:
        """Whether something rare happens here."""


class SeededChoices:
    """At random, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, options: int) -> int:
        return int(self._random.random() * options)

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability


class Crash(BaseException):
    """The worker is gone, as by a kill: nothing of it runs any more."""


class Violation(AssertionError):
    """An invariant does not hold; carries what happened up to there."""

    def __init__(self, what: str, timeline: Sequence[str]) -> None:
        super().__init__("\n".join([what, *timeline]))
        self.what, self.timeline = what, list(timeline)


@dataclass
class Message:
    """A message of the queue. Where it is hidden until, and how often it was received."""

    id: str
    body: str
    visible_at: int
    receives: int = 0


@dataclass
class Worker:
    """One running delivery."""

    name: str
    message: Message
    started_at: int
    run: greenlet
    label: str = "start"


@dataclass(frozen=True)
class Scenario:
    """What is delivered, and what may go wrong."""

    cards: tuple[str, ...] = ("pm_card_visa",)
    copies: int = 2
    fault_probability: float = 0.0
    crash_probability: float = 0.0
    jumps: bool = False
    redeliveries: int = 0
    """Messages that come again, under new ids, an hour, a day or thirteen days later."""
    lose_rows: bool = False
    """The ledger may lose a row before a redelivery, as a restored backup does."""
    tampered: bool = False
    """A redelivery may say something else than the first delivery did, as after a deploy."""
    zombies: bool = False
    """A worker may live on past its timeout, for five minutes: nothing but its fencing token holds it back."""
    search_lag_seconds: int = 0


@dataclass
class World:
    """Everything that a schedule touches. `mutate` breaks it on purpose, to see that it is caught."""

    scenario: Scenario
    choices: Choices
    mutate: Callable[["World"], None] = lambda world: None
    time: int = T0
    faults_on: bool = True
    coverage: Counter[str] = field(default_factory=Counter)
    timeline: list[str] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.ledger = MemoryLedger(io=self)
        self.stripe = MemoryStripe(io=self, search_lag_seconds=self.scenario.search_lag_seconds)
        self.queue: list[Message] = []
        self.dlq: list[tuple[str, str]] = []
        self.workers: list[Worker] = []
        self.states: dict[tuple[str, int], ChargeState] = {}
        self.made = 0
        self.lost_rows = 0
        self.broken: str | None = None
        self.max_receive_count = MAX_RECEIVE_COUNT
        self.holders: dict[tuple[str, int], tuple[Worker, int]] = {}
        self.let_go = self.ledger.let_go
        self.charge_order = ChargeOrder(
            ledger=self.ledger,  # type: ignore[arg-type]  # The same interface, pinned by the contract suite.
            gateway=self.stripe,  # type: ignore[arg-type]
            lease_seconds=BOUNDS.lease_seconds,
            clock=lambda: self.time,
            logger=SILENT,
            count=SILENT,
        )
        self.orders = [_order(place, card) for place, card in enumerate(self.scenario.cards)]
        self.mutate(self)
        self.consumer = Consumer(
            model=OrderPlacedEvent,
            handle=self.charge_order,
            queue=self,  # type: ignore[arg-type]  # hide and dead_letter, below.
            logger=SILENT,
            count=SILENT,
            threads=None,  # type: ignore[arg-type]  # Deliveries run as greenlets here.
            jitter=lambda: 0.5,
        )

    # ------------------------------------------------------------ what the adapters see

    def now(self) -> int:
        return self.time

    @property
    def current(self) -> Worker:
        """The worker that runs right now."""
        return next(each for each in self.workers if each.run is getcurrent())

    def pause(self, where: str) -> None:
        worker = self.current
        worker.label = where
        worker.run.parent.switch()

    def claimed(self, row: ChargeRow) -> None:
        """Whoever takes a lease over must find its former holder dead, not slow."""
        key = row.request.order_id, row.request.attempt
        holder, token = self.holders.get(key, (None, 0))
        if (
            holder in self.workers
            and holder is not self.current
            and self.time - holder.started_at < BOUNDS.function_timeout_seconds
            and token < row.fencing_token  # Else the row was lost, and began anew.
            and key not in self.let_go
        ):
            # Raised by the next check: here, in the worker, the code under test would catch it.
            self.broken = "a lease was taken over from a worker that is alive"
        self.let_go.discard(key)
        self.holders[key] = self.current, row.fencing_token

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        if not (self.faults_on and self.choices.happens(self.scenario.fault_probability)):
            return None
        kind = kinds[self.choices.pick(len(kinds))]
        self._note(f"{where}: {kind}", fault=f"{where.split('.')[0]}: {kind}")
        return kind

    def hide(self, delivery: Delivery, seconds: int) -> None:
        message = next((each for each in self.queue if each.id == delivery.message_id), None)
        self.pause("sqs.hide")
        if message is not None:
            message.visible_at = self.time + seconds

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.pause("sqs.dead_letter")
        self.dlq.append((delivery.body, reason))

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Deliver, with faults; then without, until all is quiet; raises Violation when an invariant breaks."""
        for event in self.orders:
            for copy in range(self.scenario.copies):
                self.send(self._maybe_changed(event) if copy else event)
        self.until_quiet()
        for _ in range(self.scenario.redeliveries):
            self._pass_time((3600, DAY, 13 * DAY)[self.choices.pick(3)])
            self._maybe_lose_a_row()
            self.send(self._maybe_changed(self.orders[self.choices.pick(len(self.orders))], amount_minor=1))
            self.until_quiet()
        self.faults_on = False
        self._check_nothing_is_lost()
        for event in self.orders:
            self.send(event)
        self.until_quiet()
        self._check_the_end()

    def send(self, event: OrderPlacedEvent) -> None:
        """A new message, as a first delivery, a redrive or a republication makes one."""
        self.made += 1
        self.queue.append(Message(f"m{self.made}", event.model_dump_json(), self.time))

    def until_quiet(self) -> None:
        """Go on until no message is left."""
        while self.queue or self.workers:
            self.steps += 1
            if self.steps > _STEPS_MAX:
                raise Violation("the schedule does not come to an end", self.timeline)
            self.step()
            self.check()

    def step(self) -> None:
        """One worker goes on to its next boundary, or one message is received, or time passes."""
        busy = {worker.message.id for worker in self.workers}
        ready = [each for each in self.queue if each.visible_at <= self.time and each.id not in busy]
        options = len(self.workers) + len(ready)
        if options == 0:
            self._pass_time(min(each.visible_at for each in self.queue) - self.time)
            return
        chosen = self.choices.pick(options) if options > 1 else 0
        if chosen < len(self.workers):
            self._resume(self.workers[chosen])
        else:
            self._receive(ready[chosen - len(self.workers)])

    def _receive(self, message: Message) -> None:
        message.receives += 1
        if message.receives > self.max_receive_count:
            self.queue.remove(message)
            self.dlq.append((message.body, "receive count"))
            return
        delivery = Delivery(message.id, message.id, message.receives, message.body)
        message.visible_at = self.time + VISIBILITY_SECONDS
        run = greenlet(lambda: self.consumer.deliver(delivery))
        worker = Worker(f"{message.id}#{message.receives}", message, self.time, run)
        self.workers.append(worker)
        self._note(f"{worker.name} received")
        self._resume(worker)

    def _resume(self, worker: Worker) -> None:
        if self.scenario.jumps and self.faults_on and self.choices.happens(0.05):
            self._pass_time((1, 20, 40)[self.choices.pick(3)], fault="delay")
        age_seconds = self.time - worker.started_at
        killed = age_seconds >= BOUNDS.function_timeout_seconds
        if killed and self.scenario.zombies and self.faults_on and age_seconds < _ZOMBIE_SECONDS:
            killed = self.choices.happens(0.3)
            self.coverage["zombie"] += not killed
        crashed = self.faults_on and self.choices.happens(self.scenario.crash_probability)
        if killed or crashed:
            self._note(f"{worker.name} {'killed' if killed else 'crashes'} at {worker.label}", fault="crash")
            self.crash(worker)
            return
        done = worker.run.switch()
        if worker.run.dead:
            self._note(f"{worker.name} {'done' if done else 'not done'}")
            self.workers.remove(worker)
            if done and worker.message in self.queue:
                self.queue.remove(worker.message)
        else:
            self._note(f"{worker.name} at {worker.label}")

    def crash(self, worker: Worker) -> None:
        """The worker is gone, wherever it is."""
        self.workers.remove(worker)
        try:
            if worker.run:
                worker.run.throw(Crash)
        except Crash:
            pass

    def _pass_time(self, seconds: int, *, fault: str = "") -> None:
        self.time += max(0, seconds)
        self._note(f"{seconds} s pass", fault=fault or ("days pass" if seconds >= DAY else ""))

    def _maybe_lose_a_row(self) -> None:
        if self.scenario.lose_rows and self.ledger.rows and self.choices.happens(0.5):
            keys = sorted(self.ledger.rows)
            key = keys[self.choices.pick(len(keys))]
            del self.ledger.rows[key]
            self.states.pop(key, None)
            self.lost_rows += 1
            self._note(f"row {key[0][-4:]} lost", fault="row lost")

    def _maybe_changed(self, event: OrderPlacedEvent, **changes: object) -> OrderPlacedEvent:
        if not (self.scenario.tampered and self.choices.happens(0.7)):
            return event
        self._note("the next message says something else", fault="other request")
        data = event.data.model_copy(update={"customer_id": "cus_2", **changes})
        return event.model_copy(update={"data": data})

    def _note(self, what: str, *, fault: str = "") -> None:
        self.timeline.append(f"{self.time - T0:>8} s  {what}")
        if fault:
            self.coverage[fault] += 1

    # ------------------------------------------------------------ the invariants

    def check(self) -> None:
        """After each step."""
        if self.ledger.stale_writes:
            self.broken = "a worker that had lost its lease wrote to the row"
        if self.broken:
            raise Violation(self.broken, self.timeline)
        charged = Counter(charge.request.order_id for charge in self.stripe.charges)
        for order_id, times in charged.items():
            if times > 1:
                raise Violation(f"{order_id} was charged {times} times", self.timeline)
        for key, row in self.ledger.rows.items():
            before = self.states.get(key, ChargeState.CLAIMED)
            if before is not ChargeState.CLAIMED and row.state is not before:
                raise Violation(f"settled row {key} went from {before} to {row.state}", self.timeline)
            self.states[key] = row.state
            if row.state is ChargeState.DECLINED and charged[key[0]]:
                raise Violation(f"declined order {key[0]} is charged", self.timeline)

    def _check_nothing_is_lost(self) -> None:
        """No message is left: what was delivered must be settled, whether or not anybody sends it again."""
        for event in self.orders:
            row = self.ledger.rows.get((event.data.order_id, 1))
            if not self.lost_rows and (row is None or row.state is ChargeState.CLAIMED):
                raise Violation(f"{event.data.order_id} is lost: no message is left of it", self.timeline)

    def _check_the_end(self) -> None:
        """When the faults have stopped and all is quiet."""
        for event in self.orders:
            order_id = event.data.order_id
            row = self.ledger.rows.get((order_id, 1))
            charges = [charge for charge in self.stripe.charges if charge.request.order_id == order_id]
            state = row.state if row else None
            if state is ChargeState.CLAIMED or state is None:
                raise Violation(f"{order_id} is left {state}", self.timeline)
            if (state is ChargeState.SUCCEEDED) != bool(charges):
                raise Violation(f"{order_id} is {state}, with {len(charges)} charges at Stripe", self.timeline)
            if charges and self.ledger.settled_as[order_id, 1] != charges[0].id:
                raise Violation(f"{order_id} is settled with another charge's id", self.timeline)
            if any(charge.request.amount_minor != event.data.amount_minor for charge in charges):
                raise Violation(f"{order_id} was charged another amount", self.timeline)
        if self.dlq:
            raise Violation(f"payable messages in the DLQ: {self.dlq}", self.timeline)


_ORDERS: dict[tuple[int, str], OrderPlacedEvent] = {}


def _order(place: int, card: str) -> OrderPlacedEvent:
    if (place, card) not in _ORDERS:
        order = OrderPlaced(
            order_id=f"ord_{place:032x}",
            attempt=1,
            customer_id="cus_1",
            amount_minor=1099 + place,
            currency="EUR",
            payment_method=card,
            placed_at=datetime.fromtimestamp(T0, UTC),
        )
        _ORDERS[place, card] = OrderPlacedEvent.of(order, correlation_id="c")
    return _ORDERS[place, card]
