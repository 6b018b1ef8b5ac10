"""The Orders table as the API writes and reads it; the payment's outcomes are written by update_order.

An order is stored once, under an id that derives from its customer and idempotency key.

The stored item is the outbox: the table's stream carries it to publish_events, so that there is no second write
that could be lost between "stored" and "published".
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from onecharge.dynamodb import from_item, to_item
from onecharge.events import CustomerId, OrderPlacedEvent, PaymentMethodId
from onecharge.money import MAX_AMOUNT_MINOR, AmountMinor, Currency, require_chargeable
from onecharge.orders import RETENTION_SECONDS, new_order_item, order_id_for, order_placed
from onecharge.states import OrderStatus

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_dynamodb import DynamoDBClient


BY_CUSTOMER = "by_customer"
"""The index from which a customer's orders are read; it is a moment behind the table."""


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


class PaymentRequest(BaseModel):
    """The body of POST /orders/{order_id}/payments: another card, after the one before was declined."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    payment_method: PaymentMethodId


@dataclass(frozen=True)
class Outcome:
    """What one attempt came to: where it moved the order, and why."""

    attempt: int
    status: OrderStatus
    decline_code: str | None = None
    client_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class StoredOrder:
    """An order as it stands in the table."""

    order_id: str
    status: OrderStatus
    amount_minor: int
    currency: str
    fingerprint: str
    correlation_id: str
    customer_id: str
    placed_at: str
    attempt: int
    """Which attempt to pay it is the present one."""
    attempt_key: str | None
    """Digest of the idempotency key and payment method that made the present attempt, if it is not the first."""
    refunded_minor: int
    """What is refunded, or being refunded."""
    outcomes: tuple[Outcome, ...]
    event: OrderPlacedEvent
    """What the present attempt was published as."""

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
            customer_id=values["customer_id"],
            placed_at=values["placed_at"],
            attempt=values["attempt"],
            attempt_key=values.get("attempt_key"),
            refunded_minor=values.get("refunded_minor", 0),
            outcomes=_outcomes_of(values.get("outcomes", {})),
            event=order_placed(values),
        )


def _outcomes_of(stored: Mapping[str, Mapping[str, str]]) -> tuple[Outcome, ...]:
    by_attempt = sorted((int(attempt), outcome) for attempt, outcome in stored.items())
    return tuple(
        Outcome(attempt, OrderStatus(each["status"]), each.get("decline_code"), each.get("client_secret"))
        for attempt, each in by_attempt
    )


class KeyReused(Exception):
    """The idempotency key stands for another order already."""


class NoSuchOrder(Exception):
    """There is no order of this id."""


class NotNow(Exception):
    """The order does not stand where it would have to for this."""

    def __init__(self, order: StoredOrder) -> None:
        super().__init__(order.status)
        self.order = order


@dataclass(frozen=True)
class OrderPage:
    """Some of a customer's orders, the newest first; `after` says where the next page begins, None at the end."""

    orders: tuple[StoredOrder, ...]
    after: "Place | None"


@dataclass(frozen=True)
class Place:
    """Where a page ended: the last order on it."""

    order_id: str
    placed_at: str


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

    def pay_again(
        self, order_id: str, payment_method: str, idempotency_key: str, *, now: datetime
    ) -> tuple[StoredOrder, bool]:
        """Make the next attempt, with another card; says whether it is new, or was made by an earlier try.

        The condition is what makes two of these at once one attempt: only the first finds the order declined.

        Raises:
            NoSuchOrder: there is none.
            NotNow: the order is not declined.
        """
        attempt_key = hashlib.sha256(json.dumps([idempotency_key, payment_method]).encode()).hexdigest()
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression="SET #status = :pending, attempt = attempt + :one, payment_method = :payment_method, "
                "attempt_placed_at = :now, attempt_key = :attempt_key, expires_at = :expires_at",
                ConditionExpression="#status = :declined",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues=to_item(
                    {
                        ":pending": OrderStatus.PENDING,
                        ":declined": OrderStatus.PAYMENT_DECLINED,
                        ":one": 1,
                        ":payment_method": payment_method,
                        ":now": now.isoformat(),
                        ":attempt_key": attempt_key,
                        ":expires_at": int(now.timestamp()) + RETENTION_SECONDS,
                    }
                ),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            order = _refused(refused)
            if order.attempt_key == attempt_key:
                return order, False
            raise NotNow(order) from None
        return StoredOrder.of(answer["Attributes"]), True

    def cancel(self, order: StoredOrder) -> StoredOrder:
        """Write that the order is canceled, if it stands as it was read. Raises NoSuchOrder, NotNow."""
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order.order_id}),
                UpdateExpression="SET #status = :canceled",
                ConditionExpression="attempt = :attempt AND #status IN (:pending, :declined, :waiting, :canceled)",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues=to_item(
                    {
                        ":attempt": order.attempt,
                        ":pending": OrderStatus.PENDING,
                        ":declined": OrderStatus.PAYMENT_DECLINED,
                        ":waiting": OrderStatus.REQUIRES_ACTION,
                        ":canceled": OrderStatus.CANCELED,
                    }
                ),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise NotNow(_refused(refused)) from None
        return StoredOrder.of(answer["Attributes"])

    def of_customer(self, customer_id: str, *, after: Place | None, limit: int) -> OrderPage:
        """So many of the customer's orders, the newest first, from there on."""
        start = {"order_id": after.order_id, "placed_at": after.placed_at, "customer_id": customer_id} if after else {}
        answer = self.client.query(
            TableName=self.table,
            IndexName=BY_CUSTOMER,
            KeyConditionExpression="customer_id = :customer_id",
            ExpressionAttributeValues=to_item({":customer_id": customer_id}),
            ScanIndexForward=False,
            Limit=limit,
            **({"ExclusiveStartKey": to_item(start)} if start else {}),  # type: ignore[arg-type]  # One argument.
        )
        last = answer.get("LastEvaluatedKey")
        values = from_item(last) if last else None
        return OrderPage(
            tuple(StoredOrder.of(item) for item in answer["Items"]),
            Place(values["order_id"], values["placed_at"]) if values else None,
        )

    def find(self, order_id: str) -> StoredOrder | None:
        answer = self.client.get_item(TableName=self.table, Key=to_item({"order_id": order_id}), ConsistentRead=True)
        return StoredOrder.of(answer["Item"]) if "Item" in answer else None


def _refused(refused: "ClientError") -> StoredOrder:
    """The order as the refusal shows it. Raises NoSuchOrder."""
    if "Item" not in refused.response:
        raise NoSuchOrder from None
    return StoredOrder.of(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
