"""charge_order in one process: deliveries and cancellations of one order, over fakes at the boundary."""

from dataclasses import dataclass, field
from typing import Any

from charge_order.app import handle
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.payments.charges.cancel import cancel_payment
from onecharge.payments.charges.charge import ChargeTools
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.dynamodb import from_item
from testing.builders import ORDER_ID, T0, order
from testing.fake_gateway import FakeGateway
from testing.silent import SILENT
from testing.simulation.dynamodb import MemoryDynamoDB
from testing.tools import Cancellation, cancellation_of, charge_tools


@dataclass
class ChargeHarness:
    """charge_order's parts over a DynamoDB in memory and a fake gateway, with a clock that the test sets."""

    stripe: FakeGateway = field(default_factory=FakeGateway)
    now: float = T0 + 1
    client: Any = field(default_factory=lambda: MemoryDynamoDB(keys={"payments": ("order_id",)}))
    logger: Any = SILENT
    counted: list[str] = field(default_factory=list)
    ahead: float = 0
    """How many seconds the next worker's clock is ahead."""
    look_up_placed_before: float = 0
    """What LookUpOrdersPlacedBefore is set to, as after a restore."""

    @property
    def gateway(self) -> Any:
        return self.stripe

    @property
    def store(self) -> PaymentStore:
        return PaymentStore(self.client, "payments")

    def tools(self, gateway: Any = None) -> ChargeTools:
        """What the next worker charges with."""
        look_up = int(self.look_up_placed_before)
        return charge_tools(self.store, gateway or self.gateway, self.instruments(), look_up_placed_before=look_up)

    def instruments(self) -> Instruments:
        ahead = self.ahead
        return Instruments(lambda: self.now + ahead, self.logger, self.counted.append)

    def deliver(self, event: OrderPlacedEvent | CancelRequestedEvent | None = None, **changes: Any) -> Disposition:
        """One delivery of the order's message, with these changes of the order's data; or of another event."""
        return handle(event or OrderPlacedEvent.of(order(**changes), correlation_id="c"), self.tools())

    def cancel(self, **changes: Any) -> Cancellation:
        """The customer's cancellation, while the customer waits."""
        payment = cancel_payment(order(**changes), self.tools(), correlation_id="c")
        return cancellation_of(payment)

    @property
    def row(self) -> dict[str, Any]:
        """The order's item, as it is stored."""
        [item] = self.client.scan(TableName="payments")["Items"]
        return from_item(item)

    def lose_row(self) -> None:
        self.client.delete_item(TableName="payments", Key={"order_id": {"S": ORDER_ID}})
