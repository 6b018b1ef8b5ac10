"""One schedule of refunds: deliveries, events and faults interleaved at every boundary, from choices.

An order is paid, and three refunds of it are asked for, which together are what was paid. The code that runs is the
deployed code, down to its calls of boto3's client and of Stripe's. Each worker has a clock of its own; rows are lost or
become older at any step; answers are lost; the secret is another account's for a while; 500s are executed now, later or
never; keys are forgotten; banks return refunds.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import stripe
from greenlet import greenlet

from onecharge.contract.refunds import RefundRequested, RefundRequestedEvent, RefundState
from onecharge.contract.states import PaymentState
from onecharge.payments.apply_event import apply_event
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.reconcile import ReconcileTools
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.refund import RefundSteps
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_events import ChargeRefundedEvent, RefundEvent
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import BackOff, Done, RetryAfter
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.parallel import one_after_another
from refund_charge.refund import refund_charge
from testing.silent import SILENT
from testing.simulation.choices import Choices
from testing.simulation.dynamodb import Io, Item, MemoryDynamoDB
from testing.simulation.scheduling import switch_to_scheduler
from testing.tools import charge_tools, reconcile_tools, refund_tools

BOUNDS = TimeBounds.of(30)
T0 = 1_800_000_000
HOUR, DAY = 3600, 24 * 3600
PAYMENTS, REFUNDS = "Payments", "Refunds"
ORDER_ID = "ord_" + "a" * 32
PAYMENT_INTENT = "pi_1"
AMOUNT_MINOR = 1099
AMOUNTS_MINOR = (400, 400, 299)
"""Together all of the order's 1099."""
WORKER_LIVES_SECONDS = 50 * 60
"""Less than an hour, as the protocol assumes; far more than Lambda lets it."""
KEY_RETENTION_SECONDS = DAY
_STEPS_MAX = 3000
_EVENTS_MAX = 10
"""With this many events nobody refunds by hand, and no bank returns anything any more: each event is more work."""


# ---------------------------------------------------------------- Stripe's refunds


class _Metadata(dict[str, str]):
    def to_dict(self) -> dict[str, str]:
        return dict(self)


@dataclass
class MadeRefund:
    """A refund in Stripe's books. Those that were made by hand have no refund id."""

    id: str
    amount: int
    metadata: _Metadata
    status: str
    created: int
    currency: str = "eur"
    pending_reason: str | None = None

    @property
    def is_live(self) -> bool:
        return self.status not in ("failed", "canceled")


@dataclass
class _Stored:
    parameters: Mapping[str, Any]
    created: int
    answer: "Callable[[bool], Any] | None" = None
    """Given whether it is a replay; None while the first request runs."""
    is_refused: bool = False
    replays: int = 0


def error(status: int | None, *, replay: bool = False, **details: Any) -> stripe.StripeError:
    """As the SDK raises it."""
    if status is None:
        return stripe.APIConnectionError("in memory")
    headers = {"Idempotent-Replayed": "true"} if replay else {}
    return stripe.APIError("in memory", http_status=status, json_body={"error": details}, headers=headers)


_BEFORE: Mapping[str, Callable[[], stripe.StripeError]] = {
    "drop before": lambda: error(None),
    "429": lambda: error(429, type="rate_limit_error", code="rate_limit"),
    "503": lambda: error(503, type="api_error"),
    "401": lambda: error(401, type="invalid_request_error"),
}
_REFUSALS_REPLAYED_MAX = 20
_AROUND = (
    "balance too low",
    "500 never",
    "500 after",
    "500 later",
    "502 unstored",
    "502 later",
    "drop after",
    "time-out",
)


@dataclass
class MemoryRefunds:
    """Stripe with the refunds of one PaymentIntent, and its keys."""

    io: Io
    late_seconds: int = 20 * HOUR
    """When a request that was answered with a 500 is executed at the latest."""
    refunds: list[MadeRefund] = field(default_factory=list)
    events: list[ChargeRefundedEvent | RefundEvent] = field(default_factory=list)
    keys: dict[str, _Stored] = field(default_factory=dict)
    rolling_forward: list[tuple[int, Mapping[str, Any], str | None]] = field(default_factory=list)
    is_other_account: bool = False
    retries: int = 1

    def client(self) -> Any:
        """A client with the API key as it is now, and so of one account."""
        is_other = self.is_other_account

        def create(parameters: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
            retries = options.get("max_network_retries", self.retries)
            key = options["idempotency_key"]
            return self._sent(lambda: self._create(parameters, key, is_other), retries)

        def list_(parameters: Mapping[str, Any]) -> Any:
            return self._sent(lambda: self._list(parameters["payment_intent"], is_other), self.retries)

        def retrieve(payment_intent_id: str) -> Any:
            return self._sent(lambda: self._retrieve(payment_intent_id, is_other), self.retries)

        refunds, intents = SimpleNamespace(create=create, list=list_), SimpleNamespace(retrieve=retrieve)
        return SimpleNamespace(v1=SimpleNamespace(refunds=refunds, payment_intents=intents))

    def _sent(self, send: Callable[[], Any], retries: int) -> Any:
        """The SDK sends again what had no answer, under the same key."""
        for tries_left in reversed(range(retries + 1)):
            try:
                return send()
            except stripe.StripeError as failure:
                if failure.http_status not in (None, 409, 500, 502, 503) or not tries_left:
                    raise
        raise AssertionError

    def _reach(self, where: str) -> None:
        self.io.pause(f"stripe {where}")
        kind = self.io.fault(f"stripe {where}", tuple(_BEFORE))
        if kind is not None:
            raise _BEFORE[kind]()

    def _retrieve(self, payment_intent_id: str, is_other: bool) -> Any:
        self._reach("retrieve")
        if is_other:
            raise error(404, type="invalid_request_error", code="resource_missing")
        return SimpleNamespace(id=payment_intent_id, metadata=_Metadata(order_id=ORDER_ID))

    def _list(self, payment_intent_id: str, is_other: bool) -> Any:
        self._reach("list")
        if is_other:
            if self.io.happens("stripe list: another account shows nothing"):
                return SimpleNamespace(data=[], has_more=False, url="/v1/refunds")
            raise error(404, type="invalid_request_error", code="resource_missing")
        shown = [self._shown(each) for each in reversed(self.refunds)]
        for each in shown:
            each.payment_intent = payment_intent_id
        self.io.pause("stripe list answered")
        return SimpleNamespace(data=shown, has_more=False, url="/v1/refunds")

    def _create(self, parameters: Mapping[str, Any], key: str, is_other: bool) -> Any:
        self._reach("refund")
        if is_other:
            raise error(404, type="invalid_request_error", code="resource_missing")
        stored = self.keys.get(key)
        if stored is not None:
            if stored.answer is None:
                raise error(409, type="idempotency_error", code="idempotency_key_in_use")
            if stored.parameters != parameters:
                raise error(400, type="idempotency_error")
            stored.replays += 1
            return stored.answer(True)
        kind = self.io.fault("stripe refund", _AROUND)
        if kind in ("502 unstored", "502 later"):
            if kind == "502 later":
                self._roll_forward(parameters, key)
            raise error(502, type="api_error")
        stored = self.keys[key] = _Stored(parameters, self.io.now())
        try:
            self.io.pause("stripe refund in flight")
        finally:
            # Stripe goes on with what it has received, whether or not anybody still waits for it.
            stored.answer = self._executed(parameters, key, kind)
            stored.is_refused = kind == "balance too low"
        if kind == "time-out":
            self.io.pass_time(10)
        self.io.pause("stripe refund answered")
        if kind in ("drop after", "time-out"):
            raise error(None)
        return stored.answer(False)

    def _executed(self, parameters: Mapping[str, Any], key: str, kind: str | None) -> Callable[[bool], Any]:
        def failed(replay: bool) -> Any:
            raise error(500, replay=replay, type="api_error")

        def too_little(replay: bool) -> Any:
            raise error(400, replay=replay, type="invalid_request_error", code="balance_insufficient")

        if kind == "balance too low":
            # A refusal whose execution had begun is stored.
            return too_little
        if kind in ("500 never", "500 later"):
            if kind == "500 later":
                self._roll_forward(parameters, None)
            return failed
        made = self.make(parameters["amount"], parameters["metadata"])
        if isinstance(made, str):
            del self.keys[key]  # A refusal is not stored.
            return lambda _: self._refused(made)
        if kind == "500 after":
            return failed
        snapshot = vars(self._shown(made))
        return lambda replay: SimpleNamespace(
            **snapshot, last_response=SimpleNamespace(headers={"idempotent-replayed": "true"} if replay else {})
        )

    def _refused(self, why: str) -> Any:
        raise error(400, type="invalid_request_error", code=why)

    def make(self, amount: int, metadata: Mapping[str, str]) -> MadeRefund | str:
        """A refund, if there is money left for it; or the code of the refusal."""
        left = AMOUNT_MINOR - self.amount_refunded()
        if amount > left:
            return "amount_too_large" if left else "charge_already_refunded"
        made = MadeRefund(f"re_{len(self.refunds)}", amount, _Metadata(metadata), "pending", self.io.now())
        self.refunds.append(made)
        self.events.append(
            ChargeRefundedEvent(
                event_id=f"evt_{len(self.events)}",
                type="charge.refunded",
                created=self.io.now(),
                order_id=ORDER_ID,
                payment_intent_id=PAYMENT_INTENT,
                amount_refunded_minor=self.amount_refunded(),
            )
        )
        return made

    def returned_by_the_bank(self, returned: MadeRefund) -> None:
        """The refund fails, after it was made."""
        returned.status = "failed"
        self._tell("refund.failed", returned)

    def holds(self, made: MadeRefund, reason: str | None) -> None:
        """Stripe holds the refund for this reason, or sends it (None); an event says so."""
        made.pending_reason, made.status = reason, "pending" if reason else "succeeded"
        self._tell("refund.updated", made)

    def _tell(self, event_type: str, made: MadeRefund) -> None:
        refund_id = made.metadata.get("refund_id")
        self.events.append(
            RefundEvent(
                event_id=f"evt_{len(self.events)}",
                type=event_type,
                created=self.io.now(),
                order_id=ORDER_ID if refund_id else None,
                payment_intent_id=PAYMENT_INTENT,
                stripe_refund_id=made.id,
                status=made.status,
                refund_id=refund_id,
                pending_reason=made.pending_reason if made.status == "pending" else None,
            )
        )

    def amount_refunded(self) -> int:
        return sum(each.amount for each in self.refunds if each.is_live)

    def _roll_forward(self, parameters: Mapping[str, Any], key: str | None) -> None:
        # What was never begun runs before its key is forgotten: the protocol's assumption.
        at_the_latest = self.late_seconds if key is None else min(self.late_seconds, 20 * HOUR)
        due = self.io.now() + (at_the_latest if self.io.happens("stripe: late") else 60)
        self.rolling_forward.append((due, parameters, key))

    def time_has_passed(self) -> None:
        """Execute what had been answered with a 500, and forget keys of 24 hours, or not yet."""
        now = self.io.now()
        for late in [each for each in self.rolling_forward if each[0] <= now]:
            self.rolling_forward.remove(late)
            _, parameters, key = late
            if key is None:
                self.make(parameters["amount"], parameters["metadata"])
            elif key not in self.keys:
                # It was never begun: it runs under its key, as any request does.
                stored = self.keys[key] = _Stored(parameters, now)
                stored.answer = self._executed(parameters, key, None)
            self.io.met("stripe: executed late")
        for key, stored in list(self.keys.items()):
            old = stored.answer is not None and now - stored.created >= KEY_RETENTION_SECONDS
            if old and self.io.happens("stripe: key pruned"):
                del self.keys[key]

    def live(self, refund_id: str) -> list[MadeRefund]:
        return [each for each in self.refunds if each.is_live and each.metadata.get("refund_id") == refund_id]

    def _shown(self, made: MadeRefund) -> Any:
        reason = None if made.is_live else "expired_or_canceled_card"
        return SimpleNamespace(**{**vars(made), "failure_reason": reason})


# ---------------------------------------------------------------- a schedule


class Crash(BaseException):
    """The worker is gone, as by a kill: nothing of it runs any more."""


class Violation(AssertionError):
    """An invariant does not hold; carries what happened up to there."""

    def __init__(self, what: str, timeline: Sequence[tuple[int, str]]) -> None:
        super().__init__("\n".join([what, *(f"{seconds:>8} s  {event}" for seconds, event in timeline)]))
        self.what = what


@dataclass(frozen=True)
class RefundScenario:
    """What may go wrong."""

    copies: int = 2
    redeliveries: int = 2
    fault_probability: float = 0.0
    crash_probability: float = 0.0
    jump_probability: float = 0.02
    jump_seconds: tuple[int, ...] = (5, 40, 20 * 60, 5 * HOUR, 25 * HOUR)
    clocks_differ_seconds: int = 300
    lose_rows: bool = False
    """Rows are lost at any step."""
    stale_rows: bool = False
    """Rows become what they were before, at any step."""
    zombies: bool = False
    """A worker may live on past its timeout and its lease, for less than an hour."""
    other_account: bool = False
    banks_return: bool = False
    by_hand: bool = False
    """Somebody refunds at Stripe by hand, so that there is too little left."""
    late_seconds: int = 20 * HOUR
    holds: bool = False
    """Stripe holds refunds while the balance is too low, and sends them later."""
    only_refund_faults: frozenset[str] | None = None
    """If given, a request to refund meets no others once Stripe has received it."""


@dataclass
class _Message:
    name: str
    event: RefundRequestedEvent | ChargeRefundedEvent | RefundEvent
    visible_at: int
    receives: int = 0
    in_flight: bool = False


@dataclass
class _Worker:
    name: str
    message: _Message
    started_at: int
    run: greenlet
    label: str = "start"


Break = Callable[["RefundWorld"], None]


@dataclass
class RefundWorld:
    """Everything that a schedule touches; `mutate` breaks it on purpose, to see that it is caught."""

    scenario: RefundScenario
    choices: Choices
    mutate: Break = lambda world: None
    time: int = T0
    faults_on: bool = True
    coverage: Counter[str] = field(default_factory=Counter)
    timeline: list[tuple[int, str]] = field(default_factory=list)
    gateway: type[StripeRefunds] = StripeRefunds
    refund_steps: RefundSteps = field(default_factory=RefundSteps)
    apply_event: Callable[[ChargeRefundedEvent | RefundEvent, ReconcileTools], None] = apply_event

    def __post_init__(self) -> None:
        keys = {PAYMENTS: ("order_id",), REFUNDS: ("order_id", "refund_id")}
        self.dynamodb: Any = MemoryDynamoDB(keys=keys, io=self)
        self.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid()}
        self.rows: dict[tuple[str, ...], Item] = self.dynamodb.tables.setdefault(REFUNDS, {})
        self.history: defaultdict[tuple[str, ...], list[Item]] = defaultdict(list)
        self.stripe = MemoryRefunds(self, late_seconds=self.scenario.late_seconds)
        self.messages: list[_Message] = []
        self.workers: list[_Worker] = []
        self.current: _Worker | None = None
        self.said_failed: set[str] = set()
        self.said: dict[str, RefundState] = {}
        self.spent: set[str] = set()
        self.events_sent = 0
        self.made_names = 0
        self.steps = 0
        self.refunds = [requested(number, amount) for number, amount in enumerate(AMOUNTS_MINOR)]
        self.mutate(self)

    # ------------------------------------------------------------ what the clients see

    def now(self) -> int:
        return self.time

    def pause(self, where: str) -> None:
        if self.current is not None:
            self.current.label = where
            switch_to_scheduler(self.current.run)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        if not (self.faults_on and self.choices.happens(self.scenario.fault_probability)):
            return None
        if kinds == _AROUND and self.scenario.only_refund_faults is not None:
            kinds = sorted(self.scenario.only_refund_faults)
        kind = kinds[self.choices.pick(len(kinds))]
        self.note(f"{where}: {kind}", f"{where}: {kind}")
        return kind

    def happens(self, what: str) -> bool:
        happens = self.choices.happens(0.6)
        self.coverage[what] += happens
        return happens

    def met(self, what: str) -> None:
        self.coverage[what] += 1

    def pass_time(self, seconds: int) -> None:
        self.time += max(0, seconds)
        self.stripe.time_has_passed()

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if table != REFUNDS or new is None:
            return
        refund_id, state = new["refund_id"]["S"], RefundState(new["state"]["S"])
        self.history[new["order_id"]["S"], refund_id].append(dict(new))
        if state is not RefundState.PENDING:
            self.said[refund_id] = state
        if "key_spent_at" in new:
            self.spent.add(refund_id)
        if state is RefundState.FAILED:
            self.said_failed.add(refund_id)
        name = self.current.name if self.current else "nobody"
        self.timeline.append((self.time - T0, f"{name} writes {refund_id[-1]}: {state}"))

    def note(self, what: str, fault: str = "") -> None:
        self.timeline.append((self.time - T0, what))
        if fault:
            self.coverage[fault] += 1

    # ------------------------------------------------------------ the schedule

    def run_all(self) -> None:
        """Deliver with faults, then without, until all is idle; raises Violation when an invariant breaks."""
        for event in self.refunds:
            for _ in range(self.scenario.copies):
                self.send(event)
        self.run_until_idle()
        for _ in range(self.scenario.redeliveries):
            self.pass_time((HOUR, 5 * HOUR, 25 * HOUR, 13 * DAY)[self.choices.pick(4)])
            self.send(self.refunds[self.choices.pick(len(self.refunds))])
            self.run_until_idle()
        self.faults_on = self.stripe.is_other_account = False
        for _ in range(3):
            # The order service asks again for what it still waits for; the last 500 is executed.
            for event in self.refunds:
                if self.state_of(event) in (None, RefundState.PENDING):
                    self.send(event)
            self.run_until_idle()
            self.pass_time(2 * DAY)
            self.run_until_idle()
        self.check_the_end()
        # The scheduled run reads each event once more, the newest first.
        for told in reversed(self.stripe.events):
            self.send(told)
            self.run_until_idle()
        self.check_the_end()
        self.check_the_sum()

    def _send_events(self) -> None:
        """Stripe sends each of its events, once or several times, and whenever they come."""
        for event in self.stripe.events[self.events_sent :]:
            for _ in range(1 + self.choices.pick(3)):
                self.send(event)
        self.events_sent = len(self.stripe.events)

    def send(self, event: RefundRequestedEvent | ChargeRefundedEvent | RefundEvent) -> None:
        self.made_names += 1
        self.messages.append(_Message(f"m{self.made_names}", event, self.time))

    def run_until_idle(self) -> None:
        while self.messages or self.workers:
            self.steps += 1
            if self.steps > _STEPS_MAX:
                raise Violation("the schedule does not come to an end", self.timeline)
            self.step()
            self.check()

    def step(self) -> None:
        """One worker goes on to its next boundary, or one message is received, or time passes."""
        if self.faults_on:
            self._let_others_act()
        self._send_events()
        self._kill_who_is_too_old()
        ready = [each for each in self.messages if each.visible_at <= self.time and not each.in_flight]
        options = len(self.workers) + len(ready)
        if options == 0:
            if self.messages:
                self.pass_time(min(each.visible_at for each in self.messages) - self.time)
            return
        chosen = self.choices.pick(options) if options > 1 else 0
        if chosen < len(self.workers):
            self.resume(self.workers[chosen])
        else:
            self.receive(ready[chosen - len(self.workers)])

    def _let_others_act(self) -> None:
        scenario = self.scenario
        if self.workers and self.choices.happens(scenario.crash_probability):
            worker = self.workers[self.choices.pick(len(self.workers))]
            self.note(f"{worker.name} crashes at {worker.label}", "crash")
            self.crash(worker)
        if self.choices.happens(scenario.jump_probability):
            seconds = scenario.jump_seconds[self.choices.pick(len(scenario.jump_seconds))]
            self.note(f"{seconds} s pass", "delay")
            while self.workers and seconds >= WORKER_LIVES_SECONDS:
                # Nobody lives so long, and no request is under way so long.
                self.note(f"{self.workers[0].name} is killed at {self.workers[0].label}", "killed")
                self.crash(self.workers[0])
            self.pass_time(seconds)
        if self.rows and self.choices.happens(0.02 * (scenario.lose_rows or scenario.stale_rows)):
            self._lose_a_row()
        if scenario.other_account and self.choices.happens(0.04):
            self.stripe.is_other_account = not self.stripe.is_other_account
            self.note(f"another account: {self.stripe.is_other_account}", "another account")
        if len(self.stripe.events) >= _EVENTS_MAX:
            return
        if scenario.by_hand and self.choices.happens(0.02):
            self.note(f"by hand: {self.stripe.make(500, {})}", "by hand")
        live = [each for each in self.stripe.refunds if each.is_live]
        if scenario.holds and live and self.choices.happens(0.1):
            reason = (None, "insufficient_funds", "processing")[self.choices.pick(3)]
            held = live[self.choices.pick(len(live))]
            self.note(f"{held.id} is pending: {reason}", "held")
            self.stripe.holds(held, reason)
        if (scenario.banks_return or scenario.by_hand) and self.choices.happens(0.02):
            self.bank_returns_one()

    def _lose_a_row(self) -> None:
        key = sorted(self.rows)[self.choices.pick(len(self.rows))]
        older = self.choices.pick(len(self.history[key]) + 1) if self.scenario.stale_rows else len(self.history[key])
        if older == len(self.history[key]):
            del self.rows[key]
            self.note(f"row {key[1][-1]} lost", "row lost")
        else:
            self.rows[key] = dict(self.history[key][older])
            self.note(f"row {key[1][-1]} is what it was: {self.rows[key]['state']['S']}", "row stale")

    def bank_returns_one(self) -> None:
        """A refund fails, and an event says so."""
        live = [each for each in self.stripe.refunds if each.is_live]
        if live:
            returned = live[self.choices.pick(len(live))]
            self.note(f"the bank returns {returned.id}", "bank returns")
            self.stripe.returned_by_the_bank(returned)

    def _kill_who_is_too_old(self) -> None:
        lives = WORKER_LIVES_SECONDS if self.scenario.zombies and self.faults_on else BOUNDS.function_timeout_seconds
        for worker in [each for each in self.workers if self.time - each.started_at >= lives]:
            self.note(f"{worker.name} is killed at {worker.label}", "killed")
            self.crash(worker)

    def crash(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.message.in_flight = False
        worker.message.visible_at = self.time + 60
        self.current, before = None, self.current
        try:
            worker.run.throw(Crash)
        except Crash:
            pass
        finally:
            self.current = before

    def receive(self, message: _Message) -> None:
        message.in_flight = True
        message.receives += 1
        self.made_names += 1
        differs = self.scenario.clocks_differ_seconds if self.faults_on else 0
        offset = (-differs, 0, differs)[self.choices.pick(3)] if differs else 0
        worker = _Worker(f"w{self.made_names}", message, self.time, greenlet(lambda: self._handle(message, offset)))
        self.workers.append(worker)
        self.resume(worker)

    def _handle(self, message: _Message, offset: int) -> None:
        disposition: Done | RetryAfter | BackOff
        clock = lambda: float(self.time + offset)  # noqa: E731
        client = self.stripe.client()
        store = RefundStore(self.dynamodb, REFUNDS)
        instruments = Instruments(clock, SILENT, self.met)
        try:
            payments = PaymentStore(self.dynamodb, PAYMENTS)
            tools = refund_tools(store, self.gateway(client), instruments, steps=self.refund_steps)
            if not isinstance(message.event, RefundRequestedEvent):
                charge = charge_tools(payments, StripeGateway(client, one_after_another), instruments)
                self.apply_event(message.event, replace(reconcile_tools(charge, store), refund=tools))
                disposition = Done()
            else:
                disposition = refund_charge(message.event, tools, payments)
        except Exception as failure:  # As the consumer and the webhook do: it is delivered again.
            self.met(f"raised: {type(failure).__name__}")
            disposition = BackOff()
        message.in_flight = False
        match disposition:
            case Done():
                self.messages.remove(message)
            case RetryAfter(seconds):
                message.visible_at = self.time + seconds
            case BackOff():
                message.visible_at = self.time + min(900, 2 ** min(message.receives, 12))

    def resume(self, worker: _Worker) -> None:
        self.current = worker
        try:
            worker.run.switch()
        finally:
            self.current = None
        if worker.run.dead and worker in self.workers:
            self.workers.remove(worker)

    # ------------------------------------------------------------ invariants

    def state_of(self, event: RefundRequestedEvent) -> RefundState | None:
        row = self.rows.get((ORDER_ID, event.data.refund_id))
        return RefundState(row["state"]["S"]) if row else None

    def check(self) -> None:
        """Never more than was asked for, and never any of what is said to have failed. No refusal is replayed for long,
        unless rows are lost, or the refund is so old that only its first key is used."""
        begins_again = self.scenario.lose_rows or self.scenario.stale_rows or self.time >= T0 + 20 * HOUR
        replays = max((each.replays for each in self.stripe.keys.values() if each.is_refused), default=0)
        if replays > _REFUSALS_REPLAYED_MAX and not begins_again:
            raise Violation("a stored refusal is sent for again and again", self.timeline)
        for event in self.refunds:
            live = self.stripe.live(event.data.refund_id)
            if sum(each.amount for each in live) > event.data.amount_minor:
                raise Violation("refunded twice", self.timeline)
            if live and event.data.refund_id in self.said_failed:
                raise Violation("said to be FAILED, and refunded", self.timeline)

    def check_the_sum(self) -> None:
        """The payment's row has the sum that Stripe shows, and each refund's row why it is pending."""
        shown = int(self.dynamodb.tables[PAYMENTS][ORDER_ID,].get("amount_refunded_minor", {"N": "0"})["N"])
        if shown != self.stripe.amount_refunded():
            raise Violation(f"the payment's row says that {shown} is refunded", self.timeline)
        for (_, refund_id), row in self.rows.items():
            reasons = [each.pending_reason for each in self.stripe.live(refund_id)]
            is_made = row["state"]["S"] == RefundState.SUCCEEDED
            if is_made and [row.get("pending_reason", {}).get("S")] != reasons:
                raise Violation(f"{refund_id} is pending for {reasons}, and its row says otherwise", self.timeline)

    def check_the_end(self) -> None:
        for event in self.refunds:
            refund_id, state = event.data.refund_id, self.state_of(event) or self.said.get(event.data.refund_id)
            live = [each.amount for each in self.stripe.live(refund_id)]
            self.coverage[f"ended: {state}"] += 1
            if state in (None, RefundState.PENDING):
                raise Violation(f"{refund_id} is stuck", self.timeline)
            if state is RefundState.SUCCEEDED and live != [event.data.amount_minor]:
                raise Violation(f"{refund_id} is said to have SUCCEEDED, with {live} at Stripe", self.timeline)
            excused = self.scenario.by_hand or refund_id in self.spent
            if state is RefundState.NEEDS_REVIEW and not excused:
                raise Violation(f"{refund_id} needs review for nothing", self.timeline)
            made = any(each.metadata.get("refund_id") == refund_id for each in self.stripe.refunds)
            if state is RefundState.FAILED and not made and not self.scenario.by_hand:
                raise Violation(f"{refund_id} FAILED for nothing", self.timeline)


def requested(number: int, amount_minor: int) -> RefundRequestedEvent:
    """The order service's event."""
    asked = RefundRequested(
        order_id=ORDER_ID,
        refund_id=f"rfd_{number:032x}",
        attempt=1,
        amount_minor=amount_minor,
        currency="EUR",
        requested_at=datetime.fromtimestamp(T0, UTC),
    )
    return RefundRequestedEvent.of(asked, correlation_id="c")


def paid(state: PaymentState = PaymentState.SUCCEEDED) -> Item:
    """The payment's row."""
    return to_item(
        {
            "order_id": ORDER_ID,
            "attempt": 1,
            "state": state,
            "generation": 0,
            "payment_intent_id": PAYMENT_INTENT,
            "amount_minor": AMOUNT_MINOR,
            "currency": "EUR",
            "customer_id": "cus_1",
            "placed_at": T0 - DAY,
            "correlation_id": "c",
            "claimed_at": T0 - DAY,
            "lease_expires_at": 0,
            "revision": 3,
        }
    )
