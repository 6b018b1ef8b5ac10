"""One schedule of refunds: deliveries, events and faults interleaved at every boundary, from choices.

An order is paid, and three refunds of it are asked for, which together are what was paid. The code that runs is the
deployed code, down to its calls of boto3's client and of Stripe's. Each worker has a clock of its own; rows are lost or
become older at any step; answers are lost; the secret is another account's for a while; 500s are executed now, later or
never; keys are forgotten; banks return refunds.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

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
from onecharge.payments.stripe_events import ChargeRefundedEvent, RefundEvent, parse_event
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import BackOff, Done, RetryAfter
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.parallel import one_after_another
from refund_charge.refund import refund_charge
from testing.silent import SILENT
from testing.simulation.choices import Choices
from testing.simulation.dynamodb import Io, Item, MemoryDynamoDB
from testing.simulation.scheduling import switch_to_scheduler
from testing.simulation.stripe import REFUND_FAULTS, MemoryStripe, Refund, stripe_in_memory
from testing.simulation.world import DAY, T0, Crash, Violation
from testing.tools import charge_tools, reconcile_tools, refund_tools

BOUNDS = TimeBounds.of(30)
HOUR = 3600
PAYMENTS, REFUNDS = "Payments", "Refunds"
ORDER_ID = "ord_" + "a" * 32
PAYMENT_INTENT = "pi_0"
AMOUNT_MINOR = 1099
AMOUNTS_MINOR = (400, 400, 299)
"""Together all of the order's 1099."""
WORKER_LIVES_SECONDS = 50 * 60
"""Less than an hour, as the protocol assumes; far more than Lambda lets it."""
_STEPS_MAX = 3000
_EVENTS_MAX = 10
"""With this many events nobody refunds by hand, and no bank returns anything any more: each event is more work."""


# ---------------------------------------------------------------- Stripe


FAULTS = REFUND_FAULTS - {"500, executed a day later", "500, executed two days later", "pending"}
"""What a request to Stripe may meet, wherever rows may be lost: nothing is executed once its key may be forgotten."""
_REFUSALS_REPLAYED_MAX = 20


def stripe_with_a_charge(io: Io, *, faults: frozenset[str] | None = None) -> MemoryStripe:
    """Stripe, which has charged the order with its first PaymentIntent."""
    stripe = MemoryStripe(io=io, harsh=True, only_faults=faults)
    metadata = {"order_id": ORDER_ID}
    charged = stripe._made({"amount": AMOUNT_MINOR, "currency": "eur", "metadata": metadata}, io.now())
    stripe.becomes(charged, "succeeded")
    return stripe


def client_of(stripe: MemoryStripe) -> Any:
    """A client with the API key as it is now, and so of one account."""
    return stripe_in_memory(copy(stripe), retries=1)


def live(stripe: MemoryStripe, refund_id: str) -> list[Refund]:
    """The refunds of this id that are not returned."""
    return [each for each in stripe.refunds if each.is_live and each.metadata.includes({"refund_id": refund_id})]


# ---------------------------------------------------------------- a schedule


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
    holds: bool = False
    """Stripe holds refunds while the balance is too low, and sends them later."""
    stripe_faults: frozenset[str] = FAULTS


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
        self.stripe = stripe_with_a_charge(self, faults=self.scenario.stripe_faults)
        self.clients = [client_of(replace(self.stripe, account=account)) for account in (0, 1)]
        self.messages: list[_Message] = []
        self.workers: list[_Worker] = []
        self.current: _Worker | None = None
        self.said_failed: set[str] = set()
        self.said: dict[str, RefundState] = {}
        self.spent: set[str] = set()
        self.events: list[ChargeRefundedEvent | RefundEvent] = []
        self.events_seen = len(self.stripe.events)
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
        self.faults_on, self.stripe.account = False, 0
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
        for told in reversed(self.events):
            self.send(told)
            self.run_until_idle()
        self.check_the_end()
        self.check_the_sum()

    def _send_events(self) -> None:
        """Stripe sends each of its events, once or several times, and whenever they come."""
        for event in self.stripe.events[self.events_seen :]:
            parsed = parse_event(event)
            if isinstance(parsed, ChargeRefundedEvent | RefundEvent):
                self.events.append(parsed)
                for _ in range(1 + self.choices.pick(3)):
                    self.send(parsed)
        self.events_seen = len(self.stripe.events)

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
            self.stripe.account = 1 - self.stripe.account
            self.note(f"the API key is of account {self.stripe.account}", "another account")
        if len(self.events) >= _EVENTS_MAX:
            return
        if scenario.by_hand and self.choices.happens(0.02):
            self.stripe.refund_in_dashboard(PAYMENT_INTENT, 500)
            self.note("somebody refunds by hand", "by hand")
        made = [each for each in self.stripe.refunds if each.is_live]
        if scenario.holds and made and self.choices.happens(0.1):
            reason = (None, "insufficient_funds", "processing")[self.choices.pick(3)]
            held = made[self.choices.pick(len(made))]
            self.note(f"{held.id} is pending: {reason}", "held")
            self.stripe.hold_refund(held, reason)
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
        made = [each for each in self.stripe.refunds if each.is_live]
        if made:
            returned = made[self.choices.pick(len(made))]
            self.note(f"the bank returns {returned.id}", "bank returns")
            self.stripe.return_refund(returned)

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
        client = self.clients[self.stripe.account]
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
        replays = max((each.refusals_replayed for each in self.stripe.keys.values()), default=0)
        if replays > _REFUSALS_REPLAYED_MAX and not begins_again:
            raise Violation("a stored refusal is sent for again and again", self.timeline)
        for event in self.refunds:
            made = live(self.stripe, event.data.refund_id)
            if sum(each.amount for each in made) > event.data.amount_minor:
                raise Violation("refunded twice", self.timeline)
            if made and event.data.refund_id in self.said_failed:
                raise Violation("said to be FAILED, and refunded", self.timeline)

    def check_the_sum(self) -> None:
        """The payment's row has the sum that Stripe shows, and each refund's row why it is pending."""
        shown = int(self.dynamodb.tables[PAYMENTS][ORDER_ID,].get("amount_refunded_minor", {"N": "0"})["N"])
        if shown != self.stripe.refunded(PAYMENT_INTENT):
            raise Violation(f"the payment's row says that {shown} is refunded", self.timeline)
        for (_, refund_id), row in self.rows.items():
            reasons = [each.pending_reason for each in live(self.stripe, refund_id)]
            is_made = row["state"]["S"] == RefundState.SUCCEEDED
            if is_made and [row.get("pending_reason", {}).get("S")] != reasons:
                raise Violation(f"{refund_id} is pending for {reasons}, and its row says otherwise", self.timeline)

    def check_the_end(self) -> None:
        for event in self.refunds:
            refund_id, state = event.data.refund_id, self.state_of(event) or self.said.get(event.data.refund_id)
            amounts = [each.amount for each in live(self.stripe, refund_id)]
            self.coverage[f"ended: {state}"] += 1
            if state in (None, RefundState.PENDING):
                raise Violation(f"{refund_id} is stuck", self.timeline)
            if state is RefundState.SUCCEEDED and amounts != [event.data.amount_minor]:
                raise Violation(f"{refund_id} is said to have SUCCEEDED, with {amounts} at Stripe", self.timeline)
            excused = self.scenario.by_hand or refund_id in self.spent
            if state is RefundState.NEEDS_REVIEW and not excused:
                raise Violation(f"{refund_id} needs review for nothing", self.timeline)
            made = any(each.metadata.includes({"refund_id": refund_id}) for each in self.stripe.refunds)
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
