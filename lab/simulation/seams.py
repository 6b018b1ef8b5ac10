"""The seams between the two services: one order, its payment, and the events between them, from choices.

The code that runs is the deployed code: the API's writes, the mapping of publish_events, charge_order, update_order,
republish, reconcile, `ops restore rows` and `ops release`, over DynamoDB in memory and Stripe in process. Each
delivery runs as a whole; world.py interleaves them. Faults lie in between: events are lost, late and repeated; either
service's item is lost, or is an older version of itself; the client uses its key again, for the same cart or another.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import stripe
from botocore.exceptions import BotoCoreError, ClientError

from lab.simulation.choices import SeededChoices
from lab.simulation.service import ORDERS, AlarmLog, SimulatedPayments
from lab.simulation.world import BaseWorld, Violation
from onecharge.contract.events import Event, EventType, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.ids import order_id_of
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.republication import RepublishCheckpoint
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.orders.transitions import WAITING
from onecharge.payments.charge_rows import PaymentStore
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.consumer import Done, RetryAfter
from onecharge.runtime.dynamodb import ReadsThrottled
from onecharge.runtime.http_api import Problem
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import one_after_another
from ops.errors import Problem as OperatorProblem
from ops.release import Blocked
from ops.restore import Mending
from orders_api.cancel_order import request_cancellation
from orders_api.pay_again import PaymentRequest, make_attempt
from orders_api.place_order import OrderRequest, store_order
from publish_events.mapping import order_event_from_item, payment_outcome_from_item
from republish.republish import Republisher
from republish.waiting import waiting_orders
from tests.shop.builders import BOUNDS, DAY, INDEXES, PAYMENTS, SHOP, T0, TABLES
from tests.shop.dynamodb import Item, MemoryDynamoDB
from tests.shop.stripe import ShopStripe, client_of
from tests.support.silent import SILENT
from update_order.orders import update_order

HOUR = 3600
ORDER_REFUNDS, ORDERS_STATE = "OrderRefunds", "OrdersState"
CUSTOMER, KEY = "cus_1", "key"
ORDER_ID = order_id_of(SHOP, CUSTOMER, KEY)
CARTS_MINOR = (1_000, 999_000)
_CARDS = ("pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required")
_STEPS = 60
_DELIVERIES_MAX, _DELIVERIES_OF_A_JOB = 2_000, 50
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
    """Stripe refuses requests as invalid for a while, until the order is held."""
    clock_ahead_seconds: int = 0
    """How far our clock is ahead of Stripe's."""
    fault_probability: float = 0.02
    lost_records: float = 0.1


SCENARIOS: Mapping[str, SeamScenario] = {
    "orders lost": SeamScenario(lose_orders=True, other_carts=True),
    "orders older": SeamScenario(older_orders=True),
    "payments lost": SeamScenario(lose_payments=True),
    "payments older": SeamScenario(older_payments=True),
    "refused for days": SeamScenario(refuses=True),
    "refused for days, payments lost and older": SeamScenario(refuses=True, lose_payments=True, older_payments=True),
    "refused for days, orders older": SeamScenario(refuses=True, older_orders=True, clock_ahead_seconds=2400),
}
"""Each of them once. Not both services lose the order: that is a limit of the protocol."""


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
        of_orders = {ORDERS: ("order_id",), ORDER_REFUNDS: ("order_id", "refund_id"), ORDERS_STATE: ("name",)}
        keys = {**TABLES, **of_orders}
        memory: Any = MemoryDynamoDB(keys=keys, indexes=indexes, io=self)
        self.dynamodb = memory
        self.stripe = ShopStripe(self)
        self.service = SimulatedPayments(self.dynamodb, client_of(self.stripe), self.clock, AlarmLog(self.alarmed))
        self.service.read_events_again(T0)
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
        self.mends: Any = Mending.orders
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

    def alarmed(self, cause: str, about: Mapping[str, Any]) -> None:
        """A log line has raised an alarm."""
        self.alarms.add(cause)
        self.met(f"alarm: {cause}")

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Let anything happen, then nothing wrong any more; raises Violation when an invariant breaks."""
        self.place(0)
        for _ in range(_STEPS):
            self.steps += 1
            self.time += 1
            self.step()
            self.check()
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
            *(self.reconcile, self.let_the_bank_decide, self.refund_by_hand, self.release),
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
                self.orders, SHOP, CUSTOMER, wanted, KEY, price_of=lambda *_: [price], correlation_id="c", now=at
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

    def release(self) -> None:
        """The operator's command."""
        try:
            command = self.service.release(self.orders, client_of(self.stripe))
            rows = command.held(command.stripe_now())
            seen = replace(command, has_looked=True).look(rows)  # There is one account.
            for row in rows:
                self._note(command.release(row, seen), "released")
        except Blocked as blocked:
            self._note(f"blocked: {blocked}", "release: blocked")
        except (OperatorProblem, stripe.StripeError, BotoCoreError, ClientError) as error:
            self.met(f"release: {type(error).__name__}")

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
        item = self.versions[table][number]
        # As `ops restore copy` writes it.
        self.dynamodb.tables.setdefault(table, {})[ORDER_ID,] = {
            each: item[each] for each in item if each != "released_at"
        }
        self.disturbed(table)
        self._note(f"{table}: is what it was, version {number}", f"{table} older")

    def disturbed(self, table: str) -> None:
        self.lost.add(table)

    # ------------------------------------------------------------ the end

    def run_until_idle(self) -> None:
        for number in range(_DELIVERIES_MAX):
            if not self.queue:
                return
            if number % _DELIVERIES_OF_A_JOB == _DELIVERIES_OF_A_JOB - 1:
                # A message that waits for the customer comes back until 3-D Secure has expired.
                self.reconcile()
            message = min(self.queue, key=lambda each: each.visible_at)
            self.pass_time(max(0, message.visible_at - self.time))
            self.deliver(message)
            self.check()
        raise Violation("the schedule does not come to an end", self.timeline)

    def come_to_rest(self) -> None:
        """Nothing goes wrong any more: the client comes again, a person restores and resolves, the jobs run."""
        self.faults_on, self.stripe.refuses_until = False, 0
        if self._order is None:
            self.use_the_key_again()
        self.run_until_idle()
        self.let_jobs_run(_ROUNDS_MAX)
        order = self._order
        if self.is_priced_anew():
            self.end_by_hand()
        elif len(self.lost) < len(self.versions) and (order is None or order.status in WAITING):
            # If only one service's table is older, the other one's word ends what waits.
            raise Violation(f"the order is left {order and order.status}, until a person restores", self.timeline)
        if self.lost or self.is_untold:
            self.restore()
            self.let_jobs_run(_ROUNDS_MAX)

    def let_jobs_run(self, rounds: int) -> None:
        """And the operator comes."""
        for _ in range(rounds):
            self.pass_time(HOUR)
            self.republish()
            self.run_until_idle()
            self.reconcile()
            self.run_until_idle()
            self.release()
            self.run_until_idle()
            self.pass_time(7 * HOUR)

    def end_by_hand(self) -> None:
        """As the alarm says: a person refunds what the other money has paid, or cancels the order."""
        for charge in self.stripe.charges:
            left = charge.amount - self.stripe.refunded(charge.id)
            if left:
                self.stripe.refund_in_dashboard(charge.id, left)
                self._note(f"{charge.id} is refunded in full by hand", "refunded in full")
        at = datetime.fromtimestamp(self.clock(), UTC)
        self._ask("canceled by hand", lambda: request_cancellation(self.orders, CUSTOMER, ORDER_ID, now=at))
        self.let_jobs_run(_ROUNDS_MAX)

    def restore(self) -> None:
        """`ops restore rows`."""
        self.service.read_events_again(T0)
        refunds = OrderRefundStore(self.dynamodb, ORDER_REFUNDS, ORDERS)
        command = self.service.release(self.orders, client_of(self.stripe))
        found = list(self.mends(Mending(command, refunds, self.service.tools(BOUNDS))))
        result = found[0].what if found else "nothing"
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

    def is_priced_anew(self) -> bool:
        """Whether the order that was lost and placed again has other money than its payment: a person decides."""
        order, row = self._order, self.payments.read(ORDER_ID)
        return order is not None and row is not None and order.money_differs_from(row.request)

    def check_the_end(self) -> None:
        """The order is what Stripe says, and waits for nothing."""
        order = self._order
        if order is None:
            raise Violation("the order is lost", self.timeline)
        self.coverage[f"ended: {order.status}"] += 1
        if order.status in WAITING:
            raise Violation(f"the order is left {order.status}", self.timeline)
        paid = [each for each in self.stripe.charges if each.amount == order.amount_minor]
        kept = [each for each in paid if self.stripe.refunded(each.id) < each.amount]
        if (order.status is OrderStatus.PAID and not paid) or (order.status is not OrderStatus.PAID and kept):
            raise Violation(f"the order is {order.status}, with {len(paid)} charges", self.timeline)
        is_known = Cause.MONEY_DIFFERS in self.alarms
        if len(self.stripe.charges) > len(paid) and not is_known:
            raise Violation("what another cart has paid is there, and nobody knows", self.timeline)
        row = self.payments.read(ORDER_ID)
        # A row that was put back may stay unfinished beside an order that has ended: no message names it any more.
        if row is not None and row.state is PaymentState.PENDING and PAYMENTS not in self.lost:
            raise Violation("the payment's row is left PENDING", self.timeline)
        refunded = self.stripe.refunded(paid[0].id) if paid else 0
        is_of_it = row is not None and not order.money_differs_from(row.request)
        if order.status is OrderStatus.PAID and is_of_it and order.stripe_refunded_minor != refunded:
            told = f"{refunded} is refunded, and the order says {order.stripe_refunded_minor}"
            raise Violation(told, self.timeline)


def seam_world(
    number: int, mutate: Callable[[SeamWorld], None] = lambda world: None, *, of: str | None = None, seed: int = 0
) -> SeamWorld:
    """The schedule of this number, of one scenario or of all in turn."""
    names = [of] if of else list(SCENARIOS)
    return SeamWorld(SCENARIOS[names[number % len(names)]], SeededChoices(seed * 1_000_003 + number), mutate)
