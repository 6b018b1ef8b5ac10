"""Refunds of an order that is paid, from the staff's request to the order's sums: both services, and Stripe.

    POST refunds ─► OrderRefunds ─► refund_charge ─► Stripe ─► outcome ─► update_order ─► Orders
                                       Stripe's events ─► webhook, reconcile ─┘

All of it is the deployed code, interleaved at every boundary (world.py). Messages come late, twice and in any order;
people refund by hand, banks return and dispute, hours pass at any step, and tables are put back from a backup.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from lab.simulation.both_services import ORDER_REFUNDS, BothServicesWorld
from lab.simulation.service import ORDERS
from lab.simulation.world import DISPUTES, OPERATOR_BOUNDS, Scenario, Violation
from onecharge.contract.events import Event
from onecharge.contract.refund_events import RefundRequestedEvent, RefundState, is_refundable_despite
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.refund_store import left_minor
from onecharge.orders.schema import StoredOrder
from onecharge.payments.disputes import Dispute
from onecharge.payments.stripe_responses import Deferred
from onecharge.runtime.alarms import RowMissing
from onecharge.runtime.consumer import BackOff, Disposition, Done
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.queues import Delivery
from ops.restore import Mending
from orders_api.refund_order import RefundRequest, request_refund
from stripe_standin.refunds import Refund
from tests.shop.builders import AMOUNT_MINOR, DAY, HOUR, ORDER_ID, PAYMENT_INTENT, PAYMENTS, T0, charged, order, paid
from tests.shop.dynamodb import Item
from tests.shop.stripe import REFUND_FAULTS

WORKER_LIVES_SECONDS = 840
FAULTS = REFUND_FAULTS - {"500, executed a day later", "500, executed two days later", "502, executed 20 hours later"}
"""What Stripe executes late it has stored under the key, and executes within 23 hours."""
_AMOUNTS_MINOR = (400, 400, 100, None)
"""None is all that is left: under the same key another amount, once an order is put back. That is an alarm."""
_PAUSES_SECONDS = (5, 40, 300, 1200, 5 * HOUR, 23 * HOUR)
"""What may pass at any step."""
_REQUESTS_MAX, _EVENTS_MAX, _AGAIN_MAX, _ROUNDS_MAX = 7, 24, 12, 40


@dataclass(frozen=True)
class RefundScenario(Scenario):
    """What may go wrong, beside what may always go wrong."""

    orders: tuple[tuple[str, ...], ...] = ()
    fault_probability: float = 0.05
    crash_probability: float = 0.02
    jump_probability: float = 0.05
    redeliveries: int = 2
    waits_seconds: tuple[int, ...] = (1200, HOUR, 5 * HOUR, 25 * HOUR)
    webhooks: bool = True
    zombies: bool = True
    clock_skew_seconds: int = 2400
    stripe_faults: frozenset[str] | None = FAULTS
    acts: tuple[str, ...] = ()  # What people, banks and Stripe do: methods of RefundWorld.
    acts_probability: float = 0.02
    again_probability: float = 0.02  # Of a message coming once more, although it was acknowledged.
    refund_fault_probability: float = 0.1  # Of a request that refunds.
    lag_seconds: int = 0  # How long Stripe's list may lack a refund.
    puts_back: frozenset[str] = frozenset()  # Tables that are put back from one backup.


_PEOPLE = ("refund_by_hand", "bank_returns", "hold", "dispute")
_CALM: dict[str, Any] = {
    "fault_probability": 0.01,
    "crash_probability": 0.01,
    "jump_probability": 0.01,
    "acts_probability": 0.06,
    "redeliveries": 1,
}
_UNCLEAR = frozenset({"502, executed 20 hours later", "500, executed 23 hours later", "drop after"})
SCENARIOS: Mapping[str, RefundScenario] = {
    "faults": RefundScenario(),
    "people and banks": RefundScenario(acts=_PEOPLE),
    "by hand": RefundScenario(
        acts=("refund_by_hand",), **{**_CALM, "acts_probability": 0.03, "redeliveries": 4}, again_probability=0
    ),
    "banks return": RefundScenario(acts=("bank_returns", "hold", "refund_by_hand"), **_CALM, again_probability=0.08),
    "disputes": RefundScenario(acts=("fight", "dispute"), **_CALM),
    "late 500s, and a list that lags": RefundScenario(
        acts=("bank_returns", "refund_by_hand"),
        lag_seconds=2 * HOUR,
        refund_fault_probability=0.5,
        stripe_faults=frozenset({"500, executed 23 hours later", "500 after", "drop after"}),
    ),
    "another account": RefundScenario(wrong_account_probability=0.04, acts=_PEOPLE),
    "refused, after requests without an answer": RefundScenario(
        acts=("fight", "fight", "refund_by_hand", "bank_returns"),
        **_CALM,
        refund_fault_probability=0.4,
        stripe_faults=_UNCLEAR,
        again_probability=0.05,
    ),
    "both order tables put back": RefundScenario(acts=("bank_returns",), puts_back=frozenset({ORDERS, ORDER_REFUNDS})),
    "the order put back": RefundScenario(acts=("bank_returns",), puts_back=frozenset({ORDERS})),
    "its refunds put back": RefundScenario(acts=("bank_returns",), puts_back=frozenset({ORDER_REFUNDS})),
    "the payment put back": RefundScenario(acts=("bank_returns",), puts_back=frozenset({PAYMENTS})),
}
"""Each of them once."""


class RefundWorld(BothServicesWorld):
    """A schedule of one paid order's refunds."""

    STEPS_MAX: ClassVar[int] = 50_000
    ZOMBIE_SECONDS: ClassVar[int] = WORKER_LIVES_SECONDS
    scenario: RefundScenario

    def prepare(self) -> None:
        super().prepare()
        self.amounts: dict[str, int | None] = {}  # What was requested under each idempotency key.
        self.refused: set[str] = set()  # The refunds of which was told that Stripe has refused them.
        self.by_hand: dict[int, int] = {}  # By the row's revision: what its total has of others' refunds, at least.
        self.is_put_back = False
        self.seen: tuple[int, ...] = ()
        self.stripe.behavior.stores_refused_refunds = self.choices.happens(0.5)
        self.stripe.lag_seconds = self.scenario.lag_seconds
        charged(self.stripe)
        self.charges_seen, self.unsent = len(self.stripe.charges), len(self.stripe.events)
        self.acknowledged.update(each["id"] for each in self.stripe.events)
        paid_at = to_item({"finalized_at": T0 - DAY})
        for table, item in ((PAYMENTS, paid() | paid_at), (ORDERS, _paid_order())):
            self.dynamodb.tables[table] = {(ORDER_ID,): item}
            self.writes.append((table, (ORDER_ID,), item))
        self.service.publish = self._publish
        # What mutants break.
        self.find_order = lambda order_id: self.order_store.find(order_id)

    # ------------------------------------------------------------ the two services

    def handle(self, event: Any) -> Disposition:
        assert self.current
        is_request = isinstance(event, RefundRequestedEvent)
        is_overdue = is_request and self.clock() - event.data.requested_at.timestamp() >= HOUR
        try:
            found = super().handle(event)
        except RowMissing:
            if self.faults_on or not self.is_put_back:
                raise
            return Done()  # It ends in the DLQ: the order service has lost the refund.
        if is_overdue and isinstance(found, BackOff) and not self.current.has_alarmed:
            self.broken = "a refund waits for more than an hour, and nobody knows"
        return found

    def _publish(self, event: Any) -> None:
        """SNS, for the payment service."""
        self.pause("sns Publish")
        if self.fault("sns Publish", ("refused",)):
            raise Deferred("SNS does not accept it")
        told = event.data
        if told.stripe_refund_id is None:
            self.refused.add(told.refund_id)
        self._note(f"told: {told.refund_id[-4:]} {event.type}, {told.amount_refunded_minor} at {told.revision - T0}")
        self._send(event.model_dump_json())
        self.pause("sns Publish answered")

    def fault_probability(self, where: str) -> float:
        return (
            self.scenario.refund_fault_probability
            if where == "stripe create refund"
            else super().fault_probability(where)
        )

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        """A message that waits for a day is delivered less often than in truth: each delivery takes time here, too."""
        super().change_visibility(delivery, seconds * (1 if delivery.receive_count < 8 else 8))

    def may_lose(self, event: Event) -> bool:
        return isinstance(event, RefundRequestedEvent)

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        super().wrote(table, old, new)
        if table == PAYMENTS and new:
            ours = sum(each.amount for each in self.stripe.refunds if each.metadata.get("refund_id"))
            self.by_hand[_number(new, "revision")] = max(0, _number(new, "amount_refunded_minor") - ours)
        if table == ORDER_REFUNDS and old is None:
            disputed = self._order.get("dispute_status", {}).get("S")
            if disputed and not is_refundable_despite(disputed):
                self.broken = "a refund of a disputed payment was accepted"
            if not self.is_put_back and self._is_quiet() and self._owed() > AMOUNT_MINOR:
                self.broken = "more was accepted than Stripe had left"

    def ask(self) -> None:
        """POST refunds, under a new key or one that was used."""
        number = self.choices.pick(min(len(self.amounts) + 1, _REQUESTS_MAX))
        key = f"key {number}"
        amount = _AMOUNTS_MINOR[self.choices.pick(3 if self.scenario.puts_back else 4)]
        wanted = RefundRequest(amount=self.amounts.setdefault(key, amount))
        request: Any = SimpleNamespace(subject="s", correlation_id="c")
        deps: Any = SimpleNamespace(find_order=self.find_order, refunds=self.refund_store, clock=self._utc)
        self.run_for("refund", lambda: request_refund(request, deps, ORDER_ID, wanted, key))

    def _utc(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Deliver with faults, then without, until all is idle; raises Violation when an invariant breaks."""
        self.ask()
        self.ask()
        self.run_until_idle()
        for _ in range(self.scenario.redeliveries):
            self.pass_time(self.one_of(self.scenario.waits_seconds))
            for act in (self.ask, self.republish, self.reconcile, self.come_again):
                if self.choices.happens(0.5):
                    act()
            self.run_until_idle()
        self.faults_on, self.stripe.of_account, settles_at = False, 0, self.time
        for _ in range(_ROUNDS_MAX):
            self._send_what_is_not_acknowledged()
            self.republish()
            self.run_until_idle()
            if self.time > settles_at + DAY and not self.pending:
                break
            self.pass_time(7 * HOUR)
        self.reconcile()
        self.run_until_idle()
        self.check_the_end()
        told = [*dict.fromkeys(self.bodies)]
        while told:  # Each message once more, in any order.
            self._send(told.pop(self.choices.pick(len(told))))
        self.run_until_idle()
        self.check_the_end()

    def _stripe_sends(self, probability: float) -> bool:
        """Its events, in any order, late and repeated; when nothing else is left to do, all of them."""
        if self.unsent < len(self.stripe.events) and self.choices.happens(max(probability, 0.3)):
            self.send_webhook(self.stripe.events[self.unsent])
            self.unsent += 1
            return True
        return super()._stripe_sends(probability / 4) if self.faults_on else False

    def _let_others_act(self) -> None:
        super()._let_others_act()
        happens, scenario = self.choices.happens, self.scenario
        may_come_again = self.coverage["late duplicate"] < _AGAIN_MAX
        acts = {self.ask: 0.02, self.republish: 0.01, self.come_again: scenario.again_probability * may_come_again}
        for act, probability in acts.items():
            if happens(probability):
                act()
        if scenario.acts and len(self.stripe.events) < _EVENTS_MAX and happens(scenario.acts_probability):
            getattr(self, self.one_of(scenario.acts))()
        if scenario.puts_back and not self.is_put_back and happens(0.01):
            self.restore()
        if happens(0.01):
            seconds = self.one_of(_PAUSES_SECONDS)
            while self.workers and seconds >= WORKER_LIVES_SECONDS:  # Nobody lives so long.
                self._note(f"{self.workers[0].name} is killed", fault="killed at the time-out")
                self.crash(self.workers[0])
            self.pass_time(seconds, fault="delay")

    def refund_by_hand(self) -> None:
        if self.stripe.refund_in_dashboard(PAYMENT_INTENT, self.one_of((100, 400))):
            self._note("somebody refunds by hand", fault="by hand")

    def bank_returns(self) -> None:
        if made := [each for each in self.stripe.refunds if each.is_live]:
            returned = self.one_of(made)
            self._note(f"the bank returns {returned.id}", fault="bank returns")
            self.stripe.return_refund(returned)

    def hold(self) -> None:
        if made := [each for each in self.stripe.refunds if each.is_live]:
            held, reason = self.one_of(made), self.one_of((None, "insufficient_funds"))
            self._note(f"{held.id} is pending: {reason}", fault="held")
            self.stripe.hold_refund(held, reason)

    def dispute(self) -> None:
        self._dispute_is(self.one_of(DISPUTES))

    def fight(self) -> None:
        """A dispute is opened, or won."""
        self._dispute_is("won" if self._blocks() else "needs_response")

    def _dispute_is(self, status: str) -> None:
        self._note(f"the dispute is {status}", fault="disputed")
        self.stripe.dispute_is(PAYMENT_INTENT, status)

    def restore(self) -> None:
        """As the runbook says: nothing runs until `ops restore rows` has ended, longer than clocks differ."""
        until, tables = 2 + self.choices.pick(len(self.writes) - 1), self.scenario.puts_back
        for worker in list(self.workers):
            self.crash(worker)
        faults, self.faults_on = self.faults_on, False
        for message in [each for each in self.queue if "refund.requested" not in each.body]:
            self._receive(message)
            self.finish()
        self.pass_time(HOUR)
        self.is_put_back = True
        self.put_back(dict.fromkeys(tables, until))
        self._note(f"{sorted(tables)} are put back to write {until} of {len(self.writes)}", fault="put back")
        self.start("operator", self._restore, OPERATOR_BOUNDS)
        self.finish()
        self.faults_on = faults

    def _restore(self) -> None:
        tools = self.service.tools(OPERATOR_BOUNDS)
        command = self.service.release(self.order_store, self.service.stripe.client)
        mending = Mending(command, self.refund_store, tools)
        found = [
            *mending.row(ORDER_ID, [tools.fetch_intent(PAYMENT_INTENT)]),
            *mending.refunds_since(0),
            *mending.orders(),
        ]
        self.service.read_events_again(T0 - DAY)
        self._note(f"restored: {[each.what for each in found]}")

    # ------------------------------------------------------------ invariants

    @property
    def refunds(self) -> dict[tuple[str, ...], Item]:
        """The OrderRefunds table."""
        return self.dynamodb.tables.setdefault(ORDER_REFUNDS, {})

    def live(self, refund_id: str) -> list[Refund]:
        return [each for each in self.stripe.refunds if each.is_live and each.metadata.get("refund_id") == refund_id]

    def _blocks(self) -> bool:
        """Whether a dispute of the payment is open or lost."""
        return any(not is_refundable_despite(each.status) for each in self.stripe.disputes)

    def _is_quiet(self) -> bool:
        """Whether the order service has been told all that Stripe shows."""
        on_its_way = any("refund.requested" not in each.body for each in self.queue)
        works = any(each.message is None and not each.name.startswith("refund") for each in self.workers)
        return not (on_its_way or works) and all(each["id"] in self.acknowledged for each in self.stripe.events)

    def check(self) -> None:
        """Each refund once, none that was refused, and never more accepted than was paid."""
        super().check()
        queues: Any = self.stripe.events, self.writes, self.queue, self.workers, self.refused, self.acknowledged
        seen, self.seen = self.seen, tuple(map(len, queues))
        if seen == self.seen:
            return
        made = [each for each in self.stripe.refunds if each.is_live]
        ours = [each.metadata.get("refund_id") for each in made]
        for refund_id in {*ours} - {None}:
            if ours.count(refund_id) > 1:
                raise Violation("refunded twice", self.timeline)
            if refund_id in self.refused:
                raise Violation("told to be refused, and refunded", self.timeline)
        told = [each for each in made if each.metadata.get("refund_id") not in {None, *self.pending}]
        accepted = sum(self.pending.values()) + sum(each.amount for each in told)
        refunds = [*map(StoredRefund.from_item, self.refunds.values())]
        left = left_minor(StoredOrder.from_item(self._order), refunds)
        # Once one is returned, a total that is the same again may be made up of others.
        are_live = all(each.is_live or each.metadata.get("refund_id") for each in self.stripe.refunds)
        by_hand = self.by_hand.get(_number(self._order, "payment_revision"), 0) if are_live else 0
        if left + accepted + by_hand > AMOUNT_MINOR and not self.is_put_back:
            raise Violation(f"{left} is left, which was accepted before, or refunded by hand", self.timeline)
        if left > max(0, AMOUNT_MINOR - self._owed()) and self._is_quiet():
            raise Violation(f"{left} is left for the order, and less at Stripe", self.timeline)

    @property
    def pending(self) -> dict[str, int]:
        """The amount of each refund that waits."""
        items = {key[1]: item for key, item in self.refunds.items() if item["status"]["S"] == RefundState.PENDING}
        return {refund_id: _number(item, "amount_minor") for refund_id, item in items.items()}

    def _owed(self) -> int:
        """What Stripe has refunded, and what it still has to."""
        waits = sum(amount for refund_id, amount in self.pending.items() if not self.live(refund_id))
        return self.stripe.refunded(PAYMENT_INTENT) + waits

    @property
    def _order(self) -> Item:
        return self.dynamodb.tables[ORDERS][ORDER_ID,]

    def check_the_end(self) -> None:
        """The order says what Stripe shows, and nothing waits."""
        self.check()
        row = self.dynamodb.tables[PAYMENTS][ORDER_ID,]
        refunded, disputes = self.stripe.refunded(PAYMENT_INTENT), [each.status for each in self.stripe.disputes[::-1]]
        dispute = min(disputes, key=lambda each: Dispute("", each).took_nothing, default=None)
        ends: dict[str, tuple[Any, Any]] = {
            "the row's total": (_number(row, "amount_refunded_minor"), refunded),
            "the order's total": (_number(self._order, "stripe_refunded_minor"), refunded),
            "the order's dispute": (self._order.get("dispute_status", {}).get("S"), dispute),
        }
        for (_, refund_id), item in self.refunds.items():
            told = (item["status"]["S"], "stripe_refund_id" in item)
            made = [each for each in self.stripe.refunds if each.metadata.get("refund_id") == refund_id]
            live = [each for each in made if each.is_live]
            state = RefundState.SUCCEEDED if live else RefundState.FAILED
            ends[refund_id[-4:]] = told, (state, bool(made))
            self.met(f"ended: {state}{' at Stripe' if made and not live else ''}")
        for name, (says, shown) in ends.items():
            if says != shown:
                raise Violation(f"{name} is {says} in the end, and at Stripe {shown}", self.timeline)


def _number(item: Item, name: str) -> int:
    return int(item.get(name, {"N": "0"})["N"])


def _paid_order() -> Item:
    placed = order().model_dump(exclude={"placed_at"})
    at = datetime.fromtimestamp(T0 - DAY, UTC).isoformat()
    times = {"placed_at": at, "waiting_since": at, "paid_at": at}
    more = {"fingerprint": "f", "correlation_id": "c", "status": "PAID", "paid_attempt": 1, "payment_revision": 3}
    return to_item({**placed, **times, **more})
