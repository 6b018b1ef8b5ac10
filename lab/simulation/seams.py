"""The seams between the two services: one order, its payment, and the events between them, from choices.

Each delivery and each job runs as a whole; world.py and refunding.py interleave them. Faults lie in between: events are
lost, late and repeated; either service's item is lost, or is an older version of itself; the client uses its key again,
for the same cart or another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from lab.simulation.both_services import BothServicesWorld
from lab.simulation.service import ORDERS
from lab.simulation.world import OPERATOR_BOUNDS, Scenario, Violation
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.ids import order_id_of
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder
from onecharge.orders.transitions import WAITING
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import Disposition, Done
from ops.restore import Mending
from orders_api.cancel_order import request_cancellation
from orders_api.pay_again import PaymentRequest, make_attempt
from orders_api.place_order import OrderRequest, store_order
from stripe_standin.payment_intents import PaymentIntent
from tests.shop.builders import DAY, HOUR, PAYMENTS, SHOP, T0
from tests.shop.dynamodb import Item

CUSTOMER, KEY = "cus_1", "key"
ORDER_ID = order_id_of(SHOP, CUSTOMER, KEY)
CARTS_MINOR = (1_000, 999_000)
_CARDS = ("pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required")
_STEPS, _ROUNDS_MAX, _UPDATES_RECEIVED_MAX = 60, 12, 5
_WAITS_SECONDS = (1, 60, 20 * 60, 2 * HOUR, DAY)


@dataclass(frozen=True)
class SeamScenario(Scenario):
    """What may go wrong."""

    orders: tuple[tuple[str, ...], ...] = ()
    fault_probability: float = 0.02
    reconciles: bool = True
    loses: tuple[str, ...] = ()  # Tables that may lose the order.
    puts_back: tuple[str, ...] = ()  # Tables whose item may be an older version of itself.
    other_carts: bool = False
    refuses: bool = False  # Stripe refuses requests as invalid for a while, until the order is held.


SCENARIOS: Mapping[str, SeamScenario] = {
    "orders lost": SeamScenario(loses=(ORDERS,), other_carts=True),
    "orders older": SeamScenario(puts_back=(ORDERS,)),
    "payments lost": SeamScenario(loses=(PAYMENTS,)),
    "payments older": SeamScenario(puts_back=(PAYMENTS,)),
    "refused for days": SeamScenario(refuses=True),
    "refused for days, payments lost and older": SeamScenario(refuses=True, loses=(PAYMENTS,), puts_back=(PAYMENTS,)),
    "refused for days, orders older": SeamScenario(refuses=True, puts_back=(ORDERS,), clock_skew_seconds=2400),
}
"""Each of them once. Not both services lose the order: that is a limit of the protocol."""


class SeamWorld(BothServicesWorld):
    """A schedule of one order, from its placement on."""

    scenario: SeamScenario

    def prepare(self) -> None:
        super().prepare()
        self.disturbed_tables: set[str] = set()  # Those that have lost the order, or had an older one put back.
        self.is_untold = False  # An outcome was lost that nothing but `ops restore` emits again.
        self.keys_used = 0
        # What mutants break.
        self.mends: Any = Mending.orders
        self.counts_revisions = False

    # ------------------------------------------------------------ what the clients see

    def pause(self, where: str) -> None:
        """Nobody else runs meanwhile."""

    def confirms(self, intent: PaymentIntent, key: str) -> None:
        """World's invariants of rows do not know that tables are put back."""

    def handle(self, event: Any) -> Disposition:
        try:
            return super().handle(event)
        except NoSuchOrder:
            message = self.current and self.current.message
            if message and message.receives < _UPDATES_RECEIVED_MAX:
                raise
            return Done()  # It ends in the DLQ.

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if table == PAYMENTS and new is not None and self.counts_revisions:
            new["revision"] = {"N": str(int(old["revision"]["N"]) + 1 if old else 1)}
        if new != old:
            super().wrote(table, old, new)

    def _note(self, what: str, fault: str = "") -> None:
        super()._note(what, fault)
        # republish asks only for what waits; of anything else a person has to know.
        if fault == "record lost":
            waits = self._order is not None and self._order.status in WAITING
            self.is_untold |= not waits or ":succeeded:" in what  # One before it may come.

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Let anything happen, then nothing wrong any more; raises Violation when an invariant breaks."""
        self.place(0)
        for _ in range(_STEPS):
            self.time += 1
            if any(each.visible_at <= self.time for each in self.queue) and self.choices.pick(3):
                self.step()
            else:
                self.act()
            self.finish()
            self.steps += 1
            self.check()
        self.come_to_rest()
        self.check_the_end()

    def _let_others_act(self) -> None:
        """They act between the deliveries."""

    def act(self) -> None:
        """Something that a client, a bank, a job, a person or bad luck does."""
        acts: Sequence[Callable[[], object]] = (
            *(self.wait, self.wait, self.place_again, self.pay_again, self.cancel, self.republish, self.come_again),
            *(self.reconcile, self.let_the_bank_decide, self.refund_by_hand, self.operate),
            *(self.go_wrong, self.go_wrong),
        )
        self.one_of(acts)()

    def wait(self) -> None:
        self.pass_time(self.one_of(_WAITS_SECONDS))

    # ------------------------------------------------------------ the client

    def _ask(self, what: str, send: Callable[[datetime], object]) -> None:
        self.run_for(what, lambda: send(datetime.fromtimestamp(self.clock(), UTC)))
        self.finish()

    def place(self, cart: int) -> None:
        """POST /orders, with the one key."""
        card, price = self.one_of(_CARDS), CARTS_MINOR[cart]
        body = {"currency": "EUR", "payment_method": card, "items": [{"sku": "mug", "quantity": 1}], "amount": price}
        wanted, request = OrderRequest.model_validate(body), SimpleNamespace(subject=CUSTOMER, correlation_id="c")
        given: dict[str, Any] = {"orders": self.order_store, "shop": SHOP, "price_of": lambda *_: [price]}
        self._ask(
            f"cart {cart} is ordered",
            lambda now: store_order(request, SimpleNamespace(clock=lambda: now, **given), wanted, KEY),  # type: ignore[arg-type]
        )

    def place_again(self) -> None:
        self.place(self.choices.pick(2) if self.scenario.other_carts else 0)

    def pay_again(self) -> None:
        wanted = PaymentRequest(payment_method=self.one_of(_CARDS))
        self.keys_used += self.choices.pick(2)  # Or the same request once more.
        key = f"key {self.keys_used}"
        self._ask("paid again", lambda now: make_attempt(self.order_store, CUSTOMER, ORDER_ID, wanted, key, now=now))

    def cancel(self, probability: float = 0.05) -> None:
        if self.choices.happens(probability):
            self._ask("cancellation", lambda now: request_cancellation(self.order_store, CUSTOMER, ORDER_ID, now=now))

    # ------------------------------------------------------------ people, and what goes wrong

    def let_the_bank_decide(self) -> None:
        for intent in self.stripe.intents:
            if intent.status == "requires_action" and self.choices.happens(0.5):
                self.stripe.bank_decides(intent, pays=self.choices.pick(2) == 0)
                self._note(f"the bank decides: {intent.id} is {intent.status}", fault="3-D Secure decided")

    def refund_by_hand(self) -> None:
        """In the Dashboard; Stripe's event says so."""
        for charge in self.stripe.charges:
            if self.stripe.refunded(charge.id) + 100 <= charge.amount and self.choices.happens(0.5):
                is_pending = self.choices.pick(2) == 1  # Then it may fail.
                self.stripe.refund_in_dashboard(charge.id, 100, is_pending=is_pending)
                self._note(f"{charge.id} is refunded by hand", fault="refunded by hand")

    def go_wrong(self) -> None:
        if self.scenario.refuses and self.choices.happens(0.3):
            self.stripe.refuses_until = 0 if self.stripe.refuses_until else self.time + 365 * DAY
            self._note(f"requests are refused until {self.stripe.refuses_until}", fault="requests refused")
        ways = [
            *((each, "lost") for each in self.scenario.loses),
            *((each, "older") for each in self.scenario.puts_back),
        ]
        if not ways or not self.choices.happens(0.3):
            return
        table, how = self.one_of(ways)
        places = [place for place, (of, *_) in enumerate(self.writes, start=1) if of == table]
        if not places or (how == "lost" and not self.dynamodb.tables[table]):
            return
        until = 0 if how == "lost" else self.one_of(places)
        self.put_back({table: until})
        self.disturbed_tables.add(table)
        self._note(f"{table}: what it was after {until} writes", fault=f"{table} {how}")

    # ------------------------------------------------------------ the end

    def come_to_rest(self) -> None:
        """Nothing goes wrong any more: the client comes again, a person restores and resolves, the jobs run."""
        self.faults_on, self.stripe.refuses_until = False, 0
        if self._order is None:
            self.place_again()
        self.run_until_idle()
        self.let_jobs_run()
        order = self._order
        if self.is_priced_anew():
            self.end_by_hand()
        elif len(self.disturbed_tables) < 2 and (order is None or order.status in WAITING):
            # If only one service's table is older, the other one's word ends what waits.
            raise Violation(f"the order is left {order and order.status}, until a person restores", self.timeline)
        if self.disturbed_tables or self.is_untold:
            self.restore()
            self.let_jobs_run()

    def let_jobs_run(self) -> None:
        """And the operator comes."""
        for _ in range(_ROUNDS_MAX):
            self.pass_time(HOUR)
            for job in (self.republish, self.reconcile, self.operate):
                job()
                self.run_until_idle()
            self.pass_time(7 * HOUR)

    def end_by_hand(self) -> None:
        """As the alarm says: a person refunds what the other money has paid, or cancels the order."""
        for charge in self.stripe.charges:
            if left := charge.amount - self.stripe.refunded(charge.id):
                self.stripe.refund_in_dashboard(charge.id, left)
                self._note(f"{charge.id} is refunded in full by hand", fault="refunded in full")
        self.cancel(1)
        self.let_jobs_run()

    def restore(self) -> None:
        """`ops restore rows`."""
        self.service.read_events_again(T0)
        command = self.service.release(self.order_store, self.service.stripe.client)
        found = list(self.mends(Mending(command, self.refund_store, self.service.tools(OPERATOR_BOUNDS))))
        result = found[0].what if found else "nothing"
        self._note(f"restore: {result}", fault=f"restore: {result}")
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
        order, row = self._order, self.service.store.read(ORDER_ID)
        return order is not None and row is not None and order.money != row.request.money

    def check_the_end(self) -> None:
        """The order is what Stripe says, and waits for nothing."""
        order, row = self._order, self.service.store.read(ORDER_ID)
        if order is None:
            raise Violation("the order is lost", self.timeline)
        self.coverage[f"ended: {order.status}"] += 1
        if order.status in WAITING:
            raise Violation(f"the order is left {order.status}", self.timeline)
        paid = [each for each in self.stripe.charges if each.amount == order.amount_minor]
        kept = [each for each in paid if self.stripe.refunded(each.id) < each.amount]
        if (order.status is OrderStatus.PAID and not paid) or (order.status is not OrderStatus.PAID and kept):
            raise Violation(f"the order is {order.status}, with {len(paid)} charges", self.timeline)
        is_known = any(Cause.MONEY_DIFFERS in causes for causes in self.alarms.values())
        if len(self.stripe.charges) > len(paid) and not is_known:
            raise Violation("what another cart has paid is there, and nobody knows", self.timeline)
        # A row that was put back may stay unfinished beside an order that has ended: no message names it any more.
        if row is not None and row.state is PaymentState.PENDING and PAYMENTS not in self.disturbed_tables:
            raise Violation("the payment's row is left PENDING", self.timeline)
        refunded = self.stripe.refunded(paid[0].id) if paid else 0
        is_of_it = row is not None and order.money == row.request.money
        if order.status is OrderStatus.PAID and is_of_it and order.stripe_refunded_minor != refunded:
            told = f"{refunded} is refunded, and the order says {order.stripe_refunded_minor}"
            raise Violation(told, self.timeline)
