"""One schedule: deliveries of orders, interleaved at every boundary, on a virtual clock, with faults, from choices.

Every choice is taken from one `Choices`, so a schedule is repeated to the byte by repeating them. The code that
runs is the deployed code, down to its calls of boto3's client and of Stripe's; only the world around it is in memory.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol

from greenlet import greenlet

from lab.simulation.choices import Choices
from lab.simulation.replaced import replaced
from lab.simulation.service import (
    CANCELED,
    DECLINED,
    IN_WORK,
    MAY_BECOME,
    MESSAGE,
    NEVER_REPORTED,
    PAGE_BOUNDS,
    PAID,
    RECONCILE_BOUNDS,
    REPORTED_OF_LOST_ROWS,
    REVIEW,
    WAITS,
    WEBHOOK_BOUNDS,
    RowKey,
    RowView,
    SimulatedPayments,
    State,
    attempt_of_confirm,
    row_key_of,
    row_key_of_intent,
)
from onecharge.contract.events import DO_NOT_TRY_AGAIN, CancelRequestedEvent, OrderPlaced, OrderPlacedEvent
from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import Consumer, Disposition
from onecharge.runtime.queues import Delivery
from stripe_standin.account import Account
from stripe_standin.messages import Request, Response
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.payment_methods import PaymentMethod
from tests.shop.builders import BOUNDS, DAY, INDEXES, PAYMENTS, T0, TABLES
from tests.shop.dynamodb import Item, MemoryDynamoDB
from tests.shop.stripe import BY_CUSTOMER, CARDS, REASONS_BY_HAND, ShopStripe, client_of
from tests.shop.tools import RateOf
from tests.support.silent import SILENT

FICKLE = "pm_fickle"
"""A card whose issuer says one thing now and another later."""
VISIBILITY_SECONDS = 180
MAX_RECEIVE_COUNT = 500
RECONCILE_EVERY_SECONDS = 1800
_FAULTY_STEPS_MAX = 1000
_CANCELS_MAX = 3
_ROUNDS_MAX = 5
_REDRIVES_MAX = 2
_JUMPS_SECONDS = (1, 20, 40)
TOKEN_WAITS_SECONDS = (0, 2, 6)
"""How long a worker waits for a token of Stripe's rate limit."""
_ANOTHER_CARD_SECONDS = (0, 60, 3600, 23 * 3600)
"""How long a customer takes to try another card."""
_REFUSALS_REPLAYED_MAX = 20
"""Of workers that live: one that dies does not store what follows. A row that was lost begins again."""
_CRASHES = ("crash before the effect", "crash after the effect", "killed at the time-out")
_LATE_SECONDS = 2 * DAY + 3600
"""By then Stripe has executed what it will execute of what it has answered with a 500."""


def switch_to_scheduler(worker: greenlet) -> None:
    """Suspend the worker, which runs in this greenlet, until the scheduler, which started it, lets it go on."""
    scheduler = worker.parent
    assert scheduler is not None, "a worker is suspended by itself alone"
    scheduler.switch()


class Crash(BaseException):
    """The worker is gone, as by a kill: nothing of it runs any more."""


class Violation(AssertionError):
    """An invariant does not hold; carries what happened up to there, and which of it was out of the ordinary."""

    def __init__(self, what: str, timeline: Sequence[tuple[int, str]], unusual: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what, self.timeline, self.unusual = what, list(timeline), list(unusual)

    def __str__(self) -> str:
        unusual = f"all ordinary, except: {'; '.join(self.unusual)}" if self.unusual else "all ordinary"
        return "\n".join([self.what, unusual, *(f"{seconds:>8} s  {event}" for seconds, event in self.timeline)])

    def __reduce__(self) -> tuple[type["Violation"], tuple[str, list[tuple[int, str]], list[str]]]:
        return Violation, (self.what, self.timeline, self.unusual)


class Schedule(Protocol):
    """A world that runs as its choices say."""

    steps: int
    coverage: Counter[str]
    unusual: list[str]
    """What happened out of the ordinary: faults, crashes, days that pass."""

    @property
    def service(self) -> SimulatedPayments: ...

    def run(self) -> None:
        """Raises Violation when an invariant breaks."""


def violation_of(world: Schedule) -> Violation | None:
    """What the schedule comes to. A violation counts only if each function that is replaced was called."""
    found = None
    with replaced(world.service.replaced) as calls:
        try:
            world.run()
        except Violation as violation:
            violation.unusual, found = world.unusual, violation
    assert found is None or calls.keys() == {each.__name__ for each in world.service.replaced}, f"unbroken, and {found}"
    return found


@dataclass
class Message:
    """A message of the queue. Where it is hidden until, and how often it was received."""

    id: str
    body: str
    visible_at: int
    receives: int = 0
    in_flight: bool = False


@dataclass
class Worker:
    """One running invocation: a delivery; or a run of the reconciler, or a webhook, which have no message."""

    name: str
    message: Message | None
    started_at: int
    timeout_seconds: int
    run: greenlet
    label: str = "start"
    clock_offset_seconds: int = 0
    """How far its clock is ahead of the world's, or behind it."""
    is_charging: bool = False
    """It handles a delivery of an order: nothing else may confirm, or finalize as the lease owner."""
    sleeps_until: int = 0
    """It waits for a token: only time lets it go on."""
    has_alarmed: bool = False
    must_not_confirm: bool = False
    """It has claimed, or written, a row whose cancellation was requested before."""
    read: dict[RowKey, int] = field(default_factory=dict)
    """The revisions of the rows that it has read."""
    found: set[str] = field(default_factory=set)
    """The PaymentIntents that a lookup has shown it."""
    created: set[str] = field(default_factory=set)
    """Those that a create has answered it with: its own, which a lookup shows as well."""


@dataclass(frozen=True)
class Scenario:
    """What is delivered, and what may go wrong."""

    orders: tuple[tuple[str, ...], ...] = (("pm_card_visa",),)
    """For each order the cards that its customer tries, one an attempt."""
    copies: int = 2
    fault_probability: float = 0.0
    crash_probability: float = 0.0
    jump_probability: float = 0.0
    """Of time passing while a worker is at a boundary: up to longer than it may run."""
    redeliveries: int = 0
    """Messages that are redelivered, under new ids, an hour, a day or thirteen days later."""
    redrive_probability: float = 0.0
    """Of a message landing in the DLQ when it is received, to be redriven an hour, a day or thirteen days later."""
    lose_rows: bool = False
    """The table may lose a row before a redelivery, as a restored backup does."""
    tampered: bool = False
    """A redelivery may say something else than the first delivery did, as after a deploy."""
    zombies: bool = False
    """A worker may live on past its timeout for some time: nothing but its lease holds it back."""
    search_lag_seconds: int = 0
    cancels: bool = False
    """Customers ask to cancel, at any time and more than once."""
    persons_cancel: bool = False
    """A person cancels PaymentIntents in Stripe's Dashboard, for any reason but those of the protocol."""
    has_search: bool = True
    """Accounts in India have none."""
    cards_inactive_probability: float = 0.0
    """At each step, of card payments not being active for the account for a while."""
    persons_update: bool = False
    """A person changes PaymentIntents in the Dashboard, which clears their last error."""
    reconciles: bool = False
    """The reconciler runs beside the deliveries, and banks decide what waits for 3-D Secure."""
    webhooks: bool = False
    """Stripe sends its events, and banks decide: in any order, repeated, late or, if there is a reconciler, never.
    Without one, each is sent until it is acknowledged, as Stripe does for three days."""
    clock_skew_seconds: int = 0
    """Each worker has a clock of its own; together with the world's, which is Stripe's, they differ by this much."""
    placed_ago_seconds: tuple[int, ...] = (0,)
    """How long before the first delivery the orders were placed: one of these."""
    waits_seconds: tuple[int, ...] = (3600, 4200, DAY, 13 * DAY)
    """How long after it has become idle a message is redelivered or redriven: one of these."""
    row_loss_probability: float = 0.0
    """Of a row being lost, at any step: also while a worker holds it."""
    stale_row_probability: float = 0.0
    """Of a row being put back to an older version of itself, at any step, as a restored table may hold it."""
    harsh_stripe: bool = False
    """502, 503, 424 and 429 come too, stored under the key or not; a 500 may take effect up to two days later."""
    only_stripe_faults: frozenset[str] | None = None
    """If given, Stripe has no others."""
    rate_limited: bool = False
    """Stripe's rate limit is reached: a worker waits for a token, or gets none."""
    wrong_account_probability: float = 0.0
    """At each step, of the API key being that of another, empty account for a while."""

    @property
    def banks_decide(self) -> bool:
        return self.reconciles or self.webhooks


class WatchedDynamoDB(MemoryDynamoDB):
    """DynamoDB, with an eye on who has read what."""

    def get_item(self, **given: Any) -> dict[str, Any]:
        answer = super().get_item(**given)
        assert isinstance(self.io, World)
        if given["TableName"] == PAYMENTS and "Item" in answer and self.io.current:
            row = RowView.of(answer["Item"])
            self.io.current.read[row.key] = row.revision
        return answer


class WatchedStripe(ShopStripe):
    """Stripe, with an eye on who confirms what."""

    io: "World"

    def send(
        self,
        name: str,
        method: str,
        path: str,
        parameters: Mapping[str, Any],
        key: str | None = None,
        *,
        account: int | None = None,
    ) -> Any:
        if name == "confirm":
            self.io.confirms(path.split("/")[1], str(key))
        answer = super().send(name, method, path, parameters, key, account=account)
        if (worker := self.io.current) and name == "create":
            worker.created.add(answer.id)
        elif worker and name in ("search", "list"):
            worker.found.update(each.id for each in answer.data)
        return answer

    def tries(self, intent: PaymentIntent, request: Request) -> None:
        if request.parameters.get("payment_method") == FICKLE:
            pays = self.io.happens("a card that is now declined, now pays")
            for account in self.accounts:
                card = "pm_card_visa" if pays else "pm_card_visa_chargeDeclined"
                account.all(PaymentMethod)[FICKLE] = PaymentMethod(FICKLE, 0, card, is_attached=True)
        self.io.tries(intent, *_attempt_of(intent, request))

    def tried(self, account: Account, intent: PaymentIntent, request: Request, response: Response) -> None:
        super().tried(account, intent, request, response)
        if response.status == 402:
            self.io.declines(*_attempt_of(intent, request), response.body["error"].get("advice_code"))


def _attempt_of(intent: PaymentIntent, request: Request) -> tuple[str, int | str]:
    """The order and its attempt; in the place of the attempt BY_CUSTOMER, if the customer's page confirms."""
    key = str(request.idempotency_key)
    return intent.metadata["order_id"], key if key == BY_CUSTOMER else attempt_of_confirm(key)


@dataclass
class CrowdedBucket:
    """A token bucket when Stripe's rate limit is reached: a wait is a step, during which anything may happen."""

    world: "World"

    def take(self, until: float) -> bool:
        self.world.pause("rate limit")
        if self.world.fault("rate limit", ("no token in time",)):
            return False
        self.world.sleep(self.world.one_of(TOKEN_WAITS_SECONDS), "token taken")
        return self.world.clock() <= until


@dataclass
class BaseWorld:
    """A clock, faults and notes of what happened, in each schedule as its choices say."""

    scenario: Any
    choices: Choices
    mutate: Callable[[Any], None] = lambda world: None
    """Breaks the world on purpose, to see that it is caught."""
    time: int = T0
    faults_on: bool = True
    coverage: Counter[str] = field(default_factory=Counter)
    timeline: list[tuple[int, str]] = field(default_factory=list)
    unusual: list[str] = field(default_factory=list)
    steps: int = 0

    def now(self) -> int:
        """The world's time, which is Stripe's."""
        return self.time

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        if not (self.faults_on and self.choices.happens(self.scenario.fault_probability)):
            return None
        kind = kinds[self.choices.pick(len(kinds))]
        self._note(f"{where}: {kind}", fault=f"{where}: {kind}")
        return kind

    def happens(self, what: str) -> bool:
        happens = self.choices.happens(0.7)
        if happens:
            self._note(what, fault=what)
        return happens

    def met(self, what: str) -> None:
        self.coverage[what] += 1

    def _note(self, what: str, fault: str = "") -> None:
        self.timeline.append((self.time - T0, what))
        if fault:
            self.coverage[fault] += 1
            self.unusual.append(what)


@dataclass
class World(BaseWorld):
    """Everything that a schedule of deliveries touches."""

    MAY_BECOME: ClassVar[Mapping[State, set[State]]] = MAY_BECOME
    STEPS_MAX: ClassVar[int] = 4_000
    ZOMBIE_SECONDS: ClassVar[int] = 300
    """How old a worker may become that lives on past its timeout."""

    scenario: Scenario

    def __post_init__(self) -> None:
        self.dynamodb: MemoryDynamoDB = WatchedDynamoDB(keys=TABLES, indexes=INDEXES, io=self)
        self.stripe: ShopStripe = WatchedStripe(
            io=self,
            search_lag_seconds=self.scenario.search_lag_seconds,
            harsh=self.scenario.harsh_stripe,
            only_faults=self.scenario.only_stripe_faults,
            page_max=1,
            has_search=self.scenario.has_search,
        )
        if self.scenario.harsh_stripe:
            self.stripe.names_cards(CARDS if self.choices.happens(0.5) else ())
        self.queue: list[Message] = []
        self.dlq: list[tuple[str, str]] = []
        self.to_be_redriven: list[Message] = []
        self.redrives = 0
        self.workers: list[Worker] = []
        self.current: Worker | None = None
        self.states: dict[RowKey, State] = {}
        self.holders: dict[RowKey, Worker | None] = {}
        self.versions: dict[RowKey, list[Item]] = {}
        """What each row has been, for a restore that is older than the row."""
        self.disturbed: set[RowKey] = set()
        """Rows that were lost or stale while workers were at work: their leases no longer prove anything."""
        self.clock_direction = (-1, 1)[self.choices.pick(2)] if self.scenario.clock_skew_seconds else 0
        self.made = 0
        self.lost: set[str] = set()
        """The orders whose rows were lost, or replaced by older ones."""
        self.charges_seen = 0
        self.changed = False
        """Whether a row or a charge has, since the invariants were checked."""
        self.broken: str | None = None
        self.reported: Counter[str] = Counter()
        self.reconciled_at = self.time
        self.cancels = 0
        self.canceling: dict[RowKey, OrderPlacedEvent] = {}
        """Orders whose customers have asked to cancel them: the order service sends that until they have an outcome."""
        self.stopped: dict[RowKey, str] = {}
        """Orders whose PaymentIntent a person has canceled in the Dashboard, and which one."""
        self.said_canceled: set[RowKey] = set()
        self.said_declined: set[tuple[str, int]] = set()
        """By order and attempt."""
        self.declined_at_stripe: set[tuple[str, int | str]] = set()
        """By order and attempt."""
        self.refused_cards: dict[tuple[str, str], int] = {}
        """By order and test card, whichever PaymentMethod it was: the attempt that was advised not to try it again."""
        self.confirm_keys: dict[tuple[str, int], str] = {}
        """By PaymentIntent and attempt."""
        self.secrets_out: set[str] = set()
        self.paid_at_the_bank: set[RowKey] = set()
        self.acknowledged: set[str] = set()
        self.max_receive_count = MAX_RECEIVE_COUNT
        self.service = SimulatedPayments(self.dynamodb, client_of(self.stripe), self.clock)
        placed_at = T0 - self.one_of(self.scenario.placed_ago_seconds)
        attempts = [
            _order(place, attempt, card, placed_at)
            for place, cards in enumerate(self.scenario.orders)
            for attempt, card in enumerate(cards, start=1)
        ]
        self.orders = [event for event in attempts if event.data.attempt == 1]
        """The attempts that their customers have made so far."""
        self.attempts_to_come = {
            (event.data.order_id, event.data.attempt): event for event in attempts if event.data.attempt > 1
        }
        self.service.reconciler_has_run(placed_at)
        if self.scenario.rate_limited:
            self.service.rate = RateOf(CrowdedBucket(self))
        self.mutate(self)
        self.consumer = Consumer(
            model=MESSAGE,
            handle=self._handle,
            queue=self,  # type: ignore[arg-type]  # change_visibility and dead_letter, below.
            logger=SILENT,
            count=SILENT,
            jitter=lambda: 0.5,
        )

    def _handle(self, event: OrderPlacedEvent | CancelRequestedEvent) -> Disposition:
        assert self.current
        self.current.is_charging = isinstance(event, OrderPlacedEvent)
        return self.service.handle(event)

    @property
    def rows(self) -> dict[RowKey, Item]:
        """The Payments table."""
        return self.dynamodb.tables.setdefault(PAYMENTS, {})

    # ------------------------------------------------------------ what the clients see

    def clock(self) -> int:
        """What the worker that runs now takes for the time."""
        return self.time + (self.current.clock_offset_seconds if self.current else 0)

    def pause(self, where: str) -> None:
        worker = self.current
        assert worker is not None
        worker.label = where
        switch_to_scheduler(worker.run)

    def sleep(self, seconds: int, where: str) -> None:
        """The worker that runs waits; whatever the others do meanwhile may take longer."""
        assert self.current is not None
        if seconds > 0:
            self.current.sleeps_until = self.time + seconds
            self.coverage["a wait for a token"] += 1
            self.pause(where)

    def alarmed(self) -> None:
        if self.current:
            self.current.has_alarmed = True

    def pass_time(self, seconds: int, *, fault: str = "") -> None:
        self.time += max(0, seconds)
        passes = f"{seconds} s pass" if seconds % DAY or not seconds else f"{seconds // DAY} days pass"
        self._note(passes, fault=fault or ("days pass" if seconds >= DAY else ""))
        self.stripe.time_has_passed()

    def one_of(self, options: Sequence[int]) -> int:
        return options[self.choices.pick(len(options))] if len(options) > 1 else options[0]

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if table == PAYMENTS:
            self._wrote_row(old, new)

    def _wrote_row(self, old: Item | None, new: Item | None) -> None:
        """The invariants of a row: how its state may change, what is said with it, and that only its holder writes.

        What is broken is raised by the next check: here, in the worker, the code under test would catch it.
        """
        if new is None:
            self._forget(RowView.of(old or {}).key)
            return
        row, was = RowView.of(new), RowView.of(old) if old is not None else None
        key = row.key
        if old is not None and self.scenario.stale_row_probability:
            self.versions.setdefault(key, []).append(old)
        before = self.states.get(key, IN_WORK)
        if row.state not in self.MAY_BECOME[before]:
            self.broken = f"row {key} went from {before} to {row.state}"
        if was is not None:
            self._check_change(was, row)
        self.states[key], self.changed = row.state, True
        is_claimed = row.lease is not None and (was is None or row.lease != was.lease)
        has_read_the_request = is_claimed or (was is not None and row.payment_intent_id != was.payment_intent_id)
        if row.is_to_be_canceled and has_read_the_request and self.current:
            self.current.must_not_confirm = True
        elif is_claimed and self.current:
            # The first request of its claim was not answered, and the row was lost before the second one.
            self.current.must_not_confirm = False
        if was is None or row.state is not was.state:
            self._said(row)
            is_alarming = row.state is REVIEW or (row.state is PAID and (was is None or was.state is DECLINED))
            if is_alarming and self.current and not self.current.has_alarmed:
                # Whoever sees the row from now on raises none.
                self.broken = f"{key} is {row.state} without its alarm: it is lost if the worker is killed now"
        if key in self.disturbed:
            return
        if is_claimed:
            self._claimed(key)
        elif was is not None and self.holders.get(key) is not self.current:
            self._check_stranger(was, row)
        if row.lease is None:
            self.holders[key] = None

    def _check_change(self, was: RowView, row: RowView) -> None:
        if row.money != was.money:
            self.broken = "what was frozen has changed"
        if row.revision <= was.revision:
            self.broken = "a write did not move the revision on"
        is_claimed_again = was.state in (DECLINED, WAITS) and row.state is IN_WORK and row.attempt <= was.attempt
        if is_claimed_again and not row.is_to_be_canceled:
            self.broken = f"attempt {row.attempt} was claimed again, after it was {was.state}"
        if was.is_to_be_canceled and not row.is_to_be_canceled:
            self.broken = "a request to cancel was forgotten"
        if was.is_to_be_canceled and was.state is IN_WORK and row.state in (DECLINED, WAITS):
            # It would leave the index of what is unfinished.
            self.broken = f"what is to be canceled was finalized as {row.state}"

    def _check_stranger(self, was: RowView, row: RowView) -> None:
        """What one who does not hold the row may write: a request, or what Stripe says; never as its owner."""
        if self.current and row.state is not was.state and self.current.read.get(row.key) != was.revision:
            self.broken = "a row was finalized on another revision than was read"
        if was.state is not IN_WORK:
            return
        owners = (row.lease, row.lease_expires_at, row.payment_intent_id) != (
            was.lease,
            was.lease_expires_at,
            was.payment_intent_id,
        )
        if row.state is IN_WORK and owners:
            self.broken = "a worker that had lost its lease wrote to the row"
        if row.state is not IN_WORK and self.current and self.current.is_charging:
            self.broken = "a worker that had lost its lease finalized the row"

    def _said(self, row: RowView) -> None:
        """The row's stream carries it to the order service, and on to the customer: it cannot be unsaid."""
        charges = self._charges_of(row.key)
        if row.state is CANCELED:
            self.said_canceled.add(row.key)
        elif row.state is PAID and not charges:
            self.broken = f"{row.key} is {PAID}, and not charged"
        elif row.state is REVIEW and not self._may_need_review(row.key):
            self.broken = f"{row.key} needs a person, though nothing is wrong"
        elif row.state in (DECLINED, WAITS):
            self._said_of_the_attempt(row, charges)

    def _said_of_the_attempt(self, row: RowView, charges: list[PaymentIntent]) -> None:
        [order_id] = row.key
        if row.state is DECLINED:
            self.said_declined.add((order_id, row.attempt))
            if another := self.attempts_to_come.pop((order_id, row.attempt + 1), None):
                self.orders.append(another)
                self._send_copies(another, later_seconds=self.one_of(_ANOTHER_CARD_SECONDS))
        if self._is_excused(order_id):
            return
        if charges:
            self.broken = f"{order_id} is {row.state}, though it is charged"
        asked = any(
            attempt_of_confirm(str(key)) == row.attempt
            for intent in self._intents_of(row.key)
            for key in intent.confirmed_under
        )
        card = self._card_of(order_id, row.attempt)
        may_be_asked = card in (*CARDS, FICKLE) and (order_id, card) not in self.refused_cards
        if not asked and not self._is_given_up(row.key) and may_be_asked:
            self.broken = f"attempt {row.attempt} is {row.state}, and Stripe was never asked"

    def _is_excused(self, order_id: str) -> bool:
        """Whether something has happened after which a success may follow what was said to be declined."""
        return (
            order_id in self.lost
            or any(order_id in key for key in self.stripe.executed_late)
            or any(order_id in key for key in self.stripe.forgotten)
            or any(BY_CUSTOMER in intent.confirmed_under for intent in self._intents_of((order_id,)))
        )

    def _is_given_up(self, key: RowKey) -> bool:
        """Whether Stripe itself has canceled a PaymentIntent of it after a decline: nothing charges it any more."""
        intents = self._intents_of(key)
        return any(each.cancellation_reason == "automatic" and each.latest_charge for each in intents)

    def _may_need_review(self, key: RowKey) -> bool:
        """Whether there is something that no rule can decide."""
        return self._may_be_other_money(key) or any(
            each.id in self.stripe.canceled_by_hand for each in self._intents_of(key)
        )

    def _may_be_other_money(self, key: RowKey) -> bool:
        return self.scenario.tampered and key[0] in self.lost

    def _card_of(self, order_id: str, attempt: int) -> str:
        of_it = (each.data for each in self.orders if (each.data.order_id, each.data.attempt) == (order_id, attempt))
        return next(of_it).payment_method

    def tries(self, intent: PaymentIntent, order_id: str, attempt: int | str) -> None:
        """Stripe executes a confirm."""
        is_open = intent.status not in ("succeeded", "canceled", "processing")
        is_again = is_open and attempt != BY_CUSTOMER and (order_id, attempt) in self.declined_at_stripe
        if is_again and not self._is_excused(order_id):
            self.broken = f"attempt {attempt} of {order_id} is declined, and its card is tried again"

    def declines(self, order_id: str, attempt: int | str, advice: str | None) -> None:
        """Stripe has declined a confirm."""
        self.declined_at_stripe.add((order_id, attempt))
        if advice == DO_NOT_TRY_AGAIN and isinstance(attempt, int):
            first = self.refused_cards.setdefault((order_id, self._card_of(order_id, attempt)), attempt)
            if first != attempt and not self._is_excused(order_id):
                self.broken = f"attempt {attempt} of {order_id} tries a card again, though its issuer advised not to"

    def confirms(self, intent_id: str, key: str) -> None:
        """The worker that runs sends a confirm."""
        worker = self.current
        assert worker
        if not worker.is_charging:
            self.broken = f"{worker.name} confirms"
        if worker.must_not_confirm:
            self.broken = "what was to be canceled is confirmed by one who has claimed it afterwards"
        if self.confirm_keys.setdefault((intent_id, attempt_of_confirm(key)), key) != key:
            self.broken = "an attempt's confirm has a second key"
        if intent_id in worker.found - worker.created:
            self.broken = "what was merely found is confirmed"

    def _claimed(self, key: RowKey) -> None:
        """Whoever takes a lease over must find its former holder dead, not slow."""
        holder = self.holders.get(key)
        if (
            not self.scenario.clock_skew_seconds
            and holder is not None
            and holder in self.workers
            and holder is not self.current
            and self.time - holder.started_at < holder.timeout_seconds
        ):
            self.broken = "a lease was taken over from a worker that is alive"
        self.holders[key] = self.current

    def _forget(self, key: RowKey) -> None:
        self.states.pop(key, None)
        self.holders.pop(key, None)

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        message = next((each for each in self.queue if each.id == delivery.message_id), None)
        self.pause("sqs ChangeMessageVisibility")
        if message is not None:
            message.visible_at = self.time + seconds

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.pause("sqs SendMessage")
        self.dlq.append((delivery.body, reason))

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Deliver, with faults; then without, until all is idle; raises Violation when an invariant breaks."""
        for event in self.orders:
            self._send_copies(event)
        self.run_until_idle()
        for _ in range(self.scenario.redeliveries):
            self._wait_for_long()
            self._maybe_lose_a_row()
            self._redrive()
            event = self.orders[self.choices.pick(len(self.orders))]
            # Whoever comes first freezes the request: only what comes later is held against it.
            changes = {"amount_minor": 1} if row_key_of(event) in self.rows else {}
            self.send(self._maybe_changed(event, **changes))
            self.run_until_idle()
        while self.to_be_redriven:
            self._wait_for_long()
            self._redrive()
            self.run_until_idle()
        self.faults_on = False
        self.stripe.account = 0
        self._check_nothing_is_lost()
        self._ask_again_until_all_is_finished()
        self._check_the_end()

    def _ask_again_until_all_is_finished(self) -> None:
        """The order service asks again for whatever waits, and the reconciler runs: as they do all the time."""
        for event in self.orders:
            self.send(event)
        for event in self.canceling.values():
            self._send_cancel(event)
        self.run_until_idle()
        self.pass_time(_LATE_SECONDS if self.scenario.harsh_stripe else 3600)
        if self.scenario.webhooks and not self.scenario.reconciles:
            self._send_what_is_not_acknowledged()
        if self.scenario.reconciles or self._has_something_to_reconcile():
            self.reconcile()
            self.run_until_idle()
        for _ in range(_ROUNDS_MAX):
            # A round that was begun long ago visits only what was unfinished then: the next one visits all.
            waiting = [key for key in self.rows if self._differs(key) and not self._is_elsewhere(key)]
            if not waiting:
                break
            for event in self.orders:
                if row_key_of(event) in waiting:
                    self.send(event)
            self.run_until_idle()
            self.pass_time(3600)
            self.reconcile()
            self.run_until_idle()

    def _differs(self, key: RowKey) -> bool:
        """Whether the row is unfinished, or not as Stripe says, or not what the customer has asked for."""
        row = RowView.of(self.rows[key])
        if row.state in (PAID, REVIEW):
            return False
        is_ignored = row.is_to_be_canceled and row.state is not CANCELED
        return row.state is IN_WORK or is_ignored or bool(self._charges_of(key))

    def _has_something_to_reconcile(self) -> bool:
        """Whether a run of the reconciler can change anything."""
        return (
            WAITS in self.states.values()
            or any(row_key_of_intent(charge) not in self.rows for charge in self.stripe.charges)
            or any(self._differs(key) for key in self.rows)
        )

    def _is_elsewhere(self, key: RowKey) -> bool:
        """Whether the row's PaymentIntent was made in another account: its key has to come back, and that is said."""
        intent_id = RowView.of(self.rows[key]).payment_intent_id if key in self.rows else None
        return (
            intent_id is not None
            and not self.stripe.is_ours(intent_id)
            and any(intent.id == intent_id for intent in self.stripe.intents)
        )

    def _send_what_is_not_acknowledged(self) -> None:
        for _ in range(_ROUNDS_MAX):
            left = [each for each in self.stripe.events if each["id"] not in self.acknowledged]
            for event in left:
                self.send_webhook(event)
            self.run_until_idle()
            if not left:
                return
        raise Violation("webhooks are not acknowledged though nothing is wrong", self.timeline)

    def _send_cancel(self, event: OrderPlacedEvent) -> None:
        self._send(CancelRequestedEvent.of(event.data, correlation_id="c").model_dump_json())

    def send(self, event: OrderPlacedEvent | RefundRequestedEvent) -> None:
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
                # Nothing goes wrong for ever.
                self.faults_on, self.stripe.account = False, 0
            if self.steps > self.STEPS_MAX:
                raise Violation("the schedule does not come to an end", self.timeline)
            self.step()
            self.check()

    def step(self) -> None:
        """One worker goes on to its next boundary, or one message is received, or time passes."""
        if self.faults_on:
            self._let_others_act()
        else:
            self.stripe.engine.behavior.takes_cards = True
            self._give_up_what_is_elsewhere()
        ready = [each for each in self.queue if each.visible_at <= self.time and not each.in_flight]
        awake = [each for each in self.workers if each.sleeps_until <= self.time]
        options = len(awake) + len(ready)
        if options == 0 and self.workers:
            self.pass_time(min(each.sleeps_until for each in self.workers) - self.time)
            return
        if options == 0:
            if self.to_be_redriven and self.choices.happens(0.1):
                # Later attempts may wait for this very message.
                self._redrive()
                return
            self._let_the_bank_decide(1.0)
            if self._stripe_sends(0.5) or not self.queue:
                return
            self.pass_time(min(each.visible_at for each in self.queue) - self.time)
            if self.scenario.reconciles and self.time >= self.reconciled_at + RECONCILE_EVERY_SECONDS:
                self.reconcile()
            return
        chosen = self.choices.pick(options) if options > 1 else 0
        if chosen < len(awake):
            self._resume(awake[chosen])
        else:
            self._receive(ready[chosen - len(awake)])

    def _let_others_act(self) -> None:
        self._let_rows_go()
        self._maybe_switch_accounts()
        if self.scenario.cards_inactive_probability:
            changes = self.choices.happens(self.scenario.cards_inactive_probability)
            self.stripe.engine.behavior.takes_cards ^= changes
            self.coverage["card payments are not active"] += changes
        if self.scenario.cancels and self.cancels < _CANCELS_MAX and self.choices.happens(0.04):
            self.cancels += 1
            self.request_cancel(self.orders[self.choices.pick(len(self.orders))])
        if self.scenario.persons_cancel and self.stripe.intents and self.choices.happens(0.01):
            self._cancel_by_hand(self.stripe.intents[self.choices.pick(len(self.stripe.intents))])
        if self.scenario.persons_update and self.stripe.intents and self.choices.happens(0.1):
            updated = self.stripe.intents[self.choices.pick(len(self.stripe.intents))]
            if self.stripe.update_by_hand(updated):
                self._note(f"a person updates {updated.id}", fault="last error cleared")
        if self.scenario.banks_decide and WAITS in self.states.values() and self.choices.happens(0.05):
            self.ask_for_the_client_secret(self.orders[self.choices.pick(len(self.orders))])
        self._let_the_bank_decide(0.05)
        self._stripe_sends(0.05)
        if not self.scenario.reconciles or any(worker.name.startswith("reconciler") for worker in self.workers):
            return
        if self.choices.happens(0.01):
            self.reconcile()

    def _give_up_what_is_elsewhere(self) -> None:
        """A person has been asked to restore the other account's API key: nothing else ends it."""
        for message in [each for each in self.queue if each.receives > _ROUNDS_MAX and not each.in_flight]:
            if any(self._is_elsewhere(key) for key in self.rows if key[0] in message.body):
                self.queue.remove(message)

    def request_cancel(self, event: OrderPlacedEvent) -> None:
        """The order service stores the customer's request, and sends it until it has an outcome."""
        self.canceling[row_key_of(event)] = event
        self._send_cancel(event)
        self.met("cancel: requested")

    def _cancel_by_hand(self, intent: PaymentIntent) -> None:
        """A person cancels it in the Dashboard. If it is the one that the row names, the order is not to be charged."""
        reason, key = REASONS_BY_HAND[self.choices.pick(len(REASONS_BY_HAND))], row_key_of_intent(intent)
        if not self.stripe.cancel_by_hand(intent, reason):
            return
        self._note(f"a person cancels {intent.id}: {reason}", fault="canceled in the Dashboard")
        if key in self.rows and RowView.of(self.rows[key]).payment_intent_id == intent.id:
            self.stopped[key] = intent.id

    def ask_for_the_client_secret(self, event: OrderPlacedEvent) -> None:
        """The customer's page asks for what it needs to finish 3-D Secure; it has what it was ever given."""

        def ask() -> None:
            try:
                client_secret = self.service.client_secret(event)
            except Exception:
                self.met("client secret: failed")
                return
            self.met(f"client secret: {'handed out' if client_secret else 'none'}")
            if client_secret:
                self.hand_out(client_secret)

        self.made += 1
        self._start(f"secret{self.made}", ask, PAGE_BOUNDS)

    def _visit_the_page(self) -> None:
        """Customers whom their bank wants to see come back to their page, sooner or later, or never."""
        if not self.scenario.banks_decide or WAITS not in self.states.values():
            return
        for event in self.orders:
            if self.states.get(row_key_of(event)) is WAITS and self.choices.happens(0.8):
                self.ask_for_the_client_secret(event)
        self.run_until_idle()
        self._let_the_bank_decide(0.7)
        if self._stripe_sends(0.5):
            self.run_until_idle()

    def _charges_of(self, key: RowKey) -> list[PaymentIntent]:
        return [charge for charge in self.stripe.charges if row_key_of_intent(charge) == key]

    def _intents_of(self, key: RowKey) -> list[PaymentIntent]:
        return [intent for intent in self.stripe.intents if row_key_of_intent(intent) == key]

    def _stripe_sends(self, probability: float) -> bool:
        """One of its events, whichever, once or twice; whether it did. An event may be sent again at any time."""
        if not (self.scenario.webhooks and self.stripe.events and self.choices.happens(probability)):
            return False
        event = self.stripe.events[self.choices.pick(len(self.stripe.events))]
        for _ in range(1 + self.choices.pick(2)):
            self.send_webhook(event)
        return True

    def send_webhook(self, event: Mapping[str, Any]) -> None:
        """Stripe sends the event to the function, which acknowledges it, or has it sent again."""
        report = self._reporter("webhook")

        def run() -> None:
            if self._receive_event(event, report):
                self.acknowledged.add(event["id"])

        self.made += 1
        self._start(f"webhook{self.made}", run, WEBHOOK_BOUNDS)
        self._note(f"webhook{self.made} sent: {event['id']} {event['type']}")

    def _receive_event(self, event: Mapping[str, Any], report: Callable[[str], None]) -> bool:
        return self.service.receive(event, report)

    def reconcile(self) -> None:
        """The schedule starts the reconciler."""
        started_at = self.reconciled_at = self.time
        report = self._reporter("reconciler")
        ends_at = started_at + RECONCILE_BOUNDS.function_timeout_seconds

        def run() -> None:
            self.service.reconcile(report, lambda: ends_at - self.time)

        self.made += 1
        self._start(f"reconciler{self.made}", run, RECONCILE_BOUNDS)
        self.coverage["reconciler runs"] += 1

    def _reporter(self, who: str) -> Callable[[str], None]:
        def report(metric: str) -> None:
            self.reported[metric] += 1
            self.coverage[f"{who}: {metric}"] += 1

        return report

    def _let_the_bank_decide(self, probability: float) -> None:
        """The customer finishes 3-D Secure, or fails to and tries again on the same page, with another card."""
        for intent in self.stripe.intents if self.scenario.banks_decide else ():
            # Without the client secret the customer's page can do nothing.
            if intent.client_secret not in self.secrets_out:
                continue
            tries_again = intent.status == "requires_payment_method"
            if not tries_again and intent.status != "requires_action":
                continue
            if not self.choices.happens(probability / 4 if tries_again else probability):
                continue
            pays = self.choices.pick(2) == 0
            if tries_again:
                card = "pm_card_visa" if pays else "pm_card_visa_chargeDeclined"
                self.stripe.customer_confirms(intent.client_secret, card)
            else:
                self.stripe.bank_decides(intent, pays=pays)
            self._note(f"the bank says {'yes' if pays else 'no'} to {intent.id}", fault="3-D Secure decided")
            self.coverage["3-D Secure tried again"] += tries_again
            if pays:
                self.paid_at_the_bank.add(row_key_of_intent(intent))

    def hand_out(self, client_secret: str) -> None:
        """The customer's page has the client secret, and may confirm what it is of from now on."""
        self.secrets_out.add(client_secret)

    def _receive(self, message: Message) -> None:
        message.receives += 1
        if message.receives > self.max_receive_count:
            self.queue.remove(message)
            self.dlq.append((message.body, "receive count"))
            return
        if self._is_redriven(message):
            return
        delivery = Delivery(message.id, message.id, message.receives, message.body)
        message.visible_at, message.in_flight = self.time + VISIBILITY_SECONDS, True
        name = f"{message.id}#{message.receives}"
        worker = self._start(name, lambda: self.consumer.process(delivery), BOUNDS, message)
        self._note(f"{worker.name} received")
        self._resume(worker)

    def _start(
        self, name: str, run: Callable[[], object], bounds: TimeBounds, message: Message | None = None
    ) -> Worker:
        worker = Worker(name, message, self.time, bounds.function_timeout_seconds, greenlet(run))
        if self.scenario.clock_skew_seconds:
            skew_seconds = self.one_of((0, self.scenario.clock_skew_seconds, self.scenario.clock_skew_seconds // 2))
            worker.clock_offset_seconds = self.clock_direction * skew_seconds
            if skew_seconds:
                self._note(f"{name} has a clock that is {worker.clock_offset_seconds} s ahead", fault="clock differs")
        self.workers.append(worker)
        return worker

    def _is_redriven(self, message: Message) -> bool:
        """The message may have spent its receives, as when the function could not even start for days."""
        spent = (
            self.faults_on and self.redrives < _REDRIVES_MAX and self.choices.happens(self.scenario.redrive_probability)
        )
        if spent:
            self.redrives += 1
            self.queue.remove(message)
            self.to_be_redriven.append(message)
            self._note(f"{message.id} is moved to the DLQ", fault="DLQ")
        return spent

    def _redrive(self) -> None:
        for message in self.to_be_redriven:
            self._note(f"{message.id} is redriven", fault="redrive")
            self._send(message.body)
        self.to_be_redriven.clear()

    def _resume(self, worker: Worker) -> None:
        if self.faults_on and self.choices.happens(self.scenario.jump_probability):
            self.pass_time(self.one_of(_JUMPS_SECONDS), fault="delay")
        age_seconds = self.time - worker.started_at
        killed = age_seconds >= worker.timeout_seconds
        if killed and self.scenario.zombies and self.faults_on and age_seconds < self.ZOMBIE_SECONDS:
            killed = self.choices.happens(0.3)
            self.coverage["zombie"] += not killed
        crashed = self.faults_on and self.choices.happens(self.scenario.crash_probability)
        if killed or crashed:
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
            self.timeline.append((self.time - T0, worker.name + " at " + worker.label))

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
        self._visit_the_page()
        self.pass_time(self.one_of(self.scenario.waits_seconds))
        if self.scenario.reconciles or self._has_something_to_reconcile():
            self.reconcile()
            self.run_until_idle()

    def lose_all_rows(self) -> None:
        """The table is a new one, as after a restore into another region."""
        self.lost.update(key[0] for key in self.rows)
        for key in list(self.rows):
            self._forget(key)
        self.rows.clear()

    def _maybe_lose_a_row(self) -> None:
        if self.scenario.lose_rows and self.rows and self.choices.happens(0.5):
            self._lose(self._any_row())

    def _maybe_switch_accounts(self) -> None:
        if not self.scenario.wrong_account_probability:
            return
        if self.stripe.account:
            if self.choices.happens(0.2):
                self._use_account(0)
        elif self.choices.happens(self.scenario.wrong_account_probability):
            self._use_account(1)

    def _use_account(self, account: int) -> None:
        self.stripe.account = account
        self._note(f"the API key is of account {account}", fault="API key of another account" if account else "")

    def _any_row(self) -> RowKey:
        keys = sorted(self.rows)
        return keys[self.choices.pick(len(keys))]

    def _lose(self, key: RowKey) -> None:
        del self.rows[key]
        self._forget(key)
        self.lost.add(key[0])
        self._note(f"row {key[-1][-4:]} lost", fault="row lost")

    def _let_rows_go(self) -> None:
        """Rows may be lost, or be older than they were, whoever is at work on them."""
        if self.rows and self.choices.happens(self.scenario.row_loss_probability):
            key = self._any_row()
            self.disturbed.add(key)
            self._lose(key)
        if self.versions and self.choices.happens(self.scenario.stale_row_probability):
            keys = sorted(self.versions)
            key = keys[self.choices.pick(len(keys))]
            number = self.choices.pick(len(self.versions[key]))
            self.disturbed.add(key)
            self._put_back(key, number)
            self.lost.add(key[0])
            state = self.rows[key]["state"]["S"]
            self._note(f"row {key[-1][-4:]} is its version {number}, {state}", fault="row stale")

    def _put_back(self, key: RowKey, number: int) -> None:
        self._forget(key)
        self.rows[key] = self.versions[key][number]
        self.states[key] = RowView.of(self.rows[key]).state

    def _maybe_changed(self, event: OrderPlacedEvent, **changes: object) -> OrderPlacedEvent:
        if not (self.scenario.tampered and self.choices.happens(0.7)):
            return event
        self._note("the next message says something else", fault="other request")
        data = event.data.model_copy(update={"customer_id": "cus_2", **changes})
        return event.model_copy(update={"data": data})

    # ------------------------------------------------------------ the invariants

    def check(self) -> None:
        """After each step; what concerns a row is seen when it is written."""
        if self.broken:
            raise Violation(self.broken, self.timeline)
        replayed = max(self.stripe.refusals_replayed.values(), default=0)
        is_again_and_again = replayed > _REFUSALS_REPLAYED_MAX + sum(self.coverage[each] for each in _CRASHES)
        if is_again_and_again and not self.begins_again:
            raise Violation("a stored refusal is sent for again and again", self.timeline)
        charges = self.stripe.charges
        if len(charges) > self.charges_seen:
            for charge in charges[self.charges_seen :]:
                self._check_charge(charge)
            self.charges_seen, self.changed = len(charges), True
        if not self.changed:
            return
        self.changed = False
        for charge in charges:
            if row_key_of_intent(charge) in self.said_canceled:
                raise Violation(f"{charge.metadata['order_id']} was said to be canceled, and is charged", self.timeline)

    @property
    def begins_again(self) -> bool:
        """Whether a row may begin with its first key again."""
        return bool(self.lost)

    def _check_charge(self, charge: PaymentIntent) -> None:
        """At most one success an order, ever, over all accounts; of what was frozen; and of no declined attempt."""
        order_id = charge.metadata["order_id"]
        of_the_order = self._charges_of(row_key_of_intent(charge))
        if len(of_the_order) > 1:
            raise Violation(f"{order_id} was charged {len(of_the_order)} times", self.timeline)
        row = self.rows.get(row_key_of_intent(charge))
        if row and (charge.amount, charge.currency) != RowView.of(row).money:
            raise Violation(f"{order_id} was charged something else than was frozen", self.timeline)
        if by_hand := self.stopped.get(row_key_of_intent(charge)):
            raise Violation(f"{order_id} is charged, though a person has canceled {by_hand}", self.timeline)
        by = str(charge.confirmed_under[-1])
        if by == BY_CUSTOMER:
            return
        if self._is_given_up(row_key_of_intent(charge)) and not self._is_excused(order_id):
            raise Violation(f"{order_id} is charged, though Stripe has given it up after a decline", self.timeline)
        declined = (order_id, attempt_of_confirm(by)) in self.said_declined
        if declined and not self._is_excused(order_id):
            raise Violation(f"{order_id} was said to be declined, and is charged", self.timeline)
        self.coverage["charged after DECLINED"] += declined

    def _check_nothing_is_lost(self) -> None:
        """No message is left: what was delivered must be finalized, whether or not anybody sends it again."""
        for event in self.orders:
            key = row_key_of(event)
            if key[0] in self.lost or self._is_elsewhere(key):
                continue
            if self.states.get(key) is None:
                raise Violation(f"{event.id} is lost: no message is left of it", self.timeline)
            # A cancellation that a person's review requested has no message: the reconciler finishes it.
            has_message = key in self.canceling or not RowView.of(self.rows[key]).is_to_be_canceled
            if self.states[key] is IN_WORK and has_message:
                raise Violation(f"{event.id} is left {IN_WORK}: no message is left of it", self.timeline)

    def _check_the_end(self) -> None:
        """When the faults have stopped and all is idle."""
        self.check()
        last = {row_key_of(event): event for event in self.orders}
        for key, event in last.items():
            if not self._is_elsewhere(key):
                self._check_the_end_of(key, event)
        never = NEVER_REPORTED - ({"RowUnknownToStripe"} if self.scenario.wrong_account_probability else set())
        never -= {"UnattendedNeedsReview"} if self.scenario.persons_cancel else set()
        if found := self.reported.keys() & never:
            raise Violation(f"the reconciler found what should not be: {found}", self.timeline)
        if (found := self.reported.keys() & REPORTED_OF_LOST_ROWS) and not self.lost:
            raise Violation(f"the reconciler found what should not be: {found}", self.timeline)
        if self.dlq:
            raise Violation(f"payable messages in the DLQ: {self.dlq}", self.timeline)

    def _check_the_end_of(self, key: RowKey, last: OrderPlacedEvent) -> None:
        state, charges = self.states.get(key), self._charges_of(key)
        name = f"{key[0][:4]}…{key[0][-1]}"
        if state in (None, IN_WORK):
            raise Violation(f"{name} is left {state}", self.timeline)
        if state is REVIEW:
            # Checked when it was written.
            return
        if key in self.stopped and state not in (DECLINED, CANCELED):
            raise Violation(f"{name} is {state}, though a person has canceled {self.stopped[key]}", self.timeline)
        row = RowView.of(self.rows[key])
        if (state is PAID) != bool(charges):
            raise Violation(f"{name} is {state}, with {len(charges)} charges at Stripe", self.timeline)
        if charges and row.payment_intent_id != charges[0].id:
            raise Violation(f"{name} is finalized with another PaymentIntent's id", self.timeline)
        if any(charge.amount != last.data.amount_minor for charge in charges) and not self._may_be_other_money(key):
            raise Violation(f"{name} was charged another amount", self.timeline)
        if key in self.said_canceled and state is not CANCELED:
            raise Violation(f"{name} was said to be canceled, and is {state}", self.timeline)
        is_to_be_canceled = row.is_to_be_canceled or key in self.canceling or key in self.said_canceled
        if is_to_be_canceled and state not in (CANCELED, PAID):
            raise Violation(f"{name} was to be canceled, and is {state}", self.timeline)
        if state is CANCELED and not self.cancels:
            raise Violation(f"{name} is {CANCELED}, and nobody asked for it", self.timeline)
        if self._pays(key, last) and state not in (PAID, CANCELED):
            raise Violation(f"{name} is {state}, though its card pays", self.timeline)
        if state is not PAID and not is_to_be_canceled and row.attempt != last.data.attempt:
            raise Violation(f"{name} is {state} of attempt {row.attempt}: a later one is lost", self.timeline)

    def _pays(self, key: RowKey, last: OrderPlacedEvent) -> bool:
        """Whether the order can have no end but a charge, or a cancellation."""
        if any(intent.id in self.stripe.processing_failed for intent in self._intents_of(key)):
            return False
        if self._is_given_up(key):
            return False
        if last.data.attempt > 1 and self._is_excused(key[0]):
            # The decline that Stripe shows may be the attempt's before, of which the row does not know, or the page's:
            # then the customer is asked for a card once more.
            return False
        return last.data.payment_method == "pm_card_visa" or key in self.paid_at_the_bank


_ORDERS: dict[tuple[int, int, str, int], OrderPlacedEvent] = {}


def _order(place: int, attempt: int, card: str, placed_at: int) -> OrderPlacedEvent:
    key = place, attempt, card, placed_at
    if key not in _ORDERS:
        order = OrderPlaced(
            order_id=f"ord_{place:032x}",
            attempt=attempt,
            customer_id="cus_1",
            amount_minor=1099 + place,
            currency="EUR",
            payment_method=card,
            placed_at=datetime.fromtimestamp(placed_at, UTC),
        )
        _ORDERS[key] = OrderPlacedEvent.of(order, correlation_id="c")
    return _ORDERS[key]
