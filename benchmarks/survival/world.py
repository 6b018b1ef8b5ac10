"""One schedule: one order, one design, one fault, on the virtual clock of the simulator.

SQS, Lambda and the outbox's stream are modeled here; DynamoDB, Stripe and the choices are those of testing/simulation.
Workers are switched at every effect. Stripe's ledger is counted at the end.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import stripe
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
)
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError
from greenlet import greenlet

from benchmarks.survival.clock import VirtualClock
from benchmarks.survival.designs import Design, Tools
from benchmarks.survival.faults import DAY_SECONDS, Fault, Strike
from onecharge.contract.events import OrderPlaced, OrderPlacedEvent
from onecharge.runtime.queues import Delivery
from testing.simulation.choices import Choices, SeededChoices
from testing.simulation.dynamodb import Item, MemoryDynamoDB
from testing.simulation.scheduling import switch_to_scheduler
from testing.simulation.service import BOUNDS
from testing.simulation.stripe import MemoryStripe, stripe_in_memory
from testing.simulation.world import T0, VISIBILITY_SECONDS, Crash

_TIMEOUT_SECONDS = BOUNDS.function_timeout_seconds
_STREAM_BACKOFF_MAX_SECONDS = 300
_FIFO_DEDUPLICATION_SECONDS = 300
_TTL_DELETES_WITHIN_SECONDS = 2 * DAY_SECONDS
"""DynamoDB deletes what has expired "within a few days": until then it is a choice, from then on it is certain."""
_SEARCH_LAG_SECONDS = 3600
"""As late as Stripe says that its search may be. Only ours searches, and gets the worst of it."""
_SETTLING_SECONDS = 3600
"""When all is quiet, what Stripe does by itself has so long to happen."""
_REDRIVES_MAX = 3
_STEPS_MAX = 20_000

_KIND_OF_STRIKE = {
    Strike.CHARGE_UNANSWERED_ONCE: "drop after",
    Strike.CHARGE_UNANSWERED: "drop after",
    Strike.SERVER_ERROR_CHARGED: "500 after",
    Strike.SERVER_ERROR: "500 before",
    Strike.SERVER_ERROR_CHARGES_LATER: "500, executed later",
}
_EXPECTED = (
    stripe.StripeError,
    BotoCoreError,
    ClientError,
    BatchProcessingError,
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
)
"""What a design may fail with. Anything else is a mistake in how it is written down, not the fault that was meant."""


def _body(customer_id: str) -> str:
    order = OrderPlaced(
        order_id=f"ord_{1:032x}",
        attempt=1,
        customer_id=customer_id,
        amount_minor=1099,
        currency="EUR",
        payment_method="pm_card_visa",
        placed_at=datetime.fromtimestamp(T0, UTC),
    )
    return OrderPlacedEvent.of(order, correlation_id="survival").model_dump_json()


_ORDER, _ORDER_AFTER_THE_DEPLOY = _body("cus_1"), _body("cus_2")


@dataclass
class Message:
    """A message of the queue; or a record of the outbox's stream, which has an image instead of a body."""

    id: str
    body: str
    sent_at: int
    visible_at: int
    image: Item | None = None
    receives: int = 0
    receipts: set[str] = field(default_factory=set)
    """Of the receives that can still delete it: those of the last visibility timeout."""
    copy_is_out: bool = False
    """SQS hands it out a second time, within the visibility timeout."""


@dataclass
class Worker:
    """One running invocation, in an execution environment of its own."""

    message: Message
    receipt: str
    started_at: int
    run: greenlet
    label: str = "start"
    sleeps_until: int = 0
    killed_at_waking: bool = False
    cut_off_from_stripe: bool = False
    writes: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a schedule came to."""

    charges: int
    met: bool
    """Whether its fault has happened at all."""


class SurvivalWorld:
    """Everything that one schedule touches. The fault strikes at the opportunity of that number."""

    def __init__(
        self, design: Design, row: Fault, choices: Choices, *, step: int | None, tracing: bool = False
    ) -> None:
        self.design, self.row, self.choices = design, row, choices
        self.time = T0
        self.opportunities, self.step = 0, step
        self.fault_was_met = row.name == "nothing"
        self.mistake: BaseException | None = None
        self.timeline: list[tuple[int, str]] | None = [] if tracing else None
        self.made = 0
        self.published_at = T0 - DAY_SECONDS
        self.queue: list[Message] = []
        self.dlq: list[str] = []
        self.workers: list[Worker] = []
        self.current: Worker | None = None
        self.dynamodb = MemoryDynamoDB(keys=design.keys, io=self)
        self.stripe = MemoryStripe(io=self, search_lag_seconds=_SEARCH_LAG_SECONDS)
        self.stripe.down = row.stripe_down_seconds > 0
        self.tools = Tools(
            dynamodb=_SendsAgain(self.dynamodb, self),
            # One client for all workers: the keys that it makes up must differ between them.
            stripe=stripe_in_memory(self.stripe, retries=design.stripe_retries),
            now=self.now,
            log_exception=self.log_exception,
            queue=self,
        )

    # ------------------------------------------------------------ what the clients see

    def now(self) -> int:
        return self.time

    def pause(self, where: str) -> None:
        worker = self._worker
        worker.label = where
        if self.stripe.down and where.startswith("stripe"):
            self.fault_was_met = True
        switch_to_scheduler(worker.run)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        kind = self._kind_of_fault(where, kinds)
        if kind:
            self._note(f"{where}: {kind}")
        return kind

    def _kind_of_fault(self, where: str, kinds: Sequence[str]) -> str | None:
        strike = self.row.strike
        if "throttled" in kinds and strike is Strike.THROTTLED:
            return "throttled" if self._strikes() else None
        if "answer lost" in kinds and strike is Strike.WRITE_UNANSWERED and where != "dynamodb GetItem":
            return "answer lost" if self._strikes() else None
        if "drop after" in kinds and strike in _KIND_OF_STRIKE:
            struck = self._strikes()
            self._worker.cut_off_from_stripe = struck and strike is Strike.CHARGE_UNANSWERED
            return _KIND_OF_STRIKE[strike] if struck else None
        if "drop before" in kinds and self._worker.cut_off_from_stripe:
            # Stripe has seen this key already: whether the next try arrives makes no difference to it.
            return "drop before"
        return None

    def happens(self, what: str) -> bool:
        happens = self.choices.happens(0.7)
        if happens:
            self._note(what)
        return happens

    def met(self, what: str) -> None:
        self._note(what)

    def pass_time(self, seconds: int) -> None:
        self.time += max(0, seconds)
        self.stripe.down = self.time - T0 < self.row.stripe_down_seconds
        self._delete_what_has_expired()
        self.stripe.time_has_passed()

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        self._worker.writes += 1
        if table == self.design.outbox and old is None and new is not None:
            self.made += 1
            self.queue.append(Message(f"r{self.made}", "", self.time, self.time, image=new))

    def log_exception(self) -> None:
        """Where a design logs the exception that it is handling."""
        self._examine(sys.exception())

    def _examine(self, error: BaseException | None) -> None:
        self._note(f"{self._worker.message.id} raised {type(error).__name__}")
        if not isinstance(error, _EXPECTED):
            self.mistake = error
        elif isinstance(error, BatchProcessingError):
            for _, each, _ in error.child_exceptions or []:
                self._examine(each)
        elif isinstance(error, IdempotencyPersistenceLayerError):
            self._examine(error.__cause__)

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        self.pause("sqs ChangeMessageVisibility")
        for message in self.queue:
            if delivery.receipt_handle in message.receipts:
                message.visible_at = self.time + seconds

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.pause("sqs SendMessage")
        self.dlq.append(delivery.body)

    # ------------------------------------------------------------ the schedule

    def run(self) -> Outcome:
        """Publish, deliver until all is quiet, redrive what is in the DLQ, and count."""
        self._publish()
        if self.row.published_again_after is not None:
            self._publish_again(*self.row.published_again_after)
        self._until_quiet()
        if self.row.restored_after:
            self._restore()
            self._until_quiet()
        wait_seconds = self.row.redriven_after_seconds
        for _ in range(_REDRIVES_MAX):
            if not self.dlq:
                break
            self.pass_time(wait_seconds)
            self._redrive()
            self._until_quiet()
            wait_seconds = DAY_SECONDS
        self.pass_time(_SETTLING_SECONDS)
        self._note(f"{len(self.stripe.charges)} charges")
        return Outcome(len(self.stripe.charges), self.fault_was_met)

    def _publish(self) -> None:
        if self.design.fifo and self.time - self.published_at < _FIFO_DEDUPLICATION_SECONDS:
            self._note("published again, dropped by the FIFO topic")
            return
        self.published_at = self.time
        self._send(_ORDER)

    def _send(self, body: str) -> None:
        self.made += 1
        self._note(f"m{self.made} sent")
        self.queue.append(Message(f"m{self.made}", body, self.time, self.time))

    def _publish_again(self, from_seconds: int, to_seconds: int) -> None:
        wait_seconds = from_seconds + self.choices.pick(to_seconds - from_seconds + 1)
        if wait_seconds:
            self._until_quiet()
            self.pass_time(T0 + wait_seconds - self.time)
        self._publish()
        self.fault_was_met = True

    def _restore(self) -> None:
        self.pass_time(self.row.restored_after[self.choices.pick(len(self.row.restored_after))])
        for table in self.dynamodb.tables.values():
            table.clear()
        self._note("the tables are restored to a time before the order")
        self._publish()
        self.fault_was_met = True

    def _redrive(self) -> None:
        bodies, self.dlq = self.dlq, []
        for body in bodies:
            self._note("redriven from the DLQ")
            # It gets a new message id (Amazon SQS documentation, "Configure a dead-letter queue redrive").
            self._send(body)

    def _until_quiet(self) -> None:
        for _ in range(_STEPS_MAX):
            if not (self.queue or self.workers):
                return
            self._step()
            if self.mistake is not None:
                raise self.mistake
        raise AssertionError(f"{self.design.name} under {self.row.name} does not come to an end")

    def _step(self) -> None:
        """One worker goes on to its next boundary, or one message is received, or time passes."""
        awake = [worker for worker in self.workers if worker.sleeps_until <= self.time]
        ready = self._ready()
        options = len(awake) + len(ready)
        if options == 0:
            self.pass_time(min(self._what_time_brings()) - self.time)
            return
        chosen = self.choices.pick(options) if options > 1 else 0
        if chosen < len(awake):
            self._resume(awake[chosen])
        else:
            self._receive(ready[chosen - len(awake)])

    def _ready(self) -> list[Message]:
        if self.design.fifo and any(message.visible_at > self.time for message in self.queue):
            return []  # One message of the order's group is in flight.
        return [message for message in self.queue if message.visible_at <= self.time]

    def _what_time_brings(self) -> list[int]:
        times = [worker.sleeps_until for worker in self.workers] + [message.visible_at for message in self.queue]
        return [time for time in times if time > self.time]

    # ------------------------------------------------------------ SQS, the stream, and Lambda

    def _receive(self, message: Message) -> None:
        message.receives += 1
        if message.image is not None:
            if self.time - message.sent_at >= DAY_SECONDS:
                self._note(f"{message.id} is dropped from the stream")
                self.queue.remove(message)
                return
            # Lambda sends it again when the invocation has failed or timed out, later with each failure.
            backoff_seconds = min(_STREAM_BACKOFF_MAX_SECONDS, 2**message.receives)
            message.visible_at = self.time + _TIMEOUT_SECONDS + backoff_seconds
        else:
            if message.receives > self.design.max_receive_count:
                self._to_dlq(message)
                return
            message.visible_at = self.time + VISIBILITY_SECONDS
            if self.row.strike is Strike.DELIVERED_TWICE and not self.design.fifo and self._strikes():
                message.copy_is_out = True
                message.receives += 1
                self._start(message)
        self._start(message)
        message.copy_is_out = False

    def _to_dlq(self, message: Message) -> None:
        self._note(f"{message.id} goes to the DLQ")
        self.queue.remove(message)
        self.dlq.append(message.body)

    def _start(self, message: Message) -> None:
        if not message.copy_is_out:
            message.receipts.clear()
        self.made += 1
        receipt = f"receipt {self.made}"
        message.receipts.add(receipt)
        start = self.design.start if message.image is None else self.design.relay
        assert start is not None
        handler = start(self.tools)
        event = {"Records": [_record(message, receipt)]}
        context = SimpleNamespace(get_remaining_time_in_millis=_remaining(self.now, self.time + _TIMEOUT_SECONDS))

        def invoke() -> bool:
            try:
                answer = handler(event, context)
            except Exception as error:
                self._examine(error)
                return False
            return not (answer or {}).get("batchItemFailures")

        self.workers.append(Worker(message, receipt, self.time, greenlet(invoke)))
        self._note(f"{message.id} is received, {message.receives}.")

    def _resume(self, worker: Worker) -> None:
        if worker.killed_at_waking:
            self._end(worker, "killed at the time-out")
            return
        if self._strikes_at_boundary(worker):
            return
        self.current = worker
        done = worker.run.switch()
        if not worker.run.dead:
            self._note(f"{worker.message.id} at {worker.label}")
            return
        self.workers.remove(worker)
        self._note(f"{worker.message.id} {'done' if done else 'not done'}")
        if done and worker.receipt in worker.message.receipts and worker.message in self.queue:
            self._delete(worker)

    def _delete(self, worker: Worker) -> None:
        message = worker.message
        if self.row.strike is Strike.DELIVERED_AGAIN and self._strikes():
            # A standard queue may do so at any time, a FIFO queue only after the visibility timeout.
            seconds = (1, 20, VISIBILITY_SECONDS)[self.choices.pick(3)]
            message.visible_at = worker.started_at + (VISIBILITY_SECONDS if self.design.fifo else seconds)
            return
        self.queue.remove(message)

    # ------------------------------------------------------------ the fault

    def _strikes(self) -> bool:
        """Whether this opportunity is the one at which the fault of this schedule strikes."""
        self.opportunities += 1
        strikes = self.opportunities - 1 == self.step
        self.fault_was_met |= strikes
        return strikes

    def _strikes_at_boundary(self, worker: Worker) -> bool:
        match self.row.strike:
            case Strike.CRASH if self._strikes():
                self._end(worker, "crashes")
                self._after_the_crash(worker.message)
                return True
            case Strike.TIME_OUT if self._strikes():
                worker.sleeps_until, worker.killed_at_waking = worker.started_at + _TIMEOUT_SECONDS, True
            case Strike.ZOMBIE if self._strikes():
                # Until the moment of its message's redelivery, or long after.
                seconds = (VISIBILITY_SECONDS, VISIBILITY_SECONDS + 120)[self.choices.pick(2)]
                worker.sleeps_until = worker.started_at + seconds
            case Strike.DELIVERED_WHILE_SLOW if self._has_a_standard_queue(worker) and self._strikes():
                worker.sleeps_until = self.time + 10 + self.choices.pick(16)
                worker.message.visible_at, worker.message.copy_is_out = self.time + 6, True
            case _:
                return False
        self._note(f"{worker.message.id} pauses at {worker.label}")
        return True

    def _has_a_standard_queue(self, worker: Worker) -> bool:
        return worker.message.image is None and not self.design.fifo

    def _after_the_crash(self, message: Message) -> None:
        if message.image is not None:
            return
        if self.row.crashed_to_dlq:
            self._to_dlq(message)
        if self.row.redelivery_differs:
            self._note("a deploy changes the metadata")
            message.body = _ORDER_AFTER_THE_DEPLOY

    def _end(self, worker: Worker, how: str) -> None:
        self._note(f"{worker.message.id} {how} at {worker.label}")
        self.workers.remove(worker)
        self.current = worker
        with suppress(Crash):
            if worker.run:
                worker.run.throw(Crash)

    def _delete_what_has_expired(self) -> None:
        for table in self.dynamodb.tables.values():
            for key, item in list(table.items()):
                expires_at = int(item.get(self.design.ttl_attribute, {"N": "0"})["N"])
                overdue_seconds = self.time - expires_at
                if not expires_at or overdue_seconds <= 0:
                    continue
                if overdue_seconds >= _TTL_DELETES_WITHIN_SECONDS or self.choices.happens(0.5):
                    self._note("an expired item is deleted")
                    del table[key]

    # ------------------------------------------------------------ the rest

    @property
    def _worker(self) -> Worker:
        assert self.current is not None
        return self.current

    def _note(self, what: str) -> None:
        if self.timeline is not None:
            self.timeline.append((self.time - T0, what))


class _SendsAgain:
    """boto3's client sends a request again whose answer was lost: then a write can meet itself.

    A transaction cannot: boto3 gives both requests the same ClientRequestToken.
    """

    def __init__(self, client: MemoryDynamoDB, world: SurvivalWorld) -> None:
        self._client, self._world = client, world

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._client, name)
        if name == "exceptions":
            return operation

        def send(**given: Any) -> Any:
            worker = self._world.current
            assert worker is not None
            written = worker.writes
            try:
                return operation(**given)
            except ReadTimeoutError:
                # It may have run out of tries: then that is what the caller sees.
                if not self._world.choices.happens(0.5):
                    raise
                if name == "transact_write_items" and worker.writes > written:
                    return {}
                return operation(**given)

        return send


def _record(message: Message, receipt: str) -> dict[str, Any]:
    if message.image is not None:
        return {"eventName": "INSERT", "dynamodb": {"NewImage": message.image}}
    return {
        "messageId": message.id,
        "receiptHandle": receipt,
        "body": message.body,
        "attributes": {"ApproximateReceiveCount": str(message.receives)},
        "eventSource": "aws:sqs",
    }


def _remaining(now: Callable[[], int], until: int) -> Callable[[], int]:
    return lambda: max(0, until - now()) * 1000


# ---------------------------------------------------------------- schedules by number


@cache
def opportunities(design: Design, row: Fault) -> int:
    """At how many places the fault can strike: those of a schedule in which it does not."""
    world = SurvivalWorld(design, row, SeededChoices(0), step=None)
    world.run()
    return world.opportunities


def schedule(
    design: Design, row: Fault, seed: int, number: int, clock: VirtualClock, *, tracing: bool = False
) -> SurvivalWorld:
    """The schedule of that number, ready to run: the same for the same seed."""
    choices = SeededChoices(seed * 1_000_003 + number)
    clock.now = lambda: T0
    step = choices.pick(opportunities(design, row)) if row.strike else None
    world = SurvivalWorld(design, row, choices, step=step, tracing=tracing)
    clock.now = world.now
    return world
