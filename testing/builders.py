"""What several suites build: an order, its payment, what Stripe shows of it; the service around a fake Stripe."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from charge_order.charge import ChargeOrder
from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.events import OrderPlaced, OrderPlacedEvent
from onecharge.contract.questions import Cancellation
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.protocol import FoundIntent, FrozenRequest, Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.dynamodb import from_item
from testing.fake_stripe import FakeStripe
from testing.silent import SILENT
from testing.simulation.dynamodb import MemoryDynamoDB

T0 = 1_800_000_000
"""When the order is placed, in epoch seconds."""
ORDER_ID = "ord_" + "a" * 32
BOUNDS = TimeBounds.of(30)


def order(**changes: Any) -> OrderPlaced:
    """An order of 10.99 EUR, first attempt, placed at T0."""
    placed = {
        "order_id": ORDER_ID,
        "attempt": 1,
        "customer_id": "cus_1",
        "amount_minor": 1099,
        "currency": "EUR",
        "payment_method": "pm_card_visa",
        "placed_at": datetime.fromtimestamp(T0, UTC),
    }
    return OrderPlaced.model_validate(placed | changes)


REQUEST = FrozenRequest.of(order())


def payment(**changes: Any) -> Payment:
    """The claimed row of that order, its PaymentIntent `pi_1` written down."""
    row: dict[str, Any] = {
        "request": REQUEST,
        "attempt": 1,
        "payment_method": "pm_card_visa",
        "state": PaymentState.PENDING,
        "payment_intent_id": "pi_1",
        "lease_owner": "owner",
        "lease_expires_at": T0 + 35,
        "revision": 2,
        "claimed_at": T0,
        "attempt_claimed_at": T0,
        "correlation_id": "c",
    }
    return Payment(**(row | changes))


def intent(status: str = "succeeded", **changes: Any) -> FoundIntent:
    """`pi_1` of that order, as Stripe shows it."""
    shown: dict[str, Any] = {
        "payment_intent_id": "pi_1",
        "status": status,
        "amount_minor": 1099,
        "currency": "EUR",
        "customer_id": "cus_1",
        "placed_at": T0,
    }
    return FoundIntent(**(shown | changes))


@dataclass
class PaymentService:
    """charge_order's parts over a DynamoDB in memory and a fake Stripe, with a clock that the test sets."""

    stripe: FakeStripe = field(default_factory=FakeStripe)
    now: float = T0 + 1
    client: Any = field(default_factory=lambda: MemoryDynamoDB(keys={"payments": ("order_id",)}))
    logger: Any = SILENT
    counted: list[str] = field(default_factory=list)
    ahead: float = 0
    """How far the clock of the worker that is called next is ahead."""

    @property
    def store(self) -> PaymentStore:
        return PaymentStore(self.client, "payments")

    def worker(self, gateway: Any = None, clock: Callable[[], float] | None = None) -> PaymentWorker:
        return PaymentWorker(
            store=self.store,
            gateway=gateway or self.stripe,  # type: ignore[arg-type]  # Its methods, without its HTTP client.
            clock=clock or self.clock(),
            logger=self.logger,
            count=self.counted.append,
        )

    def clock(self) -> Callable[[], float]:
        ahead = self.ahead
        return lambda: self.now + ahead

    def deliver(self, event: OrderPlacedEvent | CancelRequestedEvent | None = None, **changes: Any) -> Disposition:
        """One delivery of the order's message, or of an attempt that differs from it so."""
        clock = self.clock()
        charge_order = ChargeOrder(
            store=self.store,
            worker=self.worker(clock=clock),
            bounds=BOUNDS,
            clock=clock,
            logger=self.logger,
            count=self.counted.append,
        )
        return charge_order(event or OrderPlacedEvent.of(order(**changes), correlation_id="c"))

    def cancel(self, **changes: Any) -> Cancellation:
        """The customer's cancellation, asked for synchronously."""
        clock = self.clock()
        cancel = CancelPayment(
            store=self.store,
            worker=self.worker(clock=clock),
            bounds=BOUNDS,
            clock=clock,
            logger=self.logger,
            count=self.counted.append,
        )
        return cancel(order(**changes), correlation_id="c")[0]

    @property
    def row(self) -> dict[str, Any]:
        """The order's item, as it is stored."""
        [item] = self.client.scan(TableName="payments")["Items"]
        return from_item(item)

    def lose_row(self) -> None:
        self.client.delete_item(TableName="payments", Key={"order_id": {"S": ORDER_ID}})
