"""One schedule: one order, one design, one fault, over the simulation's DynamoDB and Stripe, on a virtual clock.

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
from greenlet import greenlet

from lab.simulation.choices import Choices
from lab.simulation.service import ORDERS
from lab.simulation.world import VISIBILITY_SECONDS, Crash, switch_to_scheduler
from lab.survival.aws import Message, Queue, RetryingClient
from lab.survival.design import DAY_SECONDS, Clients, Design, InvokeAgain
from lab.survival.faults import STRIPE_FAULTS, Fault, FaultKind
from onecharge.contract.events import OrderPlacedEvent
from onecharge.contract.states import OrderStatus
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.queues import Delivery
from tests.shop.builders import BOUNDS, INDEXES, T0, order
from tests.shop.dynamodb import Io, Item, MemoryDynamoDB
from tests.shop.sdk import client_of
from tests.shop.stripe import USUAL_FAULTS, ShopStripe

_TTL_DELETES_WITHIN_SECONDS = 2 * DAY_SECONDS
"""DynamoDB deletes an expired item "within a few days": at a random time until then, certainly after it."""
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
RELEASED, PAID_AGAIN = "an operator looks at Stripe, and releases the order", "the customer pays again"

_PLACED = order()
_ORDER, _ORDER_AFTER_DEPLOY, _PAID_AGAIN = (
    OrderPlacedEvent.of(order(**changes), correlation_id="survival").model_dump_json()
    for changes in ({}, {"customer_id": "cus_2"}, {"attempt": 2})
)
_STORED = to_item(
    {
        **_PLACED.model_dump(mode="json"),
        **{"status": OrderStatus.PENDING, "waiting_since": datetime.fromtimestamp(T0, UTC).isoformat()},
        **{"fingerprint": "f", "correlation_id": "survival"},
    }
)
"""The order as the order service has it, until a worker's outcome reaches it."""


@dataclass
class Invocation:
    """One running invocation, in an execution environment of its own."""

    name: str
    message: Message
    receipt_handle: str
    event: dict[str, Any]
    started_at: int
    run: greenlet
    sleeps_until: int
    label: str = "its start"
    """Its next effect."""


class SurvivalWorld(Io):
    """Everything that one schedule touches. The fault occurs at the opportunity with the number `at`, if it has one."""

    def __init__(self, design: Design, fault: Fault, choices: Choices, *, at: int | None) -> None:
        self.design, self.scenario, self.choices = design, fault, choices
        super().__init__(T0)
        self.timeline: list[tuple[int, str]] = []
        """Seconds since the order was placed, and what happened then."""
        self.opportunities, self._at = 0, at
        """How often the fault could have occurred."""
        self.fault_occurred = fault.title == "nothing goes wrong"
        self._cut_off: Invocation | None = None
        """The worker whose requests no longer reach Stripe."""
        self.queue = Queue(design.max_receive_count, self.now, self._note)
        self.workers: list[Invocation] = []
        self.invocations = 0
        self.current: Invocation | None = None
        """None while a person acts, who meets no fault."""
        self.unexpected_error: BaseException | None = None
        self.acts: set[str] = set()
        """What people had to do: RELEASED, PAID_AGAIN."""
        self.dynamodb = MemoryDynamoDB(keys=design.keys, io=self, indexes=INDEXES)
        if ORDERS in design.keys:
            self.dynamodb.tables[ORDERS] = {(_PLACED.order_id,): dict(_STORED)}
        self.stripe = ShopStripe(io=self, faults=USUAL_FAULTS)
        self.stripe.down = fault.stripe_down_seconds > 0
        self.clients = Clients(
            dynamodb=RetryingClient(self.dynamodb, lambda: choices.happens(0.5)),
            # One client for all workers, because each call without a key generates another one.
            stripe=client_of(self.stripe, retries=design.stripe_retries),
            now=self.now,
            log_exception=lambda: self._check_exception(sys.exception()),
            queue=self,
        )

    # ------------------------------------------------------------ called by DynamoDB in memory and Stripe in process

    def pause(self, where: str) -> None:
        """Called before and after each effect: switch to the scheduler."""
        if worker := self.current:
            worker.label = where
            if self.stripe.down and where.startswith("stripe"):
                self.fault_occurred = True
                self._note("Stripe is down", worker)
            switch_to_scheduler(worker.run)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        kind = self._fault_in_request(where, kinds) if self.current else None
        if kind:
            self._note(f"{where}: {kind}", self.current)
        return kind

    def _fault_in_request(self, where: str, kinds: Sequence[str]) -> str | None:
        kind = self.scenario.kind
        if kind is FaultKind.WRITE_UNANSWERED and kind.value in kinds and where != "dynamodb GetItem":
            return kind.value if self._occurs() else None
        if kind in STRIPE_FAULTS and kind.value in kinds:
            occurs = self._occurs()
            if kind is FaultKind.CHARGE_UNANSWERED and (occurs or self._cut_off is self.current):
                self._cut_off = self.current if occurs else None
            return kind.value if occurs else None
        # Stripe has this key already, so it does not matter whether the retry arrives.
        return "drop before" if "drop before" in kinds and self._cut_off is self.current else None

    def _occurs(self) -> bool:
        """Count an opportunity; returns whether the fault occurs now."""
        occurs = self.opportunities == self._at
        self.opportunities += 1
        self.fault_occurred |= occurs
        return occurs

    def happens(self, what: str) -> bool:
        if happens := self.choices.happens(0.7):
            self._note(what)
        return happens

    def pass_time(self, seconds: int) -> None:
        self.time += max(0, seconds)
        self.stripe.down = self.time - T0 < self.scenario.stripe_down_seconds
        self._delete_expired_items()
        self.stripe.time_has_passed()

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if table == ORDERS:
            self.queue.send(_ORDER)

    # ------------------------------------------------------------ called by the designs

    def _check_exception(self, error: BaseException | None) -> None:
        self._note(f"raises {type(error).__name__}", self.current)
        if not isinstance(error, _EXPECTED):
            self.unexpected_error = error
        elif isinstance(error, BatchProcessingError):
            for _, each, _ in error.child_exceptions or []:
                self._check_exception(each)
        elif isinstance(error, IdempotencyPersistenceLayerError):
            self._check_exception(error.__cause__)

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        self.pause("sqs ChangeMessageVisibility")
        self.queue.change_visibility(delivery.receipt_handle, seconds)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.pause("sqs SendMessage")
        self.queue.dlq.append(delivery.body)

    # ------------------------------------------------------------ the schedule

    def run(self) -> int:
        """Publish the order, run until idle, redrive the DLQ; returns how often Stripe has charged."""
        self.queue.send(_ORDER)
        if self.scenario.published_again_after is not None:
            first, last = self.scenario.published_again_after
            self._run_until_idle()
            self.pass_time(T0 + first + self.choices.pick(last - first + 1) - self.time)
            self._publish_again("the order is published again")
        self._run_until_idle()
        if times := self.scenario.restored_after:
            self.pass_time(times[self.choices.pick(len(times))])
            for name in self.dynamodb.tables.keys() - {ORDERS}:
                self.dynamodb.tables[name].clear()
            self._publish_again("the tables are restored to a time before the order, and it is published again")
            self._run_until_idle()
        wait_seconds = self.scenario.redriven_after_seconds
        for _ in range(_REDRIVES_MAX):
            if not self.queue.dlq:
                break
            self.pass_time(wait_seconds)
            self.queue.redrive()
            self._run_until_idle()
            wait_seconds = DAY_SECONDS
        for act in self._people_act():
            self.acts.add(act)
            self._run_until_idle()
        charges = len(self.stripe.charges)
        self._note(f"Stripe has charged {['never', 'once', 'twice'][charges] if charges < 3 else f'{charges} times'}")
        return charges

    def _publish_again(self, what: str) -> None:
        self.fault_occurred = True
        self._note(what)
        self.queue.send(_ORDER)

    def _people_act(self) -> Iterator[str]:
        """An operator releases what is held, and the customer pays again after a decline, if the design tells them."""
        clients = replace(self.clients, dynamodb=self.dynamodb)
        for _ in range(_ACTS_MAX):
            self.current = None
            act = RELEASED if self.design.release(clients) else PAID_AGAIN if self.design.is_declined(clients) else ""
            if not act:
                return
            self._note(act)
            if act is PAID_AGAIN:
                self.queue.send(_PAID_AGAIN)
            yield act

    def _run_until_idle(self) -> None:
        for _ in range(_STEPS_MAX):
            if not (self.queue.messages or self.workers):
                return
            self._step()
            if self.unexpected_error is not None:
                raise self.unexpected_error
        raise AssertionError(f"{self.design.title!r} under {self.scenario.title!r} does not end")

    def _step(self) -> None:
        """Resume a worker until its next effect, or receive a message; if neither is possible, advance the clock."""
        awake = [worker for worker in self.workers if worker.sleeps_until <= self.time]
        ready = self.queue.ready()
        options = len(awake) + len(ready)
        if options == 0:
            times = [each.sleeps_until for each in self.workers] + [each.visible_at for each in self.queue.messages]
            self.pass_time(min(time for time in times if time > self.time) - self.time)
            return
        chosen = self.choices.pick(options) if options > 1 else 0
        if chosen < len(awake):
            self._resume(awake[chosen])
        else:
            self._receive(ready[chosen - len(awake)])

    # ------------------------------------------------------------ Lambda

    def _receive(self, message: Message) -> None:
        if (receipt_handle := self.queue.receive(message)) is None:
            return
        self._invoke(message, receipt_handle)
        if self.scenario.kind is FaultKind.DELIVERED_TWICE and self._occurs():
            self._invoke(message, self.queue.receive_copy(message))

    def _invoke(self, message: Message, receipt_handle: str, event: Any = None, after_seconds: int = 0) -> None:
        """Invoke the function; a durable one again with the same event, if its execution was interrupted."""
        event = event or {"Records": [message.as_record(receipt_handle)]}
        handler = self.design.start(self.clients)
        starts_at = self.time + after_seconds
        ends_at = starts_at + BOUNDS.function_timeout_seconds
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
        name = f"worker {self.invocations}"
        self.workers.append(
            Invocation(name, message, receipt_handle, event, starts_at, greenlet(invoke), sleeps_until=starts_at)
        )

    def _resume(self, worker: Invocation) -> None:
        if self._fault_before_effect(worker):
            return
        self.current = worker
        done = worker.run.switch()
        if not worker.run.dead:
            self._note(worker.label, worker)
            return
        self.workers.remove(worker)
        self._note(f"ends, {worker.message.id} is {'handled' if done else 'not handled'}", worker)
        is_valid = worker.receipt_handle in worker.message.receipt_handles
        if done and is_valid and worker.message in self.queue.messages:
            if self.scenario.kind is FaultKind.DELIVERED_AGAIN and self._occurs():
                self._note(f"{worker.message.id} is not deleted", worker)
                seconds = (1, 20, VISIBILITY_SECONDS)[self.choices.pick(3)]
                worker.message.visible_at = worker.started_at + seconds
            else:
                self.queue.messages.remove(worker.message)

    # ------------------------------------------------------------ faults of workers and tables

    def _fault_before_effect(self, worker: Invocation) -> bool:
        """Whether a fault stops or pauses the worker before its next effect."""
        if self.scenario.kind is FaultKind.CRASH and self._occurs():
            self._crash(worker)
            return True
        if self.scenario.kind is FaultKind.PAUSE and self._occurs():
            # Until its message is redelivered, or two minutes longer.
            seconds = (VISIBILITY_SECONDS, VISIBILITY_SECONDS + 120)[self.choices.pick(2)]
            worker.sleeps_until = worker.started_at + seconds
            self._note(f"pauses at {worker.label}", worker)
            return True
        return False

    def _crash(self, worker: Invocation) -> None:
        self._note(f"crashes at {worker.label}", worker)
        self.workers.remove(worker)
        self.current = worker
        with suppress(Crash):
            if worker.run:
                worker.run.throw(Crash)
        if self.scenario.crashed_to_dlq:
            self.queue.move_to_dlq(worker.message)
        elif self.design.durable:
            self._invoke(worker.message, worker.receipt_handle, worker.event)
        if self.scenario.redelivery_differs:
            self._note("a deploy changes the metadata")
            worker.message.body = _ORDER_AFTER_DEPLOY

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

    def _note(self, text: str, worker: Invocation | None = None) -> None:
        self.timeline.append((self.time - T0, f"{worker.name} {text}" if worker else text))
