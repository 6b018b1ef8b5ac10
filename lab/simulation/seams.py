"""The seams between the two services: one order, its payment, and the events between them, from choices.

The code that runs is the deployed code: the API's writes, the mapping of publish_events, charge_order, update_order,
republish, reconcile, `ops restore outcomes` and `ops review`, over DynamoDB in memory and Stripe in process. Each
delivery runs as a whole; world.py interleaves them. What goes wrong is what lies between: events are lost, late and
repeated; either service's item is lost, or is an older version of itself; the client uses its key again, for the same
cart or another.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lab.simulation.choices import SeededChoices
from lab.simulation.service import SimulatedPayments
from lab.simulation.world import BaseWorld, Violation
from onecharge.contract.events import Event, EventType, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.ids import order_id_of
from onecharge.orders.republication import RepublishCheckpoint
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.orders.transitions import WAITING
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.reconcile_checkpoint import ReconcileCheckpoint
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.consumer import Done, RetryAfter
from onecharge.runtime.dynamodb import ReadsThrottled
from onecharge.runtime.http_api import Problem
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import one_after_another
from ops.resolutions import Resolution
from ops.resolver import Resolver, ReviewStore
from ops.restore import emit_page
from ops.review import Reviews, resolve
from orders_api.cancel_order import request_cancellation
from orders_api.pay_again import PaymentRequest, make_attempt
from orders_api.place_order import OrderRequest, store_order
from publish_events.mapping import order_event_from_item, payment_outcome_from_item
from republish.republish import Republisher
from republish.waiting import waiting_orders
from stripe_standin.payment_intents import PaymentIntent
from tests.shop.builders import DAY, INDEXES, PAYMENTS, PAYMENTS_STATE, T0, TABLES
from tests.shop.dynamodb import Item, MemoryDynamoDB
from tests.shop.stripe import ShopStripe, client_of
from tests.support.silent import SILENT
from update_order.orders import update_order

HOUR = 3600
ORDERS, ORDERS_STATE = "Orders", "OrdersState"
CUSTOMER, KEY = "cus_1", "key"
ORDER_ID = order_id_of(CUSTOMER, KEY)
CARTS_MINOR = (1_000, 999_000)
_CARDS = ("pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required")
_STEPS = 60
_DELIVERIES_MAX = 2_000
_ROUNDS_MAX = 12
_UPDATES_RECEIVED_MAX = 5
_WAITS_SECONDS = (1, 60, 20 * 60, 2 * HOUR, DAY)


@dataclass(frozen=True)
class SeamScenario:
    """What may go wrong."""

    lose_orders: bool = False
    lose_payments: bool = False
    older_orders: bool = False
    older_payments: bool = False
    other_carts: bool = False
    refuses: bool = False
    """Stripe refuses requests as invalid for a while, until a person has to decide."""
    has_search: bool = True
    clock_ahead_seconds: int = 0
    """How far our clock is ahead of Stripe's."""
    fault_probability: float = 0.02
    lost_records: float = 0.1


SCENARIOS: Mapping[str, SeamScenario] = {
    "orders lost": SeamScenario(lose_orders=True, other_carts=True),
    "orders older": SeamScenario(older_orders=True),
    "payments lost": SeamScenario(lose_payments=True),
    "payments older": SeamScenario(older_payments=True),
    "reviews": SeamScenario(refuses=True),
    "reviews, payments and orders older": SeamScenario(refuses=True, older_orders=True, older_payments=True),
    "both lost": SeamScenario(lose_orders=True, lose_payments=True, other_carts=True),
    "everything": SeamScenario(True, True, True, True, True, True),
    "both lost, without search, clocks differ by 299 s": SeamScenario(
        lose_orders=True, lose_payments=True, has_search=False, clock_ahead_seconds=299
    ),
}
"""Each of them once."""


class LeftOrders(OrderStore):
    """The orders of a person who is gone before the order is moved."""

    def move(self, *given: Any, **named: Any) -> Mapping[str, Any]:
        raise TimeoutError


class SeamPayments(SimulatedPayments):
    """The payment service, with the parameter that a restore of both services' tables needs."""

    look_up_placed_before = 0
    knows_ages = False
    """What a mutant breaks."""

    def _tools(self, *given: Any) -> Tools:
        before = 0 if self.knows_ages else self.look_up_placed_before
        return replace(super()._tools(*given), look_up_placed_before=lambda: before)


@dataclass
class _Message:
    event: Any
    visible_at: int
    receives: int = 0


@dataclass
class SeamWorld(BaseWorld):
    """Everything that a schedule of both services touches."""

    scenario: SeamScenario

    def __post_init__(self) -> None:
        indexes = {**INDEXES, ORDERS: {"waiting": ("waiting_shard", "waiting_since")}}
        keys = {**TABLES, ORDERS: ("order_id",), ORDERS_STATE: ("name",)}
        memory: Any = MemoryDynamoDB(keys=keys, indexes=indexes, io=self)
        self.dynamodb = memory
        self.stripe = ShopStripe(self, has_search=self.scenario.has_search)
        self.service = SeamPayments(self.dynamodb, client_of(self.stripe), self.clock)
        self.service.reconciler_has_run(T0)
        self.orders: OrderStore = OrderStore(self.dynamodb, ORDERS)
        self.payments: PaymentStore = PaymentStore(self.dynamodb, PAYMENTS)
        self.queue: list[_Message] = []
        self.versions: dict[str, list[Item]] = {ORDERS: [], PAYMENTS: []}
        self.lost: set[str] = set()
        """The tables that have lost an item, or had an older one put back."""
        self.is_untold = False
        """An outcome was lost that nothing but `ops restore` emits again."""
        self.alarms: set[str] = set()
        self.keys_used = 0
        self.cart = 0
        # What mutants break.
        self.emit_page = emit_page
        self.resolve_review: Callable[..., tuple[bool, str]] = resolve
        self.counts_revisions = False
        self.mutate(self)

    # ------------------------------------------------------------ what the clients see

    def clock(self) -> int:
        """Ours."""
        return self.time + self.scenario.clock_ahead_seconds

    def pause(self, where: str) -> None:
        pass

    def pass_time(self, seconds: int) -> None:
        self.time += seconds
        self.stripe.time_has_passed()

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        """The stream of the table: its record is published, or lost."""
        if table not in self.versions or new is None or new == old:
            return
        if table == PAYMENTS and self.counts_revisions:
            new["revision"] = {"N": str(int(old["revision"]["N"]) + 1 if old else 1)}
        self.versions[table].append(dict(new))
        shown = new["status" if table == ORDERS else "state"]["S"]
        self._note(f"{table}: {shown}, attempt {new['attempt']['N']}")
        event = order_event_from_item(new) if table == ORDERS else payment_outcome_from_item(new)
        if event is None:
            return
        if self.faults_on and self.choices.happens(self.scenario.lost_records):
            self._note(f"lost: {event.id}", "record lost")
            # republish asks only for what waits; of anything else a person has to know.
            waits = self._order is not None and self._order.status in WAITING
            self.is_untold |= not waits or event.type == EventType.PAYMENT_SUCCEEDED  # One before it may come.
        else:
            self.publish([event])

    def publish(self, events: Sequence[Event]) -> list[Any]:
        """SNS to SQS: as a Topic. Returns what was not accepted."""
        self.queue += [_Message(event, self.time) for event in events]
        return []

    def count(self, metric: str) -> None:
        self.coverage[str(metric)] += 1
        if isinstance(metric, Alarm):
            self.alarms.add(metric.cause)

    def alarmed(self) -> None:
        """A log line has raised an alarm."""

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Let anything happen, then nothing wrong any more; raises Violation when an invariant breaks."""
        self.place(0)
        for _ in range(_STEPS):
            self.steps += 1
            self.time += 1
            self.step()
            self.check()
        if self.ends():
            self.come_to_rest()
            self.check_the_end()

    def step(self) -> None:
        """Mostly a delivery; else something that a client, a bank, a job, a person or bad luck does."""
        ready = [each for each in self.queue if each.visible_at <= self.time]
        if ready and self.choices.pick(3):
            self.deliver(ready[self.choices.pick(len(ready))])
            return
        acts: Sequence[Callable[[], object]] = (
            *(self.wait, self.wait, self.use_the_key_again, self.pay_again, self.cancel, self.republish),
            *(self.reconcile, self.let_the_bank_decide, self.refund_by_hand, self.resolve_a_review),
            *(self.go_wrong, self.go_wrong),
        )
        acts[self.choices.pick(len(acts))]()

    def wait(self) -> None:
        self.pass_time(_WAITS_SECONDS[self.choices.pick(len(_WAITS_SECONDS))])

    def deliver(self, message: _Message) -> None:
        message.receives += 1
        again_after: int | None = min(900, 2**message.receives)
        try:
            if isinstance(message.event, PaymentOutcomeEvent):
                update_order(message.event, orders=self.orders, logger=SILENT, count=self.count)
                again_after = None
            else:
                match self.service.handle(message.event):
                    case Done():
                        again_after = None
                    case RetryAfter(seconds):
                        again_after = seconds
        except NoSuchOrder:
            if message.receives >= _UPDATES_RECEIVED_MAX:
                again_after = None
        except Exception as error:  # As the consumer does: it is delivered again.
            self.met(f"raised: {type(error).__name__}")
        if again_after is None and self.faults_on and self.choices.happens(0.15):
            again_after = DAY if self.choices.pick(2) else HOUR
            self._note(f"comes again: {message.event.id}", "late duplicate")
        if again_after is None:
            self.queue.remove(message)
        else:
            message.visible_at = self.time + again_after

    # ------------------------------------------------------------ the client

    def _ask(self, what: str, send: Callable[[], object]) -> None:
        try:
            send()
        except (Problem, NoSuchOrder) as refused:
            self._note(f"{what}: refused, {type(refused).__name__}", f"{what}: refused")
        except Exception as error:
            self._note(f"{what}: {type(error).__name__}")
        else:
            self._note(what, what)

    def place(self, cart: int) -> None:
        """POST /orders, with the one key."""
        card = _CARDS[self.choices.pick(len(_CARDS))]
        body = {"currency": "EUR", "payment_method": card, "items": [{"sku": "mug", "quantity": 1}]}
        at = datetime.fromtimestamp(self.clock(), UTC)
        price = CARTS_MINOR[cart]
        wanted = OrderRequest.model_validate({**body, "amount": price})
        self._ask(
            f"cart {cart} is ordered",
            lambda: store_order(
                self.orders, CUSTOMER, wanted, KEY, price_of=lambda *_: [price], correlation_id="c", now=at
            ),
        )

    def use_the_key_again(self) -> None:
        self.place(self.choices.pick(2) if self.scenario.other_carts else 0)

    def pay_again(self) -> None:
        wanted = PaymentRequest(payment_method=_CARDS[self.choices.pick(len(_CARDS))])
        self.keys_used += self.choices.pick(2)  # Or the same request once more.
        key, at = f"key {self.keys_used}", datetime.fromtimestamp(self.clock(), UTC)
        self._ask("paid again", lambda: make_attempt(self.orders, CUSTOMER, ORDER_ID, wanted, key, now=at))

    def cancel(self) -> None:
        if not self.choices.happens(0.05):
            return
        at = datetime.fromtimestamp(self.clock(), UTC)
        self._ask("cancellation", lambda: request_cancellation(self.orders, CUSTOMER, ORDER_ID, now=at))

    # ------------------------------------------------------------ Stripe, jobs, people

    def let_the_bank_decide(self) -> None:
        for intent in self.stripe.intents:
            if intent.status == "requires_action" and self.choices.happens(0.5):
                self.stripe.bank_decides(intent, pays=self.choices.pick(2) == 0)
                self._note(f"the bank decides: {intent.id} is {intent.status}", "3-D Secure decided")

    def refund_by_hand(self) -> None:
        """In the Dashboard; Stripe's event says so."""
        for charge in self.stripe.charges:
            if self.stripe.refunded(charge.id) + 100 > charge.amount or not self.choices.happens(0.5):
                continue
            kind = "pending" if self.choices.pick(2) else None  # Then it may fail.
            self.stripe.refund_in_dashboard(charge.id, 100, kind)
            self._note(f"{charge.id} is refunded by hand", "refunded by hand")

    def republish(self) -> None:
        republisher = Republisher(
            sources=[waiting_orders(self.dynamodb, ORDERS)],
            topic=self,  # type: ignore[arg-type]  # publish, above.
            checkpoints=CheckpointStore(self.dynamodb, ORDERS_STATE, RepublishCheckpoint),
            clock=self.clock,
            logger=SILENT,
            count=self.count,
            parallel=one_after_another,
        )
        with suppress(BotoCoreError, ClientError, ReadsThrottled):  # The run has failed, and the next one continues.
            republisher.run(lambda: True)

    def reconcile(self) -> None:
        self.service.reconcile(self.count, lambda: 240)

    def resolve_a_review(self) -> None:
        """A person decides something; they may be gone before the order is moved."""
        order = self._order
        if order is not None and order.status is OrderStatus.NEEDS_REVIEW:
            self.resolve(tuple(Resolution)[self.choices.pick(3)])

    def resolve(self, resolution: Resolution) -> None:
        """`ops review resolve`."""
        is_left = self.faults_on and self.choices.happens(0.2)
        orders = LeftOrders(self.dynamodb, ORDERS) if is_left else self.orders
        resolver = Resolver(ReviewStore(self.dynamodb, PAYMENTS), self.service.gateway, self.clock)
        try:
            reviews = Reviews(resolver, orders, "a person", self.refund_second)
            done, what = self.resolve_review(ORDER_ID, resolution, "they say so", reviews)
            self._note(f"{resolution}: {what}", f"review: {resolution} {'done' if done else 'refused'}")
        except Exception as error:
            self.met(f"review: {type(error).__name__}")

    def refund_second(self, *of: Any) -> str | None:
        """`resolve` never chooses it here: no order is charged twice."""
        raise NotImplementedError

    # ------------------------------------------------------------ what goes wrong

    def go_wrong(self) -> None:
        scenario = self.scenario
        if scenario.refuses and self.choices.happens(0.3):
            self.stripe.refuses_until = 0 if self.stripe.refuses_until else self.time + 365 * DAY
            self._note(f"requests are refused until {self.stripe.refuses_until}", "requests refused")
        tables = (
            *([(ORDERS, True)] * scenario.lose_orders + [(PAYMENTS, True)] * scenario.lose_payments),
            *([(ORDERS, False)] * scenario.older_orders + [(PAYMENTS, False)] * scenario.older_payments),
        )
        if tables and self.choices.happens(0.3):
            table, is_lost = tables[self.choices.pick(len(tables))]
            if is_lost:
                self.lose(table)
            elif self.versions[table]:
                self.put_back(table, self.choices.pick(len(self.versions[table])))

    def lose(self, table: str) -> None:
        if self.dynamodb.tables.get(table, {}).pop((ORDER_ID,), None) is not None:
            self.disturbed(table)
            self._note(f"{table}: lost", f"{table} lost")

    def put_back(self, table: str, number: int) -> None:
        """As a restore does it: the older version is there instead, and its stream says so, or not."""
        self.dynamodb.tables.setdefault(table, {})[ORDER_ID,] = dict(self.versions[table][number])
        self.disturbed(table)
        self._note(f"{table}: is what it was, version {number}", f"{table} older")

    def disturbed(self, table: str) -> None:
        self.lost.add(table)
        if len(self.lost) == len(self.versions):
            # As the runbook says, of a restore of both services' tables.
            self.service.look_up_placed_before = self.time + 365 * DAY

    # ------------------------------------------------------------ the end

    def run_until_idle(self) -> None:
        for _ in range(_DELIVERIES_MAX):
            if not self.queue:
                return
            message = min(self.queue, key=lambda each: each.visible_at)
            self.pass_time(max(0, message.visible_at - self.time))
            self.deliver(message)
            self.check()
        raise Violation("the schedule does not come to an end", self.timeline)

    def ends(self) -> bool:
        """Whether the order comes to an end: not if only a list could say what there is, and nobody knows since when.

        Then it waits, with an alarm.
        """
        return self.scenario.has_search or len(self.lost) < len(self.versions)

    def come_to_rest(self) -> None:
        """Nothing goes wrong any more: the client comes again, a person restores and resolves, the jobs run."""
        self.faults_on, self.stripe.refuses_until = False, 0
        if self._order is None:
            self.use_the_key_again()
        self.run_until_idle()
        self.let_jobs_run(_ROUNDS_MAX)
        self.check_what_waits()
        if self.lost or self.is_untold:
            self.restore()
            self.let_jobs_run(_ROUNDS_MAX)

    def let_jobs_run(self, rounds: int) -> None:
        """And a person who resolves what needs review."""
        for _ in range(rounds):
            self.pass_time(HOUR)
            self.republish()
            self.run_until_idle()
            self.reconcile()
            self.run_until_idle()
            order = self._order
            if order is not None and order.status is OrderStatus.NEEDS_REVIEW:
                self.resolve(self.what_is_possible(order))
            self.pass_time(7 * HOUR)

    def what_is_possible(self, order: StoredOrder) -> Resolution:
        """As `review list` shows it, and as the runbook says."""
        row = self.payments.read(ORDER_ID)
        is_of_other_money = row is not None and order.money_differs_from(row)
        if row is None or row.state is not PaymentState.NEEDS_REVIEW:
            return Resolution.CANCEL if is_of_other_money else Resolution.RETRY
        if any(each.amount == row.amount_minor for each in self.stripe.charges):
            return Resolution.PAID
        if self.stripe.charges:
            self.refund_all()
            return Resolution.CANCEL
        is_canceled = any(map(_is_canceled_by_customer, self.stripe.intents)) or row.cancel_requested_at is not None
        return Resolution.CANCEL if is_canceled or is_of_other_money else Resolution.RETRY

    def refund_all(self) -> None:
        """A person refunds in the Dashboard what no order that is there has cost."""
        for charge in self.stripe.charges:
            left = charge.amount - self.stripe.refunded(charge.id)
            if left:
                self.stripe.refund_in_dashboard(charge.id, left)
                self._note(f"{charge.id} is refunded in full by hand", "refunded in full")

    def restore(self) -> None:
        """`ops restore outcomes`."""
        checkpoints = CheckpointStore(self.dynamodb, PAYMENTS_STATE, ReconcileCheckpoint)
        checkpoint = checkpoints.read()
        assert checkpoint is not None  # reconciler_has_run
        checkpoints.write(checkpoint.reading_since(T0))
        page, _ = self.emit_page(self.payments, self.orders, after=None, now=self.clock())
        result = page[0][1] if page else "nothing"
        self._note(f"restore: {result}", f"restore: {result}")
        self.run_until_idle()

    # ------------------------------------------------------------ invariants

    @property
    def _order(self) -> StoredOrder | None:
        item = self.dynamodb.tables.get(ORDERS, {}).get((ORDER_ID,))
        return StoredOrder.from_item(item) if item else None

    def check(self) -> None:
        """Never charged twice."""
        if len(self.stripe.charges) > 1:
            raise Violation(f"charged {len(self.stripe.charges)} times", self.timeline)

    def check_what_waits(self) -> None:
        """Nobody has restored anything yet: one service that is older catches up with what waits.

        Only an order of other money than its unfinished payment waits for a person, with an alarm: its message charges
        nothing.
        """
        order, row = self._order, self.payments.read(ORDER_ID)
        is_of_other_money = order is not None and row is not None and order.money_differs_from(row)
        waits_for_person = is_of_other_money and Cause.OVERDUE in self.alarms
        is_left = order is None or (order.status in WAITING and not waits_for_person)
        if is_left and len(self.lost) < len(self.versions):
            raise Violation(f"the order is left {order and order.status}, until a person restores", self.timeline)
        is_ended = any(each.status == "succeeded" or _is_canceled_by_customer(each) for each in self.stripe.intents)
        names_none = row is not None and row.payment_intent_id is None
        if row is not None and row.state is PaymentState.PENDING and names_none and is_ended:
            raise Violation("the payment's row is left PENDING, though Stripe shows its end", self.timeline)

    def check_the_end(self) -> None:
        """The order is what Stripe says, and waits for nothing."""
        order = self._order
        if order is None:
            raise Violation("the order is lost", self.timeline)
        self.coverage[f"ended: {order.status}"] += 1
        if order.status in WAITING:
            raise Violation(f"the order is left {order.status}", self.timeline)
        if order.status is OrderStatus.NEEDS_REVIEW:
            raise Violation("the order needs review, and nobody can end it", self.timeline)
        paid = [each for each in self.stripe.charges if each.amount == order.amount_minor]
        kept = [each for each in paid if self.stripe.refunded(each.id) < each.amount]
        if (order.status is OrderStatus.PAID and not paid) or (order.status is not OrderStatus.PAID and kept):
            raise Violation(f"the order is {order.status}, with {len(paid)} charges", self.timeline)
        is_known = Cause.MONEY_DIFFERS in self.alarms or any(
            each["status"]["S"] == OrderStatus.NEEDS_REVIEW for each in self.versions[ORDERS]
        )
        if len(self.stripe.charges) > len(paid) and not is_known:
            raise Violation("what another cart has paid is there, and nobody knows", self.timeline)
        row = self.payments.read(ORDER_ID)
        if row is not None and row.state is PaymentState.PENDING:
            raise Violation("the payment's row is left PENDING", self.timeline)
        refunded = self.stripe.refunded(paid[0].id) if paid else 0
        is_of_it = row is not None and not order.money_differs_from(row)
        if order.status is OrderStatus.PAID and is_of_it and order.stripe_refunded_minor != refunded:
            told = f"{refunded} is refunded, and the order says {order.stripe_refunded_minor}"
            raise Violation(told, self.timeline)


def _is_canceled_by_customer(intent: PaymentIntent) -> bool:
    return intent.cancellation_reason == "requested_by_customer"


def seam_world(
    number: int, mutate: Callable[[SeamWorld], None] = lambda world: None, *, of: str | None = None, seed: int = 0
) -> SeamWorld:
    """The schedule of this number, of one scenario or of all in turn."""
    names = [of] if of else list(SCENARIOS)
    return SeamWorld(SCENARIOS[names[number % len(names)]], SeededChoices(seed * 1_000_003 + number), mutate)
