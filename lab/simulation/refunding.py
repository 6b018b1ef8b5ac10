"""Refunds of an order that is paid: three are asked for, which together are what was paid.

Their messages and Stripe's events are delivered as in every schedule (world.py). Besides, hours pass at any step, rows
of refunds are lost or become older, the balance is too low, somebody refunds by hand, Stripe holds refunds, and banks
return them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.simulation.service import RowKey
from lab.simulation.world import Scenario, Violation, World
from onecharge.contract.refunds import RefundRequestedEvent, RefundState
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.runtime.consumer import Consumer, Disposition
from refund_charge.refund import refund_charge
from stripe_standin.refunds import Refund
from tests.shop.builders import (
    DAY,
    HOUR,
    ORDER_ID,
    PAYMENT_INTENT,
    PAYMENTS,
    REFUNDS,
    T0,
    charged,
    paid,
    requested,
)
from tests.shop.dynamodb import Item
from tests.shop.stripe import REFUND_FAULTS, ShopStripe, client_of
from tests.shop.tools import refund_tools_of
from tests.support.silent import SILENT

AMOUNTS_MINOR = (400, 400, 299)
"""Together all of the order's 1099."""
WORKER_LIVES_SECONDS = 50 * 60
"""Less than an hour, as the protocol assumes; far more than Lambda lets it."""
_EVENTS_MAX = 24
"""With this many events nobody refunds by hand, and no bank returns anything any more: each event is more work."""
_REFUSALS_REPLAYED_MAX = 20
"""Of workers that live: one that dies does not store what follows."""
_CRASHES = ("crash before the effect", "crash after the effect", "killed at the time-out")
FAULTS = REFUND_FAULTS - {"500, executed a day later", "500, executed two days later", "pending"}
"""What a request to Stripe may meet, wherever rows may be lost: nothing is executed once its key may be forgotten."""


def live(stripe: ShopStripe, refund_id: str) -> list[Refund]:
    """The refunds of this id that are not returned."""
    return [each for each in stripe.refunds if each.is_live and each.metadata.get("refund_id") == refund_id]


# ---------------------------------------------------------------- a schedule


@dataclass(frozen=True)
class RefundScenario(Scenario):
    """What may go wrong, beside what may always go wrong."""

    orders: tuple[tuple[str, ...], ...] = ()
    redeliveries: int = 2
    waits_seconds: tuple[int, ...] = (HOUR, 5 * HOUR, 25 * HOUR, 13 * DAY)
    webhooks: bool = True
    clock_skew_seconds: int = 300
    harsh_stripe: bool = True
    only_stripe_faults: frozenset[str] | None = FAULTS
    pause_probability: float = 0.02
    pauses_seconds: tuple[int, ...] = (5, 40, 20 * 60, 5 * HOUR, 25 * HOUR)
    """How much time may pass at any step."""
    banks_return: bool = False
    by_hand: bool = False
    """Somebody refunds at Stripe by hand, so that there is too little left."""
    holds: bool = False
    """Stripe holds refunds while the balance is too low, and sends them later."""


Break = Callable[["RefundWorld"], None]


class RefundWorld(World):
    """A schedule of one paid order's refunds."""

    STEPS_MAX: ClassVar[int] = 10_000
    """A refund whose key is spent is looked up for a day."""
    ZOMBIE_SECONDS: ClassVar[int] = WORKER_LIVES_SECONDS
    scenario: RefundScenario

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid()}
        charged(self.stripe)
        self.stripe.engine.behavior.stores_refused_refunds = self.choices.happens(0.5)
        self.charges_seen = len(self.stripe.charges)
        self.events_sent = len(self.stripe.events)
        self.clients = [client_of(self.stripe, account=account) for account in (0, 1)]
        self.refunds = [requested(number, amount) for number, amount in enumerate(AMOUNTS_MINOR)]
        self.said: dict[str, RefundState] = {}
        self.said_failed: set[str] = set()
        self.spent: set[str] = set()
        # What mutants break.
        self.gateway: type[StripeGateway] = StripeGateway
        self.consumer = Consumer(
            model=RefundRequestedEvent,
            handle=self._make_refund,
            queue=self,  # type: ignore[arg-type]  # World's change_visibility and dead_letter.
            logger=SILENT,
            count=self.met,
            jitter=lambda: 0.5,
        )

    @property
    def rows(self) -> dict[RowKey, Item]:
        """The Refunds table."""
        return self.dynamodb.tables.setdefault(REFUNDS, {})

    def _make_refund(self, event: RefundRequestedEvent) -> Disposition:
        """A delivery, through a client of the account that the API key is of when it begins."""
        gateway = self.gateway(self.clients[self.stripe.account])
        return refund_charge(event, refund_tools_of(self.service.store, gateway, self.clock, count=self.met))

    def _stripe_sends(self, probability: float) -> bool:
        """Each event as soon as it is there, once or several times."""
        new = self.stripe.events[self.events_sent :]
        for event in new:
            for _ in range(1 + self.choices.pick(3)):
                self.send_webhook(event)
        self.events_sent += len(new)
        return bool(new)

    def _receive_event(self, event: Mapping[str, Any], report: Callable[[str], None]) -> bool:
        self.service.refund_gateway = StripeGateway(self.clients[self.stripe.account])
        return super()._receive_event(event, report)

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if table != REFUNDS or new is None:
            return
        refund_id, state = new["refund_id"]["S"], RefundState(new["state"]["S"])
        if old is not None:
            self.versions.setdefault((ORDER_ID, refund_id), []).append(old)
        if state is not RefundState.PENDING:
            self.said[refund_id] = state
        if "sending_stopped_at" in new:
            self.spent.add(refund_id)
        if state is RefundState.FAILED:
            self.said_failed.add(refund_id)
        self._note(f"{self.current and self.current.name} writes {refund_id[-1]}: {state}")

    # ------------------------------------------------------------ the schedule

    def run(self) -> None:
        """Deliver with faults, then without, until all is idle; raises Violation when an invariant breaks."""
        for event in self.refunds:
            for _ in range(self.scenario.copies):
                self.send(event)
        self.run_until_idle()
        for _ in range(self.scenario.redeliveries):
            self.pass_time(self.one_of(self.scenario.waits_seconds))
            self.send(self.refunds[self.choices.pick(len(self.refunds))])
            self.run_until_idle()
        self.faults_on, self.stripe.account = False, 0
        for _ in range(3):
            # The order service asks again for what it still waits for; the last 500 is executed.
            for event in self.refunds:
                if self.state_of(event) in (None, RefundState.PENDING):
                    self.send(event)
            self._send_what_is_not_acknowledged()
            self.pass_time(2 * DAY)
            self.run_until_idle()
        self._send_what_is_not_acknowledged()
        self.check_the_end()
        # The scheduled run reads each event once more, the newest first.
        for told in reversed(self.stripe.events):
            self.send_webhook(told)
            self.run_until_idle()
        self.check_the_end()
        self.check_the_sum()

    def _let_others_act(self) -> None:
        super()._let_others_act()
        scenario = self.scenario
        if self.choices.happens(scenario.pause_probability):
            seconds = self.one_of(scenario.pauses_seconds)
            while self.workers and seconds >= WORKER_LIVES_SECONDS:
                # Nobody lives so long, and no request is under way so long.
                self._note(
                    f"{self.workers[0].name} is killed at {self.workers[0].label}", fault="killed at the time-out"
                )
                self.crash(self.workers[0])
            self.pass_time(seconds, fault="delay")
        if len(self.stripe.events) >= _EVENTS_MAX:
            return
        if scenario.by_hand and self.choices.happens(0.02):
            self.stripe.refund_in_dashboard(PAYMENT_INTENT, 500)
            self._note("somebody refunds by hand", fault="by hand")
        made = [each for each in self.stripe.refunds if each.is_live]
        if scenario.holds and made and self.choices.happens(0.1):
            reason = (None, "insufficient_funds", "processing")[self.choices.pick(3)]
            held = made[self.choices.pick(len(made))]
            self._note(f"{held.id} is pending: {reason}", fault="held")
            self.stripe.hold_refund(held, reason)
        if made and (scenario.banks_return or scenario.by_hand) and self.choices.happens(0.02):
            returned = made[self.choices.pick(len(made))]
            self._note(f"the bank returns {returned.id}", fault="bank returns")
            self.stripe.return_refund(returned)

    def _put_back(self, key: RowKey, number: int) -> None:
        self.rows[key] = self.versions[key][number]

    def _is_elsewhere(self, key: RowKey) -> bool:
        return False

    # ------------------------------------------------------------ invariants

    def state_of(self, event: RefundRequestedEvent) -> RefundState | None:
        row = self.rows.get((ORDER_ID, event.data.refund_id))
        return RefundState(row["state"]["S"]) if row else None

    def check(self) -> None:
        """Never more than was asked for, and never any of what is said to have failed."""
        super().check()
        replayed = max(self.stripe.refusals_replayed.values(), default=0)
        is_again_and_again = replayed > _REFUSALS_REPLAYED_MAX + sum(self.coverage[each] for each in _CRASHES)
        # A row that was lost begins with its first key again, and an old refund uses only that one.
        if is_again_and_again and not self.lost and self.time < T0 + 20 * HOUR:
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
            made = any(each.metadata.get("refund_id") == refund_id for each in self.stripe.refunds)
            if state is RefundState.FAILED and not made and not self.scenario.by_hand:
                raise Violation(f"{refund_id} FAILED for nothing", self.timeline)
