"""One schedule of refunds: an order is paid, and its refunds are delivered with crashes and faults, in the same world.

The order service has reserved each amount before it is asked for, so together they are what was paid and no more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import TypeAdapter

from onecharge.deliveries import Consumer, Disposition
from onecharge.events import OrderPlacedEvent, RefundRequested, RefundRequestedEvent
from onecharge.states import RefundState
from refund_charge.ledger import RefundLedger
from refund_charge.refund import RefundCharge
from refund_charge.stripe_refunds import StripeRefunds
from tests.silent import SILENT
from tests.simulation.dynamodb import Item
from tests.simulation.service import BOUNDS
from tests.simulation.world import Violation, Worker, World

REFUND_LEDGER = "RefundLedger"
AMOUNTS_MINOR = (400, 400, 299)
"""Together all of the order's 1099."""


@dataclass
class RefundWorld(World):
    """A world in which refunds are delivered; `break_refunds` breaks their protocol on purpose."""

    break_refunds: Callable[["RefundWorld"], None] = lambda world: None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dynamodb.keys = {**self.dynamodb.keys, REFUND_LEDGER: ("order_id", "refund_id")}
        self.refund_charge = RefundCharge(
            charges=self.service.charge_order.ledger,
            ledger=RefundLedger(self.dynamodb, REFUND_LEDGER),  # type: ignore[arg-type]  # The methods that are used.
            refunds=StripeRefunds(self.service.charge_order.gateway.client),
            lease_seconds=BOUNDS.lease_seconds,
            clock=lambda: self.time,
            logger=SILENT,
            count=SILENT,
        )
        self.break_refunds(self)
        self.refund_states: dict[str, RefundState] = {}
        self.refund_holders: dict[str, Worker | None] = {}
        self.consumer: Consumer[OrderPlacedEvent | RefundRequestedEvent] = Consumer(  # type: ignore[assignment]
            model=TypeAdapter(OrderPlacedEvent | RefundRequestedEvent),
            handle=self._handle,
            queue=self,  # type: ignore[arg-type]  # hide and dead_letter.
            logger=SILENT,
            count=SILENT,
            threads=None,  # type: ignore[arg-type]  # Deliveries run as greenlets here.
            jitter=lambda: 0.5,
        )

    def _handle(self, event: OrderPlacedEvent | RefundRequestedEvent) -> Disposition:
        return (
            self.refund_charge(event) if isinstance(event, RefundRequestedEvent) else self.service.charge_order(event)
        )

    def run(self) -> None:
        """Pay, refund with faults, then without; raises Violation when an invariant breaks."""
        self.faults_on = False
        self.send(self.orders[0])
        self.until_quiet()
        self.faults_on = True
        refunds = [self.refund(number, amount) for number, amount in enumerate(AMOUNTS_MINOR)]
        for refund in refunds:
            for _ in range(self.scenario.copies):
                self._send(refund.model_dump_json())
        self.until_quiet()
        for _ in range(self.scenario.redeliveries):
            self._wait_for_long()
            self._maybe_lose_a_refund()
            self._redrive()
            self._send(refunds[self.choices.pick(len(refunds))].model_dump_json())
            self.until_quiet()
        while self.to_be_redriven:
            self._wait_for_long()
            self._redrive()
            self.until_quiet()
        self.faults_on = False
        for refund in refunds:
            self._send(refund.model_dump_json())
        self.until_quiet()
        for refund in refunds:
            self.check_refund(refund)

    def refund(self, number: int, amount_minor: int) -> RefundRequestedEvent:
        requested = RefundRequested(
            order_id=self.orders[0].data.order_id,
            refund_id=f"rfd_{number:032x}",
            attempt=1,
            amount_minor=amount_minor,
            currency="EUR",
            requested_at=datetime.fromtimestamp(self.time, UTC),
        )
        return RefundRequestedEvent.of(requested, correlation_id="c")

    def _maybe_lose_a_refund(self) -> None:
        rows = self.dynamodb.tables.get(REFUND_LEDGER, {})
        if self.scenario.lose_rows and rows and self.choices.happens(0.5):
            key = sorted(rows)[self.choices.pick(len(rows))]
            del rows[key]
            self.refund_states.pop(key[1], None)
            self._note(f"row {key[1][-4:]} lost", fault="row lost")

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if table != REFUND_LEDGER or new is None:
            super().wrote(table, old, new)
            return
        refund_id, state = new["refund_id"]["S"], RefundState(new["state"]["S"])
        before = self.refund_states.get(refund_id, RefundState.CLAIMED)
        if before not in (RefundState.CLAIMED, state):
            self.broken = f"settled refund {refund_id} went from {before} to {state}"
        if old is None or new["fencing_token"] != old["fencing_token"]:
            self.refund_holders[refund_id] = self.current
        elif self.refund_holders[refund_id] is not self.current:
            self.broken = "a worker that had lost its lease wrote to the refund's row"
        self.refund_states[refund_id] = state

    def check(self) -> None:
        """Each refund once, and never more than was paid."""
        super().check()
        made = [refund.metadata["refund_id"] for refund in self.stripe.refunds]
        if len(made) > len(set(made)):
            raise Violation("a refund was made twice", self.timeline)
        captured = sum(charge.amount for charge in self.stripe.charges)
        if captured - sum(refund.amount for refund in self.stripe.refunds) < 0:
            raise Violation("more was refunded than was paid", self.timeline)

    def check_refund(self, refund: RefundRequestedEvent) -> None:
        state = self.refund_states.get(refund.data.refund_id)
        made = [each.amount for each in self.stripe.refunds if each.metadata["refund_id"] == refund.data.refund_id]
        if state is not RefundState.SUCCEEDED or made != [refund.data.amount_minor]:
            raise Violation(f"{refund.id} is {state}, with {made} at Stripe", self.timeline)
