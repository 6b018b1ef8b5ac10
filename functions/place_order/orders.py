"""The Orders table: an order is stored once, under an id that derives from its customer and idempotency key.

The stored item is the outbox: the table's stream carries it to publish_events, so that there is no second write
that could be lost between "stored" and "published".
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from onecharge.dynamodb import from_item, to_item
from onecharge.events import CustomerId, PaymentMethodId
from onecharge.money import MAX_AMOUNT_MINOR, AmountMinor, Currency, require_chargeable
from onecharge.orders import new_order_item, order_id_for
from onecharge.states import OrderStatus

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class Item(BaseModel):
    """One line of an order."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sku: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,64}$")]
    quantity: Annotated[int, Field(ge=1, le=10_000)]
    unit_amount: AmountMinor


class OrderRequest(BaseModel):
    """The body of POST /orders. Amounts are integers, in the minor unit of the currency."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    customer_id: CustomerId
    currency: Currency
    payment_method: PaymentMethodId
    items: Annotated[list[Item], Field(min_length=1, max_length=100)]

    @property
    def amount_minor(self) -> int:
        return sum(item.quantity * item.unit_amount for item in self.items)

    @property
    def fingerprint(self) -> str:
        """The same for two bodies that mean the same, whatever their white space and order of names."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @model_validator(mode="after")
    def _amount_can_be_charged(self) -> Self:
        if self.amount_minor > MAX_AMOUNT_MINOR:
            raise PydanticCustomError("amount_too_large", "The order's amount is larger than can be charged at once")
        require_chargeable(self.amount_minor, self.currency)
        return self


@dataclass(frozen=True)
class StoredOrder:
    """An order as it stands in the table."""

    order_id: str
    status: OrderStatus
    amount_minor: int
    currency: str
    fingerprint: str
    correlation_id: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "StoredOrder":
        values = from_item(item)
        return cls(
            order_id=values["order_id"],
            status=OrderStatus(values["status"]),
            amount_minor=values["amount_minor"],
            currency=values["currency"],
            fingerprint=values["fingerprint"],
            correlation_id=values["correlation_id"],
        )


class KeyReused(Exception):
    """The idempotency key stands for another order already."""


@dataclass(frozen=True)
class Orders:
    """The Orders table through boto3's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    def place(
        self, request: OrderRequest, idempotency_key: str, *, correlation_id: str, now: datetime
    ) -> tuple[StoredOrder, bool]:
        """Store the order, or find it stored by an earlier try; says whether it is new.

        Raises:
            KeyReused: the customer used this key before, for an order with another body.
        """
        order_id = order_id_for(request.customer_id, idempotency_key)
        lines = [line.model_dump() for line in request.items]
        item = new_order_item(order_id, request, correlation_id=correlation_id, now=now, items=lines)
        try:
            self.client.put_item(
                TableName=self.table,
                Item=item,
                ConditionExpression="attribute_not_exists(order_id)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            earlier = StoredOrder.of(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            if earlier.fingerprint != request.fingerprint:
                raise KeyReused from None
            return earlier, False
        return StoredOrder.of(item), True

    def find(self, order_id: str) -> StoredOrder | None:
        answer = self.client.get_item(TableName=self.table, Key=to_item({"order_id": order_id}), ConsistentRead=True)
        return StoredOrder.of(answer["Item"]) if "Item" in answer else None
