"""One schedule: one order, one design, one fault, in the simulator with its virtual clock.

    published_designs.py, designs.py   the Lambda functions, as deployed
    messaging.py                       SQS, SNS and the outbox's stream
    trial.py                           Lambda, the virtual clock and the operator who redrives
    faults.py                          which fault occurs, and when
    lab/simulation                 DynamoDB, Stripe and the random choices

Workers run in greenlets and are switched at every effect. Stripe's charges are counted at the end.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import stripe
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
)
from botocore.exceptions import BotoCoreError, ClientError
from greenlet import getcurrent, greenlet

from lab.simulation.choices import Choices
from lab.simulation.world import VISIBILITY_SECONDS, Crash, switch_to_scheduler
from lab.survival.design import DAY_SECONDS, ORDERS, Clients, Design, InvokeAgain
from lab.survival.faults import Fault, FaultInjector, FaultKind
from lab.survival.libraries import RetryingClient
from lab.survival.messaging import TIMEOUT_SECONDS, Message, Messaging
from onecharge.contract.events import OrderPlaced, OrderPlacedEvent
from onecharge.contract.states import OrderStatus
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.queues import Delivery
from tests.shop.builders import INDEXES, T0
from tests.shop.dynamodb import Item, MemoryDynamoDB
from tests.shop.stripe import ShopStripe, client_of

_TTL_DELETES_WITHIN_SECONDS = 2 * DAY_SECONDS
"""DynamoDB deletes an expired item "within a few days": at a random time until then, certainly after it."""
_LATE_EFFECTS_SECONDS = 3600
"""The time at the end of a schedule for what Stripe executes late."""
_REDRIVES_MAX = _ACTS_MAX = 3
_STEPS_MAX = 20_000
_EXPECTED = (
    stripe.StripeError,
    BotoCoreError,
    ClientError,
    BatchProcessingError,
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
)
"""Exceptions that a design may raise. Any other one is a bug in the benchmark, and ends the run."""


AMOUNT_MINOR = 4200
RELEASED, PAID_AGAIN = "an operator releases the order", "the customer pays again"


_PLACED = OrderPlaced(
    order_id=f"ord_{1:032x}",
    attempt=1,
    customer_id="cus_1",
    amount_minor=AMOUNT_MINOR,
    currency="EUR",
    payment_method="pm_card_visa",
    placed_at=datetime.fromtimestamp(T0, UTC),
)


def _body(order: OrderPlaced) -> str:
    return OrderPlacedEvent.of(order, correlation_id="survival").model_dump_json()


_ORDER, _ORDER_AFTER_DEPLOY, _PAID_AGAIN = (
    _body(_PLACED.model_copy(update=changes)) for changes in ({}, {"customer_id": "cus_2"}, {"attempt": 2})
)
_STORED = to_item(
    {
        **_PLACED.model_dump(mode="json"),
        **{"status": OrderStatus.PENDING, "waiting_since": _PLACED.placed_at.isoformat()},
        **{"fingerprint": "f", "correlation_id": "survival"},
    }
)
"""The order as the order service has it, until a worker's outcome reaches it."""


@dataclass
class Invocation:
    """One running invocation, in an execution environment of its own."""

    message: Message
    receipt_handle: str
    event: dict[str, Any]
    started_at: int
    run: greenlet
    number: int
    label: str = "start"
    """Its next effect."""
    sleeps_until: int = 0
    killed_at_waking: bool = False
    writes: int = 0


Place = tuple[str, str, int]
"""A line in a function: the file, the function, the line."""


@dataclass(frozen=True)
class Note:
    """One line of a schedule's timeline."""

    seconds: int
    text: str
    worker: int
    """Its number; 0 if no worker did it."""
    places: Sequence[Place]
    """Where the worker stands, the innermost function first."""
    paid_minor: int
    """What the customer has paid by then."""
    fault_occurred: bool


def _places(worker: greenlet) -> Sequence[Place]:
    frame = sys._getframe() if worker is getcurrent() else worker.gr_frame
    places = []
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return places


@dataclass(frozen=True)
class Outcome:
    """The result of a schedule."""

    charges: int
    fault_occurred: bool
    acts: frozenset[str]
    """What people had to do: RELEASED, PAID_AGAIN."""


class SurvivalWorld:
    """Everything that one schedule touches. The fault occurs at the opportunity with the number `at`, if it has one."""

    def __init__(self, design: Design, fault: Fault, choices: Choices, *, at: int | None, tracing: bool) -> None:
        self.design, self.scenario, self.choices = design, fault, choices
        self.time = T0
        self.timeline: list[Note] | None = [] if tracing else None
        self.injector = FaultInjector(fault, at)
        self.messaging = Messaging(design, self.now, self._note)
        self.workers: list[Invocation] = []
        self.invocations = 0
        self.current: Invocation | None = None
        """None while a person acts, who meets no fault."""
        self.unexpected_error: BaseException | None = None
        self.dynamodb = MemoryDynamoDB(keys=design.keys, io=self, indexes=INDEXES)
        if ORDERS in design.keys:
            self.dynamodb.tables[ORDERS] = {(_PLACED.order_id,): dict(_STORED)}
        self.stripe = ShopStripe(io=self)
        self.stripe.down = fault.stripe_down_seconds > 0
        self.clients = Clients(
            dynamodb=RetryingClient(
                self.dynamodb, writes=lambda: self._worker.writes, retries_left=lambda: choices.happens(0.5)
            ),
            # One client for all workers, because each call without a key generates another one.
            stripe=client_of(self.stripe, retries=design.stripe_retries),
            now=self.now,
            log_exception=self.log_exception,
            queue=self,
        )

    # ------------------------------------------------------------ called by DynamoDB in memory and Stripe in process

    def now(self) -> int:
        return self.time

    def pause(self, where: str) -> None:
        """Called before and after each effect: switch to the scheduler."""
        if self.current is None:
            return
        worker = self._worker
        worker.label = where
        if self.stripe.down and where.startswith("stripe"):
            self.injector.occurred = True
            self._note("stripe is down", worker)
        switch_to_scheduler(worker.run)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        kind = self.injector.in_request(where, kinds, self._worker) if self.current else None
        if kind:
            self._note(f"{where}: {kind}", self._worker)
        return kind

    def happens(self, what: str) -> bool:
        happens = self.choices.happens(0.7)
        if happens:
            self._note(what)
        return happens

    def met(self, what: str) -> None:
        self._note(what)

    def pass_time(self, seconds: int) -> None:
        self.time += max(0, seconds)
        self.stripe.down = self.time - T0 < self.scenario.stripe_down_seconds
        self._delete_expired_items()
        self.stripe.time_has_passed()
        self._note_late_charge()

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if self.current:
            self._worker.writes += 1
        if table == ORDERS:
            self.messaging.publish(_ORDER)
        if table == self.design.outbox and old is None and new is not None:
            self.messaging.add_to_stream(new)

    # ------------------------------------------------------------ called by the designs

    def log_exception(self) -> None:
        self._check_exception(sys.exception())

    def _check_exception(self, error: BaseException | None) -> None:
        self._note(f"{self._worker.message.id} raised {type(error).__name__}", self._worker)
        if not isinstance(error, _EXPECTED):
            self.unexpected_error = error
        elif isinstance(error, BatchProcessingError):
            for _, each, _ in error.child_exceptions or []:
                self._check_exception(each)
        elif isinstance(error, IdempotencyPersistenceLayerError):
            self._check_exception(error.__cause__)

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        self.pause("sqs ChangeMessageVisibility")
        self.messaging.change_visibility(delivery.receipt_handle, seconds)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.pause("sqs SendMessage")
        self.messaging.dlq.append(delivery.body)

    # ------------------------------------------------------------ the schedule

    def run(self) -> Outcome:
        """Publish the order, run until idle, redrive the DLQ, and count the charges."""
        self.messaging.publish(_ORDER)
        if self.scenario.published_again_after is not None:
            self._publish_again(*self.scenario.published_again_after)
        self._run_until_idle()
        if self.scenario.restored_after:
            self._restore_tables()
            self._run_until_idle()
        self._redrive_daily()
        acts = frozenset(self._people_act())
        self.pass_time(_LATE_EFFECTS_SECONDS)
        self._note(f"{len(self.stripe.charges)} charges")
        return Outcome(len(self.stripe.charges), self.injector.occurred, acts)

    def _publish_again(self, from_seconds: int, to_seconds: int) -> None:
        wait_seconds = from_seconds + self.choices.pick(to_seconds - from_seconds + 1)
        if wait_seconds:
            self._run_until_idle()
            self.pass_time(T0 + wait_seconds - self.time)
        self.injector.occurred = True
        self._note("the order is published again")
        self.messaging.publish(_ORDER)

    def _restore_tables(self) -> None:
        """Restore them to a time before the order; then the order is published again."""
        self.pass_time(self.scenario.restored_after[self.choices.pick(len(self.scenario.restored_after))])
        for name in self.dynamodb.tables.keys() - {ORDERS}:
            self.dynamodb.tables[name].clear()
        self.injector.occurred = True
        self._note("the tables are restored to a time before the order")
        self.messaging.publish(_ORDER)

    def _redrive_daily(self) -> None:
        wait_seconds = self.scenario.redriven_after_seconds
        for _ in range(_REDRIVES_MAX):
            if not self.messaging.dlq:
                return
            self.pass_time(wait_seconds)
            self.messaging.redrive()
            self._run_until_idle()
            wait_seconds = DAY_SECONDS

    def _people_act(self) -> Iterator[str]:
        """An operator releases what is held, and the customer pays again after a decline, if the design tells them."""
        clients = replace(self.clients, dynamodb=self.dynamodb)
        for _ in range(_ACTS_MAX):
            self.current = None
            if self.design.release(clients):
                act = RELEASED
            elif self.design.is_declined(clients):
                act = PAID_AGAIN
                self.messaging.publish(_PAID_AGAIN)
            else:
                return
            self._note(act)
            yield act
            self._run_until_idle()

    def _run_until_idle(self) -> None:
        for _ in range(_STEPS_MAX):
            if not (self.messaging.messages or self.workers):
                return
            self._step()
            if self.unexpected_error is not None:
                raise self.unexpected_error
        raise AssertionError(f"{self.design.name} under {self.scenario.name} does not end")

    def _step(self) -> None:
        """Resume a worker until its next effect, or receive a message; if neither is possible, advance the clock."""
        awake = [worker for worker in self.workers if worker.sleeps_until <= self.time]
        ready = self.messaging.ready()
        options = len(awake) + len(ready)
        if options == 0:
            self.pass_time(self._next_time() - self.time)
            return
        chosen = self.choices.pick(options) if options > 1 else 0
        if chosen < len(awake):
            self._resume(awake[chosen])
        else:
            self._receive(ready[chosen - len(awake)])

    def _next_time(self) -> int:
        times = [worker.sleeps_until for worker in self.workers]
        times += [message.visible_at for message in self.messaging.messages]
        return min(time for time in times if time > self.time)

    # ------------------------------------------------------------ Lambda

    def _receive(self, message: Message) -> None:
        if not self.messaging.receive(message):
            return
        twice = self.scenario.kind is FaultKind.DELIVERED_TWICE and self._is_from_standard_queue(message)
        if twice and self.injector.occurs():
            message.is_second_copy = True
            message.receives += 1
            self._start(message)
        self._start(message)
        message.is_second_copy = False

    def _start(self, message: Message) -> None:
        receipt_handle = self.messaging.new_receipt_handle(message)
        self._note(f"{message.id} is received, {message.receives}.")
        self._invoke(message, receipt_handle, {"Records": [message.as_record(receipt_handle)]})

    def _invoke(self, message: Message, receipt_handle: str, event: dict[str, Any], after_seconds: int = 0) -> None:
        """Invoke the function; a durable one again with the same event, if its execution was interrupted."""
        start = self.design.start if message.image is None else self.design.relay
        assert start is not None
        handler = start(self.clients)
        starts_at = self.time + after_seconds
        ends_at = starts_at + TIMEOUT_SECONDS
        context = SimpleNamespace(
            get_remaining_time_in_millis=lambda: max(0, ends_at - self.time) * 1000, execution=receipt_handle
        )

        def invoke() -> bool:
            try:
                result = handler(event, context)
            except InvokeAgain as again:
                self._invoke(message, receipt_handle, event, again.after_seconds)
                return False
            except Exception as error:
                self._check_exception(error)
                return False
            return not (result or {}).get("batchItemFailures")

        self.invocations += 1
        run = greenlet(invoke)
        self.workers.append(
            Invocation(message, receipt_handle, event, starts_at, run, self.invocations, sleeps_until=starts_at)
        )

    def _resume(self, worker: Invocation) -> None:
        if worker.killed_at_waking:
            self._end(worker, "is killed at its timeout")
            return
        if self._fault_before_effect(worker):
            return
        self.current = worker
        done = worker.run.switch()
        if not worker.run.dead:
            self._note(f"{worker.message.id} at {worker.label}", worker)
            return
        self.workers.remove(worker)
        self._note(f"{worker.message.id} {'done' if done else 'not done'}", worker)
        is_valid = worker.receipt_handle in worker.message.receipt_handles
        if done and is_valid and worker.message in self.messaging.messages:
            self._delete_message(worker)

    def _delete_message(self, worker: Invocation) -> None:
        if self.scenario.kind is FaultKind.DELIVERED_AGAIN and self.injector.occurs():
            self._note(f"{worker.message.id} is not deleted", worker)
            # A standard queue may redeliver at any time, a FIFO queue only after the visibility timeout.
            seconds = (1, 20, VISIBILITY_SECONDS)[self.choices.pick(3)]
            worker.message.visible_at = worker.started_at + (VISIBILITY_SECONDS if self.design.fifo else seconds)
            return
        self.messaging.messages.remove(worker.message)

    # ------------------------------------------------------------ faults of workers and tables

    def _fault_before_effect(self, worker: Invocation) -> bool:
        """Whether a fault stops or pauses the worker before its next effect."""
        match self.scenario.kind:
            case FaultKind.CRASH if self.injector.occurs():
                self._end(worker, "crashes")
                self._after_crash(worker.message)
                return True
            case FaultKind.TIMEOUT if self.injector.occurs():
                worker.sleeps_until, worker.killed_at_waking = worker.started_at + TIMEOUT_SECONDS, True
            case FaultKind.PAUSE if self.injector.occurs():
                # Until its message is redelivered, or two minutes longer.
                seconds = (VISIBILITY_SECONDS, VISIBILITY_SECONDS + 120)[self.choices.pick(2)]
                worker.sleeps_until = worker.started_at + seconds
            case FaultKind.DELIVERED_WHILE_SLOW if (
                self._is_from_standard_queue(worker.message) and self.injector.occurs()
            ):
                worker.sleeps_until = self.time + 10 + self.choices.pick(16)
                worker.message.visible_at, worker.message.is_second_copy = self.time + 6, True
            case _:
                return False
        self._note(f"{worker.message.id} pauses at {worker.label}", worker)
        return True

    def _is_from_standard_queue(self, message: Message) -> bool:
        return message.image is None and not self.design.fifo

    def _after_crash(self, message: Message) -> None:
        if message.image is not None:
            return
        if self.scenario.crashed_to_dlq:
            self.messaging.move_to_dlq(message)
        if self.scenario.redelivery_differs:
            self._note("a deploy changes the metadata")
            message.body = _ORDER_AFTER_DEPLOY

    def _end(self, worker: Invocation, how: str) -> None:
        self._note(f"{worker.message.id} {how} at {worker.label}", worker)
        self.workers.remove(worker)
        self.current = worker
        with suppress(Crash):
            if worker.run:
                worker.run.throw(Crash)
        self._note_late_charge()
        if self.design.durable and not self.scenario.crashed_to_dlq:
            self._invoke(worker.message, worker.receipt_handle, worker.event)

    def _delete_expired_items(self) -> None:
        for table in self.dynamodb.tables.values():
            for key, item in list(table.items()):
                expires_at = int(item.get(self.design.ttl_attribute, {"N": "0"})["N"])
                overdue_seconds = self.time - expires_at
                if not expires_at or overdue_seconds <= 0:
                    continue
                if overdue_seconds >= _TTL_DELETES_WITHIN_SECONDS or self.choices.happens(0.5):
                    self._note("an expired item is deleted")
                    del table[key]

    # ------------------------------------------------------------ helpers

    @property
    def _worker(self) -> Invocation:
        assert self.current is not None
        return self.current

    def _note(self, text: str, worker: Invocation | None = None) -> None:
        if self.timeline is None:
            return
        number, places = (worker.number, _places(worker.run)) if worker else (0, ())
        self.timeline.append(Note(self.time - T0, text, number, places, self._paid_minor(), self.injector.occurred))

    def _note_late_charge(self) -> None:
        if self.timeline and self._paid_minor() > self.timeline[-1].paid_minor:
            self._note("stripe charges all the same")

    def _paid_minor(self) -> int:
        return sum(intent.amount for intent in self.stripe.charges)
