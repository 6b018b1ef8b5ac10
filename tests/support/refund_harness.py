"""refund_charge: deliveries and events of an order's refunds, over DynamoDB in memory and Stripe in process."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.payments.apply_event import RefundDiscrepancy, apply_event
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.refund import RefundTools
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_events import RefundEvent
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.dynamodb import from_item
from onecharge.runtime.parallel import one_after_another
from refund_charge.refund import refund_charge
from stripe_standin.refunds import Refund
from tests.shop.dynamodb import Faults, MemoryDynamoDB
from tests.shop.paid_order import (
    BOUNDS,
    ORDER_ID,
    PAYMENT_INTENT,
    PAYMENTS,
    REFUNDS,
    T0,
    charged,
    paid,
    requested,
)
from tests.shop.stripe import ShopStripe, client_of
from tests.support.silent import SILENT
from tests.support.tools import charge_tools, reconcile_tools, refund_tools

EVENT = requested(0, 400)
REFUND_ID = EVENT.data.refund_id
OTHER_REFUND_ID = "rfd_" + "b" * 32


class Moments(Faults):
    """Something happens at a boundary, once: `at[3]` at the fourth one, `at["stripe refund"]` at the next of a name."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.at: dict[int | str, Callable[[], object]] = {}
        self.passed = 0

    def pause(self, where: str) -> None:
        happens = self.at.pop(self.passed, None) or self.at.pop(where, None)
        self.passed += 1
        if happens:
            happens()


def crash() -> None:
    raise KeyboardInterrupt


def requested_with(**changes: Any) -> RefundRequestedEvent:
    """The refund's message with other data."""
    return EVENT.model_copy(update={"data": EVENT.data.model_copy(update=changes)})


@dataclass
class RefundHarness:
    """The parts of refund_charge, and an order that is paid."""

    counted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.io = Moments(T0 + 1)
        keys = {PAYMENTS: ("order_id",), REFUNDS: ("order_id", "refund_id")}
        self.dynamodb = MemoryDynamoDB(keys=keys, io=self.io)
        self.dynamodb.tables[PAYMENTS] = {(ORDER_ID,): paid()}
        self.stripe = charged(ShopStripe(io=self.io, harsh=True))
        # Stripe does not say which: a refusal that a key replays is never executed, and these may be.
        self.stripe.engine.behavior.stores_refused_refunds = False
        self.payments = PaymentStore(self.dynamodb, PAYMENTS)  # type: ignore[arg-type]  # Its methods, in memory.
        self.store = RefundStore(self.dynamodb, REFUNDS)  # type: ignore[arg-type]

    def tools(self, *, clock_differs: int = 0) -> RefundTools:
        """What the next delivery refunds with: the Stripe key as it is now."""
        instruments = Instruments(lambda: self.io.time + clock_differs, SILENT, self.counted.append)
        return refund_tools(self.store, StripeRefunds(client_of(self.stripe)), instruments)

    def deliver(self, event: RefundRequestedEvent = EVENT, *, clock_differs: int = 0) -> Disposition:
        return refund_charge(event, self.tools(clock_differs=clock_differs), self.payments)

    def happens(self, status: str = "failed", **changes: Any) -> RefundDiscrepancy | None:
        """Stripe sends an event of the first refund; returns how its row differs, None if Stripe is not asked."""
        event = RefundEvent(
            event_id="evt_1",
            type="refund.failed",
            created=T0,
            order_id=ORDER_ID,
            payment_intent_id=PAYMENT_INTENT,
            stripe_refund_id="re_0",
            status=status,
            refund_id=REFUND_ID,
        )
        gateway = StripeGateway(client_of(self.stripe), one_after_another)
        tools = reconcile_tools(charge_tools(self.payments, gateway, self.tools().instruments), self.store)
        already = len(self.counted)
        apply_event(replace(event, **changes), tools)
        found = [each.partition(".")[2] for each in self.counted[already:] if each.startswith("RefundDiscrepancy")]
        return RefundDiscrepancy[found[-1]] if found else None

    def passes(self, seconds: int = BOUNDS.lease_seconds) -> None:
        """So much time goes by: if not said otherwise, a lease expires."""
        self.io.time += seconds
        self.stripe.time_has_passed()

    def loses_the_answer(self) -> None:
        """The refund is made, and this worker does not learn of it."""
        self.io.faults["stripe_refund"] = "drop after"
        self.deliver()
        assert (self.refunded, self.row["state"]) == ([400], "PENDING")

    def made_by_hand(self, amount: int, **metadata: str) -> Refund:
        """A person, or an earlier release, has made this refund."""
        self.stripe.refund_in_dashboard(PAYMENT_INTENT, amount, **metadata)
        return self.stripe.refunds[-1]

    # ------------------------------------------------------------ what there is

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [from_item(row) for row in self.dynamodb.tables.get(REFUNDS, {}).values()]

    @property
    def row(self) -> dict[str, Any]:
        [row] = self.rows
        return row

    def lose_row(self) -> None:
        self.dynamodb.tables[REFUNDS].clear()

    @property
    def refunded(self) -> list[int]:
        """The amounts that Stripe has refunded."""
        return [each.amount for each in self.stripe.refunds if each.is_live]

    @property
    def outcome(self) -> tuple[str, list[int]]:
        """The row's state, and the amounts that Stripe has refunded."""
        return self.row["state"], self.refunded
