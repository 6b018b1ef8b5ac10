"""One order in a table in memory, and the order service's functions that write it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Self

import pytest

from onecharge.contract.events import PaymentEventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.runtime.consumer import Done
from onecharge.runtime.dynamodb import from_item, to_item
from onecharge.runtime.http_api import Problem
from orders_api.place_order import OrderRequest, store_order
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.fixed_prices import price_of
from tests.support.harness import Log, create_table
from update_order.payment_outcomes import update_order

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
CUSTOMER = "cus_1"
REQUEST: Any = SimpleNamespace(subject=CUSTOMER, correlation_id="c")
ORDER = {"currency": "EUR", "payment_method": "pm_card_visa", "items": [{"sku": "mug", "quantity": 2}]}


@dataclass(frozen=True)
class OneOrder:
    """One order, and what the functions do with it."""

    client: Any
    table: str
    order_id: str
    counted: list[str]

    @classmethod
    def placed(cls) -> Self:
        client: Any = MemoryDynamoDB()
        table = create_table(client, "orders", "OrdersTable")
        deps: Any = SimpleNamespace(orders=OrderStore(client, table), shop="s", price_of=price_of, clock=lambda: NOW)
        order, _ = store_order(REQUEST, deps, OrderRequest.model_validate(ORDER), "key")
        return cls(client, table, order.order_id, [])

    @property
    def orders(self) -> OrderStore:
        return OrderStore(self.client, self.table)

    @property
    def order(self) -> StoredOrder:
        order = self.orders.find(self.order_id)
        assert order
        return order

    @property
    def item(self) -> dict[str, Any]:
        key = to_item({"order_id": self.order_id})
        return from_item(self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)["Item"])

    def clear(self, *names: str) -> None:
        """Take these attributes from the item."""
        key, update = to_item({"order_id": self.order_id}), f"REMOVE {', '.join(names)}"
        self.client.update_item(TableName=self.table, Key=key, UpdateExpression=update)

    def set_status(self, status: OrderStatus, **changes: Any) -> None:
        changes = {"status": status, **changes}
        self.client.update_item(
            TableName=self.table,
            Key=to_item({"order_id": self.order_id}),
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
            ExpressionAttributeNames={f"#{name}": name for name in changes},
            ExpressionAttributeValues=to_item({f":{name}": value for name, value in changes.items()}),
        )

    def payment(self, event_type: PaymentEventType, attempt: int = 1, **data: Any) -> None:
        """Handle a payment's outcome, of the row's next revision unless another is given."""
        values = {"order_id": self.order_id, "attempt": attempt, "amount_minor": 2500, "currency": "EUR"}
        outcome = PaymentOutcome.model_validate(
            {**values, "occurred_at": NOW, "revision": 1 + len(self.counted), **data}
        )
        event = PaymentOutcomeEvent.of(event_type, outcome, correlation_id="c")
        assert update_order(event, orders=self.orders, logger=Log().logger, count=self.counted.append) == Done()


def refused(call: Callable[[], object]) -> str:
    """The kind of the problem that the call is refused with."""
    with pytest.raises(Problem) as problem:
        call()
    return problem.value.kind
