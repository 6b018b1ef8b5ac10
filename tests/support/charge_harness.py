"""charge_order: deliveries and cancellations of one order, over DynamoDB in memory and Stripe in process."""

from dataclasses import dataclass, field
from typing import Any

from charge_order.app import handle
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.payments.charges.cancel import cancel_payment
from onecharge.payments.charges.charge import ChargeTools
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.dynamodb import from_item
from tests.shop.dynamodb import Faults, MemoryDynamoDB
from tests.shop.stripe import client_of
from tests.support.builders import BOUNDS, ORDER_ID, REQUEST, T0, order
from tests.support.scripted_stripe import ScriptedStripe
from tests.support.silent import SILENT
from tests.support.tools import Cancellation, cancellation_of, charge_tools


@dataclass
class ChargeHarness:
    """charge_order's parts, with a clock that the test sets."""

    logger: Any = SILENT
    counted: list[str] = field(default_factory=list)
    ahead: int = 0
    """How many seconds the next worker's clock is ahead."""
    look_up_placed_before: int = 0
    """What LookUpOrdersPlacedBefore is set to, as after a restore."""

    def __post_init__(self) -> None:
        self.io = Faults(T0 + 1)
        self.dynamodb = MemoryDynamoDB(keys={"payments": ("order_id",)}, io=self.io)
        self.store = PaymentStore(self.dynamodb, "payments")  # type: ignore[arg-type]  # Its methods, in memory.
        self.stripe = ScriptedStripe(io=self.io)
        self.gateway = StripeGateway(self.stripe.client())

    @property
    def now(self) -> int:
        return self.io.time

    @now.setter
    def now(self, now: float) -> None:
        self.io.time = int(now)

    def passes(self, seconds: int = BOUNDS.lease_seconds) -> None:
        """So much time goes by: if not said otherwise, a lease expires."""
        self.io.time += seconds

    def tools(self) -> ChargeTools:
        """What a worker that begins now charges with."""
        ahead = self.ahead
        instruments = Instruments(lambda: self.now + ahead, self.logger, self.counted.append)
        return charge_tools(self.store, self.gateway, instruments, look_up_placed_before=self.look_up_placed_before)

    def deliver(self, event: OrderPlacedEvent | CancelRequestedEvent | None = None, **changes: Any) -> Disposition:
        """One delivery of the order's message, with these changes of the order's data; or of another event."""
        return handle(event or OrderPlacedEvent.of(order(**changes), correlation_id="c"), self.tools())

    def cancel(self, **changes: Any) -> Cancellation:
        """The customer's cancellation, while the customer waits."""
        return cancellation_of(cancel_payment(order(**changes), self.tools(), correlation_id="c"))

    def made_before(self, status: str | None = None, *, key: str | None = None, **changes: Any) -> str:
        """Stripe has a PaymentIntent of the order that no row names; returns its id."""
        key = key or f"another key {len(self.stripe.intents)}"
        metadata = {"order_id": ORDER_ID, "customer_id": "cus_1", "placed_at": str(T0), "generation": "0"}
        money = {"amount": REQUEST.amount_minor, "currency": REQUEST.currency.lower()}
        client = client_of(self.stripe)
        made = client.v1.payment_intents.create({**money, "metadata": metadata}, {"idempotency_key": key})
        self.stripe.show(made.id, status, **changes)
        return str(made.id)

    # ------------------------------------------------------------ the row

    @property
    def row(self) -> dict[str, Any]:
        """The order's item, as it is stored."""
        [item] = self.dynamodb.scan(TableName="payments")["Items"]
        return from_item(item)

    @property
    def outcome(self) -> tuple[str, str | None]:
        """The row's state, and its PaymentIntent."""
        return self.row["state"], self.row.get("payment_intent_id")

    def lose_row(self) -> None:
        self.dynamodb.delete_item(TableName="payments", Key={"order_id": {"S": ORDER_ID}})

    def saved(self) -> dict[str, Any]:
        """The item, to be restored later."""
        [item] = self.dynamodb.scan(TableName="payments")["Items"]
        return dict(item)

    def restore(self, item: dict[str, Any]) -> None:
        self.dynamodb.put_item(TableName="payments", Item=item)
